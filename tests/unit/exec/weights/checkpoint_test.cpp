// Checkpoints as files, and training that goes on from them.

#include "dapple/exec/weights/checkpoint.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../../support/safetensors_file.h"
#include "../../../support/trainable.h"
#include "dapple/core/error.h"
#include "dapple/exec/train/train.h"

namespace dapple::exec {
namespace {

using namespace small;

Checkpoint example() {
  return {.steps = 12,
          .seed = 7,
          .optimizer = {.kind = nn::OptimizerKind::Momentum, .learning_rate = 0.1F},
          .tensors = {{"a.bias", {.shape = {2}, .values = {1.5F, -0.0F}}},
                      {"a.weight", {.shape = {2, 1}, .values = {3e-42F, 4}}}}};
}

TEST_CASE("a checkpoint comes back as it was, to the last bit") {
  const Checkpoint written = example();
  const std::string bytes = write_checkpoint(written);
  const Checkpoint read = read_checkpoint(bytes, "model");
  CHECK(read.steps == 12);
  CHECK(read.seed == 7);
  CHECK(read.optimizer.kind == nn::OptimizerKind::Momentum);
  CHECK(read.optimizer.learning_rate == 0.1F);
  CHECK(read.optimizer.epsilon == written.optimizer.epsilon);
  REQUIRE(read.tensors.size() == 2);
  for (const auto& [name, tensor] : written.tensors) {
    CHECK(read.tensors.at(name).shape == tensor.shape);
    CHECK(std::memcmp(read.tensors.at(name).values.data(), tensor.values.data(), 8) == 0);
  }
  CHECK(write_checkpoint(read) == bytes);
}

TEST_CASE("the file is what safetensors says it is") {
  const std::string bytes = write_checkpoint(example());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes.size() == 8 + length + 16);  // four floats
  const std::string header = bytes.substr(8, length);
  CHECK(header.find(R"("a.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})") !=
        std::string::npos);
  CHECK(header.find(R"("a.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]})") !=
        std::string::npos);
}

TEST_CASE("what is no checkpoint is refused, and its first fault is named") {
  const std::string metadata =
      R"("__metadata__":{"format":"dapple-checkpoint/1","steps":"1","seed":"1","optimizer":"sgd",)"
      R"("learning_rate":"1","momentum":"0","beta1":"0","beta2":"0","epsilon":"0",)"
      R"("weight_decay":"0"})";
  const auto tensor = [&](const std::string& text) {
    return "{" + metadata + ",\"a\":" + text + "}";
  };
  struct Case {
    std::string bytes;
    std::string message;
  };
  std::string wrong_format = "{" + metadata + "}";
  wrong_format.replace(wrong_format.find("/1"), 2, "/3");
  std::string without_digest = "{" + metadata + "}";
  without_digest.replace(without_digest.find("/1"), 2, "/2");
  std::string short_digest = without_digest;
  short_digest.insert(short_digest.find(R"("steps")"), R"("digest":"0123",)");
  std::string spaced_digest = without_digest;
  spaced_digest.insert(spaced_digest.find(R"("steps")"), R"("digest": "0123456789abcdef",)");
  std::string downgraded = "{" + metadata + "}";
  downgraded.insert(downgraded.find(R"("steps")"), R"("digest":"0123456789abcdef",)");
  std::string wrong_optimizer = "{" + metadata + "}";
  wrong_optimizer.replace(wrong_optimizer.find("sgd"), 3, "lion");
  std::string wrong_steps = "{" + metadata + "}";
  wrong_steps.replace(wrong_steps.find(R"("steps":"1")"), 11, R"("steps":"-1")");
  std::string wrong_rate = "{" + metadata + "}";
  wrong_rate.replace(wrong_rate.find(R"("learning_rate":"1")") + 17, 1, "nan");
  std::string wrong_beta = "{" + metadata + "}";
  wrong_beta.replace(wrong_beta.find(R"("beta1":"0")") + 9, 1, "1");
  const std::vector<Case> cases{
      {"", "m: expected a safetensors file, got 0 bytes in all"},
      {safetensors_file("{}", 0).substr(0, 9),
       "m: bytes 0 to 7: expected the length of a safetensors header, at most 1, got 2"},
      {safetensors_file("[]", 0), "m: header: expected a JSON object, got something else"},
      {std::string(16, '\0'),
       "m: bytes 0 to 7: expected the length of a safetensors header, at least 2, got 0"},
      {std::string("\1\xE1\xF5\5\0\0\0\0", 8) + std::string(100'000'001, ' '),
       "m: bytes 0 to 7: expected the length of a safetensors header, at most 100000000, got "
       "100000001"},
      {safetensors_file("{\"a\":", 0),
       "m: header: line 1, column 6: expected '[', '{', or a literal, got end of input"},
      {safetensors_file("{\"a\":x}", 0),
       "m: header: line 1, column 6: expected a JSON value, got \"x\""},
      {safetensors_file("{\"a\":1,\"b\":2,\"a\":3}", 0),
       "m: /a: expected this key once, got it twice"},
      {safetensors_file(R"({"__metadata__":{"seed":"1","seed":"2"}})", 0),
       "m: /__metadata__/seed: expected this key once, got it twice"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[2],"shape":[1],"data_offsets":[0,4]})"),
                        4),
       "m: /a/shape: expected this key once, got it twice"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[0],"data_offsets":[0,4]})"), 4),
       "m: /a/data_offsets: expected 4 bytes for each number of its shape, got 4"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[9223372036854775807,2,0],)"
                               R"("data_offsets":[0,0]})"),
                        0),
       "m: /a/data_offsets: expected 4 bytes for each number of its shape, got 0"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[18446744073709551615],)"
                               R"("data_offsets":[0,0]})"),
                        0),
       "m: /a/shape: expected a list of whole numbers from 0, got something else"},
      {safetensors_file("{}", 0),
       "m: /__metadata__: expected what dapple-exec train writes there, got none"},
      {safetensors_file(wrong_format, 0),
       "m: /__metadata__/format: expected \"dapple-checkpoint/2\", got "
       "\"dapple-checkpoint/3\""},
      {safetensors_file(without_digest, 0), "m: /__metadata__/digest: expected a text, got none"},
      {safetensors_file(short_digest, 0),
       "m: /__metadata__/digest: expected 16 digits as dapple-exec train writes them, got "
       "\"0123\""},
      {safetensors_file(spaced_digest, 0),
       "m: /__metadata__/digest: expected 16 digits as dapple-exec train writes them, got "
       "\"0123456789abcdef\""},
      {safetensors_file(downgraded, 0),
       "m: /__metadata__/format: expected \"dapple-checkpoint/2\", got "
       "\"dapple-checkpoint/1\""},
      {safetensors_file(wrong_optimizer, 0),
       "m: /__metadata__/optimizer: expected one of sgd, momentum, "
       "adam, adamw, got \"lion\""},
      {safetensors_file(wrong_steps, 0),
       "m: /__metadata__/steps: expected a number from 0 to 1000000000000000, got \"-1\""},
      {safetensors_file(wrong_rate, 0),
       "m: /__metadata__/learning_rate: expected a number from 0 to 3.4028235e+38, got \"nan\""},
      {safetensors_file(wrong_beta, 0),
       "m: /__metadata__/beta1: expected a number from 0 to 0.99999994, got \"1\""},
      {safetensors_file(tensor(R"({"dtype":"F16","shape":[2],"data_offsets":[0,4]})"), 4),
       "m: /a/dtype: expected \"F32\", got \"F16\""},
      {safetensors_file(tensor(R"({"dtype":"F31","shape":[2],"data_offsets":[0,4]})"), 4),
       "m: /a/dtype: expected a type of number, such as \"F32\", got something else"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), 8),
       "m: /a/shape: expected a list of whole numbers from 0, got something else"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), 8),
       "m: /a/data_offsets: expected two whole numbers from 0, got something else"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 7),
       "m: /a/data_offsets: expected a part of the 7 bytes of tensors, got [0, 8)"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8),
       "m: /a/data_offsets: expected 4 bytes for each number of its shape, got 8"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"), 12),
       "m: /a/data_offsets: expected its bytes to begin at 0, got 4"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 9),
       "m: header: expected tensors of 9 bytes, as many as follow, got 8"},
      {safetensors_file(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
                        4),
       "m: /b/data_offsets: expected bytes that no other tensor has, got those of another"}};
  for (const Case& fault : cases) {
    INFO(fault.message);
    try {
      read_checkpoint(fault.bytes, "m");
      FAIL("was read");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::BadInput);
      CHECK(error.what() == fault.message);
    }
  }
}

/// Whether it is refused as a file that is not what it should be.
bool is_refused(const std::string& bytes) {
  try {
    read_checkpoint(bytes, "m");
  } catch (const Error& error) { return error.kind() == ErrorKind::BadInput; }
  return false;
}

TEST_CASE("a checkpoint of which any bit has changed is refused") {
  const std::string bytes = write_checkpoint(example());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    INFO("bit " << bit);
    REQUIRE(is_refused(changed));
  }
}

TEST_CASE("a checkpoint of which anything has been written anew is refused") {
  const std::string bytes = write_checkpoint(example());
  const std::vector<std::pair<std::string, std::string>> changes{
      {R"("steps":"12")", R"("steps":"21")"},
      {R"("seed":"7")", R"("seed":"8")"},
      {R"("learning_rate":"0.1")", R"("learning_rate":"0.7")"},
      {R"("optimizer":"momentum")", R"("optimizer":"adamw"   )"},
      {R"("a.bias")", R"("b.bias")"},
      {R"("shape":[2,1])", R"("shape":[1,2])"},
      {"dapple-checkpoint/2", "dapple-checkpoint/1"},
      {"} ", "}\n"},
      {R"("digest":")", R"("digets":")"},
      {std::string("\0\0\xC0\x3F", 4), std::string("\0\0\xC0\x40", 4)}};
  for (const auto& [before, after] : changes) {
    INFO(before);
    REQUIRE(before.size() == after.size());
    std::string changed = bytes;
    const std::size_t place = changed.find(before);
    if (before == "} " && place == std::string::npos) continue;  // it ends without a blank
    REQUIRE(place != std::string::npos);
    CHECK(is_refused(changed.replace(place, before.size(), after)));
  }
}

TEST_CASE("a wrong digest is named beside the right one") {
  const std::string bytes = write_checkpoint(example());
  const std::size_t place = bytes.find(R"("digest":")") + 10;
  const std::string right = bytes.substr(place, 16);
  const std::string wrong(16, right[0] == '1' ? '2' : '1');
  try {
    read_checkpoint(std::string(bytes).replace(place, 16, wrong), "m");
    FAIL("was read");
  } catch (const Error& error) {
    CHECK(error.what() == "m: /__metadata__/digest: expected " + right +
                              ", that of the file's bytes, got " + wrong +
                              ": the file is not as it was written");
  }
}

TEST_CASE("a checkpoint of version 1, which has no digest, is read and said to be unchecked") {
  std::string bytes = write_checkpoint(example());
  CHECK(read_checkpoint(bytes, "m").is_checked);
  const std::string digest = R"("digest":")";
  bytes.erase(bytes.find(digest), digest.size() + 18);  // with the digits, a quote and a comma
  bytes.replace(bytes.find("dapple-checkpoint/2"), 19, "dapple-checkpoint/1");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  length -= digest.size() + 18;
  std::memcpy(bytes.data(), &length, 8);
  const Checkpoint read = read_checkpoint(bytes, "m");
  CHECK_FALSE(read.is_checked);
  CHECK(read.steps == 12);
  CHECK(write_checkpoint(read) == write_checkpoint(example()));
}

TEST_CASE("tensors may be empty") {
  Checkpoint written = example();
  written.tensors["a.none"] = {.shape = {3, 0, 2}, .values = {}};
  const Checkpoint read = read_checkpoint(write_checkpoint(written), "m");
  REQUIRE(read.tensors.size() == 3);
  CHECK(read.tensors.at("a.none").shape == nn::Shape{3, 0, 2});
  CHECK(read.tensors.at("a.none").values.empty());
}

TEST_CASE("every part of a file that is cut off is refused") {
  const std::string bytes = write_checkpoint(example());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    REQUIRE_THROWS_AS(read_checkpoint(bytes.substr(0, size), "m"), Error);
  }
}

/// A perceptron of two linear layers, always the same, on stages of `devices` replicas each.
struct Placed {
  Trainable model;
  Pipeline pipeline;
};

Placed placed(const std::vector<std::int32_t>& layers, const std::vector<std::int32_t>& replicas,
              std::int64_t micro_batch_size) {
  Dice dice(3401);
  const TrainableShape shape{
      .operations = {LinearOperation{4, 8}, GeluOperation{}, LinearOperation{8, 4},
                     SoftmaxCrossEntropyOperation{.classes = 4}},
      .input = {4},
      .classes = 4};
  Trainable model = trainable(shape, dice);
  PlanShape plan{.micro_batch_size = micro_batch_size, .num_micro_batches = 12 / micro_batch_size};
  std::int32_t device = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    StageShape stage{.layers = layers[s]};
    for (std::int32_t r = 0; r < replicas[s]; ++r) stage.devices.push_back(device++);
    plan.stages.push_back(std::move(stage));
    plan.depths.push_back(static_cast<std::int64_t>(layers.size() - s));
  }
  Pipeline pipeline(model.profile,
                    full_mesh(static_cast<std::size_t>(device), {bytes_per_ns(1), {}}), plan);
  return {std::move(model), std::move(pipeline)};
}

struct TrainingOutcome {
  std::vector<double> losses;
  Checkpoint checkpoint;
};

TrainingOutcome train_for(const Placed& placed, std::int64_t steps,
                          const Checkpoint* start = nullptr) {
  const TrainingSettings settings{.optimizer = {.learning_rate = 0.02F}, .clip_norm = 0.3};
  const TrainingJob job =
      make_training_job(placed.pipeline.plan, placed.model.profile, placed.pipeline.topology,
                        placed.model.layers, placed.model.batches, settings);
  TrainingOutcome outcome;
  TrainOptions options{.steps_before = start != nullptr ? start->steps : 0, .steps = steps};
  options.on_step = [&](const StepReport& step) { outcome.losses.push_back(step.loss); };
  options.save = [&](std::int64_t made, NamedTensors tensors) {
    outcome.checkpoint = {.steps = made,
                          .seed = settings.seed,
                          .optimizer = settings.optimizer,
                          .tensors = std::move(tensors)};
  };
  run_on_threads(job, placed.pipeline.topology, {}, [&](DeviceTraining& device) {
    if (start != nullptr) device.restore(start->tensors);
    train(device, options);
  });
  return outcome;
}

TEST_CASE("training goes on as if it had not been interrupted") {
  const Placed two = placed({2, 2}, {1, 1}, 3);
  const TrainingOutcome whole = train_for(two, 8);
  const TrainingOutcome first = train_for(two, 5);
  const Checkpoint stored = read_checkpoint(write_checkpoint(first.checkpoint), "m");
  REQUIRE(stored.steps == 5);
  REQUIRE_FALSE(restoring_fault(stored, *two.model.layers, nn::OptimizerKind::AdamW));
  const TrainingOutcome rest = train_for(two, 3, &stored);
  CHECK(rest.losses == std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
  CHECK(write_checkpoint(rest.checkpoint) == write_checkpoint(whole.checkpoint));
}

TEST_CASE("training goes on under another plan with the same losses") {
  const TrainingOutcome whole = train_for(placed({2, 2}, {1, 1}, 3), 8);
  const TrainingOutcome first = train_for(placed({2, 2}, {1, 1}, 3), 5);
  const std::vector<double> expected(whole.losses.begin() + 5, whole.losses.end());
  // Other stages with the same micro-batches: the same bits.
  for (const Placed& other : {placed({4}, {1}, 3), placed({1, 2, 1}, {1, 1, 1}, 3)}) {
    CHECK(train_for(other, 3, &first.checkpoint).losses == expected);
  }
  // Other replicas and micro-batches: sums in another order.
  for (const Placed& other : {placed({2, 2}, {2, 1}, 4), placed({1, 3}, {2, 3}, 6)}) {
    const TrainingOutcome rest = train_for(other, 3, &first.checkpoint);
    REQUIRE(rest.losses.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(rest.losses[i] == Approx(expected[i]).epsilon(1e-5));
  }
}

TEST_CASE("a checkpoint of another model or optimizer is refused by name") {
  const Placed one = placed({4}, {1}, 3);
  Checkpoint checkpoint = train_for(one, 1).checkpoint;
  const auto fault_as = [&](nn::OptimizerKind kind) {
    return restoring_fault(checkpoint, *one.model.layers, kind).value_or(Violation{});
  };
  CHECK(fault_as(nn::OptimizerKind::AdamW) == Violation{});
  CHECK(fault_as(nn::OptimizerKind::Adam) == Violation{});  // keeps the same
  CHECK(fault_as(nn::OptimizerKind::Momentum) ==
        Violation{
            "/__metadata__/optimizer",
            "expected momentum, with which training continues, got adamw, whose state is another"});
  checkpoint.tensors.at("layer2.weight").shape = {4, 8};
  CHECK(fault_as(nn::OptimizerKind::AdamW) ==
        Violation{"/layer2.weight", "expected shape [8, 4], got [4, 8]"});
  checkpoint.tensors.erase("layer0.bias");
  CHECK(fault_as(nn::OptimizerKind::AdamW) ==
        Violation{"/layer0.bias",
                  "expected a tensor of shape [8], got none; 1 more differs: a checkpoint of "
                  "another model?"});
  checkpoint.tensors["other"] = {};
  CHECK(fault_as(nn::OptimizerKind::AdamW).message ==
        "expected a tensor of shape [8], got none; 2 more differ: a checkpoint of another model?");
}

TEST_CASE("training stops after the step at which it is told to, and saves where it is due") {
  const Placed two = placed({2, 2}, {1, 2}, 4);
  const TrainingJob job =
      make_training_job(two.pipeline.plan, two.model.profile, two.pipeline.topology,
                        two.model.layers, two.model.batches, {});
  std::vector<std::int64_t> saved;
  std::atomic<std::int64_t> seen = 0;
  TrainOptions options{.steps = 100, .save_every = 2};
  options.on_step = [&](const StepReport& step) { seen = step.number; };
  options.should_stop = [&] { return seen == 5; };
  options.save = [&](std::int64_t steps, const NamedTensors&) { saved.push_back(steps); };
  std::optional<Trained> trained;
  run_on_threads(job, two.pipeline.topology, {}, [&](DeviceTraining& device) {
    if (auto result = train(device, options)) trained = std::move(result);
  });
  REQUIRE(trained.has_value());
  CHECK(trained->steps == 5);
  CHECK(saved == std::vector<std::int64_t>{2, 4, 5});
  CHECK(trained->measured.iterations.size() == 5);
  CHECK(trained->measured.timeline.lanes.size() == 3);
}

TEST_CASE("training stops on all devices where any is told to") {
  const Placed two = placed({2, 2}, {1, 2}, 4);
  const TrainingJob job =
      make_training_job(two.pipeline.plan, two.model.profile, two.pipeline.topology,
                        two.model.layers, two.model.batches, {});
  for (std::size_t told = 0; told < 3; ++told) {
    std::vector<std::int64_t> saved;
    std::atomic<std::size_t> devices = 0;
    std::atomic<std::int64_t> asked_of_all = 0;
    run_on_threads(job, two.pipeline.topology, {}, [&](DeviceTraining& device) {
      const bool is_told = devices++ == told;
      std::int64_t asked = 0;
      TrainOptions options{.steps = 100};
      options.should_stop = [&] { return ++asked == 3 && is_told; };
      options.save = [&](std::int64_t steps, const NamedTensors&) { saved.push_back(steps); };
      train(device, options);
      asked_of_all += asked;
    });
    CHECK(asked_of_all == 9);
    CHECK(saved == std::vector<std::int64_t>{3});
  }
}

TEST_CASE("a model that has diverged is not saved, and its first tensor is named") {
  const Placed one = placed({4}, {1}, 3);
  const TrainingJob job =
      make_training_job(one.pipeline.plan, one.model.profile, one.pipeline.topology,
                        one.model.layers, one.model.batches,
                        {.optimizer = {.kind = nn::OptimizerKind::Sgd,
                                       .learning_rate = std::numeric_limits<float>::infinity()}});
  bool is_saved = false;
  TrainOptions options{.steps = 1};
  options.save = [&](std::int64_t, const NamedTensors&) { is_saved = true; };
  std::string told;
  run_on_threads(job, one.pipeline.topology, {}, [&](DeviceTraining& device) {
    try {
      train(device, options);
    } catch (const Error& error) { told = error.what(); }
  });
  CHECK(
      told.starts_with("step 1: expected finite numbers in all of layer0.bias, got none: the "
                       "training diverges"));
  CHECK_FALSE(is_saved);
}

TEST_CASE("verification finds nothing in a sound plan, and what differs most in tensors that do") {
  const Placed two = placed({2, 2}, {2, 1}, 4);
  const TrainingJob job =
      make_training_job(two.pipeline.plan, two.model.profile, two.pipeline.topology,
                        two.model.layers, two.model.batches, {});
  std::optional<Verification> verified;
  run_on_threads(job, two.pipeline.topology, {}, [&](DeviceTraining& device) {
    if (auto result = verify(device, 0, 4)) verified = std::move(result);
  });
  REQUIRE(verified.has_value());
  CHECK(verified->passed());
  CHECK(verified->tensors == 4);
  CHECK(verified->steps == 4);
  CHECK_FALSE(verified->gradients.name.empty());

  // Norms 5 and 1, of all together sqrt(26): b differs by 0.5 of 1, c by 0.001 of a thousandth of
  // sqrt(26), as it is nothing itself.
  const NamedTensors expected{{"a", {{2}, {3, 4}}}, {"b", {{1}, {1}}}, {"c", {{1}, {0}}}};
  NamedTensors other = expected;
  other["b"].values = {1.5F};
  other["c"].values = {0.001F};
  const TensorDifference worst = worst_difference(other, expected);
  CHECK(worst.name == "b");
  CHECK(worst.relative == Approx(0.5));
  other["c"].values = {0.01F};
  CHECK(worst_difference(other, expected).name == "c");
  CHECK(worst_difference(other, expected).relative == Approx(0.01 / (1e-3 * std::sqrt(26.0))));
  other["a"].values = {std::nanf(""), 4};
  CHECK(worst_difference(other, expected).name == "a");
  CHECK(std::isinf(worst_difference(other, expected).relative));
}

}  // namespace
}  // namespace dapple::exec
