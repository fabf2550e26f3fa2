#include "search/bounds/stage_column.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::search {
namespace {

/// The gradient buckets of a stage to which layers are added in front, and how long their
/// all-reduces and the optimizer go on after the last backward. It keeps the chain of all buckets
/// but the last one, which is added on request.
class BucketChain {
 public:
  BucketChain(const CostModel& costs, const FastestReduction& reduction,
              const GradientSynchronization& gradients)
      : costs_(costs), reduction_(reduction), gradients_(gradients) {}

  /// Adds the first layer of `layers`, the layers of the stage so far. `ready` is the least time
  /// from the start of the stage's backward to the end of the layer's.
  void grow_to(LayerRange layers, Duration ready) {
    // The layers behind the stage stay the same, so it is known which gradients they add to.
    const Bytes gradient = bucketed_gradient(costs_.profile(), layers.begin, layers);
    if (gradient.count == 0) return;
    if (open_.count > 0 && open_ >= gradients_.bucket_size) {
      closed_ = with_open(open_ready_);
      open_ = {};
    }
    open_ += gradient;
    open_begin_ = layers.begin;
    // Reductions behind the last backward are counted from its end.
    open_ready_ = gradients_.overlaps ? ready : Duration{};
    open_step_ = costs_.optimizer_step(layers) - closed_.all_steps;
    largest_ = std::max(largest_, open_);
  }

  /// Computes A of (B11): the time from the end of the backward of a stage that begins at this
  /// layer to the end of the last optimizer step.
  Duration after(std::int32_t begin, Duration backward, Duration all_steps) const {
    if (!gradients_.overlaps) backward = {};
    const bool has_first_layer = open_begin_ == begin;
    const Chain chain =
        open_.count == 0 ? closed_ : with_open(has_first_layer ? backward : open_ready_);
    if (gradients_.optimizer == OptimizerTiming::AtEnd) {
      return std::max(Duration{}, chain.reduced - backward) + all_steps;
    }
    return std::max(chain.stepped - backward, all_steps);
  }

  Bytes largest() const { return largest_; }

 private:
  /// `reduced` and `stepped` are counted from the start of the stage's backward.
  struct Chain {
    // The end of the last bucket's reduction.
    Duration reduced;
    // The end of the last optimizer step, if steps wait for nothing but reductions.
    Duration stepped;
    // The sum of all optimizer steps.
    Duration all_steps;
  };

  Chain with_open(Duration ready) const {
    Chain chain = closed_;
    chain.reduced = std::max(chain.reduced, ready) + reduction_.time(open_);
    chain.stepped = std::max(chain.stepped, chain.reduced) + open_step_;
    chain.all_steps += open_step_;
    return chain;
  }

  const CostModel& costs_;
  const FastestReduction& reduction_;
  GradientSynchronization gradients_;
  Bytes open_;
  // The first layer of the stage so far that adds to the open bucket.
  std::int32_t open_begin_ = 0;
  Duration open_ready_;
  Duration open_step_;
  Bytes largest_;
  Chain closed_;
};

/// Builds the stages of one column by adding layers in front.
class ColumnBuilder {
 public:
  ColumnBuilder(const CostModel& costs, const StageDevices& stage, const ColumnRequest& request)
      : costs_(costs.in(request.form.form)),
        request_(request),
        kinds_(stage.kinds),
        reduction_(stage.reduction),
        replica_count_(std::ssize(stage.devices) / request.form.devices_per_replica) {
    for (const ReplicaKind& kind : kinds_) {
      tables_.push_back(&costs_.table(kind.samples, kind.device_kind));
      chains_.emplace_back(costs_, stage.reduction, request.gradients);
      device_kinds_.push_back(kind.device_kind);
    }
  }

  /// Adds the layer behind `begin`.
  /// Requires: calls are by falling `begin`, from the last layer of the column on.
  void grow_to(CutIndex begin) {
    if (replica_count_ == 1) return;
    const LayerRange layers = layers_between(begin, request_.end);
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      // Which of the layers recompute depends on how many more the stage will have.
      chains_[k].grow_to(layers, tables_[k]->least_backward(layers));
    }
  }

  /// Whether the work of the stages that begin at `begin`, or at a lower cut, reaches the limit
  /// whichever of their layers recompute.
  bool has_too_much_work(CutIndex begin) const {
    if (request_.limit.is_infinite()) return false;
    const LayerRange layers = layers_between(begin, request_.end);
    Duration least = Duration::infinite();
    for (const LayerTable* table : tables_) {
      const Duration forward = table->least_forward(layers);
      least = std::min(least,
                       (request_.form.recompute ? 2 : 1) * forward + table->least_backward(layers));
    }
    return request_.num_micro_batches * least >= request_.limit;
  }

  /// Whether the stage that begins at `begin` fits memory without its buckets. The column need not
  /// have grown to it.
  bool may_fit(CutIndex begin) const {
    const Bytes no_bucket;
    return depth_limit(layers_between(begin, request_.end), no_bucket) > 0;
  }

  /// Returns the stage that begins at `begin`, which the column has grown to. Of a stage that does
  /// not fit nothing but that is computed.
  StageBound stage_from(CutIndex begin) const {
    const LayerRange layers = layers_between(begin, request_.end);
    StageBound stage;
    stage.depth_limit = depth_limit(layers, chains_.front().largest());
    if (stage.depth_limit == 0) return stage;
    const Duration update = least_update(layers);
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const Duration forward = tables_[k]->forward(layers);
      const Duration backward_alone = tables_[k]->backward(layers);
      const Duration backward = backward_alone + (request_.form.recompute ? forward : Duration{});
      const Duration after = chains_[k].after(layers.begin, backward_alone, update);
      const StageBound replica{.forward = forward,
                               .backward = backward,
                               .after_backward = after,
                               .depth_limit = stage.depth_limit};
      if (k == 0) {
        stage = replica;
      } else if (are_together()) {
        join_slowest(stage, replica);
      } else {
        join_quickest(stage, replica);
      }
      stage.slowest = std::max(stage.slowest, forward + backward);  // (R2)
    }
    // The slowest replica may have one micro-batch fewer than others where these are dealt.
    if (request_.replicas == Replicas::Together) stage.slowest = {};
    return stage;
  }

 private:
  /// Whether all replicas process a micro-batch together.
  bool are_together() const {
    return request_.replicas == Replicas::Together && !request_.form.deals;
  }

  Duration least_update(LayerRange layers) const {
    // Elsewhere it does not depend on the reduction.
    if (!costs_.topology().description().shards_optimizer) {
      return costs_.update(layers, replica_count_, device_kinds_, *reduction_.models().front());
    }
    Duration least = Duration::infinite();
    for (const AllReduceModel* reduction : reduction_.models()) {
      least = std::min(least, costs_.update(layers, replica_count_, device_kinds_, *reduction));
    }
    return least;
  }

  /// Joins the figures of a replica to those of a stage whose replicas start together. The chain of
  /// buckets is that of the replica with the longest backward; the other replicas can only delay
  /// it.
  static void join_slowest(StageBound& stage, const StageBound& replica) {
    stage.forward = std::max(stage.forward, replica.forward);
    if (replica.backward <= stage.backward) return;
    stage.backward = replica.backward;
    stage.after_backward = replica.after_backward;
  }

  /// Joins the figures of a replica to those of a stage whose replicas are independent, or have
  /// micro-batches of their own (R1).
  static void join_quickest(StageBound& stage, const StageBound& replica) {
    stage.forward = std::min(stage.forward, replica.forward);
    stage.backward = std::min(stage.backward, replica.backward);
    stage.after_backward = std::min(stage.after_backward, replica.after_backward);
  }

  /// Upper bound K on the micro-batches in flight: those whose stash fits into memory beside all
  /// else, with a largest bucket of that size. Buffers at the boundaries are left out. It is 0 if
  /// the stage does not fit.
  std::int64_t depth_limit(LayerRange layers, Bytes largest_bucket) const {
    std::int64_t depth = request_.num_micro_batches;
    if (request_.ignore_memory) return depth;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const MemoryCost memory = costs_.memory_cost({.layers = layers,
                                                    .recompute = request_.form.recompute,
                                                    .depth = 1,
                                                    .depth_before = 0,
                                                    .depth_behind = 0,
                                                    .largest_bucket = largest_bucket,
                                                    .replicas = replica_count_},
                                                   *tables_[k]);
      const Bytes room = kinds_[k].memory_limit - memory.fixed() - memory.recompute_stash;
      if (room < memory.per_micro_batch || room.count < 0) return 0;
      if (memory.per_micro_batch.count == 0) continue;
      depth = std::min(depth, room.count / memory.per_micro_batch.count);
    }
    return request_.hold_all && depth < request_.num_micro_batches ? 0 : depth;
  }

  const CostModel& costs_;
  const ColumnRequest& request_;
  const std::vector<ReplicaKind>& kinds_;
  // Indexed by position in kinds_.
  std::vector<std::int32_t> device_kinds_;
  std::vector<const LayerTable*> tables_;
  std::vector<BucketChain> chains_;
  const FastestReduction& reduction_;
  std::int64_t replica_count_;
};

}  // namespace

FastestReduction::FastestReduction(std::vector<const AllReduceModel*> models,
                                   std::size_t most_remembered)
    : models_(std::move(models)), known_(most_remembered) {
  check(most_remembered == 0 || std::has_single_bit(most_remembered),
        "a number of times to remember is not a power of two");
}

Duration FastestReduction::time(Bytes size) const {
  if (known_.empty()) return compute(size);
  // The upper bits of a product with an odd number depend on all bits of the size.
  constexpr std::uint64_t kMultiplier = 0x9E37'79B9'7F4A'7C15;
  const std::uint64_t hash = static_cast<std::uint64_t>(size.count) * kMultiplier;
  constexpr int kHalf = 32;
  KnownTime& known = known_[static_cast<std::size_t>(hash >> kHalf) & (known_.size() - 1)];
  if (known.size != size) known = {.size = size, .time = compute(size)};
  return known.time;
}

Duration FastestReduction::compute(Bytes size) const {
  Duration least = Duration::infinite();
  for (const AllReduceModel* model : models_) least = std::min(least, model->time(size));
  return least;
}

bool is_worth_recomputing(const StageColumn& plain, const Pins& pins) {
  return plain.memory_limits || pins.recompute.has_value();
}

std::vector<ReplicaKind> replica_kinds(const Topology& topology,
                                       const std::vector<DeviceIndex>& devices,
                                       const ReplicaShares& shares) {
  std::vector<ReplicaKind> kinds;
  const std::int64_t of_replica = std::ssize(devices) / shares.replicas();
  for (std::int64_t i = 0; i < std::ssize(devices); ++i) {
    const DeviceIndex device = devices[static_cast<std::size_t>(i)];
    const ReplicaKind kind{.samples = shares.of(i / of_replica).size(),
                           .device_kind = topology.device(device).kind,
                           .memory_limit = topology.memory_limit(device)};
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

StageDevices stage_devices(const Topology& topology, const std::vector<DeviceIndex>& devices,
                           const std::vector<std::int64_t>& samples, FastestReduction reduction,
                           std::int64_t micro_batch_size, StageForm form) {
  const std::int64_t replicas = std::ssize(devices) / form.devices_per_replica;
  // Where micro-batches are dealt, each replica has a whole one.
  const ReplicaShares shares = form.deals ? ReplicaShares{replicas * micro_batch_size, replicas, {}}
                                          : ReplicaShares{micro_batch_size, replicas, samples};
  return {.devices = devices,
          .samples = samples,
          .kinds = replica_kinds(topology, devices, shares),
          .reduction = std::move(reduction)};
}

ColumnRequest request_of(const SearchProblem& problem, const StageDevices& stage, StageForm form) {
  return {.first = {},
          .last = {},
          .end = {},
          .micro_batch_size = problem.micro_batch_size,
          .num_micro_batches = problem.micro_batches_of(form, std::ssize(stage.devices)),
          .form = form,
          .ignore_memory = problem.ignore_memory,
          .gradients = problem.gradients,
          .hold_all = problem.gpipe,
          .replicas = problem.replicas};
}

StageColumn make_stage_column(const CostModel& costs, const StageDevices& stage,
                              const ColumnRequest& request) {
  const CostModel& in_form = costs.in(request.form.form);
  const auto is_left_out = [&](CutIndex begin) {
    return in_form.repeats_another_form(layers_between(begin, request.end));
  };
  StageColumn column;
  column.first = request.first;
  StageBound left_out;
  left_out.depth_limit = 0;
  column.stages.resize(column.position_of(request.last.next()), left_out);
  ColumnBuilder builder(costs, stage, request);
  // Where models are large, memory rules out most stages, and with them all that buckets of their
  // gradients take.
  CutIndex lowest = request.first;
  while (lowest <= request.last && builder.has_too_much_work(lowest)) lowest = lowest.next();
  for (; lowest <= request.last; lowest = lowest.next()) {
    if (is_left_out(lowest)) continue;
    if (builder.may_fit(lowest)) break;
    column.memory_limits = true;
  }
  if (lowest > request.last) return column;
  for (CutIndex begin = request.end.previous(); begin >= lowest; begin = begin.previous()) {
    builder.grow_to(begin);
    if (begin > request.last || is_left_out(begin)) continue;
    const StageBound bound = builder.stage_from(begin);
    if (bound.work(request.num_micro_batches) >= request.limit) continue;
    column.memory_limits = column.memory_limits || bound.depth_limit < request.num_micro_batches;
    column.at(begin) = bound;
  }
  return column;
}

}  // namespace dapple::search
