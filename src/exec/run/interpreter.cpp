#include "dapple/exec/run/interpreter.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "dapple/core/error.h"
#include "exec/message/clock.h"
#include "exec/run/stream.h"

namespace dapple::exec {
namespace {

/// More messages than a reduction has from one member to another.
constexpr std::int32_t kStepsOfReduction = 1 << 20;

}  // namespace

/// One iteration of one device.
class Interpreter::Run {
 public:
  Run(Interpreter& own, std::int64_t iteration) : own_(own), iteration_(iteration) {
    for (const DeviceAction& entry : own_.schedule_.actions) {
      if (makes_weight_gradient(entry.action.kind)) ++gradients_left_[entry.action.stage];
      if (entry.action.kind == ActionKind::OptimizerStep) ++steps_[entry.action.stage];
      if (entry.action.kind == ActionKind::ReduceTied) ++ties_left_;
      if (entry.action.kind != ActionKind::AllReduce) continue;
      bucket_sizes_[entry.action.stage].push_back(entry.size);
    }
  }

  void actions() {
    for (const DeviceAction& entry : own_.schedule_.actions) interpret(entry);
    forward_.finish();
    backward_.finish();
    collective_.finish();
  }

  /// Returns the exception of the first stream to fail; null if none has.
  std::exception_ptr stream_failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  std::vector<MeasuredAction> measured() const {
    std::vector<MeasuredAction> measured;
    for (const Marked& one : marked_) {
      const std::int64_t ready = own_.backend_.moment_of(one.ready);
      const std::int64_t start = std::max(ready, own_.backend_.moment_of(one.start));
      const std::int64_t end = std::max(start, own_.backend_.moment_of(one.end));
      measured.push_back({.action = one.action, .start = start, .end = end, .size = one.size});
    }
    std::stable_sort(measured.begin(), measured.end(),
                     [](const auto& a, const auto& b) { return a.end < b.end; });
    return measured;
  }

 private:
  /// An executed action with its marks.
  struct Marked {
    Action action;
    // When its inputs were available.
    Mark ready;
    // When its stream became free for it.
    Mark start;
    Mark end;
    Bytes size;
  };

  void interpret(const DeviceAction& entry);
  void receive(const DeviceAction& entry);
  void compute(const Action& action);
  void send(const DeviceAction& entry, WorkStream& stream);
  void reduce(const Action& action, Bytes size);
  void step(const Action& action);
  void gather(const Action& step);
  void wait_for_buckets(StageIndex stage, std::size_t count);
  void wait_for_ties();
  template <class Condition>
  void wait_until(const Condition& is_reduced);

  MessageKey key(const Action& action, DeviceIndex from, DeviceIndex to) const {
    return {.iteration = iteration_, .action = action, .step = 0, .from = from, .to = to};
  }
  DeviceIndex here() const { return own_.schedule_.device; }
  Mark mark(Stream stream) const { return own_.backend_.mark(stream); }
  void record(const Marked& marked) {
    const std::lock_guard lock(mutex_);
    marked_.push_back(marked);
  }

  Interpreter& own_;
  const std::int64_t iteration_;
  // The number of micro-batches whose weight gradients are still to be computed.
  std::map<StageIndex, std::int64_t> gradients_left_;
  std::map<StageIndex, std::int32_t> steps_;
  bool has_stepped_ = false;
  std::map<StageIndex, std::vector<Bytes>> bucket_sizes_;
  // Guards what the streams share.
  std::mutex mutex_;
  std::condition_variable reduced_;
  std::map<StageIndex, std::size_t> buckets_reduced_;
  // The number of tied gradients still to be reduced.
  std::int32_t ties_left_ = 0;
  // The number of ranges of parameters still to be gathered.
  std::size_t gathers_left_ = 0;
  // The exception of the first stream to fail.
  std::exception_ptr failure_;
  std::vector<Marked> marked_;
  // Called while a stream's exception is being handled. Records it before it makes other streams
  // fail.
  std::function<void()> stop_ = [this] {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      reduced_.notify_all();
    }
    own_.transport_.abort();
  };
  // Declared last, so that they end before the members that they use.
  WorkStream forward_{stop_};
  WorkStream backward_{stop_};
  WorkStream collective_{stop_};
};

void Interpreter::Run::interpret(const DeviceAction& entry) {
  own_.transport_.announce(entry.action);
  switch (entry.action.kind) {
    case ActionKind::ReceiveActivation:
    case ActionKind::ReceiveGradient:
      return receive(entry);
    case ActionKind::SendActivation:
      return send(entry, forward_);
    case ActionKind::SendGradient:
      return send(entry, backward_);
    case ActionKind::AllReduce:
      return;  // started by the backward that completes the gradients
    case ActionKind::ReduceTied:
      return reduce(entry.action, entry.size);  // comes after all that compute them
    case ActionKind::OptimizerStep:
      return step(entry.action);
    default:
      return compute(entry.action);
  }
}

/// The key of a message contains the action that sends it.
void Interpreter::Run::receive(const DeviceAction& entry) {
  const bool is_activation = entry.action.kind == ActionKind::ReceiveActivation;
  Action send = entry.action;
  send.kind = is_activation ? ActionKind::SendActivation : ActionKind::SendGradient;
  send.stage = is_activation ? entry.action.stage.previous() : entry.action.stage.next();
  for (const SchedulePeer& peer : entry.peers) {
    Payload payload = own_.transport_.receive(
        key(send, peer.device, here()), {.size = peer.size, .memory = own_.backend_.memory()});
    check(static_cast<std::int64_t>(payload.size()) == peer.size.count,
          "a message has another size than the schedule says");
    own_.backend_.take_in(entry.action, peer, std::move(payload));
  }
}

void Interpreter::Run::compute(const Action& action) {
  const Mark start = mark(Stream::Compute);
  BucketReady ready;
  const bool is_last = makes_weight_gradient(action.kind) && --gradients_left_[action.stage] == 0;
  if (is_last) {
    ready = [this, &action](std::int32_t bucket) {
      reduce({ActionKind::AllReduce, bucket, action.stage},
             bucket_sizes_.at(action.stage)[static_cast<std::size_t>(bucket)]);
    };
  }
  own_.backend_.compute(action, ready);
  record({action, start, start, mark(Stream::Compute), {}});
}

void Interpreter::Run::send(const DeviceAction& entry, WorkStream& stream) {
  // Taken from the backend at once, because later actions may overwrite it.
  const auto payloads = std::make_shared<std::vector<std::pair<DeviceIndex, Payload>>>();
  for (const SchedulePeer& peer : entry.peers) {
    payloads->emplace_back(peer.device, own_.backend_.give_out(entry.action, peer));
  }
  const Mark ready = mark(Stream::Compute);
  stream.add([this, action = entry.action, size = entry.size, payloads, ready] {
    const std::int64_t start = monotonic_now();
    std::int64_t end = start;
    for (auto& [peer, payload] : *payloads) {
      end = std::max(end, own_.transport_.send(key(action, here(), peer), std::move(payload)));
    }
    record({action, ready, {.moment = start}, {.moment = end}, size});
  });
}

void Interpreter::Run::reduce(const Action& action, Bytes size) {
  const auto gradients = std::make_shared<std::vector<std::unique_ptr<ReductionBuffer>>>(
      own_.backend_.gradients(action, size));
  const Mark ready = mark(Stream::Compute);
  collective_.add([this, action, size, gradients, ready] {
    const Mark start = mark(Stream::Collective);
    // Stage 0 for all members: each of them reduces tied gradients under a stage of its own.
    Action common = action;
    if (action.kind == ActionKind::ReduceTied) common.stage = StageIndex{0};
    const ReductionGroup group = own_.group_of_(action);
    const auto reduce = group.is_scattered ? reduce_scatter : all_reduce;
    MessageKey of_part = key(common, here(), here());
    for (const std::unique_ptr<ReductionBuffer>& part : *gradients) {
      reduce(group, of_part, *part, own_.transport_);
      of_part.step += kStepsOfReduction;
    }
    record({action, ready, start, mark(Stream::Collective), size});
    const std::lock_guard lock(mutex_);
    if (action.kind == ActionKind::ReduceTied) {
      --ties_left_;
    } else {
      ++buckets_reduced_[action.stage];
    }
    reduced_.notify_all();
  });
}

template <class Condition>
void Interpreter::Run::wait_until(const Condition& is_reduced) {
  std::unique_lock lock(mutex_);
  reduced_.wait(lock, [&] { return failure_ || is_reduced(); });
  if (failure_) throw JobAborted("a reduction has failed");
}

void Interpreter::Run::wait_for_buckets(StageIndex stage, std::size_t count) {
  wait_until([&] { return buckets_reduced_[stage] >= count; });
}

void Interpreter::Run::wait_for_ties() {
  wait_until([&] { return ties_left_ == 0; });
}

void Interpreter::Run::step(const Action& action) {
  if (own_.before_steps_ && !has_stepped_) {
    for (const auto& [stage, buckets] : bucket_sizes_) wait_for_buckets(stage, buckets.size());
    wait_for_ties();
    own_.before_steps_(iteration_);
  }
  has_stepped_ = true;
  const std::size_t buckets = bucket_sizes_[action.stage].size();
  const auto number = static_cast<std::size_t>(action.index);
  const bool is_by_bucket = steps_[action.stage] > 1;
  wait_for_buckets(action.stage, is_by_bucket ? std::min(number + 1, buckets) : buckets);
  const bool is_of_bucket = is_by_bucket && number < std::max<std::size_t>(1, buckets);
  if (!is_of_bucket) wait_for_ties();
  const Mark start = mark(Stream::Compute);
  own_.backend_.step(action);
  gather(action);
  record({action, start, start, mark(Stream::Compute), {}});
}

/// Gathers the parameters that a step has updated, as a part of the step. The messages are those of
/// optimizer steps with the numbers of what is gathered.
void Interpreter::Run::gather(const Action& step) {
  std::vector<Gathered> gathered = own_.backend_.gathered(step);
  if (gathered.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    gathers_left_ = gathered.size();
  }
  Action numbered = step;
  for (Gathered& one : gathered) {
    collective_.add([this, numbered, group = std::move(one.group),
                     parameters = std::shared_ptr<ReductionBuffer>(std::move(one.parameters))] {
      all_gather(group, key(numbered, here(), here()), *parameters, own_.transport_);
      const std::lock_guard lock(mutex_);
      --gathers_left_;
      reduced_.notify_all();
    });
    ++numbered.index;
  }
  wait_until([&] { return gathers_left_ == 0; });
  own_.backend_.take_gathered(step);
}

Interpreter::Interpreter(const DeviceSchedule& schedule, GroupOf group_of, Backend& backend,
                         Transport& transport, BeforeSteps before_steps)
    : schedule_(schedule),
      group_of_(std::move(group_of)),
      backend_(backend),
      transport_(transport),
      before_steps_(std::move(before_steps)) {}

std::vector<MeasuredAction> Interpreter::run(std::int64_t iteration) {
  Run run(*this, iteration);
  try {
    run.actions();
  } catch (const JobAborted&) {
    transport_.abort();
    // The abort may have been caused by the failure of a stream here.
    if (const std::exception_ptr failure = run.stream_failure()) std::rethrow_exception(failure);
    throw;
  } catch (...) {
    transport_.abort();
    throw;
  }
  return run.measured();
}

}  // namespace dapple::exec
