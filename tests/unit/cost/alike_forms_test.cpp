// Forms of parallelism that differ only in the layers that recompute.

#include <catch2/catch.hpp>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "../../support/plans.h"

#include "dapple/cost/cost_model.h"

namespace dapple {
namespace {

using namespace small;

/// Six layers, of which those at positions 1, 2, 4 and 5 can recompute.
ModelProfile keeping_all() {
  return model_of({{.forward = 1, .backward = 2, .stash = 100, .workspace = 3},
                   {.forward = 2, .backward = 3, .stash = 200, .workspace = 5},
                   {.forward = 4, .backward = 5, .stash = 300, .workspace = 7},
                   {.forward = 8, .backward = 9, .stash = 400, .workspace = 1},
                   {.forward = 16, .backward = 17, .stash = 500, .workspace = 2},
                   {.forward = 32, .backward = 33, .stash = 600, .workspace = 4}});
}

bool can_recompute(std::int32_t layer) {
  return layer != 0 && layer != 3;
}

/// The layers with all of those that can recompute.
ModelProfile recomputing_all() {
  ModelProfile profile = keeping_all();
  for (std::int32_t l = 0; l < 6; ++l) {
    if (!can_recompute(l)) continue;
    Layer& layer = profile.layers[static_cast<std::size_t>(l)];
    layer.recomputes = true;
    Measurement& measured = layer.measurements.front();
    measured.backward += measured.forward;
    measured.stash = {10 + l};
    measured.workspace = {1000 + l};
  }
  profile.parallelism = {.recomputes = kWholeLayer};
  return profile;
}

ModelProfile recomputing_some(LayerSelection selection) {
  ModelProfile profile = keeping_all();
  profile.parallelism = {.recomputes = kWholeLayer, .recomputed_layers = selection};
  profile.recomputing.push_back(recomputing_all());
  return profile;
}

/// The positions of the layers that recompute of a stage in that form.
std::vector<std::int32_t> recomputed(const Parallelism& form, LayerRange layers) {
  std::vector<std::int32_t> positions;
  std::int64_t preceding = 0;
  for (std::int32_t l = layers.begin; l < layers.end; ++l) {
    if (form.recomputes.none() || !can_recompute(l)) continue;
    if (form.recomputed_layers.contains(preceding++)) positions.push_back(l);
  }
  return positions;
}

std::vector<std::int64_t> figures(const CostModel& costs, LayerRange layers) {
  const LayerTable& table = costs.table(2, 0);
  return {table.forward(layers).ns, table.backward(layers).ns, table.input_gradient(layers).ns,
          table.stash(layers).count, table.largest_workspace(layers).count};
}

/// Checks all ranges of layers: forms in which the same layers recompute have the same figures. Of
/// those in which only some layers do, one is kept that is like no form of all or none.
void check_forms(const ModelProfile& profile) {
  const Topology topology(cluster({}));
  const CostModel costs(profile, topology);
  for (std::int32_t begin = 0; begin < 6; ++begin) {
    for (std::int32_t end = begin + 1; end <= 6; ++end) {
      const LayerRange layers{begin, end};
      std::map<std::vector<std::int32_t>, std::vector<std::int64_t>> seen;
      std::map<std::vector<std::int32_t>, int> kept;
      std::set<std::vector<std::int32_t>> all_or_none;
      for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
        const CostModel& in_form = costs.in(form);
        const Parallelism& parallelism = in_form.profile().parallelism;
        const auto selected = recomputed(parallelism, layers);
        CAPTURE(begin, end, form.value, selected);
        const auto known = seen.emplace(selected, figures(in_form, layers)).first;
        CHECK(known->second == figures(in_form, layers));
        const bool is_kept = !in_form.repeats_another_form(layers);
        if (parallelism.recomputed_layers.is_all()) {
          CHECK(is_kept);
          all_or_none.insert(selected);
        } else {
          kept[selected] += is_kept ? 1 : 0;
        }
      }
      for (const auto& [selected, count] : kept) {
        CAPTURE(begin, end, selected);
        CHECK(count == (all_or_none.count(selected) > 0 ? 0 : 1));
      }
    }
  }
}

TEST_CASE("of forms in which the same layers of a stage recompute one stands for the others") {
  ModelProfile profile = keeping_all();
  profile.stage_forms = {recomputing_some(LayerSelection::first(3)),
                         recomputing_some(LayerSelection::first(1)),
                         recomputing_all(),
                         recomputing_some(LayerSelection::first(2)),
                         recomputing_some(LayerSelection::every(3)),
                         recomputing_some(LayerSelection::first(9))};
  check_forms(profile);
}

TEST_CASE("a form of fewer layers stands for others where there is none in which all recompute") {
  ModelProfile profile = recomputing_some(LayerSelection::first(4));
  profile.stage_forms = {recomputing_some(LayerSelection::first(2)), keeping_all(),
                         recomputing_some(LayerSelection::first(3))};
  check_forms(profile);
}

TEST_CASE("a form by itself repeats no other, and other degrees are others") {
  const Topology topology(cluster({}));
  ModelProfile profile = recomputing_some(LayerSelection::first(2));
  CHECK(!CostModel(profile, topology).repeats_another_form({0, 1}));
  CHECK(!CostModel(profile, topology).repeats_another_form({0, 6}));
  ModelProfile sequence = recomputing_all();
  sequence.parallelism.sequence = true;
  profile.stage_forms = {sequence};
  const CostModel costs(profile, topology);
  for (std::int32_t end = 1; end <= 6; ++end) {
    CHECK(!costs.repeats_another_form({0, end}));
    CHECK(!costs.in({1}).repeats_another_form({0, end}));
  }
}

}  // namespace
}  // namespace dapple
