// Operations and optimizers against what PyTorch computes in double precision, and a Llama against
// that of Hugging Face's library transformers: the files of tests/golden/nn, which
// tools/make_nn_goldens writes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../support/files.h"
#include "../support/module_pass.h"
#include "dapple/io/documents/specification.h"
#include "dapple/nn/optimizer.h"

namespace dapple::nn {
namespace {

using nlohmann::json;

// Largest measured: 9e-7, of single precision's 6e-8 per operation.
constexpr double kTolerance = 1e-5;

std::vector<std::string> files(bool of_optimizers) {
  std::vector<std::string> names;
  const std::filesystem::path folder = test::source_path("tests/golden/nn");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if ((name.rfind("optimizer_", 0) == 0) == of_optimizers) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

json golden(const std::string& name) {
  return json::parse(test::source_file("tests/golden/nn/" + name));
}

Tensor tensor_of(const json& document) {
  return {document.at("shape").get<Shape>(), document.at("values").get<std::vector<float>>()};
}

/// The chain of a file's operations.
std::vector<std::unique_ptr<Module>> modules_of(const json& ops) {
  ModelProfile profile;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Layer layer;
    layer.name = std::to_string(i);
    layer.operation = ops[i].dump();
    if (i > 0) layer.inputs.push_back(index_at<LayerIndex>(i - 1));
    profile.layers.push_back(std::move(layer));
  }
  std::vector<std::unique_ptr<Module>> modules;
  for (const Operation& operation : io::read_operations(profile, "golden")) {
    modules.push_back(make_module(operation));
  }
  return modules;
}

/// A file's chain of modules with its parameters, and the names and gradients that they should get.
class Case {
 public:
  explicit Case(const json& document) : modules_(modules_of(document.at("ops"))) {
    auto given = document.at("parameters").begin();
    for (std::size_t m = 0; m < modules_.size(); ++m) {
      small::ParameterValues& values = parameters_.emplace_back(*modules_[m]);
      gradients_.emplace_back(*modules_[m]);
      for (std::size_t i = 0; i < values.size(); ++i, ++given) {
        const ParameterSpec& spec = modules_[m]->parameters()[i];
        REQUIRE(given->at("name") == std::to_string(m) + "." + spec.name);
        REQUIRE(given->at("shape").get<Shape>() == spec.shape);
        std::ranges::copy(given->at("values").get<std::vector<float>>(), values[i].begin());
        expected_.push_back(given->at("gradient").get<std::vector<double>>());
      }
    }
    REQUIRE(given == document.at("parameters").end());
  }

  Tensor forward(Tensor input, const Tensor& targets) {
    for (std::size_t m = 0; m < modules_.size(); ++m) {
      const Shape sample(input.shape.begin() + 1, input.shape.end());
      passes_.push_back(small::forward(*modules_[m], parameters_[m], std::move(input), targets));
      input = passes_.back().output;
      CHECK(Shape(input.shape.begin() + 1, input.shape.end()) == modules_[m]->output_shape(sample));
    }
    return input;
  }

  Tensor backward(Tensor slope) {
    for (std::size_t m = modules_.size(); m-- > 0;) {
      small::input_gradient(*modules_[m], parameters_[m], std::move(slope), passes_[m]);
      small::weight_gradient(*modules_[m], passes_[m], gradients_[m]);
      CHECK(size_of(passes_[m].stash) == Bytes{0});
      slope = passes_[m].input_gradient;
    }
    return slope;
  }

  void check_gradients() {
    auto expected = expected_.begin();
    for (std::size_t m = 0; m < modules_.size(); ++m) {
      for (std::size_t i = 0; i < gradients_[m].size(); ++i, ++expected) {
        INFO("layer " << m << ": " << modules_[m]->parameters()[i].name);
        CHECK(small::relative_difference(gradients_[m][i], *expected) < kTolerance);
      }
    }
  }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<small::ParameterValues> parameters_;
  std::vector<small::ParameterValues> gradients_;
  std::vector<std::vector<double>> expected_;  // gradients, of all modules
  std::vector<small::Pass> passes_;
};

std::vector<double> numbers_of(const json& document, const std::string& key) {
  return document.at(key).at("values").get<std::vector<double>>();
}

}  // namespace

TEST_CASE("operations and their gradients are those that PyTorch computes") {
  const std::vector<std::string> names = files(false);
  REQUIRE(names.size() == 26);
  for (const std::string& name : names) {
    INFO(name);
    const json document = golden(name);
    Case chain(document);
    const Tensor targets =
        document.contains("targets") ? tensor_of(document.at("targets")) : Tensor{};
    const Tensor output = chain.forward(tensor_of(document.at("input")), targets);
    CHECK(output.shape == document.at("output").at("shape").get<Shape>());
    CHECK(small::relative_difference(output.values, numbers_of(document, "output")) < kTolerance);
    const Tensor gradient = chain.backward(tensor_of(document.at("output_gradient")));
    if (document.contains("input_gradient")) {
      CHECK(gradient.shape == document.at("input").at("shape").get<Shape>());
      CHECK(small::relative_difference(gradient.values, numbers_of(document, "input_gradient")) <
            kTolerance);
    } else {
      CHECK(gradient.values.empty());  // token numbers have none
    }
    chain.check_gradients();
  }
}

TEST_CASE("an optimizer's steps are those of PyTorch's optimizer of that name") {
  const std::vector<std::string> names = files(true);
  REQUIRE(names.size() == 4);
  for (const std::string& name : names) {
    INFO(name);
    const json document = golden(name);
    const json& given = document.at("settings");
    OptimizerSettings settings;
    for (const OptimizerKind kind :
         {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW}) {
      if (given.at("kind") == to_string(kind)) settings.kind = kind;
    }
    REQUIRE(given.at("kind") == to_string(settings.kind));
    settings.learning_rate = given.at("learning_rate");
    settings.momentum = given.value("momentum", settings.momentum);
    settings.beta1 = given.value("beta1", settings.beta1);
    settings.beta2 = given.value("beta2", settings.beta2);
    settings.epsilon = given.value("epsilon", settings.epsilon);
    settings.weight_decay = given.value("weight_decay", settings.weight_decay);
    auto parameters = document.at("parameters").at("values").get<std::vector<float>>();
    std::vector<float> state(parameters.size() *
                             static_cast<std::size_t>(state_count(settings.kind)));
    std::int64_t number = 0;
    for (const json& step : document.at("steps")) {
      const auto gradient = step.at("gradient").get<std::vector<float>>();
      update(settings, ++number, parameters, gradient, state);
      const auto expected = step.at("parameters").get<std::vector<double>>();
      CHECK(small::relative_difference(parameters, expected) < kTolerance);
    }
    CHECK(number == 5);
  }
}

}  // namespace dapple::nn
