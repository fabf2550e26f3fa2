// The shipped specifications as models.

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "../support/files.h"
#include "dapple/io/documents/specification.h"
#include "dapple/nn/model.h"

namespace dapple::nn {

TEST_CASE("the shipped specifications are sound models of the sizes that they state") {
  struct Expected {
    const char* name;
    std::size_t layers;
    std::int64_t parameters;
    Shape input;
  };
  // A block of hidden h and feed-forward 4 h has 12 h^2 + 13 h parameters.
  const std::vector<Expected> shipped{
      // (256 + 64) 64 + 4 (12 * 64^2 + 13 * 64) + 2 * 64
      {"gpt2-tiny", 9, 220'544, {64}},
      // 2 * 256 * 64, and for each block four projections, of which those of keys and values are of
      // half the width, three matrices of 64 * 192 and two norms; one norm behind all
      {"llama-tiny", 8, 2 * 256 * 64 + 4 * (3 * 64 * 64 + 3 * 64 * 192 + 2 * 64) + 64, {64}},
      // (50,257 + 1,024) 768 + 12 (12 * 768^2 + 13 * 768) + 2 * 768: GPT-2's
      {"gpt2-small", 17, 124'439'808, {1'024}},
      {"gpt2-medium", 29, 354'823'168, {1'024}},
      {"bert-base-like", 17, (30'522 + 128) * 768 + 12 * 7'087'872 + 1'536 + 30'522, {128}},
      // Convolutions of VGG-A, 9,220,480 (Simonyan and Zisserman), and 513 (512 + 512 + 10).
      {"vgg-11-like", 28, 9'220'480 + 513 * 1'034, {3, 32, 32}},
      {"mlp", 6, 785 * 512 + 513 * 256 + 257 * 10, {784}},
  };
  for (const Expected& expected : shipped) {
    INFO(expected.name);
    const std::string path = std::string("profiles/") + expected.name + ".json";
    const io::Specification specification = io::read_specification(test::source_file(path), path);
    const std::vector<ModelLayer> model =
        make_model(specification.profile, specification.operations, path);
    CHECK(specification.profile.name == expected.name);
    CHECK(model.size() == expected.layers);
    CHECK(model.front().input == expected.input);
    CHECK(model.back().output.empty());
    std::int64_t parameters = 0;
    for (const ModelLayer& layer : model) parameters += parameter_count(layer.own_parameters());
    CHECK(parameters == expected.parameters);
  }
}

}  // namespace dapple::nn
