// Training where the plan's devices are groups that share layers or hold shards of all state,
// against one device without groups.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "../support/scaled.h"
#include "../support/trained_pipeline.h"
#include "dapple/exec/train/train.h"

namespace dapple {
namespace {

using namespace small;

/// Transformers that so many ranks can share.
Trainable random_shareable(Dice& dice, const Parallelism& form) {
  const std::int64_t t = form.tensor;
  const std::int64_t kv_heads = t * dice.roll(1, 2);
  const std::int64_t heads = kv_heads * dice.roll(1, 2);
  const std::int64_t width = 2 * dice.roll(2, 3);  // a norm of two numbers knows but one
  const std::int64_t hidden = heads * width;
  const std::int64_t parts = 2 * form.context * (form.sequence ? t : 1);
  const std::int64_t sequence =
      form.sequence || form.context > 1 ? parts * dice.roll(1, 2) : dice.roll(2, 5);
  const std::int64_t vocabulary = dice.roll(3, 17);  // also fewer than there are ranks, and uneven
  const bool is_tied = dice.chance(50);
  const bool is_llama = dice.chance(50);
  const bool has_experts = dice.chance(30);
  TrainableShape shape{.operations = {EmbeddingOperation{vocabulary, sequence, hidden, !is_tied}},
                       .input = {sequence},
                       .tokens = vocabulary,
                       .classes = vocabulary,
                       .positions = {sequence},
                       .is_tied = is_tied};
  if (is_tied) shape.operations.emplace_back(PositionEmbeddingOperation{sequence, hidden});
  for (std::int64_t left = dice.roll(1, 3); left > 0; --left) {
    TransformerBlockOperation block{.hidden = hidden,
                                    .heads = heads,
                                    .feed_forward = t * dice.roll(1, 4),
                                    .sequence = sequence,
                                    .causal = dice.chance(70),
                                    .form = {.kv_heads = kv_heads, .width = width},
                                    .bias = dice.chance(70)};
    if (is_llama) {
      block.form.rotary_base = 100;
      block.norm = NormKind::RmsNorm;
      block.activation = FeedForwardKind::SwiGlu;
    }
    if (has_experts || form.experts > 1) {
      const std::int64_t count = form.experts * dice.roll(form.experts == 1 ? 2 : 1, 3);
      block.experts = {.count = count, .per_token = dice.roll(1, 2)};
    }
    shape.operations.emplace_back(block);
  }
  shape.operations.emplace_back(LayerNormOperation{.hidden = hidden});
  shape.operations.emplace_back(
      LinearOperation{hidden, vocabulary, !is_tied && dice.chance(50), is_tied});
  shape.operations.emplace_back(SoftmaxCrossEntropyOperation{.classes = vocabulary});
  return trainable(shape, dice);
}

/// The same model with the profile of one rank.
Trainable as_rank(Trainable model, const Parallelism& form) {
  Plan plan;
  plan.parallelism = form;
  const auto of_ranks = exec::layers_of_ranks(model.layers, plan, "model");
  for (std::size_t i = 0; i < model.layers->size(); ++i) {
    const nn::ModelLayer& layer = (*of_ranks.front())[i];
    Layer& figures = model.profile.layers[i];
    figures.parameters = {4 * nn::parameter_count(layer.own_parameters())};
    for (Measurement& one : figures.measurements) {
      one.output = {4 * nn::count_of(layer.output) * one.batch_size};
    }
  }
  return model;
}

/// The same plan in groups, with `multiple` times as many samples in each micro-batch.
Pipeline in_groups(const Pipeline& pipeline, const Parallelism& form, std::int64_t multiple,
                   OptimizerTiming timing = OptimizerTiming::AtEnd) {
  Plan plan = pipeline.plan;
  plan.parallelism = form;
  plan.micro_batch_size *= multiple;
  plan.global_batch_size *= multiple;
  plan.gradients.optimizer = timing;
  TopologyDescription description = pipeline.topology.description();
  description.shards_optimizer = form.shards_optimizer;
  return {pipeline.profile, std::move(description), std::move(plan)};
}

/// Single devices that all reach each other.
Topology devices_of(const exec::TrainingJob& job) {
  const auto count = 1 + std::ranges::max(job.numbers()).value;
  return Topology(full_mesh(static_cast<std::size_t>(count), {bytes_per_ns(1), {}}));
}

/// The largest difference of a number from the expected one, over the largest of the tensor, or
/// over a thousandth of the largest of all tensors: small ones are what is left where large terms
/// cancel out.
double worst_of(const exec::NamedTensors& tensors, const exec::NamedTensors& expected) {
  REQUIRE(tensors.size() == expected.size());
  double worst = 0;
  double least = 0;
  for (const auto& [name, tensor] : expected) {
    for (const float value : tensor.values)
      least = std::max(least, 0.001 * std::abs(double{value}));
  }
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    const nn::Tensor& other = tensors.at(name);
    REQUIRE(other.shape == tensor.shape);
    double largest = least;
    double difference = 0;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      largest = std::max(largest, std::abs(double{tensor.values[i]}));
      difference = std::max(difference, std::abs(double{other.values[i]} - tensor.values[i]));
    }
    if (difference > 0) worst = std::max(worst, difference / largest);
  }
  return worst;
}

struct Seen {
  std::map<std::int64_t, int> ranks;
  std::map<std::int64_t, int> shards;
  std::map<std::int64_t, int> contexts;
  std::map<std::string, int> pairs;
  int hybrid = 0;
  int experts = 0;
  int sequence = 0;
  int stages = 0;
  int replicas = 0;
  int sharded = 0;
  int ties = 0;
  int recomputed = 0;
  int clipped = 0;

  void add(const exec::TrainingJob& job) {
    const Parallelism& form = job.plan.parallelism;
    ++ranks[form.tensor];
    ++shards[form.full_shards];
    ++contexts[form.context];
    const bool has_tensor = form.tensor > 1;
    const bool has_context = form.context > 1;
    const bool has_shards = form.full_shards > 1;
    if (has_tensor && has_context) ++pairs["tensor, context"];
    if (has_tensor && has_shards) ++pairs["tensor, shards"];
    if (has_context && has_shards) ++pairs["context, shards"];
    if (has_context && job.sample_ranks() > 1) ++pairs["context, samples"];
    if (has_context && form.sequence) ++pairs["context, sequence"];
    if (form.group_replicas > 1) ++pairs["samples alone"];
    if (form.shards_optimizer && form.copies() > 1) ++pairs["sharded copies"];
    const bool has_experts = form.experts > 1;
    if (has_experts) ++pairs["experts"];
    if (has_experts && has_tensor) ++pairs["experts, tensor"];
    if (has_experts && has_context) ++pairs["experts, context"];
    if (has_experts && job.sample_ranks() > 1) ++pairs["experts, samples"];
    if (has_experts && job.ranks() > form.experts) ++pairs["experts, copies"];
    sequence += job.plan.parallelism.sequence;
    stages += job.plan.stages.size() > 1;
    ties += !job.plan.tied_gradients.empty();
    clipped += job.settings.clip_norm.has_value();
    const auto any = [&](auto is) {
      return std::any_of(job.plan.stages.begin(), job.plan.stages.end(), is);
    };
    const bool has_replicas = any([](const StagePlan& stage) { return stage.devices.size() > 1; });
    replicas += has_replicas;
    hybrid += has_replicas && has_shards;
    sharded += has_replicas && job.plan.parallelism.shards_optimizer;
    recomputed += any([](const StagePlan& stage) { return stage.recompute; });
  }
};

Parallelism random_form(Dice& dice) {
  Parallelism form{.tensor = dice.roll(1, 4)};
  form.sequence = form.tensor > 1 && dice.chance(50);
  if (form.tensor < 4 && dice.chance(40)) form.context = dice.roll(2, 3);
  const bool is_alone = form.tensor * form.context == 1;
  if (form.tensor < 4 && (form.tensor == 1 || form.sequence) && dice.chance(35)) {
    // Each of these ranks has other positions.
    form.experts =
        form.tensor * form.context * dice.roll(form.tensor * form.context == 1 ? 2 : 1, 2);
    if (form.group_size() > 8) form.experts = 1;
  }
  if (form.experts == 1 && form.tensor * form.context < 4 && dice.chance(30)) {
    form.group_replicas = 2;
  } else if (form.experts == 1 && (is_alone || (form.tensor < 4 && dice.chance(30)))) {
    form.full_shards =
        form.context * dice.roll(form.context == 1 ? 2 : 1, form.tensor == 1 ? 3 : 2);
  }
  return form;
}

bool has_experts(const Trainable& model) {
  return std::any_of(model.layers->begin(), model.layers->end(), [](const nn::ModelLayer& layer) {
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    return block != nullptr && block->experts;
  });
}

RecomputedParts random_parts(const Trainable& model, Dice& dice) {
  const RecomputedPart behind_attention =
      has_experts(model) ? RecomputedPart::Experts : RecomputedPart::FeedForward;
  const RecomputedParts sets[] = {{RecomputedPart::Layer},
                                  {RecomputedPart::CoreAttention},
                                  {behind_attention},
                                  {RecomputedPart::CoreAttention, behind_attention}};
  return sets[dice.roll(0, 3)];
}

/// Each rank holds its shards alone, and all of them together the whole state.
void check_held(const exec::TrainingJob& job) {
  const Parallelism& form = job.plan.parallelism;
  if (form.full_shards == 1) return;
  const DeviceIndex device = job.devices.front().device;
  const auto first = exec::make_cpu_backend(job, job.device_of(device, 0));
  for (const StageIndex stage : first->stages()) {
    std::size_t together = 0;
    std::size_t most = 0;
    for (std::int64_t rank = 0; rank < job.ranks(); rank += form.tensor) {
      const auto backend = exec::make_cpu_backend(job, job.device_of(device, rank));
      const std::size_t held = backend->values(stage, exec::TensorKind::Parameters).size();
      CHECK(backend->values(stage, exec::TensorKind::Gradients).size() == held);
      together += held;
      most = std::max(most, held);
    }
    const auto layers = static_cast<std::size_t>(job.plan.stages[stage.position()].layers.size());
    CHECK(most <= together / static_cast<std::size_t>(form.full_shards) + 2 * layers);
  }
}

/// Requires that three iterations of a job have the losses of training on one device and, up to
/// `most` of the largest number of each tensor, its gradients.
void require_as_plain(const exec::TrainingJob& job, double most) {
  const Outcome outcome = train(job, devices_of(job), 3);
  exec::PlainTraining plain(job);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& ours = outcome.iterations[n];
    plain.restore(ours.before);
    const double loss = plain.run(static_cast<std::int64_t>(n));
    REQUIRE(ours.loss == Approx(loss).epsilon(1e-5));
    REQUIRE(worst_of(ours.gradients, plain.tensors(exec::TensorKind::Gradients)) <= most);
  }
}

TEST_CASE("ranks of groups compute the gradients and the losses of one device") {
  Dice dice(4801);
  Seen seen;
  const int rounds = scaled(200);
  for (int round = 0; round < rounds; ++round) {
    Parallelism form = random_form(dice);
    const Trainable model = as_rank(random_shareable(dice, form), form);
    const std::optional<Pipeline> plan = random_plan(dice, model, 2, true);
    if (!plan) continue;
    form.shards_optimizer = form.full_shards * form.experts == 1 && dice.chance(40);
    const bool is_at_end = form.shards_optimizer || form.copies() > 1;
    const Pipeline pipeline =
        in_groups(*plan, form, form.replicas_in_group(),
                  is_at_end ? OptimizerTiming::AtEnd : plan->plan.gradients.optimizer);
    const exec::TrainingSettings settings = random_settings(dice, pipeline.plan);
    const exec::TrainingJob job = job_of(model, pipeline, settings);
    INFO("instance " << round << ": " << text_of(pipeline) << ", " << to_text(form));
    seen.add(job);
    seen.experts += has_experts(model);
    check_held(job);
    // Norms of so few numbers can make ten times as much of a rounding error.
    require_as_plain(job, 1e-4);
  }
  if (rounds < 200) return;
  for (const std::int64_t ranks : {2, 3, 4}) CHECK(seen.ranks[ranks] >= 20);
  for (const std::int64_t shards : {2, 3}) CHECK(seen.shards[shards] >= 10);
  for (const std::int64_t contexts : {2, 3}) CHECK(seen.contexts[contexts] >= 10);
  for (const char* const pair :
       {"tensor, context", "tensor, shards", "context, shards", "context, samples",
        "context, sequence", "experts", "experts, tensor", "experts, context", "experts, samples",
        "samples alone", "sharded copies"}) {
    INFO(pair);
    CHECK(seen.pairs[pair] >= 5);
  }
  CHECK(seen.hybrid >= 10);
  CHECK(seen.experts >= 30);
  CHECK(seen.sequence >= 20);
  CHECK(seen.stages >= 20);
  CHECK(seen.replicas >= 20);
  CHECK(seen.sharded >= 10);
  CHECK(seen.ties >= 10);
  CHECK(seen.recomputed >= 20);
  CHECK(seen.clipped >= 10);
}

/// A form whose groups have so many ranks.
Parallelism random_form_of(Dice& dice, std::int64_t ranks) {
  const auto divisor = [&](std::int64_t number) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t one = 1; one <= number; ++one) {
      if (number % one == 0) divisors.push_back(one);
    }
    return divisors[static_cast<std::size_t>(
        dice.roll(0, static_cast<std::int64_t>(divisors.size()) - 1))];
  };
  Parallelism form{.tensor = divisor(ranks)};
  form.sequence = form.tensor > 1 && dice.chance(50);
  if (dice.chance(40)) form.context = divisor(ranks / form.tensor);
  const std::int64_t left = ranks / form.tensor / form.context;
  if ((form.tensor == 1 || form.sequence) && dice.chance(35)) form.experts = divisor(ranks);
  if (form.group_size() < ranks || (form.experts > 1 && dice.chance(30))) {
    form.group_replicas = form.tensor * form.context * left > form.experts ? left : 1;
  }
  if (form.experts == 1 && ranks > form.tensor && dice.chance(30)) {
    form.group_replicas = 1;
    form.full_shards = ranks / form.tensor;
  }
  if (dice.chance(20)) form.recomputes = {RecomputedPart::Layer};
  return form;
}

/// Whether all of these forms hold and reduce the same parts of tied parameters.
bool are_ties_alike(const std::vector<Parallelism>& forms) {
  const auto holding = [](const Parallelism& form) {
    return std::tuple(form.tensor, form.full_shards, form.experts > 1);
  };
  return std::all_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return holding(form) == holding(forms.front());
  });
}

/// A form with the degrees of all of these, for models that all of them can share.
Parallelism joined(const std::vector<Parallelism>& forms) {
  Parallelism all;
  for (const Parallelism& form : forms) {
    all.tensor = std::lcm(all.tensor, form.tensor);
    all.context = std::lcm(all.context, form.context);
    all.experts = std::lcm(all.experts, form.experts);
    all.sequence = all.sequence || form.sequence;
  }
  return all;
}

/// The plan with a form for every stage, or nothing where ties do not allow these forms.
std::optional<Pipeline> with_stage_forms(const Trainable& model, const Pipeline& pipeline,
                                         const std::vector<Parallelism>& forms, Dice& dice) {
  Plan plan = pipeline.plan;
  plan.parallelism = forms.front();
  plan.gradients.optimizer = OptimizerTiming::AtEnd;
  plan.stage_forms.assign(forms.begin() + 1, forms.end());
  for (StagePlan& stage : plan.stages) {
    stage.form = FormIndex{
        static_cast<std::int32_t>(dice.roll(0, static_cast<std::int64_t>(forms.size()) - 1))};
    stage.gradient_buckets.clear();
    // Only ranks with different experts all need a sample.
    const auto groups = static_cast<std::int64_t>(stage.devices.size());
    const Parallelism& form = form_of(plan, stage);
    const std::int64_t least = groups * (form.experts > 1 ? form.replicas_in_group() : 1);
    plan.micro_batch_size = std::max(plan.micro_batch_size, least + dice.roll(0, 2));
  }
  for (const Parallelism& form : forms) {
    const std::int64_t least =
        (form.replicas_in_group() + plan.num_micro_batches - 1) / plan.num_micro_batches;
    plan.micro_batch_size = std::max(plan.micro_batch_size, least);
  }
  plan.global_batch_size = plan.micro_batch_size * plan.num_micro_batches;
  if (!plan.tied_gradients.empty() && !are_ties_alike(forms)) return std::nullopt;
  fill_gradient_buckets(plan, model.profile);
  TopologyDescription description = pipeline.topology.description();
  description.shards_optimizer = forms.front().shards_optimizer;
  return Pipeline{model.profile, std::move(description), plan};
}

/// The same model with the profiles of one rank in each form.
Trainable as_rank(const Trainable& whole, const std::vector<Parallelism>& forms) {
  Trainable model = as_rank(whole, forms.front());
  for (std::size_t i = 1; i < forms.size(); ++i) {
    model.profile.stage_forms.push_back(as_rank(whole, forms[i]).profile);
  }
  return model;
}

struct SeenForms {
  std::map<std::string, int> changes;
  int sharded = 0;
  int ties = 0;
  int replicas = 0;
  int dealt = 0;
  int clipped = 0;
  int chunks = 0;
  int splits_head = 0;
  int idle = 0;  // with ranks that have no sample

  void add(const exec::TrainingJob& job) {
    const auto count = [&](bool is, const char* what) { changes[what] += is; };
    for (std::size_t s = 1; s < job.plan.stages.size(); ++s) {
      const Parallelism& from = job.form(index_at<StageIndex>(s - 1));
      const Parallelism& to = job.form(index_at<StageIndex>(s));
      count(from.tensor != to.tensor, "tensor");
      count(from.sequence != to.sequence, "sequence");
      count(from.context != to.context, "context");
      count(from.experts != to.experts, "experts");
      count(from.replicas_in_group() != to.replicas_in_group(), "samples");
      count(from.full_shards != to.full_shards, "shards");
      const std::int32_t cut = job.plan.stages[s].layers.begin;
      const auto& in_front = (*job.layers)[static_cast<std::size_t>(cut) - 1];
      splits_head +=
          std::holds_alternative<LinearOperation>(in_front.operation) && from.tensor != to.tensor;
    }
    const auto any = [&](auto is) {
      return std::any_of(job.plan.stages.begin(), job.plan.stages.end(), is);
    };
    const bool has_replicas = any([](const StagePlan& stage) { return stage.devices.size() > 1; });
    replicas += has_replicas;
    idle += any([&](const StagePlan& stage) {
      return samples_of(job.plan, stage, stage.devices.size() - 1).size() <
             form_of(job.plan, stage).replicas_in_group();
    });
    dealt += has_replicas &&
             any([](const StagePlan& stage) { return stage.replication == Replication::Deal; });
    sharded += job.plan.parallelism.shards_optimizer;
    ties += !job.plan.tied_gradients.empty();
    clipped += job.settings.clip_norm.has_value();
    chunks += job.plan.chunks_per_device > 1;
  }
};

/// Sets of forms whose groups have one size; all of them shard the optimizer's state, or none does.
std::vector<Parallelism> random_forms(Dice& dice) {
  constexpr std::int64_t kRanks[] = {2, 3, 4, 4, 6};
  const std::int64_t ranks = kRanks[dice.roll(0, 4)];
  const bool are_alike = dice.chance(25);
  const auto count = static_cast<std::size_t>(dice.roll(2, 3));
  std::vector<Parallelism> forms;
  while (forms.size() < count) {
    forms.push_back(random_form_of(dice, ranks));
    if (are_alike && !are_ties_alike(forms)) forms.pop_back();
  }
  const bool may_shard = std::all_of(forms.begin(), forms.end(), [](const Parallelism& form) {
    return form.full_shards * form.experts == 1;
  });
  if (may_shard && dice.chance(50)) {
    for (Parallelism& form : forms) form.shards_optimizer = true;
  }
  return forms;
}

TEST_CASE("stages in different forms compute the gradients and the losses of one device") {
  Dice dice(4804);
  SeenForms seen;
  const int rounds = scaled(250);
  for (int round = 0; round < rounds; ++round) {
    const std::vector<Parallelism> forms = random_forms(dice);
    const Trainable whole = random_shareable(dice, joined(forms));
    const Trainable model = as_rank(whole, forms);
    std::optional<Pipeline> plan = random_plan(dice, as_rank(whole, forms.front()), 2, true);
    if (plan && dice.chance(35)) plan = under_family(*plan, ScheduleFamily::ZeroBubbleV, 5);
    if (!plan) continue;
    const std::optional<Pipeline> pipeline = with_stage_forms(model, *plan, forms, dice);
    if (!pipeline || !exec::has_different_groups(pipeline->plan)) continue;
    const exec::TrainingSettings settings = random_settings(dice, pipeline->plan);
    const exec::TrainingJob job = job_of(model, *pipeline, settings);
    std::string text = text_of(*pipeline);
    for (const StagePlan& stage : pipeline->plan.stages) {
      text += ", " + to_text(form_of(pipeline->plan, stage));
    }
    INFO("instance " << round << ": " << text);
    seen.add(job);
    // As above. What is missing, or is there twice, makes a hundred times as much.
    require_as_plain(job, 5e-4);
  }
  if (rounds < 250) return;
  for (const char* const change :
       {"tensor", "sequence", "context", "experts", "samples", "shards"}) {
    INFO(change);
    CHECK(seen.changes[change] >= 10);
  }
  CHECK(seen.sharded >= 10);
  CHECK(seen.ties >= 5);
  CHECK(seen.replicas >= 20);
  CHECK(seen.dealt >= 10);
  CHECK(seen.clipped >= 10);
  CHECK(seen.chunks >= 5);
  CHECK(seen.splits_head >= 5);
  CHECK(seen.idle >= 10);
}

TEST_CASE("parts of layers that are computed again change no bit, and less is kept") {
  Dice dice(4803);
  int several_blocks = 0;  // in a stage
  int other_blocks = 0;    // where every other one recomputes
  int several_stages = 0;  // with blocks
  for (int round = 0; round < scaled(40); ++round) {
    Parallelism form = dice.chance(50) ? random_form(dice) : Parallelism{};
    const Trainable model = as_rank(random_shareable(dice, form), form);
    const std::optional<Pipeline> plan = random_plan(dice, model, 2, true);
    if (!plan) continue;
    const exec::TrainingSettings settings{.optimizer = {.kind = nn::OptimizerKind::AdamW}};
    const auto trained = [&](const Recomputation& recomputation,
                             bool in_every_other_stage = false) {
      form.recomputes = recomputation.parts;
      form.recomputed_layers = recomputation.layers;
      Trainable of_forms = model;
      Pipeline pipeline = in_groups(*plan, form, form.replicas_in_group());
      if (in_every_other_stage) {
        of_forms.profile.stage_forms = {model.profile};
        pipeline.plan.stage_forms = {without_recomputation(form)};
        for (std::size_t s = 1; s < pipeline.plan.stages.size(); s += 2) {
          pipeline.plan.stages[s].form = FormIndex{1};
        }
      }
      const exec::TrainingJob job = job_of(of_forms, pipeline, settings);
      return train(job, devices_of(job), 2);
    };
    const Outcome kept = trained({});
    const RecomputedParts parts = random_parts(model, dice);
    const Outcome first = trained({parts, LayerSelection::first(1)});
    const Outcome every_other = trained({parts, LayerSelection::every(2)});
    const Outcome in_some_stages = trained({parts}, true);
    const Outcome again = trained({parts});
    INFO("instance " << round << ": " << text_of(*plan) << ", " << to_text(form));
    for (const Outcome* some : {&first, &every_other, &in_some_stages, &again}) {
      for (std::size_t n = 0; n < kept.iterations.size(); ++n) {
        REQUIRE(some->iterations[n].loss == kept.iterations[n].loss);
        require_same(some->iterations[n].gradients, kept.iterations[n].gradients);
      }
      require_same(some->parameters, kept.parameters);
    }
    const auto held_by = [](const Outcome& outcome) {
      Bytes most;
      for (const auto& [stage, held] : outcome.held) most += held.size;
      return most;
    };
    const Bytes most_again = held_by(again);
    const Bytes most_kept = held_by(kept);
    const auto is_between = [&](Bytes held) {
      CHECK(most_again <= held);
      CHECK(held <= most_kept);
      return most_again < held && held < most_kept;
    };
    several_blocks += static_cast<int>(is_between(held_by(first)));
    other_blocks += static_cast<int>(is_between(held_by(every_other)));
    several_stages += static_cast<int>(is_between(held_by(in_some_stages)));
    const bool recomputes_stages =
        std::all_of(plan->plan.stages.begin(), plan->plan.stages.end(),
                    [](const StagePlan& stage) { return stage.recompute; });
    if (!recomputes_stages) CHECK(most_again < most_kept);
  }
  CHECK(several_blocks >= scaled(40) / 20);
  CHECK(other_blocks >= scaled(40) / 20);
  CHECK(several_stages >= scaled(40) / 20);
}

/// Trains from step `begin` on and returns the losses and the model at the end.
std::pair<std::vector<double>, exec::NamedTensors> trained(const exec::TrainingJob& job,
                                                           const exec::NamedTensors* start,
                                                           std::int64_t begin, std::int64_t end) {
  std::pair<std::vector<double>, exec::NamedTensors> result;
  exec::run_on_threads(job, devices_of(job), {}, [&](exec::DeviceTraining& device) {
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

TEST_CASE("a training goes on with other groups, or without") {
  Dice dice(4802);
  for (int round = 0; round < scaled(12); ++round) {
    const Parallelism widest{.tensor = 4, .sequence = true};
    Parallelism every = widest;
    every.context = 2;
    const Trainable model = random_shareable(dice, every);
    exec::TrainingSettings settings = random_settings(dice, Plan{});
    settings.optimizer.kind = nn::OptimizerKind::AdamW;
    settings.optimizer.learning_rate = 0.01F;
    std::vector<exec::TrainingJob> jobs;
    const Parallelism forms[] = {{},
                                 {.tensor = 2},
                                 {.tensor = 2, .sequence = true, .shards_optimizer = true},
                                 {.full_shards = 2},
                                 {.context = 2, .recomputes = kWholeLayer},
                                 {.tensor = 2, .context = 2, .full_shards = 4},
                                 {.tensor = 4},
                                 {.tensor = 2, .sequence = true, .full_shards = 2},
                                 widest};
    for (const Parallelism& form : forms) {
      std::optional<Pipeline> plan;
      const Trainable of_rank = as_rank(model, form);
      Dice same(static_cast<std::uint64_t>(round));
      while (!plan) plan = random_plan(same, of_rank, 2, false);
      jobs.push_back(job_of(of_rank, in_groups(*plan, form, 2), settings));
    }
    const auto [losses, last] = trained(jobs.front(), nullptr, 0, 18);
    const exec::NamedTensors* start = nullptr;
    exec::NamedTensors tensors;
    std::int64_t step = 0;
    for (const exec::TrainingJob& job : jobs) {
      auto [two, after] = trained(job, start, step, step + 2);
      for (const double loss : two) {
        INFO("round " << round << ", step " << step << ", " << to_text(job.plan.parallelism));
        CHECK(std::abs(loss - losses[static_cast<std::size_t>(step++)]) <= 1e-4);
      }
      tensors = std::move(after);
      start = &tensors;
    }
  }
}

}  // namespace
}  // namespace dapple
