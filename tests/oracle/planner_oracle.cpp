#include "planner_oracle.h"

#include <algorithm>
#include <map>

#include "dapple/core/error.h"
#include "dapple/cost/cost_model.h"
#include "dapple/profile/variants.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::small {
namespace {

/// Plans but for their depths: micro-batch sizes, boundaries, device sets, recomputation, forms.
class StructureEnumerator {
 public:
  /// Stages that `keep` refuses (told the number of micro-batches too) are in no plan.
  StructureEnumerator(const Problem& problem, const CostModel& costs, const OracleOptions& options,
                      std::function<bool(const StagePlan&, const Plan&)> keep,
                      std::function<void(Plan&)> visit)
      : problem_(problem),
        costs_(costs),
        topology_(costs.topology()),
        shares_by_speed_(options.shares_by_speed),
        may_deal_(options.may_deal),
        keep_(std::move(keep)),
        visit_(std::move(visit)) {}

  void run(const GradientSynchronization& gradients) {
    for (std::int64_t size = 1; size <= problem_.global_batch; ++size) {
      if (problem_.global_batch % size != 0) continue;
      plan_ = {.global_batch_size = problem_.global_batch,
               .micro_batch_size = size,
               .num_micro_batches = problem_.global_batch / size,
               .stage_forms = stage_forms_of(problem_.profile),
               .gradients = gradients,
               .family = ScheduleFamily::OneFOneB,
               .warmup_depths = {},
               .stages = {}};
      add_stage(0, 0);
    }
  }

 private:
  void add_stage(std::int32_t begin, std::uint32_t used) {
    const auto layers = static_cast<std::int32_t>(problem_.profile.layers.size());
    if (begin == layers) {
      plan_.tied_gradients = tied_gradients(problem_.profile, plan_.stages);
      visit_(plan_);
      plan_.tied_gradients.clear();
      return;
    }
    const std::uint32_t sets = std::uint32_t{1} << topology_.device_count();
    for (std::uint32_t devices = 1; devices < sets; ++devices) {
      if ((devices & used) != 0) continue;
      StagePlan stage;
      for (std::int32_t d = 0; d < topology_.device_count(); ++d) {
        if ((devices >> d & 1U) != 0) stage.devices.push_back({d});
      }
      const auto replicas = static_cast<std::int64_t>(stage.devices.size());
      if (may_deal_ && replicas > 1 && replicas <= plan_.num_micro_batches) {
        StagePlan dealt = stage;
        dealt.replication = Replication::Deal;
        add_stages_on_devices(dealt, begin, used | devices);
      }
      add_stages_on_devices(stage, begin, used | devices);
      if (!shares_by_speed_ || replicas > plan_.micro_batch_size) continue;
      stage.samples = samples_by_speed(costs_, plan_.micro_batch_size, stage.devices);
      if (!are_equal(stage.samples)) add_stages_on_devices(stage, begin, used | devices);
    }
  }

  bool are_equal(const std::vector<std::int64_t>& samples) const {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto replicas = static_cast<std::int64_t>(samples.size());
      const auto place = static_cast<std::int64_t>(i);
      if (samples[i] != replica_share(plan_.micro_batch_size, replicas, place).size()) return false;
    }
    return true;
  }

  void add_stages_on_devices(StagePlan stage, std::int32_t begin, std::uint32_t used) {
    const auto layers = static_cast<std::int32_t>(problem_.profile.layers.size());
    for (std::int32_t end = begin + 1; end <= layers; ++end) {
      stage.layers = {begin, end};
      for (stage.form = {}; stage.form.position() <= problem_.profile.stage_forms.size();
           stage.form = stage.form.next()) {
        stage.devices_per_replica = devices_of_replica(stage.form);
        if (are_replicas(stage)) add_stage_of_form(stage, used);
      }
    }
  }

  std::int32_t devices_of_replica(FormIndex form) const {
    if (form == FormIndex{}) return 1;
    const ModelProfile& own = problem_.profile.stage_forms[form.position() - 1];
    return static_cast<std::int32_t>(own.parallelism.group_size() /
                                     problem_.profile.parallelism.group_size());
  }

  /// Whether the devices are whole replicas, which begin at multiples of their number, and each has
  /// a sample of every micro-batch.
  bool are_replicas(const StagePlan& stage) const {
    const std::int32_t each = stage.devices_per_replica;
    if (stage.replication == Replication::Deal) return each == 1;
    std::map<std::int32_t, std::int32_t> members;
    for (const DeviceIndex device : stage.devices) ++members[device.value / each];
    return std::ssize(members) <= plan_.micro_batch_size &&
           std::all_of(members.begin(), members.end(),
                       [&](const auto& group) { return group.second == each; });
  }

  void add_stage_of_form(StagePlan stage, std::uint32_t used) {
    stage.gradient_buckets.clear();
    if (std::ssize(stage.devices) > stage.devices_per_replica) {
      stage.gradient_buckets = gradient_buckets(in_form(problem_.profile, stage.form), stage.layers,
                                                plan_.gradients.bucket_size)
                                   .sizes;
    }
    for (const bool recompute : {false, true}) {
      stage.recompute = recompute;
      if (!keep_(stage, plan_)) continue;
      plan_.stages.push_back(stage);
      add_stage(stage.layers.end, used);
      plan_.stages.pop_back();
    }
  }

  const Problem& problem_;
  const CostModel& costs_;
  const Topology& topology_;
  bool shares_by_speed_;
  bool may_deal_;
  std::function<bool(const StagePlan&, const Plan&)> keep_;
  std::function<void(Plan&)> visit_;
  Plan plan_;
};

/// Whether every stage can send as many micro-batches as each later one needs before its first
/// backward.
bool sends_enough(const Plan& plan) {
  for (std::size_t t = 0; t < plan.stages.size(); ++t) {
    const std::int64_t needed = (plan.warmup_depths[t] - 1) * dealt_to(plan.stages[t]) + 1;
    for (std::size_t s = 0; s < t; ++s) {
      if (plan.warmup_depths[s] * dealt_to(plan.stages[s]) < needed) return false;
    }
  }
  return true;
}

/// Calls `visit` with each vector of depths of a plan with dealt stages in the space, of which the
/// dry run of the schedule confirms that no stage waits for ever.
void for_each_depths_of_dealt(Plan& plan, const std::function<void()>& visit) {
  const std::size_t stage = plan.warmup_depths.size();
  if (stage == plan.stages.size()) {
    if (!sends_enough(plan)) return;
    check(validate(generate(plan), plan).empty(), "a stage waits for ever");
    visit();
    return;
  }
  const StagePlan& own = plan.stages[stage];
  const std::int64_t most = micro_batches_of(plan, own, 0);
  for (std::int64_t depth = 1; depth <= most; ++depth) {
    plan.warmup_depths.push_back(depth);
    for_each_depths_of_dealt(plan, visit);
    plan.warmup_depths.pop_back();
  }
}

/// Calls `visit` with each legal vector of depths in the plan.
void for_each_depths(Plan& plan, std::int64_t most, const std::function<void()>& visit) {
  if (plan.warmup_depths.size() == plan.stages.size()) {
    visit();
    return;
  }
  for (std::int64_t depth = 1; depth <= most; ++depth) {
    plan.warmup_depths.push_back(depth);
    for_each_depths(plan, depth, visit);
    plan.warmup_depths.pop_back();
  }
}

class FastestPlan {
 public:
  FastestPlan(const Problem& problem, const Topology& topology, const OracleOptions& options)
      : problem_(problem),
        topology_(topology),
        costs_(problem.profile, topology),
        options_(options) {
    answer_.iteration = options.below;
  }

  OracleAnswer run() {
    StructureEnumerator structures(
        problem_, costs_, options_,
        [&](const StagePlan& stage, const Plan& plan) { return may_count(stage, plan); },
        [&](Plan& plan) { look_at(plan); });
    if (options_.gradients.empty()) structures.run({});
    for (const GradientSynchronization& gradients : options_.gradients) structures.run(gradients);
    answer_.memory_decides = fastest_misfit_ < answer_.iteration;
    return answer_;
  }

 private:
  bool may_count(const StagePlan& stage, const Plan& plan) {
    const Pins& pins = options_.pins;
    if (options_.micro_batch_size && plan.micro_batch_size != *options_.micro_batch_size) {
      return false;
    }
    if (pins.replicas && *pins.replicas != replicas_of(stage)) return false;
    if (pins.recompute && *pins.recompute != stage.recompute) return false;
    for (const std::int32_t joint : pins.joints) {
      if (stage.layers.begin == joint) return false;
    }
    for (const std::int32_t cut : pins.cuts) {
      if (stage.layers.begin < cut && cut < stage.layers.end) return false;
    }
    return !options_.use_bounds || work_of(stage, plan) < answer_.iteration;
  }

  /// A stage is never faster than its slowest replica's own work.
  Duration work_of(const StagePlan& stage, const Plan& plan) {
    Duration slowest;
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      const LayerTable& table =
          costs_.in(stage.form)
              .table(samples_of(plan, stage, i).size(), topology_.device(stage.devices[i]).kind);
      const std::int64_t forwards = stage.recompute ? 2 : 1;
      slowest =
          std::max(slowest, forwards * table.forward(stage.layers) + table.backward(stage.layers));
    }
    // Every replica has at least so many of the micro-batches that are dealt.
    const std::int64_t replicas = std::ssize(stage.devices);
    return plan.num_micro_batches / (stage.replication == Replication::Deal ? replicas : 1) *
           slowest;
  }

  void look_at(Plan& plan) {
    if (options_.pins.stages && *options_.pins.stages != static_cast<int>(plan.stages.size())) {
      return;
    }
    // Depths change nothing but memory, and the bound at the largest holds at all.
    plan.warmup_depths.assign(plan.stages.size(), plan.num_micro_batches);
    const PlanCost costs = costs_.plan_cost(plan);
    const bool hopeless = is_too_slow(plan, costs);
    plan.warmup_depths.clear();
    if (hopeless) return;
    if (deals_micro_batches(plan)) {
      for_each_depths_of_dealt(plan, [&] { look_at_depths(plan, costs); });
      return;
    }
    for_each_depths(plan, plan.num_micro_batches, [&] { look_at_depths(plan, costs); });
  }

  bool is_too_slow(const Plan& plan, const PlanCost& costs) const {
    return options_.use_bounds &&
           search::lower_bound({plan,
                                costs,
                                topology_,
                                {Contention::Off, options_.replicas, options_.transfers}}) >=
               answer_.iteration;
  }

  void look_at_depths(const Plan& plan, const PlanCost& costs) {
    if (options_.allow && !options_.allow(plan)) return;
    if (options_.pins.least_depths && !has_least_depths(plan)) return;
    if (options_.transfers != Transfers::Overlapped && may_wait_forever(plan)) return;
    if (is_too_slow(plan, costs)) return;
    // Once a misfit is known to be faster than all that fits, no other one needs to be simulated.
    if (fastest_misfit_ < answer_.iteration && !fits(plan)) return;
    const Duration iteration =
        simulate::simulate(
            generate(plan, options_.replicas), costs, topology_,
            {.contention = options_.contention, .transfers = options_.transfers, .record = false})
            .iteration;
    if (iteration >= answer_.iteration) return;
    if (!fits(plan)) {
      fastest_misfit_ = std::min(fastest_misfit_, iteration);
      return;
    }
    answer_.plan = plan;
    answer_.iteration = iteration;
  }

  /// Whether a stage wants to send more than one activation before it receives a gradient that the
  /// next stage sends first.
  static bool may_wait_forever(const Plan& plan) {
    for (std::size_t s = 1; s < plan.stages.size(); ++s) {
      if (plan.warmup_depths[s - 1] - plan.warmup_depths[s] > 1) return true;
    }
    return false;
  }

  static bool has_least_depths(const Plan& plan) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const auto left = static_cast<std::int64_t>(plan.stages.size() - s);
      if (plan.warmup_depths[s] != std::min(left, plan.num_micro_batches)) return false;
    }
    return true;
  }

  bool fits(const Plan& plan) const {
    return options_.ignore_memory || memory_shortages(costs_.plan_cost(plan)).empty();
  }

  const Problem& problem_;
  const Topology& topology_;
  CostModel costs_;
  const OracleOptions& options_;
  OracleAnswer answer_;
  Duration fastest_misfit_{INT64_MAX};  // of those simulated
};

/// Whether computation hides some of these collectives, more of them with more samples.
bool are_hidden(const std::vector<Collective>& collectives) {
  for (const Collective& some : collectives) {
    if (some.beside != Beside::Nothing) return true;
  }
  return false;
}

/// Whether some time may fall from one batch size to the next, on any kind of device, in any form:
/// a measured one, or what computation does not hide of a collective.
bool falls_somewhere(const CostModel& costs) {
  for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
    for (const Layer& layer : costs.in(form).profile().layers) {
      if (are_hidden(layer.forward_collectives) || are_hidden(layer.backward_collectives)) {
        return true;
      }
      std::vector<std::vector<Measurement>> lists{layer.measurements};
      for (const DeviceTimes& other : layer.other_times) lists.push_back(other.measurements);
      for (const std::vector<Measurement>& list : lists) {
        for (std::size_t i = 1; i < list.size(); ++i) {
          if (list[i].forward < list[i - 1].forward || list[i].backward < list[i - 1].backward) {
            return true;
          }
          const bool has_parts = list[i].input_gradient && list[i - 1].input_gradient;
          if (has_parts && *list[i].input_gradient < *list[i - 1].input_gradient) return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

std::vector<std::int64_t> samples_by_speed(const CostModel& costs, std::int64_t micro_batch_size,
                                           const std::vector<DeviceIndex>& devices) {
  const auto replicas = static_cast<std::int64_t>(devices.size());
  if (falls_somewhere(costs)) {
    std::vector<std::int64_t> equal;
    for (std::int64_t i = 0; i < replicas; ++i) {
      equal.push_back(replica_share(micro_batch_size, replicas, i).size());
    }
    return equal;
  }
  const std::int64_t even = (micro_batch_size + replicas - 1) / replicas;
  const auto kind_of = [&](std::size_t i) { return costs.topology().device(devices[i]).kind; };
  const auto time_of_sample = [&](std::size_t i) {
    std::int64_t ns = 0;
    for (std::int32_t layer = 0; layer < costs.layer_count(); ++layer) {
      const LayerTable& table = costs.table(even, kind_of(i));
      ns +=
          table.least_forward({layer, layer + 1}).ns + table.least_backward({layer, layer + 1}).ns;
    }
    return std::max<std::int64_t>(1, ns);
  };
  std::vector<std::int64_t> samples(devices.size(), 1);
  for (std::int64_t left = micro_batch_size - replicas; left > 0; --left) {
    std::size_t next = 0;
    for (std::size_t i = 1; i < devices.size(); ++i) {
      const std::int64_t here = (samples[i] + 1) * time_of_sample(i);
      const std::int64_t there = (samples[next] + 1) * time_of_sample(next);
      if (here < there || (here == there && kind_of(i) < kind_of(next))) next = i;
    }
    ++samples[next];
  }
  return samples;
}

void for_each_plan(const Problem& problem, const Topology& topology, bool ignore_memory,
                   const std::function<void(const Plan&, const PlanCost&)>& visit) {
  const CostModel costs(problem.profile, topology);
  StructureEnumerator(
      problem, costs, {}, [](const StagePlan&, const Plan&) { return true; },
      [&](Plan& plan) {
        plan.warmup_depths.clear();
        for_each_depths(plan, plan.num_micro_batches, [&] {
          const PlanCost cost = costs.plan_cost(plan);
          if (ignore_memory || memory_shortages(cost).empty()) visit(plan, cost);
        });
      })
      .run({});
}

OracleAnswer fastest_plan(const Problem& problem, const Topology& topology,
                          const OracleOptions& options) {
  return FastestPlan(problem, topology, options).run();
}

}  // namespace dapple::small
