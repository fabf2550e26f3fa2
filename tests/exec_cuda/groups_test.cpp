// Training on GPUs by groups of ranks that share layers or hold shards of all state, against
// training on one CPU: all ranks share one GPU, or have as many as there are.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../support/scaled.h"
#include "../support/trained_groups.h"
#include "../support/trained_pipeline.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/train/train.h"
#include "dapple/exec/weights/checkpoint.h"
#include "dapple/nn/model.h"
#include "dapple/nn/module.h"
#include "on_gpus.h"

namespace dapple {
namespace {

using namespace small;

/// Trains so many iterations, and requires that they are those of training on one CPU.
void require_as_plain(const exec::TrainingJob& job, const exec::MakeBackend& make_backend,
                      double most, std::int64_t iterations = 2) {
  require_as_plain(job, train(job, devices_of(job), iterations, make_backend), most);
}

struct Seen {
  std::map<std::string, int> forms;

  void add(const exec::TrainingJob& job, bool has_experts) {
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
    count(form.optimizer_shards > 0, "sharded in groups");
    count(!form.recomputes.none(), "recomputed");
    const bool divides_experts = form.experts > 1;
    count(has_experts && has_tensor && !divides_experts, "parts of experts");
    count(has_experts && has_shards, "shards of experts");
    count(divides_experts, "experts");
    count(divides_experts && job.sample_ranks() > 1, "experts, samples");
    count(form.recomputes.contains(RecomputedPart::Experts), "recomputed experts");
    count(job.plan.stages.size() > 1, "stages");
    count(!job.plan.tied_gradients.empty(), "ties");
    count(job.settings.clip_norm.has_value(), "clipped");
    const auto has_replicas = [](const StagePlan& stage) { return stage.devices.size() > 1; };
    count(std::ranges::any_of(job.plan.stages, has_replicas), "replicas");
  }
};

TEST_CASE("on GPUs, ranks of groups compute the gradients and the losses of one CPU", "[groups]") {
  Dice dice(6491);
  Seen seen;
  const int rounds = scaled(10);
  for (int round = 0; round < rounds; ++round) {
    auto [form, model] = random_group_model(dice);
    const std::optional<Pipeline> plan = random_plan(dice, model, 2, true);
    if (!plan) continue;
    form.shards_optimizer = form.full_shards == 1 && dice.chance(40);
    if (round % 2 == 0) shard_in_groups(form);
    if (dice.chance(80)) form.recomputes = random_parts(model, dice);
    const bool is_at_end = form.shards_optimizer || form.copies() > 1 || form.expert_copies() > 1;
    const Pipeline pipeline =
        in_groups(*plan, form, form.replicas_in_group(),
                  is_at_end ? OptimizerTiming::AtEnd : plan->plan.gradients.optimizer);
    const exec::TrainingJob job = job_of(model, pipeline, random_settings(dice, pipeline.plan));
    INFO("instance " << round << ": " << text_of(pipeline) << ", " << to_text(form));
    seen.add(job, has_experts(model));
    require_as_plain(job, round % 2 == 0 ? on_gpu : on_gpus, 1e-4);
  }
  if (rounds < 40) return;
  constexpr const char* kForms[] = {"tensor",
                                    "sequence",
                                    "context",
                                    "shards",
                                    "tensor, context",
                                    "sequence, context",
                                    "tensor, shards",
                                    "context, shards",
                                    "samples",
                                    "tensor, samples",
                                    "sharded copies",
                                    "sharded in groups",
                                    "recomputed",
                                    "stages",
                                    "ties",
                                    "clipped",
                                    "replicas",
                                    "parts of experts",
                                    "shards of experts",
                                    "experts",
                                    "experts, samples",
                                    "recomputed experts"};
  for (const char* const form : kForms) {
    INFO(form);
    CHECK(seen.forms[form] >= 1);
  }
}

TEST_CASE("on GPUs, ranks with different experts compute the gradients of one CPU", "[groups]") {
  Dice dice(6410);
  int round = 0;
  for (const Parallelism& form : forms_with_experts()) {
    const exec::TrainingJob job = job_with_experts(dice, form);
    INFO(to_text(form));
    require_as_plain(job, round++ % 2 == 0 ? on_gpu : on_gpus, 1e-4);
  }
}

TEST_CASE("on GPUs, stages in different forms compute the gradients and the losses of one CPU",
          "[groups]") {
  Dice dice(6402);
  int seen = 0;
  int chunks = 0;
  int idle = 0;     // with ranks that have no sample
  int experts = 0;  // on different ranks in some stage
  const int rounds = scaled(10);
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Parallelism> forms = random_forms(dice);
    const Trainable whole = random_shareable(dice, joined(forms));
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
    experts += std::ranges::any_of(job.plan.stages, [&](const StagePlan& stage) {
      return form_of(job.plan, stage).experts > 1;
    });
    // A part that is missing or counted twice differs a hundred times as much.
    require_as_plain(job, round % 2 == 0 ? on_gpu : on_gpus, 5e-4);
  }
  if (rounds < 30) return;
  CHECK(seen >= 8);
  CHECK(chunks >= 1);
  CHECK(idle >= 1);
  CHECK(experts >= 2);
}

TEST_CASE("on GPUs, groups of different sizes compute the gradients and the losses of one CPU",
          "[groups]") {
  Dice dice(6410);
  int seen = 0;
  const int rounds = scaled(20);
  for (int round = 0; round < rounds; ++round) {
    const std::optional<JobOfSizes> made = random_job_of_sizes(dice);
    if (!made) continue;
    INFO("instance " << round << ": " << made->text);
    ++seen;
    // As above.
    require_as_plain(made->job, round % 2 == 0 ? on_gpu : on_gpus, 5e-4);
  }
  if (rounds >= 20) CHECK(seen >= 5);
}

TEST_CASE(
    "on GPUs, ranks without samples gather what others gather, also before the first iteration",
    "[groups]") {
  Dice dice(6411);
  for (int seen = 0; seen < 2;) {
    const std::optional<JobOfSizes> made = random_job_of_sizes(dice);
    if (!made) continue;
    const Plan& plan = made->job.plan;
    const bool has_idle_rank = std::ranges::any_of(plan.stages, [&](const StagePlan& stage) {
      const Parallelism& form = form_of(plan, stage);
      const SampleRange samples = samples_of(plan, stage, stage.devices.size() - 1);
      return stage.recompute && form.full_shards > 1 && samples.size() < form.replicas_in_group();
    });
    if (!has_idle_rank) continue;
    INFO(made->text);
    ++seen;
    require_as_plain(made->job, on_gpu, 5e-4);
  }
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

/// In float16 gradients may not be finite at first, as the loss is scaled by too much. Returns in
/// how many iterations they were.
int require_as_plain_but_for_rounding(const exec::TrainingJob& job, std::int64_t iterations) {
  constexpr double kTolerance = 5e-2;
  const Outcome outcome = train(job, devices_of(job), iterations, on_gpu);
  exec::PlainTraining plain(job);
  int compared = 0;
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& ours = outcome.iterations[n];
    plain.restore(ours.before);
    const double loss = plain.run(static_cast<std::int64_t>(n));
    REQUIRE(ours.loss == Approx(loss).epsilon(kTolerance));
    const bool is_finite = are_finite(ours.gradients);
    CHECK((is_finite || job.settings.precision == cuda::Precision::Float16));
    if (!is_finite) continue;
    require_close(ours.gradients, plain.tensors(exec::TensorKind::Gradients), kTolerance);
    ++compared;
  }
  return compared;
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
          job_of(model, in_groups(two, form, form.replicas_in_group()), settings), 2);
    }
  }
}

/// The least distance of the score of a position's last expert from that of the next one, of all
/// scores that a stash has.
double least_margin(const nn::Stash& stash, const ExpertsForm& experts) {
  double least = 10;
  for (const nn::Tensor& tensor : stash.tensors) {
    if (tensor.shape.size() != 2 || tensor.shape[1] != experts.count) continue;
    const auto count = static_cast<std::size_t>(experts.count);
    const auto chosen = static_cast<std::size_t>(experts.per_token);
    for (std::size_t begin = 0; begin < tensor.values.size(); begin += count) {
      std::vector<float> scores(tensor.values.begin() + static_cast<std::ptrdiff_t>(begin),
                                tensor.values.begin() + static_cast<std::ptrdiff_t>(begin + count));
      std::ranges::sort(scores, std::greater<>());
      least = std::min(least, double{scores[chosen - 1]} - scores[chosen]);
    }
  }
  for (const nn::Stash& part : stash.parts) least = std::min(least, least_margin(part, experts));
  return least;
}

/// The least such distance in the forward of an iteration that has the first parameters.
double least_margin(const exec::TrainingJob& job, std::int64_t iteration) {
  nn::Tensor input = job.batches->inputs(iteration, 0, job.plan.global_batch_size);
  for (const nn::ModelLayer& layer : *job.layers) {
    std::vector<std::vector<float>> values;
    for (const nn::ParameterSpec& spec : layer.module->parameters()) {
      values.emplace_back(static_cast<std::size_t>(nn::count_of(spec.shape)));
      nn::initialize(spec, layer.name + "." + spec.name, job.settings.seed, values.back());
    }
    const std::vector<std::span<const float>> views(values.begin(), values.end());
    nn::Stash stash;
    input = layer.module->forward(views, std::move(input), {}, stash);
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    if (block != nullptr) return least_margin(stash, *block->experts);
  }
  return 0;
}

TEST_CASE("on GPUs in half precision, experts compute the gradients of one CPU but for rounding",
          "[groups]") {
  // More than numbers of half precision shift any score.
  constexpr double kMargin = 0.02;
  // Until the loss is scaled so that all numbers are finite.
  constexpr std::int64_t kIterations = 4;
  Dice dice(6407);
  for (const Parallelism& form :
       {Parallelism{.tensor = 2}, Parallelism{.tensor = 2, .sequence = true, .experts = 2},
        Parallelism{.context = 2, .experts = 4, .recomputes = {RecomputedPart::Experts}},
        Parallelism{.group_replicas = 4, .experts = 2},
        Parallelism{.tensor = 2, .sequence = true, .experts = 2, .expert_tensor = 2}}) {
    const Trainable model = in_half_precision(as_rank(with_experts(dice), form));
    const Pipeline alone{model.profile, full_mesh(1, {bytes_per_ns(1), {}}),
                         plan_of(model.profile, {.micro_batch_size = 1,
                                                 .num_micro_batches = 1,
                                                 .depths = {1},
                                                 .stages = {{.layers = 4, .devices = {0}}}})};
    const Pipeline pipeline = in_groups(alone, form, form.replicas_in_group());
    // Steps of no length, so that scores stay as they are.
    exec::TrainingSettings settings{.optimizer = {.learning_rate = 0}, .seed = 1};
    settings.precision = cuda::Precision::BFloat16;
    for (std::int64_t n = 0; n < kIterations; ++n) {
      if (least_margin(job_of(model, pipeline, settings), n) >= kMargin) continue;
      n = -1;
      REQUIRE(++settings.seed < 1'000);
    }
    for (const cuda::Precision precision : {cuda::Precision::BFloat16, cuda::Precision::Float16}) {
      settings.precision = precision;
      INFO(to_text(form) << ", seed " << settings.seed);
      const int compared =
          require_as_plain_but_for_rounding(job_of(model, pipeline, settings), kIterations);
      CHECK(compared >= (precision == cuda::Precision::BFloat16 ? kIterations : 1));
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

struct Layout {
  Parallelism form;
  exec::MakeBackend make_backend;
};

/// Trains two iterations in each layout, from the checkpoint of the one before, and compares with
/// training in the first one all along.
void require_goes_on(const Trainable& model, const std::vector<Layout>& layouts,
                     exec::TrainingSettings settings, std::uint64_t seed) {
  settings.optimizer.kind = nn::OptimizerKind::AdamW;
  // Gradients that consist of rounding errors alone make no step either.
  settings.optimizer.epsilon = 1e-3F;
  settings.optimizer.learning_rate = 0.01F;
  std::vector<exec::TrainingJob> jobs;
  for (const Layout& layout : layouts) {
    std::optional<Pipeline> plan;
    const Trainable of_rank = as_rank(model, layout.form);
    Dice same(seed);
    while (!plan) plan = random_plan(same, of_rank, 2, false);
    jobs.push_back(job_of(of_rank, in_groups(*plan, layout.form, 2), settings));
  }
  const auto [losses, last] =
      trained(jobs.front(), layouts.front().make_backend, nullptr, 0, 2 * std::ssize(jobs));
  std::optional<exec::NamedTensors> start;
  std::int64_t step = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    auto [two, after] =
        trained(jobs[i], layouts[i].make_backend, start ? &*start : nullptr, step, step + 2);
    for (const double loss : two) {
      INFO("step " << step << ", " << to_text(layouts[i].form));
      CHECK(std::abs(loss - losses[static_cast<std::size_t>(step++)]) <= 1e-4);
    }
    start =
        exec::read_checkpoint(
            exec::write_checkpoint({.optimizer = settings.optimizer, .tensors = std::move(after)}),
            "memory")
            .tensors;
  }
  require_close(*start, last, 1e-3);
}

TEST_CASE("a training goes on with other groups, on GPUs and on CPUs, from checkpoints",
          "[groups]") {
  Dice dice(6405);
  for (int round = 0; round < scaled(2); ++round) {
    INFO("round " << round);
    const auto seed = static_cast<std::uint64_t>(round);
    const Parallelism widest{.tensor = 2, .sequence = true, .context = 2};
    std::optional<Trainable> model;
    while (!model || has_experts(*model)) model = random_shareable(dice, widest);
    require_goes_on(
        *model,
        {{{}, exec::make_cpu_backend},
         {{.tensor = 2}, on_gpu},
         {{.tensor = 2, .sequence = true, .group_replicas = 2, .shards_optimizer = true}, on_gpus},
         {{.context = 2, .recomputes = kWholeLayer}, on_gpus},
         {{.tensor = 2, .context = 2, .full_shards = 4}, on_gpu},
         {{}, exec::make_cpu_backend}},
        random_settings(dice, Plan{}), seed);
  }
}

TEST_CASE("a training goes on with experts on other ranks, on GPUs and on CPUs, from checkpoints",
          "[groups]") {
  Dice dice(6409);
  require_goes_on(with_experts(dice),
                  {{{}, exec::make_cpu_backend},
                   {{.experts = 2}, on_gpus},
                   {{.tensor = 2, .sequence = true, .experts = 2}, on_gpu},
                   {{.context = 2, .experts = 4}, exec::make_cpu_backend},
                   {{.context = 2, .group_replicas = 2, .experts = 2}, on_gpus},
                   {{.tensor = 2,
                     .sequence = true,
                     .context = 2,
                     .experts = 2,
                     .expert_tensor = 2,
                     .shards_optimizer = true},
                    on_gpus},
                   {{.tensor = 2, .full_shards = 2}, on_gpu}},
                  random_settings(dice, Plan{}), 0);
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
