#include "dapple/profile/recomputation.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "dapple/profile/parallelism.h"

namespace dapple {
namespace {

TEST_CASE("The text of a recomputation is read as it is written") {
  const RecomputedParts some{RecomputedPart::CoreAttention, RecomputedPart::Norm};
  const std::pair<Recomputation, const char*> texts[] = {
      {{kWholeLayer}, "full"},
      {{kWholeLayer, LayerSelection::first(1)}, "full:1"},
      {{kWholeLayer, LayerSelection::every(2)}, "full:1/2"},
      {{some, LayerSelection::first(100'000)}, "core_attn+norm:100000"},
      {{some, LayerSelection::every(100'000)}, "core_attn+norm:1/100000"}};
  for (const auto& [recomputation, text] : texts) {
    CAPTURE(text);
    CHECK(to_text(recomputation) == text);
    CHECK(dapple::recomputation(text) == recomputation);
  }
  for (const char* text : {"", ":1/2", "full:", "full:0", "full:1/", "full:1/0", "full:1/1",
                           "full:2/3", "full:1/-2", "full:1/2/3", "full:1/100001", "full:100001",
                           "full: 1/2", "full:1/2 ", "full+norm:1/2", "full:1/+2"}) {
    CAPTURE(text);
    CHECK(!recomputation(text));
  }
}

TEST_CASE("Selective recomputation is that of the core of the attention") {
  CHECK(recomputation("selective") == Recomputation{{RecomputedPart::CoreAttention}});
  CHECK(recomputation("selective+norm:1/2") == recomputation("core_attn+norm:1/2"));
  CHECK(!recomputation("selective+core_attn"));
}

TEST_CASE("Every n-th layer is the n-th, the 2n-th and so on") {
  const LayerSelection third = LayerSelection::every(3);
  for (std::int64_t preceding = 0; preceding < 12; ++preceding) {
    CAPTURE(preceding);
    CHECK(third.contains(preceding) ==
          (preceding == 2 || preceding == 5 || preceding == 8 || preceding == 11));
    CHECK(LayerSelection::first(3).contains(preceding) == (preceding < 3));
    CHECK(LayerSelection().contains(preceding));
  }
  CHECK(LayerSelection::first(3).contains_all_of(3));
  CHECK(!LayerSelection::first(3).contains_all_of(4));
  CHECK(!third.contains_all_of(1));
  CHECK(third.contains_all_of(0));
  CHECK(LayerSelection().contains_all_of(9));
}

TEST_CASE("Which layers recompute is said in words") {
  const auto text = [](LayerSelection layers) {
    return recomputation_text({.recomputes = kWholeLayer, .recomputed_layers = layers});
  };
  CHECK(text({}) == "full");
  CHECK(text(LayerSelection::first(1)) == "full in the first layer of a stage");
  CHECK(text(LayerSelection::first(4)) == "full in the first 4 layers of a stage");
  const std::pair<std::int64_t, const char*> ordinals[] = {
      {2, "2nd"},   {3, "3rd"},   {4, "4th"},     {11, "11th"},   {12, "12th"},  {13, "13th"},
      {21, "21st"}, {22, "22nd"}, {111, "111th"}, {112, "112th"}, {122, "122nd"}};
  for (const auto& [n, ordinal] : ordinals) {
    CHECK(text(LayerSelection::every(n)) ==
          std::string("full in every ") + ordinal + " layer of a stage");
  }
}

}  // namespace
}  // namespace dapple
