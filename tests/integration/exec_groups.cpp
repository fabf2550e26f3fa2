// Training where the plan's devices are groups that share layers or hold shards of all state,
// against one device without groups.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "../support/scaled.h"
#include "../support/trained_groups.h"
#include "../support/trained_pipeline.h"
#include "dapple/exec/train/rank_connections.h"
#include "dapple/exec/train/train.h"

namespace dapple {
namespace {

using namespace small;

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
    if (form.optimizer_shards > 0) ++pairs["sharded in groups"];
    if (form.optimizer_shards > 0 && has_tensor) ++pairs["sharded in groups, tensor"];
    if (form.optimizer_shards > 0 && has_context) ++pairs["sharded in groups, context"];
    const bool has_experts = form.experts > 1;
    if (has_experts) ++pairs["experts"];
    if (has_experts && has_tensor) ++pairs["experts, tensor"];
    if (has_experts && has_context) ++pairs["experts, context"];
    if (has_experts && job.sample_ranks() > 1) ++pairs["experts, samples"];
    if (has_experts && form.expert_copies() > 1) ++pairs["experts, copies"];
    if (has_experts && form.shards_optimizer) ++pairs["experts, sharded"];
    if (has_experts && has_shards) ++pairs["experts, shards"];
    if (form.expert_tensor > 1) ++pairs["divided experts"];
    if (form.expert_tensor > 1 && has_tensor) ++pairs["divided experts, tensor"];
    if (form.expert_tensor > 1 && job.plan.stages.size() > 1) ++pairs["divided experts, stages"];
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
    if (form.optimizer_shards > 0 && has_replicas) ++pairs["sharded in groups, replicas"];
    sharded += has_replicas && job.plan.parallelism.shards_optimizer;
    recomputed += any([](const StagePlan& stage) { return stage.recompute; });
  }
};

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

/// Each rank holds the optimizer's state of an equal part of what the planner counts: of all that
/// is outside experts, shared with those that hold the same, and of its experts with fewer ranks.
/// Groups that shard it each have the same parts.
void check_state(const exec::TrainingJob& job) {
  if (!job.plan.parallelism.shards_optimizer) return;
  const Parallelism& form = job.plan.parallelism;
  for (std::int64_t rank = 0; rank < job.ranks(); ++rank) {
    const DeviceIndex device = job.devices.back().device;
    const auto backend = exec::make_cpu_backend(job, job.device_of(device, rank));
    for (const StageIndex stage : backend->stages()) {
      const StagePlan& plan = job.plan.stages[stage.position()];
      std::int64_t outside = 0;
      std::int64_t of_experts = 0;
      std::int64_t tensors = 0;
      bool has_ties = false;
      for (std::int32_t l = plan.layers.begin; l < plan.layers.end; ++l) {
        has_ties = has_ties || job.layer(l).tied_to.has_value();
        for (const nn::ParameterSpec& parameter : job.layer(l, rank).own_parameters()) {
          (parameter.is_of_experts ? of_experts : outside) += nn::count_of(parameter.shape);
          ++tensors;
        }
      }
      const auto groups = static_cast<std::int64_t>(plan.devices.size());
      const std::int64_t replicas = form.optimizer_shards > 0 ? 1 : groups;
      const bool is_shared = replicas * form.copies() * form.expert_copies() > 1;
      if (!is_shared || has_ties) continue;  // it may hold copies of another stage's
      const std::int64_t states = nn::state_count(job.settings.optimizer.kind);
      const std::int64_t planned = states * (outside / form.copies() / replicas +
                                             of_experts / form.expert_copies() / replicas);
      const auto held =
          static_cast<std::int64_t>(backend->values(stage, exec::TensorKind::State).size());
      // Each of the parts of a bucket or tie is rounded twice. Without buckets there are gaps of
      // less than a cache line behind tensors.
      std::int64_t rounding = 4 * states * plan.layers.size();
      if (groups == 1) rounding += 16 * states * tensors;
      CHECK(held >= planned - rounding);
      CHECK(held <= planned + rounding);
    }
  }
}

/// The model where every number has changed by four roundings.
exec::NamedTensors changed_by_roundings(exec::NamedTensors model) {
  Dice dice(4808);
  for (auto& [name, tensor] : model) {
    for (float& value : tensor.values) value *= dice.chance(50) ? 1 + 0x1p-22F : 1 - 0x1p-22F;
  }
  return model;
}

/// By how much gradients change where every parameter does by four roundings. Norms of few numbers
/// that are nearly equal enlarge every rounding error as much, whatever is added up in which order.
double change_by_roundings(exec::PlainTraining& plain, const exec::NamedTensors& model,
                           std::int64_t step, const exec::NamedTensors& gradients) {
  plain.restore(changed_by_roundings(model));
  plain.run(step);
  return worst_of(plain.tensors(exec::TensorKind::Gradients), gradients);
}

/// Requires that three iterations of a job have the losses of training on one device and its
/// gradients: up to 1e-5 of the largest number of each tensor, or what roundings make of that.
void require_as_plain(const exec::TrainingJob& job) {
  const Outcome outcome = train(job, devices_of(job), 3);
  exec::PlainTraining plain(job);
  for (std::size_t n = 0; n < outcome.iterations.size(); ++n) {
    const Outcome::Iteration& ours = outcome.iterations[n];
    const auto step = static_cast<std::int64_t>(n);
    plain.restore(ours.before);
    const double loss = plain.run(step);
    REQUIRE(ours.loss == Approx(loss).epsilon(1e-5));
    const exec::NamedTensors expected = plain.tensors(exec::TensorKind::Gradients);
    const double worst = worst_of(ours.gradients, expected);
    if (worst <= 1e-5) continue;
    REQUIRE(worst <= 1e-4);
    REQUIRE(worst <= change_by_roundings(plain, ours.before, step, expected));
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
    form.shards_optimizer = form.full_shards == 1 && dice.chance(40);
    if (round % 3 > 0) shard_in_groups(form);
    const bool is_at_end = form.shards_optimizer || form.copies() > 1 || form.expert_copies() > 1;
    const Pipeline pipeline =
        in_groups(*plan, form, form.replicas_in_group(),
                  is_at_end ? OptimizerTiming::AtEnd : plan->plan.gradients.optimizer);
    const exec::TrainingSettings settings = random_settings(dice, pipeline.plan);
    const exec::TrainingJob job = job_of(model, pipeline, settings);
    INFO("instance " << round << ": " << text_of(pipeline) << ", " << to_text(form));
    seen.add(job);
    seen.experts += has_experts(model);
    check_held(job);
    check_state(job);
    require_as_plain(job);
  }
  if (rounds < 200) return;
  for (const std::int64_t ranks : {2, 3, 4}) CHECK(seen.ranks[ranks] >= 20);
  for (const std::int64_t shards : {2, 3}) CHECK(seen.shards[shards] >= 10);
  for (const std::int64_t contexts : {2, 3}) CHECK(seen.contexts[contexts] >= 10);
  for (const char* const pair : {"tensor, context",
                                 "tensor, shards",
                                 "context, shards",
                                 "context, samples",
                                 "context, sequence",
                                 "experts",
                                 "experts, tensor",
                                 "experts, context",
                                 "experts, samples",
                                 "samples alone",
                                 "sharded copies",
                                 "sharded in groups",
                                 "sharded in groups, tensor",
                                 "sharded in groups, context",
                                 "sharded in groups, replicas",
                                 "experts, sharded",
                                 "experts, shards",
                                 "divided experts",
                                 "divided experts, tensor",
                                 "divided experts, stages"}) {
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

TEST_CASE("ranks with different experts compute the gradients and the losses of one device") {
  Dice dice(4807);
  for (const Parallelism& form : forms_with_experts()) {
    INFO(to_text(form));
    const exec::TrainingJob job = job_with_experts(dice, form);
    check_held(job);
    check_state(job);
    require_as_plain(job);
  }
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
    const bool has_replicas = any([](const StagePlan& stage) { return replicas_of(stage) > 1; });
    replicas += has_replicas;
    idle += any([&](const StagePlan& stage) {
      return samples_of(job.plan, stage, stage.devices.size() - 1).size() <
             form_of(job.plan, stage).replicas_in_group();
    });
    const auto count_pair = [&](std::int32_t from, std::int32_t to) {
      count(from < to, "smaller to larger");
      count(from > to, "larger to smaller");
    };
    for (std::size_t s = 1; s < job.plan.stages.size(); ++s) {
      count_pair(job.plan.stages[s - 1].devices_per_replica,
                 job.plan.stages[s].devices_per_replica);
    }
    count(any([](const StagePlan& stage) {
            return stage.devices_per_replica > 1 && replicas_of(stage) > 1;
          }),
          "several larger groups");
    std::set<std::int32_t> sizes;
    for (const StagePlan& stage : job.plan.stages) sizes.insert(stage.devices_per_replica);
    count(sizes.size() > 2, "three sizes");
    count(carries_order(job.plan.family), "orders");
    count(job.plan.family == ScheduleFamily::GPipe, "gpipe");
    count(job.plan.family == ScheduleFamily::OneFOneB, "1f1b");
    dealt += has_replicas &&
             any([](const StagePlan& stage) { return stage.replication == Replication::Deal; });
    sharded += job.plan.parallelism.shards_optimizer;
    count(job.plan.parallelism.optimizer_shards > 0, "sharded in groups");
    ties += !job.plan.tied_gradients.empty();
    clipped += job.settings.clip_norm.has_value();
    chunks += job.plan.chunks_per_device > 1;
  }
};

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
    require_as_plain(job);
  }
  if (rounds < 250) return;
  for (const char* const change :
       {"tensor", "sequence", "context", "experts", "samples", "shards"}) {
    INFO(change);
    CHECK(seen.changes[change] >= 10);
  }
  CHECK(seen.changes["sharded in groups"] >= 5);
  CHECK(seen.sharded >= 10);
  CHECK(seen.ties >= 5);
  CHECK(seen.replicas >= 20);
  CHECK(seen.dealt >= 10);
  CHECK(seen.clipped >= 10);
  CHECK(seen.chunks >= 5);
  CHECK(seen.splits_head >= 5);
  CHECK(seen.idle >= 10);
}

TEST_CASE(
    "stages on groups of different sizes compute the gradients and the losses of one device") {
  Dice dice(4805);
  SeenForms seen;
  const int rounds = scaled(250);
  for (int round = 0; round < rounds; ++round) {
    const std::optional<JobOfSizes> made = random_job_of_sizes(dice);
    if (!made) continue;
    const exec::TrainingJob& job = made->job;
    INFO("instance " << round << ": " << made->text);
    seen.add(job);
    require_as_plain(job);
  }
  if (rounds < 250) return;
  for (const char* const what :
       {"smaller to larger", "larger to smaller", "several larger groups", "three sizes", "orders",
        "gpipe", "1f1b", "tensor", "sequence", "context", "experts", "samples", "shards"}) {
    INFO(what);
    CHECK(seen.changes[what] >= 3);
  }
  CHECK(seen.changes["sharded in groups"] >= 1);
  CHECK(seen.sharded >= 3);
  CHECK(seen.replicas >= 10);
  CHECK(seen.dealt >= 3);
  CHECK(seen.clipped >= 3);
  CHECK(seen.idle >= 3);
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

/// Returns the first tensor of a stash that has so many rows and columns; an empty one if there is
/// none.
const nn::Tensor& scores_in(const nn::Stash& stash, std::int64_t positions, std::int64_t experts) {
  const nn::Tensor* found = nullptr;
  for (const nn::Tensor& tensor : stash.tensors) {
    if (found == nullptr && tensor.shape == nn::Shape{positions, experts}) found = &tensor;
  }
  for (std::size_t i = 0; i < stash.parts.size() && found == nullptr; ++i) {
    found = &scores_in(stash.parts[i], positions, experts);
    if (found->values.empty()) found = nullptr;
  }
  static const nn::Tensor none;
  return found != nullptr ? *found : none;
}

/// The margins of one sample's positions in a model's last layer with experts and in those before
/// it, by layer and position, from forwards of the sample alone.
std::map<std::pair<std::string, std::int64_t>, double> margins_of_sample(
    const exec::TrainingJob& job, std::int64_t sample) {
  std::map<std::pair<std::string, std::int64_t>, double> margins;
  nn::Tensor input = job.batches->inputs(0, sample, sample + 1);
  for (const nn::ModelLayer& layer : *job.layers) {
    if (layer.tied_to) break;  // the head
    std::vector<std::vector<float>> values;
    for (const nn::ParameterSpec& spec : layer.module->parameters()) {
      values.emplace_back(static_cast<std::size_t>(nn::count_of(spec.shape)));
      nn::initialize(spec, layer.name + "." + spec.name, job.settings.seed, values.back());
    }
    const std::vector<std::span<const float>> views(values.begin(), values.end());
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    if (block == nullptr && !margins.empty()) break;
    nn::Stash stash;
    input = layer.module->forward(views, std::move(input), {}, stash);
    if (block == nullptr) continue;
    const nn::Tensor& scores = scores_in(stash, block->sequence, block->experts->count);
    REQUIRE_FALSE(scores.values.empty());
    const auto count = static_cast<std::size_t>(block->experts->count);
    for (std::size_t token = 0; token * count < scores.values.size(); ++token) {
      std::vector<double> shares;
      for (std::size_t e = 0; e < count; ++e) {
        shares.push_back(std::exp(double{scores.values[token * count + e]}));
      }
      const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
      std::sort(shares.begin(), shares.end());
      const std::size_t next = count - 1 - static_cast<std::size_t>(block->experts->per_token);
      margins[{layer.name, static_cast<std::int64_t>(token)}] =
          (shares.at(next + 1) - shares.at(next)) / sum;
    }
  }
  return margins;
}

TEST_CASE("the experts that are closest to being others are named by layer, sample and token") {
  Dice dice(4806);
  int beyond_first = 0;
  for (int round = 0; round < scaled(20); ++round) {
    std::optional<Trainable> model;
    const auto may_choose = [](const nn::ModelLayer& layer) {
      const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
      return block == nullptr ||
             (block->experts && block->experts->per_token < block->experts->count &&
              block->sequence != block->experts->count);  // as scores have another shape
    };
    while (!model || !std::all_of(model->layers->begin(), model->layers->end(), may_choose)) {
      model = random_shareable(dice, {});
    }
    const std::optional<Pipeline> plan = random_plan(dice, *model, 2, false);
    if (!plan) continue;
    const exec::TrainingJob job = job_of(*model, *plan, {});
    exec::PlainTraining plain(job);
    plain.run(0);
    const std::optional<exec::ClosestRouting> closest = plain.closest_routing();
    REQUIRE(closest.has_value());
    INFO("instance " << round << ": " << closest->layer << ", sample " << closest->sample
                     << ", token " << closest->token);
    beyond_first += closest->sample >= job.plan.micro_batch_size;
    CHECK(margins_of_sample(job, closest->sample).at({closest->layer, closest->token}) ==
          Approx(closest->margin.size()).margin(1e-5));
    for (std::int64_t sample = 0; sample < job.global_batch_size(); ++sample) {
      for (const auto& [place, margin] : margins_of_sample(job, sample)) {
        CHECK(margin >= closest->margin.size() - 1e-5);
      }
    }
  }
  if (scaled(20) >= 20) CHECK(beyond_first >= 2);
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

/// How many steps a training on one device takes until its loss is another one by more than 1e-5,
/// a tenth of what is allowed, because every parameter has changed by four roundings before the
/// first step. Narrow norms and the optimizer's division by small moments may enlarge a change
/// tenfold in each step, until other experts are chosen and losses have no digit in common.
std::int64_t steps_before_roundings_show(const exec::TrainingJob& job, std::int64_t steps) {
  exec::PlainTraining plain(job);
  exec::PlainTraining changed(job);
  exec::NamedTensors model = plain.tensors(exec::TensorKind::Parameters);
  model.merge(plain.tensors(exec::TensorKind::State));
  changed.restore(changed_by_roundings(std::move(model)));
  for (std::int64_t n = 0; n < steps; ++n) {
    if (std::abs(plain.run(n) - changed.run(n)) > 1e-5) return n;
  }
  return steps;
}

/// Trains the same model for a few steps in each of the forms, the first of which is that of one
/// device, and requires the losses of training in the first alone, as long as roundings do not show
/// on one device either. Returns how many steps that were. As many samples are in each micro-batch
/// as `multiple` ranks share.
std::int64_t require_same_in_turn(Dice& dice, int round, const std::vector<Parallelism>& forms,
                                  std::int64_t multiple, std::int64_t steps_each) {
  const Trainable model = random_shareable(dice, joined(forms));
  exec::TrainingSettings settings = random_settings(dice, Plan{});
  settings.optimizer.kind = nn::OptimizerKind::AdamW;
  settings.optimizer.learning_rate = 0.01F;
  std::vector<exec::TrainingJob> jobs;
  for (const Parallelism& form : forms) {
    std::optional<Pipeline> plan;
    const Trainable of_rank = as_rank(model, form);
    Dice same(static_cast<std::uint64_t>(round));
    while (!plan) plan = random_plan(same, of_rank, 2, false);
    jobs.push_back(job_of(of_rank, in_groups(*plan, form, multiple), settings));
  }
  const auto all_steps = static_cast<std::int64_t>(forms.size()) * steps_each;
  const auto [losses, last] = trained(jobs.front(), nullptr, 0, all_steps);
  const std::int64_t compared = steps_before_roundings_show(jobs.front(), all_steps);
  const exec::NamedTensors* start = nullptr;
  exec::NamedTensors tensors;
  std::int64_t step = 0;
  for (const exec::TrainingJob& job : jobs) {
    auto [some, after] = trained(job, start, step, step + steps_each);
    for (const double loss : some) {
      INFO("round " << round << ", step " << step << ", " << to_text(job.plan.parallelism));
      CHECK(std::isfinite(loss));
      if (step < compared) {
        CHECK(std::abs(loss - losses[static_cast<std::size_t>(step)]) <= 1e-4);
      }
      ++step;
    }
    tensors = std::move(after);
    start = &tensors;
  }
  return compared;
}

/// Does so in many rounds, and requires that most of the steps were compared.
void require_same_in_rounds(Dice& dice, int rounds, const std::vector<Parallelism>& forms,
                            std::int64_t multiple, std::int64_t steps_each) {
  std::int64_t compared = 0;
  for (int round = 0; round < rounds; ++round) {
    compared += require_same_in_turn(dice, round, forms, multiple, steps_each);
  }
  if (rounds < 8) return;  // few rounds, as under sanitizers
  const std::int64_t all = rounds * static_cast<std::int64_t>(forms.size()) * steps_each;
  INFO(compared << " of " << all << " steps were compared");
  CHECK(compared >= all * 3 / 4);
}

TEST_CASE("a training goes on with other groups, or without") {
  Dice dice(4802);
  const std::vector<Parallelism> forms{
      {},
      {.tensor = 2},
      {.tensor = 2, .sequence = true, .shards_optimizer = true},
      {.full_shards = 2},
      {.context = 2, .recomputes = kWholeLayer},
      {.tensor = 2, .context = 2, .full_shards = 4},
      {.tensor = 4},
      {.shards_optimizer = true, .optimizer_shards = 2},
      {.tensor = 2, .sequence = true, .full_shards = 2},
      {.tensor = 2, .context = 2, .shards_optimizer = true, .optimizer_shards = 4},
      {.tensor = 4, .sequence = true}};
  require_same_in_rounds(dice, scaled(12), forms, 2, 2);
}

TEST_CASE("a training goes on with experts on other ranks, or divided among them") {
  Dice dice(4805);
  const std::vector<Parallelism> forms{
      {},
      {.experts = 2, .shards_optimizer = true},
      {.experts = 2, .expert_tensor = 2},
      {.tensor = 2, .sequence = true, .experts = 2, .shards_optimizer = true},
      {.tensor = 2, .sequence = true, .context = 2, .experts = 2, .expert_tensor = 2},
      {.context = 2, .experts = 2, .expert_tensor = 2, .shards_optimizer = true},
      {.experts = 2, .shards_optimizer = true, .optimizer_shards = 4},
      {.experts = 2, .full_shards = 4}};
  require_same_in_rounds(dice, scaled(8), forms, 4, 3);
}

/// Groups of one form that share the samples of a stage.
struct GroupsOfStage {
  Parallelism form = {};
  std::int64_t replicas = 1;
};

/// A pipeline whose stages have groups of different sizes.
struct Mix {
  std::string name;
  std::vector<GroupsOfStage> stages;
  bool gpipe = false;
  bool has_experts = false;
  std::int32_t servers = 1;
};

/// Three blocks whose heads, feed-forward, experts and sequence four ranks can divide.
Trainable model_of_mixes(bool has_experts) {
  constexpr std::int64_t kHidden = 16;
  constexpr std::int64_t kSequence = 16;
  constexpr std::int64_t kVocabulary = 13;
  TrainableShape shape{.operations = {EmbeddingOperation{kVocabulary, kSequence, kHidden}},
                       .input = {kSequence},
                       .tokens = kVocabulary,
                       .classes = kVocabulary,
                       .positions = {kSequence}};
  for (int block = 0; block < 3; ++block) {
    TransformerBlockOperation operation{.hidden = kHidden,
                                        .heads = 4,
                                        .feed_forward = 32,
                                        .sequence = kSequence,
                                        .causal = true,
                                        .form = {.kv_heads = 4, .width = 4},
                                        .bias = true};
    if (has_experts) operation.experts = {.count = 4, .per_token = 2};
    shape.operations.emplace_back(operation);
  }
  shape.operations.emplace_back(LayerNormOperation{.hidden = kHidden});
  shape.operations.emplace_back(LinearOperation{kHidden, kVocabulary, false});
  shape.operations.emplace_back(SoftmaxCrossEntropyOperation{.classes = kVocabulary});
  Dice dice(4806);
  return trainable(shape, dice);
}

/// The job of a mix: a block in each stage, with the embedding in the first one and what is behind
/// the last block in the last one, and three micro-batches of eight samples.
exec::TrainingJob job_of(const Mix& mix, const exec::TrainingSettings& settings) {
  std::set<std::pair<std::int64_t, Parallelism>> by_size;
  for (const GroupsOfStage& stage : mix.stages) {
    by_size.emplace(stage.form.group_size(), stage.form);
  }
  std::vector<Parallelism> forms;
  for (const auto& [size, form] : by_size) forms.push_back(form);
  Trainable model = as_rank(model_of_mixes(mix.has_experts), forms);
  model.profile.group.replicas = forms.front().replicas_in_group();
  for (ModelProfile& form : model.profile.stage_forms) {
    form.group.replicas = form.parallelism.replicas_in_group();
  }
  PlanShape shape{.micro_batch_size = 8, .num_micro_batches = 3, .gpipe = mix.gpipe};
  const auto stages = static_cast<std::int32_t>(mix.stages.size());
  for (std::int32_t s = 0; s < stages; ++s) {
    shape.depths.push_back(std::min(3, stages - s));
    const bool is_last = s + 1 == stages;
    const std::int32_t before = s == 0 ? 2 : 1;
    StageShape& stage = shape.stages.emplace_back();
    stage.layers = is_last ? 7 - stages : before;
    stage.devices.assign(static_cast<std::size_t>(mix.stages[static_cast<std::size_t>(s)].replicas),
                         0);
  }
  Plan plan = plan_of(model.profile, shape);
  plan.parallelism = forms.front();
  plan.stage_forms.assign(forms.begin() + 1, forms.end());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto form = std::find(forms.begin(), forms.end(), mix.stages[s].form);
    plan.stages[s].form = FormIndex{static_cast<std::int32_t>(form - forms.begin())};
    plan.stages[s].gradient_buckets.clear();
  }
  const std::optional<Pipeline> pipeline = on_groups(model, std::move(plan), mix.servers);
  REQUIRE(pipeline.has_value());
  return job_of(model, *pipeline, settings);
}

/// Tensor parallelism, sequences in parts, samples in parts, shards of all state and of the
/// optimizer's, and experts; smaller groups in front of larger ones, and behind them.
std::vector<Mix> mixes() {
  const Parallelism alone;
  const Parallelism tensor2{.tensor = 2};
  const Parallelism tensor4{.tensor = 4};
  const Parallelism sequence4{.tensor = 4, .sequence = true};
  const auto sharded = [](Parallelism form) {
    form.shards_optimizer = true;
    return form;
  };
  const auto in_groups_of = [&](Parallelism form) {
    form = sharded(form);
    shard_in_groups(form);
    return form;
  };
  return {{.name = "tensor 4, then twice tensor 2", .stages = {{tensor4}, {tensor2, 2}}},
          {.name = "tensor 2, then one device", .stages = {{tensor2}, {alone}}, .gpipe = true},
          {.name = "four devices, then tensor 4", .stages = {{alone, 4}, {tensor4}}},
          {.name = "context 2, then tensor 4", .stages = {{{.context = 2}}, {tensor4}}},
          {.name = "all state sharded over 4, then tensor 2",
           .stages = {{{.full_shards = 4}}, {tensor2}},
           .gpipe = true},
          {.name = "tensor 4 with sequence parallelism, then tensor 2 twice",
           .stages = {{sequence4}, {tensor2, 2}}},
          {.name = "tensor 2, then two devices, then context 4",
           .stages = {{tensor2}, {alone, 2}, {{.context = 4}}}},
          {.name = "tensor 4, then samples in two parts, then one device",
           .stages = {{tensor4}, {{.group_replicas = 2}}, {alone}},
           .gpipe = true},
          {.name = "the optimizer's state sharded over two groups, then over parts of sequences",
           .stages = {{sharded(tensor2), 2}, {sharded({.context = 4})}}},
          {.name = "the optimizer's state sharded over samples, then over parts of sequences",
           .stages = {{in_groups_of({.group_replicas = 2}), 2}, {in_groups_of({.context = 4})}}},
          {.name = "experts on four ranks, then tensor 2",
           .stages = {{{.experts = 4}}, {tensor2}},
           .has_experts = true},
          {.name = "two devices, then two groups on each of two servers",
           .stages = {{sharded(alone), 2}, {sharded(tensor2), 4}},
           .servers = 2}};
}

/// All ranks of a device together send and receive as much as the plan prices, and reduce with
/// those at their position in the other groups of the stage.
void check_priced(const exec::TrainingJob& job) {
  const std::vector<DeviceSchedule> of_ranks = exec::schedules_of_numbers(job);
  const auto ranks = static_cast<std::size_t>(job.ranks());
  for (std::size_t d = 0; d < job.devices.size(); ++d) {
    const std::vector<DeviceAction>& actions = job.devices[d].actions;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      Bytes together;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        together += of_ranks[d * ranks + rank].actions[a].size;
      }
      INFO("device " << d << ", action " << a);
      CHECK(together == job.ranks() * actions[a].size);
      if (actions[a].action.kind != ActionKind::AllReduce) continue;
      const StagePlan& stage = job.plan.stages[actions[a].action.stage.position()];
      CHECK(static_cast<std::int64_t>(actions[a].peers.size()) == replicas_of(stage) - 1);
    }
  }
}

TEST_CASE("groups of different sizes have the gradients of one device, and send what is priced") {
  for (const Mix& mix : mixes()) {
    INFO(mix.name);
    const exec::TrainingJob job = job_of(mix, {.optimizer = {.kind = nn::OptimizerKind::AdamW}});
    require_as_plain(job);
    check_priced(job);
    if (mix.servers == 1) continue;
    // Gradients are reduced within servers, and across them.
    REQUIRE(job.groups.buckets[1].size() == 1);
    CHECK(job.groups.buckets[1].front().servers.size() == 2);
  }
}

/// A way to spread a stage over ranks or to keep less for its backward.
struct Dimension {
  std::string name;
  Parallelism form;
  std::int32_t replicas = 1;  // of the first stage
};

std::vector<Dimension> dimensions() {
  return {{"tensor", {.tensor = 2}},
          {"sequence", {.tensor = 2, .sequence = true}},
          {"context", {.context = 2}},
          {"experts", {.experts = 2}},
          {"divided experts", {.experts = 2, .expert_tensor = 2}},
          {"sharded optimizer", {.shards_optimizer = true}, 2},
          {"optimizer sharded over some", {.shards_optimizer = true, .optimizer_shards = 2}, 2},
          {"sharded state", {.full_shards = 2}},
          {"sharded state of replicas", {.full_shards = 2}, 2},
          {"recomputed parts", {.recomputes = {RecomputedPart::CoreAttention}}},
          {"recomputed first layers",
           {.recomputes = kWholeLayer, .recomputed_layers = LayerSelection::first(1)}}};
}

/// Whether a rank can be in both: they are about different things, the optimizer's state is not
/// sharded by itself where all of it is, and experts need ranks that have other tokens.
bool can_be_combined(const Dimension& one, const Dimension& other) {
  const Parallelism& a = one.form;
  const Parallelism& b = other.form;
  const auto shards = [](const Parallelism& form) {
    return form.shards_optimizer || form.full_shards > 1;
  };
  const auto repeats_tokens = [](const Parallelism& form) {
    return form.tensor > 1 && !form.sequence;
  };
  return !(a.tensor > 1 && b.tensor > 1) && !(a.experts > 1 && b.experts > 1) &&
         !(shards(a) && shards(b)) && (a.recomputes.none() || b.recomputes.none()) &&
         !(repeats_tokens(a) && b.experts > 1) && !(repeats_tokens(b) && a.experts > 1);
}

Dimension combined(const Dimension& one, const Dimension& other) {
  const Parallelism& a = one.form;
  const Parallelism& b = other.form;
  const Parallelism& recomputing = a.recomputes.none() ? b : a;
  Parallelism form{.tensor = std::max(a.tensor, b.tensor),
                   .sequence = a.sequence || b.sequence,
                   .context = std::max(a.context, b.context),
                   .experts = std::max(a.experts, b.experts),
                   .expert_tensor = std::max(a.expert_tensor, b.expert_tensor),
                   .shards_optimizer = a.shards_optimizer || b.shards_optimizer,
                   .optimizer_shards = std::max(a.optimizer_shards, b.optimizer_shards),
                   .full_shards = std::max(a.full_shards, b.full_shards),
                   .recomputes = recomputing.recomputes,
                   .recomputed_layers = recomputing.recomputed_layers};
  // A group is a multiple of one of experts.
  const std::int64_t least = form.experts * form.expert_tensor / form.tensor;
  if (form.full_shards > 1) form.full_shards = std::max(form.full_shards, least);
  if (form.optimizer_shards > 0) form.optimizer_shards = std::max(form.optimizer_shards, least);
  return {one.name + ", " + other.name, form, std::max(one.replicas, other.replicas)};
}

/// Trains three blocks, two of them in the first of two stages.
void require_dimension_as_plain(const Dimension& dimension) {
  INFO(dimension.name);
  Parallelism form = dimension.form;
  const bool has_experts = form.experts > 1;
  if (form.recomputes.contains(RecomputedPart::CoreAttention)) {
    form.recomputes = {RecomputedPart::CoreAttention,
                       has_experts ? RecomputedPart::Experts : RecomputedPart::FeedForward};
  }
  REQUIRE(form.is_sound());
  const Trainable model = as_rank(model_of_mixes(has_experts), without_recomputation(form));
  PlanShape shape{.micro_batch_size = 2, .num_micro_batches = 3, .depths = {2, 1}};
  shape.stages = {{.layers = 3, .devices = {0}}, {.layers = 4, .devices = {dimension.replicas}}};
  if (dimension.replicas == 2) shape.stages.front().devices.push_back(1);
  Pipeline alone{model.profile, full_mesh(3, {bytes_per_ns(1), {}}), plan_of(model.profile, shape)};
  fill_gradient_buckets(alone.plan, model.profile);
  const exec::TrainingJob job =
      job_of(model, in_groups(alone, form, form.replicas_in_group()),
             {.optimizer = {.kind = nn::OptimizerKind::AdamW}, .clip_norm = 0.5});
  CHECK(job.ranks() == form.group_size());
  check_held(job);
  check_state(job);
  require_as_plain(job);
}

TEST_CASE("every dimension, and every pair of them, has the gradients of one device") {
  const std::vector<Dimension> all = dimensions();
  int pairs = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    require_dimension_as_plain(all[i]);
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (!can_be_combined(all[i], all[j])) continue;
      require_dimension_as_plain(combined(all[i], all[j]));
      ++pairs;
    }
  }
  CHECK(all.size() == 11);
  CHECK(pairs == 44);
}

TEST_CASE("a training on groups of different sizes goes on with any others") {
  exec::TrainingSettings settings{.optimizer = {.kind = nn::OptimizerKind::AdamW}};
  settings.optimizer.learning_rate = 0.01F;
  settings.clip_norm = 1;
  const std::int64_t steps = 2 * std::ssize(mixes());
  for (const bool has_experts : {false, true}) {
    std::vector<double> expected;
    exec::NamedTensors tensors;
    std::int64_t step = 0;
    for (const Mix& mix : mixes()) {
      if (mix.has_experts != has_experts) continue;
      INFO(mix.name);
      const exec::TrainingJob job = job_of(mix, settings);
      if (expected.empty()) {
        exec::PlainTraining plain(job);
        for (std::int64_t n = 0; n < steps; ++n) expected.push_back(plain.run(n));
        // All of it in one form, too.
        const auto [losses, last] = trained(job, nullptr, 0, steps);
        for (std::size_t n = 0; n < losses.size(); ++n) {
          CHECK(std::abs(losses[n] - expected[n]) <= 1e-4);
        }
      }
      const auto [losses, after] = trained(job, step == 0 ? nullptr : &tensors, step, step + 2);
      for (const double loss : losses) {
        CHECK(std::abs(loss - expected[static_cast<std::size_t>(step++)]) <= 1e-4);
      }
      tensors = after;
    }
  }
}

}  // namespace
}  // namespace dapple
