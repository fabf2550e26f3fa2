// Groups of ranks that train small transformers, for the executor's tests.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/exec/train/training_job.h"
#include "trained_pipeline.h"

namespace dapple::small {

/// Transformers that so many ranks can share.
inline Trainable random_shareable(Dice& dice, const Parallelism& form) {
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
    TransformerBlockOperation block{
        .hidden = hidden,
        .heads = heads,
        .feed_forward = std::lcm(t, form.expert_tensor) * dice.roll(1, 4),
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
inline Trainable as_rank(Trainable model, const Parallelism& form) {
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
inline Pipeline in_groups(const Pipeline& pipeline, const Parallelism& form, std::int64_t multiple,
                          OptimizerTiming timing = OptimizerTiming::AtEnd) {
  Plan plan = pipeline.plan;
  plan.parallelism = form;
  plan.micro_batch_size *= multiple;
  plan.global_batch_size *= multiple;
  plan.gradients.optimizer = timing;
  TopologyDescription description = pipeline.topology.description();
  description.shards_optimizer = form.shards_over_replicas();
  return {pipeline.profile, std::move(description), std::move(plan)};
}

/// Has the ranks of each group alone shard the optimizer's state of a form, which is sharded, if
/// several of them hold the same parameters.
inline void shard_in_groups(Parallelism& form) {
  if (!form.shards_optimizer || form.copies() == 1) return;
  form.optimizer_shards = form.copies();
  form.group_replicas = 1;
}

/// Single devices that all reach each other.
inline Topology devices_of(const exec::TrainingJob& job) {
  const auto count = 1 + std::ranges::max(job.numbers()).value;
  return Topology(full_mesh(static_cast<std::size_t>(count), {bytes_per_ns(1), {}}));
}

/// The largest difference of a number from the expected one, over the largest of the tensor, or
/// over a thousandth of the largest of all tensors: small ones are what is left where large terms
/// cancel out.
inline double worst_of(const exec::NamedTensors& tensors, const exec::NamedTensors& expected) {
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

/// Divides each expert among ranks, if there are as many that have different ones.
inline void divide_experts(Dice& dice, Parallelism& form) {
  const std::int64_t ranks = dice.roll(2, 3);
  if (form.experts % ranks != 0 || form.experts == ranks) return;
  form.experts /= ranks;
  form.expert_tensor = ranks;
}

inline Parallelism random_form(Dice& dice) {
  Parallelism form{.tensor = dice.roll(1, 4)};
  form.sequence = form.tensor > 1 && dice.chance(50);
  if (form.tensor < 4 && dice.chance(40)) form.context = dice.roll(2, 3);
  const bool is_alone = form.tensor * form.context == 1;
  if (form.tensor < 4 && (form.tensor == 1 || form.sequence) && dice.chance(50)) {
    // Each of these ranks has other positions.
    form.experts =
        form.tensor * form.context * dice.roll(form.tensor * form.context == 1 ? 2 : 1, 2);
    if (form.group_size() > 8) form.experts = 1;
    if (dice.chance(60)) divide_experts(dice, form);
    // Several ranks may have the same experts.
    if (form.tensor * form.context == 4 && dice.chance(40)) form.experts = 2;
    const bool is_apart = form.experts > 1 && form.group_size() > form.tensor;
    if (is_apart && dice.chance(25)) form.full_shards = form.copies();
  }
  if (form.experts == 1 && form.tensor * form.context < 4 && dice.chance(30)) {
    form.group_replicas = 2;
  } else if (form.experts == 1 && (is_alone || (form.tensor < 4 && dice.chance(45)))) {
    form.full_shards =
        form.context * dice.roll(form.context == 1 ? 2 : 1, form.tensor == 1 ? 3 : 2);
  }
  return form;
}

inline bool has_experts(const Trainable& model) {
  return std::any_of(model.layers->begin(), model.layers->end(), [](const nn::ModelLayer& layer) {
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    return block != nullptr && block->experts;
  });
}

/// A form whose groups have so many ranks.
inline Parallelism random_form_of(Dice& dice, std::int64_t ranks) {
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
  if (form.experts > 1 && dice.chance(40)) form.expert_tensor = divisor(ranks / form.experts);
  if (form.group_size() < ranks || (form.experts > 1 && dice.chance(30))) {
    const bool has_more = form.tensor * form.context * left > form.experts * form.expert_tensor;
    form.group_replicas = has_more ? left : 1;
  }
  if (ranks > form.tensor && dice.chance(30)) {
    form.group_replicas = 1;
    form.full_shards = ranks / form.tensor;
  }
  if (dice.chance(20)) form.recomputes = {RecomputedPart::Layer};
  return form;
}

/// Whether all of these forms hold and reduce the same parts of tied parameters.
inline bool are_ties_alike(const std::vector<Parallelism>& forms) {
  const auto holding = [](const Parallelism& form) {
    return std::tuple(form.tensor, form.full_shards);
  };
  return std::all_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return holding(form) == holding(forms.front());
  });
}

/// A form with the degrees of all of these, for models that all of them can share.
inline Parallelism joined(const std::vector<Parallelism>& forms) {
  Parallelism all;
  for (const Parallelism& form : forms) {
    all.tensor = std::lcm(all.tensor, form.tensor);
    all.context = std::lcm(all.context, form.context);
    all.experts = std::lcm(all.experts, form.experts);
    all.expert_tensor = std::lcm(all.expert_tensor, form.expert_tensor);
    all.sequence = all.sequence || form.sequence;
  }
  return all;
}

/// Gives every replica of a stage, one device each so far, the consecutive devices of a group of
/// its form, and returns how many devices there are then. Requires: devices have one stage each.
inline std::int32_t spread_out(Plan& plan) {
  set_devices_per_replica(plan);
  std::int32_t next = 0;
  for (StagePlan& stage : plan.stages) {
    const std::int32_t size = stage.devices_per_replica;
    const auto count = static_cast<std::int32_t>(stage.devices.size()) * size;
    if (size > 1) stage.replication = Replication::Split;
    next = (next + size - 1) / size * size;
    stage.devices.clear();
    for (std::int32_t i = 0; i < count; ++i) stage.devices.push_back({next++});
  }
  return next;
}

/// The plan, whose stages have their forms, on devices for groups of all their sizes, in one server
/// or, where that is asked for, in two. Returns nothing where its schedule does not allow it.
inline std::optional<Pipeline> on_groups(const Trainable& model, Plan plan, std::int32_t servers) {
  const std::int32_t devices = spread_out(plan);
  std::int32_t largest = 1;
  for (const ModelProfile& form : model.profile.stage_forms) {
    largest = std::max(largest, devices_per_replica(model.profile, form));
  }
  const std::int32_t unit = servers * largest;
  TopologyDescription description = cluster({.servers = servers,
                                             .devices = (devices + unit - 1) / unit * largest,
                                             .inside = {bytes_per_ns(50), {}}});
  description.shards_optimizer = plan.parallelism.shards_over_replicas();
  fill_gradient_buckets(plan, model.profile);
  const auto layers = static_cast<std::int32_t>(model.layers->size());
  if (!validate(plan, layers, Topology(description)).empty() ||
      !validate(generate(plan), plan).empty()) {
    return std::nullopt;  // dealt micro-batches may wait for each other
  }
  return Pipeline{model.profile, std::move(description), std::move(plan)};
}

/// The plan with a form for every stage, or nothing where ties do not allow these forms.
inline std::optional<Pipeline> with_stage_forms(const Trainable& model, const Pipeline& pipeline,
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
  const bool is_larger = std::ranges::any_of(forms, [&](const Parallelism& form) {
    return form.group_size() > forms.front().group_size();
  });
  if (is_larger) return on_groups(model, std::move(plan), dice.chance(50) ? 2 : 1);
  fill_gradient_buckets(plan, model.profile);
  TopologyDescription description = pipeline.topology.description();
  description.shards_optimizer = forms.front().shards_over_replicas();
  return Pipeline{model.profile, std::move(description), plan};
}

/// The same model with the profiles of one rank in each form.
inline Trainable as_rank(const Trainable& whole, const std::vector<Parallelism>& forms) {
  Trainable model = as_rank(whole, forms.front());
  model.profile.parallelism = forms.front();
  for (std::size_t i = 1; i < forms.size(); ++i) {
    model.profile.stage_forms.push_back(as_rank(whole, forms[i]).profile);
    model.profile.stage_forms.back().parallelism = forms[i];
  }
  return model;
}

/// In all forms the optimizer's state is sharded, or in none, and in groups alone in all or in
/// none. Returns them either way.
inline std::vector<Parallelism> with_any_state(Dice& dice, std::vector<Parallelism> forms) {
  const bool may_shard = std::all_of(forms.begin(), forms.end(),
                                     [](const Parallelism& form) { return form.full_shards == 1; });
  if (may_shard && dice.chance(50)) {
    for (Parallelism& form : forms) form.shards_optimizer = true;
    const bool have_copies =
        std::ranges::all_of(forms, [](const Parallelism& form) { return form.copies() > 1; });
    if (have_copies && !forms.front().sequence) std::ranges::for_each(forms, shard_in_groups);
  }
  return forms;
}

/// Sets of forms whose groups have different sizes, the first one the smallest, each of which
/// divides the next larger one.
inline std::vector<Parallelism> random_forms_of_sizes(Dice& dice) {
  const std::vector<std::int64_t> sets[] = {{1, 2}, {1, 3}, {1, 4}, {2, 4},    {2, 6},
                                            {3, 6}, {2, 8}, {4, 8}, {1, 2, 4}, {2, 2, 4}};
  std::vector<Parallelism> forms;
  for (const std::int64_t ranks : sets[dice.roll(0, 9)]) {
    forms.push_back(random_form_of(dice, ranks));
  }
  return with_any_state(dice, std::move(forms));
}

/// Sets of forms whose groups have one size; all of them shard the optimizer's state, or none does.
inline std::vector<Parallelism> random_forms(Dice& dice) {
  constexpr std::int64_t kRanks[] = {2, 3, 4, 4, 6};
  const std::int64_t ranks = kRanks[dice.roll(0, 4)];
  const bool are_alike = dice.chance(25);
  const auto count = static_cast<std::size_t>(dice.roll(2, 3));
  std::vector<Parallelism> forms;
  while (forms.size() < count) {
    forms.push_back(random_form_of(dice, ranks));
    if (are_alike && !are_ties_alike(forms)) forms.pop_back();
  }
  return with_any_state(dice, std::move(forms));
}

/// A job whose stages have groups of different sizes, and what it is.
struct JobOfSizes {
  exec::TrainingJob job;
  std::string text;
};
/// Returns nothing where the dice make no such job.
inline std::optional<JobOfSizes> random_job_of_sizes(Dice& dice) {
  const std::vector<Parallelism> forms = random_forms_of_sizes(dice);
  const Trainable whole = random_shareable(dice, joined(forms));
  if (!whole.profile.ties.empty()) return std::nullopt;  // has groups of one size
  const Trainable model = as_rank(whole, forms);
  std::optional<Pipeline> plan = random_plan(dice, as_rank(whole, forms.front()), 2, true);
  if (plan && dice.chance(30)) {
    const bool is_zero_bubble = dice.chance(50);
    plan = under_family(
        *plan, is_zero_bubble ? ScheduleFamily::ZeroBubbleH2 : ScheduleFamily::ListScheduled, 5);
  }
  if (!plan) return std::nullopt;
  const std::optional<Pipeline> pipeline = with_stage_forms(model, *plan, forms, dice);
  if (!pipeline || !has_larger_groups(pipeline->plan)) return std::nullopt;
  std::string text = text_of(*pipeline);
  for (const StagePlan& stage : pipeline->plan.stages) {
    text += ", " + to_text(form_of(pipeline->plan, stage));
  }
  return JobOfSizes{job_of(model, *pipeline, random_settings(dice, pipeline->plan)),
                    std::move(text)};
}

/// A model with two experts of four for each position.
inline Trainable with_experts(Dice& dice) {
  constexpr std::int64_t kHidden = 32;
  constexpr std::int64_t kSequence = 8;
  constexpr std::int64_t kVocabulary = 11;
  const TransformerBlockOperation block{.hidden = kHidden,
                                        .heads = 2,
                                        .feed_forward = kHidden,
                                        .sequence = kSequence,
                                        .causal = true,
                                        .activation = FeedForwardKind::SwiGlu,
                                        .experts = ExpertsForm{.count = 4, .per_token = 2}};
  const TrainableShape shape{.operations = {EmbeddingOperation{kVocabulary, kSequence, kHidden},
                                            block, LinearOperation{kHidden, kVocabulary},
                                            SoftmaxCrossEntropyOperation{kVocabulary}},
                             .input = {kSequence},
                             .tokens = kVocabulary,
                             .classes = kVocabulary,
                             .positions = {kSequence}};
  return trainable(shape, dice);
}

/// Forms in which ranks have different experts, or parts of the same ones, beside all other kinds
/// of parallelism.
inline std::vector<Parallelism> forms_with_experts() {
  return {{.experts = 2, .shards_optimizer = true},
          {.group_replicas = 4, .experts = 2, .shards_optimizer = true},
          {.experts = 2, .expert_tensor = 2},
          {.tensor = 2, .sequence = true, .experts = 2, .shards_optimizer = true},
          {.tensor = 2, .sequence = true, .experts = 2, .expert_tensor = 2},
          {.tensor = 2, .sequence = true, .context = 2, .experts = 2, .shards_optimizer = true},
          {.tensor = 2,
           .sequence = true,
           .context = 2,
           .experts = 2,
           .expert_tensor = 2,
           .shards_optimizer = true},
          {.context = 2, .experts = 4, .shards_optimizer = true},
          {.context = 2, .group_replicas = 2, .experts = 2, .expert_tensor = 2},
          {.experts = 2, .shards_optimizer = true, .optimizer_shards = 4},
          {.tensor = 2,
           .sequence = true,
           .context = 2,
           .experts = 4,
           .shards_optimizer = true,
           .optimizer_shards = 4},
          {.tensor = 2,
           .sequence = true,
           .experts = 2,
           .expert_tensor = 2,
           .shards_optimizer = true,
           .optimizer_shards = 2},
          {.experts = 2, .full_shards = 4},
          {.tensor = 2, .sequence = true, .experts = 2, .expert_tensor = 2, .full_shards = 2}};
}

/// Trains a model with experts on two stages, the first of which has two replicas.
inline exec::TrainingJob job_with_experts(Dice& dice, const Parallelism& form) {
  const Trainable model = as_rank(with_experts(dice), form);
  Pipeline alone{model.profile, full_mesh(3, {bytes_per_ns(1), {}}),
                 plan_of(model.profile, {.micro_batch_size = 2,
                                         .num_micro_batches = 3,
                                         .depths = {2, 1},
                                         .stages = {{.layers = 2, .devices = {0, 1}},
                                                    {.layers = 2, .devices = {2}}}})};
  fill_gradient_buckets(alone.plan, model.profile);
  exec::TrainingSettings settings;
  settings.optimizer.kind = nn::OptimizerKind::AdamW;
  settings.clip_norm = 0.5;
  return job_of(model, in_groups(alone, form, form.replicas_in_group()), settings);
}

/// A form and a model, with experts or without, that its ranks can share.
struct GroupModel {
  Parallelism form;
  Trainable model;
};
inline GroupModel random_group_model(Dice& dice) {
  const Parallelism form = random_form(dice);
  return {form, as_rank(random_shareable(dice, form), form)};
}

/// Parts that the blocks of a model have.
inline RecomputedParts random_parts(const Trainable& model, Dice& dice) {
  const RecomputedPart behind_attention =
      has_experts(model) ? RecomputedPart::Experts : RecomputedPart::FeedForward;
  const RecomputedParts sets[] = {{RecomputedPart::Layer},
                                  {RecomputedPart::CoreAttention},
                                  {behind_attention},
                                  {RecomputedPart::CoreAttention, behind_attention}};
  return sets[dice.roll(0, 3)];
}

/// Requires that the iterations of a job have the losses of training on one CPU and, up to `most`
/// of the largest number of each tensor, its gradients.
inline void require_as_plain(const exec::TrainingJob& job, const Outcome& outcome, double most) {
  exec::PlainTraining plain(job);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& ours = outcome.iterations[n];
    plain.restore(ours.before);
    const double loss = plain.run(static_cast<std::int64_t>(n));
    REQUIRE(ours.loss == Approx(loss).epsilon(most));
    REQUIRE(worst_of(ours.gradients, plain.tensors(exec::TensorKind::Gradients)) <= most);
  }
}

}  // namespace dapple::small
