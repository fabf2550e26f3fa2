// Training on GPUs by groups of ranks that share layers or hold shards of all state, against
// training on one CPU: all ranks share one GPU, or have as many as there are.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../support/scaled.h"
#include "../support/trained_groups.h"
#include "../support/trained_pipeline.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/train/train.h"
#include "dapple/exec/weights/checkpoint.h"

namespace dapple {
namespace {

using namespace small;

std::unique_ptr<exec::TrainingBackend> on_gpu(const exec::TrainingJob& job,
                                              const exec::TrainingDevice& own) {
  return exec::make_cuda_backend(job, own, 0);
}

/// Ranks of a group have different ones, as far as there are as many.
std::unique_ptr<exec::TrainingBackend> on_gpus(const exec::TrainingJob& job,
                                               const exec::TrainingDevice& own) {
  const DeviceIndex number = job.number_of(own.device, own.number);
  return exec::make_cuda_backend(job, own, number.value % cuda::gpu_count());
}

RecomputedParts random_parts(Dice& dice) {
  const RecomputedParts sets[] = {{},
                                  {RecomputedPart::Layer},
                                  {RecomputedPart::CoreAttention},
                                  {RecomputedPart::FeedForward},
                                  {RecomputedPart::CoreAttention, RecomputedPart::FeedForward}};
  return sets[dice.roll(0, 4)];
}

/// Trains so many iterations, and requires that they are those of training on one CPU.
void require_as_plain(const exec::TrainingJob& job, const exec::MakeBackend& make_backend,
                      double most, std::int64_t iterations = 2) {
  require_as_plain(job, train(job, devices_of(job), iterations, make_backend), most);
}

struct Seen {
  std::map<std::string, int> forms;

  void add(const exec::TrainingJob& job) {
    const Parallelism& form = job.plan.parallelism;
    const auto count = [&](bool is, const char* what) { forms[what] += is; };
    const bool has_tensor = form.tensor > 1;
    const bool has_context = form.context > 1;
    const bool has_shards = form.full_shards > 1;
    count(has_tensor && !form.sequence, "tensor");
    count(form.sequence, "sequence");
    count(has_context, "context");
    count(has_shards, "shards");
    count(has_tensor && has_context, "tensor, context");
    count(form.sequence && has_context, "sequence, context");
    count(has_tensor && has_shards, "tensor, shards");
    count(has_context && has_shards, "context, shards");
    count(form.group_replicas > 1, "samples");
    count(has_tensor && form.group_replicas > 1, "tensor, samples");
    count(form.shards_optimizer && form.copies() > 1, "sharded copies");
    count(!form.recomputes.none(), "recomputed");
    count(job.plan.stages.size() > 1, "stages");
    count(!job.plan.tied_gradients.empty(), "ties");
    count(job.settings.clip_norm.has_value(), "clipped");
    const auto has_replicas = [](const StagePlan& stage) { return stage.devices.size() > 1; };
    count(std::ranges::any_of(job.plan.stages, has_replicas), "replicas");
  }
};

TEST_CASE("on GPUs, ranks of groups compute the gradients and the losses of one CPU", "[groups]") {
  Dice dice(6401);
  Seen seen;
  const int rounds = scaled(40);
  for (int round = 0; round < rounds; ++round) {
    auto [form, model] = random_without_experts(dice);
    const std::optional<Pipeline> plan = random_plan(dice, model, 2, true);
    if (!plan) continue;
    form.shards_optimizer = form.full_shards == 1 && dice.chance(40);
    form.recomputes = random_parts(dice);
    const bool is_at_end = form.shards_optimizer || form.copies() > 1;
    const Pipeline pipeline =
        in_groups(*plan, form, form.replicas_in_group(),
                  is_at_end ? OptimizerTiming::AtEnd : plan->plan.gradients.optimizer);
    const exec::TrainingJob job = job_of(model, pipeline, random_settings(dice, pipeline.plan));
    INFO("instance " << round << ": " << text_of(pipeline) << ", " << to_text(form));
    seen.add(job);
    require_as_plain(job, round % 2 == 0 ? on_gpu : on_gpus, 1e-4);
  }
  if (rounds < 40) return;
  for (const char* const form :
       {"tensor", "sequence", "context", "shards", "tensor, context", "sequence, context",
        "tensor, shards", "context, shards", "samples", "tensor, samples", "sharded copies",
        "recomputed", "stages", "ties", "clipped", "replicas"}) {
    INFO(form);
    CHECK(seen.forms[form] >= 2);
  }
}

TEST_CASE("on GPUs, stages in different forms compute the gradients and the losses of one CPU",
          "[groups]") {
  Dice dice(6402);
  int seen = 0;
  int chunks = 0;
  int idle = 0;  // with ranks that have no sample
  const int rounds = scaled(30);
  for (int round = 0; round < rounds; ++round) {
    const auto [forms, whole] = random_forms_without_experts(dice);
    const Trainable model = as_rank(whole, forms);
    std::optional<Pipeline> plan = random_plan(dice, as_rank(whole, forms.front()), 2, true);
    // In some of these plans a device has stages in several forms.
    if (plan && dice.chance(35)) plan = under_family(*plan, ScheduleFamily::ZeroBubbleV, 5);
    if (!plan) continue;
    const std::optional<Pipeline> pipeline = with_stage_forms(model, *plan, forms, dice);
    if (!pipeline || !exec::has_different_groups(pipeline->plan)) continue;
    const exec::TrainingJob job = job_of(model, *pipeline, random_settings(dice, pipeline->plan));
    std::string text = text_of(*pipeline);
    for (const StagePlan& stage : pipeline->plan.stages) {
      text += ", " + to_text(form_of(pipeline->plan, stage));
      idle += samples_of(job.plan, stage, stage.devices.size() - 1).size() <
              form_of(job.plan, stage).replicas_in_group();
    }
    INFO("instance " << round << ": " << text);
    ++seen;
    chunks += job.plan.chunks_per_device > 1;
    // A part that is missing or counted twice differs a hundred times as much.
    require_as_plain(job, round % 2 == 0 ? on_gpu : on_gpus, 5e-4);
  }
  if (rounds < 30) return;
  CHECK(seen >= 8);
  CHECK(chunks >= 1);
  CHECK(idle >= 1);
}

TEST_CASE("on GPUs, attention to parts of long sequences is that of one CPU", "[groups]") {
  Dice dice(6403);
  for (int round = 0; round < scaled(6); ++round) {
    // The lengths of chunks are no multiples of the rows that a block of threads attends to.
    const Parallelism form{
        .tensor = round % 3 == 0 ? 2 : 1, .sequence = round % 3 == 0, .context = dice.roll(2, 3)};
    const std::int64_t sequence = 2 * form.context * (form.sequence ? 2 : 1) * dice.roll(9, 19);
    const std::int64_t width = 2 * dice.roll(2, 40);
    constexpr std::int64_t kVocabulary = 11;
    TransformerBlockOperation block{.hidden = 24,
                                    .heads = 4,
                                    .feed_forward = 8,
                                    .sequence = sequence,
                                    .causal = round % 2 == 0,
                                    .form = {.kv_heads = 2, .width = width}};
    if (dice.chance(50)) block.form.rotary_base = 100;
    const Trainable model =
        as_rank(trainable({.operations = {EmbeddingOperation{kVocabulary, sequence, 24}, block,
                                          LinearOperation{24, kVocabulary},
                                          SoftmaxCrossEntropyOperation{kVocabulary}},
                           .input = {sequence},
                           .tokens = kVocabulary,
                           .classes = kVocabulary,
                           .positions = {sequence}},
                          dice),
                form);
    const Pipeline alone{model.profile, full_mesh(1, {bytes_per_ns(1), {}}),
                         plan_of(model.profile, {.micro_batch_size = 2,
                                                 .num_micro_batches = 1,
                                                 .depths = {1},
                                                 .stages = {{.layers = 4, .devices = {0}}}})};
    INFO("instance " << round << ": " << to_text(form) << ", " << sequence
                     << " positions, heads of " << width);
    require_as_plain(job_of(model, in_groups(alone, form, 1), {}), on_gpu, 1e-4, 1);
  }
}

/// The same model with the sizes of numbers of two bytes between layers.
Trainable in_half_precision(Trainable model) {
  for (Layer& layer : model.profile.layers) {
    for (Measurement& measurement : layer.measurements) measurement.output.count /= 2;
  }
  return model;
}

/// A model with blocks of both kinds, wide enough that what is rounded is no single number.
Trainable of_both_kinds(Dice& dice, const Parallelism& form) {
  constexpr std::int64_t kHidden = 32;
  constexpr std::int64_t kSequence = 8;
  constexpr std::int64_t kVocabulary = 11;
  const TransformerBlockOperation block{.hidden = kHidden,
                                        .heads = 2,
                                        .feed_forward = 2 * kHidden,
                                        .sequence = kSequence,
                                        .causal = true};
  TransformerBlockOperation other = block;
  to_llama(other);
  other.form.kv_heads = 2;
  const TrainableShape shape{
      .operations = {EmbeddingOperation{kVocabulary, kSequence, kHidden}, block, other,
                     LayerNormOperation{kHidden}, LinearOperation{kHidden, kVocabulary},
                     SoftmaxCrossEntropyOperation{kVocabulary}},
      .input = {kSequence},
      .tokens = kVocabulary,
      .classes = kVocabulary,
      .positions = {kSequence}};
  return in_half_precision(as_rank(trainable(shape, dice), form));
}

bool are_finite(const exec::NamedTensors& tensors) {
  return std::ranges::all_of(tensors, [](const auto& named) {
    return std::ranges::all_of(named.second.values,
                               [](float value) { return std::isfinite(value); });
  });
}

/// In float16 gradients may not be finite at first, as the loss is scaled by too much.
void require_as_plain_but_for_rounding(const exec::TrainingJob& job) {
  constexpr double kTolerance = 5e-2;
  const Outcome outcome = train(job, devices_of(job), 2, on_gpu);
  exec::PlainTraining plain(job);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& ours = outcome.iterations[n];
    plain.restore(ours.before);
    const double loss = plain.run(static_cast<std::int64_t>(n));
    REQUIRE(ours.loss == Approx(loss).epsilon(kTolerance));
    const bool is_finite = are_finite(ours.gradients);
    CHECK((is_finite || job.settings.precision == cuda::Precision::Float16));
    if (!is_finite) continue;
    require_close(ours.gradients, plain.tensors(exec::TensorKind::Gradients), kTolerance);
  }
}

TEST_CASE("on GPUs in half precision, groups compute the gradients of one CPU but for rounding",
          "[groups]") {
  Dice dice(6404);
  for (const Parallelism& form :
       {Parallelism{.tensor = 2}, Parallelism{.tensor = 2, .sequence = true},
        Parallelism{.context = 2}, Parallelism{.group_replicas = 2, .shards_optimizer = true},
        Parallelism{.full_shards = 3},
        Parallelism{.tensor = 2, .sequence = true, .context = 2, .full_shards = 2}}) {
    const Trainable model = of_both_kinds(dice, form);
    const Pipeline two{model.profile, full_mesh(2, {bytes_per_ns(1), {}}),
                       plan_of(model.profile, {.micro_batch_size = 2,
                                               .num_micro_batches = 2,
                                               .depths = {2, 1},
                                               .stages = {{.layers = 2, .devices = {0}},
                                                          {.layers = 4, .devices = {1}}}})};
    for (const cuda::Precision precision : {cuda::Precision::BFloat16, cuda::Precision::Float16}) {
      // Steps that are large enough to show in the second iteration.
      exec::TrainingSettings settings{
          .optimizer = {.kind = nn::OptimizerKind::Momentum, .learning_rate = 0.3F}};
      settings.precision = precision;
      INFO(to_text(form));
      require_as_plain_but_for_rounding(
          job_of(model, in_groups(two, form, form.replicas_in_group()), settings));
    }
  }
}

/// Trains from step `begin` on and returns the losses and the model at the end.
std::pair<std::vector<double>, exec::NamedTensors> trained(const exec::TrainingJob& job,
                                                           const exec::MakeBackend& make_backend,
                                                           const exec::NamedTensors* start,
                                                           std::int64_t begin, std::int64_t end) {
  std::pair<std::vector<double>, exec::NamedTensors> result;
  exec::run_on_threads(job, devices_of(job), {.make_backend = make_backend},
                       [&](exec::DeviceTraining& device) {
                         if (start != nullptr) device.restore(*start);
                         for (std::int64_t n = begin; n < end; ++n) {
                           device.run(n);
                           const double loss = device.loss();
                           if (device.is_lead()) result.first.push_back(loss);
                         }
                         exec::NamedTensors tensors = whole_model(device);
                         if (device.is_lead()) result.second = std::move(tensors);
                       });
  return result;
}

TEST_CASE("a training goes on with other groups, on GPUs and on CPUs, from checkpoints",
          "[groups]") {
  Dice dice(6405);
  for (int round = 0; round < scaled(2); ++round) {
    const Parallelism widest{.tensor = 2, .sequence = true, .context = 2};
    std::optional<Trainable> model;
    while (!model || has_experts(*model)) model = random_shareable(dice, widest);
    exec::TrainingSettings settings = random_settings(dice, Plan{});
    settings.optimizer.kind = nn::OptimizerKind::AdamW;
    // Gradients that consist of rounding errors alone make no step either.
    settings.optimizer.epsilon = 1e-3F;
    settings.optimizer.learning_rate = 0.01F;
    const std::pair<Parallelism, const exec::MakeBackend> layouts[] = {
        {{}, exec::make_cpu_backend},
        {{.tensor = 2}, on_gpu},
        {{.tensor = 2, .sequence = true, .group_replicas = 2, .shards_optimizer = true}, on_gpus},
        {{.context = 2, .recomputes = kWholeLayer}, on_gpus},
        {{.tensor = 2, .context = 2, .full_shards = 4}, on_gpu},
        {{}, exec::make_cpu_backend}};
    std::vector<exec::TrainingJob> jobs;
    for (const auto& [form, make_backend] : layouts) {
      std::optional<Pipeline> plan;
      const Trainable of_rank = as_rank(*model, form);
      Dice same(static_cast<std::uint64_t>(round));
      while (!plan) plan = random_plan(same, of_rank, 2, false);
      jobs.push_back(job_of(of_rank, in_groups(*plan, form, 2), settings));
    }
    const auto [losses, last] =
        trained(jobs.front(), exec::make_cpu_backend, nullptr, 0, 2 * std::ssize(jobs));
    std::optional<exec::NamedTensors> start;
    std::int64_t step = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      auto [two, after] =
          trained(jobs[i], layouts[i].second, start ? &*start : nullptr, step, step + 2);
      for (const double loss : two) {
        INFO("round " << round << ", step " << step << ", " << to_text(layouts[i].first));
        CHECK(std::abs(loss - losses[static_cast<std::size_t>(step++)]) <= 1e-4);
      }
      start = exec::read_checkpoint(exec::write_checkpoint({.optimizer = settings.optimizer,
                                                            .tensors = std::move(after)}),
                                    "memory")
                  .tensors;
    }
    require_close(*start, last, 1e-3);
  }
}

TEST_CASE("parts of layers that are computed again on a GPU change nothing, and less is kept",
          "[groups]") {
  Dice dice(6406);
  for (const bool is_llama : {false, true}) {
    constexpr std::int64_t kSequence = 6;
    TransformerBlockOperation block{
        .hidden = 8, .heads = 2, .feed_forward = 16, .sequence = kSequence, .causal = true};
    if (is_llama) to_llama(block);
    const Trainable model =
        trainable({.operations = {EmbeddingOperation{7, kSequence, 8}, block, block,
                                  LinearOperation{8, 7}, SoftmaxCrossEntropyOperation{7}},
                   .input = {kSequence},
                   .tokens = 7,
                   .classes = 7,
                   .positions = {kSequence}},
                  dice);
    const Pipeline alone{model.profile, full_mesh(1, {bytes_per_ns(1), {}}),
                         plan_of(model.profile, {.micro_batch_size = 2,
                                                 .num_micro_batches = 2,
                                                 .depths = {1},
                                                 .stages = {{.layers = 5, .devices = {0}}}})};
    const auto outcome_of = [&](const Recomputation& recomputation) {
      Parallelism form;
      form.recomputes = recomputation.parts;
      form.recomputed_layers = recomputation.layers;
      const exec::TrainingJob job = job_of(model, in_groups(alone, form, 1), {});
      return train(job, devices_of(job), 2, on_gpu);
    };
    const auto held_by = [](const Outcome& outcome) { return outcome.held.begin()->second.size; };
    const Outcome kept = outcome_of({});
    const RecomputedParts layer{RecomputedPart::Layer};
    const Outcome first = outcome_of({layer, LayerSelection::first(1)});
    const Outcome all = outcome_of({layer});
    const Outcome heads = outcome_of({{RecomputedPart::CoreAttention}});
    const Outcome mlp = outcome_of({{RecomputedPart::FeedForward}});
    for (const Outcome* some : {&first, &all, &heads, &mlp}) {
      for (std::size_t n = 0; n < kept.iterations.size(); ++n) {
        require_close(some->iterations[n].gradients, kept.iterations[n].gradients, 1e-5);
      }
    }
    CHECK(held_by(all) < held_by(first));
    CHECK(held_by(first) < held_by(kept));
    CHECK(held_by(all) < held_by(heads));
    CHECK(held_by(all) < held_by(mlp));
  }
}

}  // namespace
}  // namespace dapple
