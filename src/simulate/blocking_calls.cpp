#include "simulate/blocking_calls.h"

#include <optional>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::simulate {
namespace {

/// Returns what a stage sends after a computation, if anything.
std::optional<BoundaryTransfer> sent_after(const Action* done, std::size_t stage,
                                           std::size_t stages) {
  if (done == nullptr) return std::nullopt;
  if (done->kind == ActionKind::Forward && stage + 1 < stages) {
    return BoundaryTransfer{.boundary = stage, .is_gradient = false, .micro_batch = done->index};
  }
  if (makes_input_gradient(done->kind) && stage > 0) {
    return BoundaryTransfer{.boundary = stage - 1, .is_gradient = true, .micro_batch = done->index};
  }
  return std::nullopt;
}

/// Returns what a stage receives before a computation, if anything.
std::optional<BoundaryTransfer> received_before(const Action* next, std::size_t stage,
                                                std::size_t stages) {
  if (next == nullptr) return std::nullopt;
  if (next->kind == ActionKind::Forward && stage > 0) {
    return BoundaryTransfer{
        .boundary = stage - 1, .is_gradient = false, .micro_batch = next->index};
  }
  if (makes_input_gradient(next->kind) && stage + 1 < stages) {
    return BoundaryTransfer{.boundary = stage, .is_gradient = true, .micro_batch = next->index};
  }
  return std::nullopt;
}

}  // namespace

BlockingCalls::BlockingCalls(std::size_t stages, Transfers transfers)
    : one_at_a_time_(transfers == Transfers::Serial),
      calls_(stages),
      boundaries_(stages == 0 ? 0 : stages - 1) {}

void BlockingCalls::enter(std::size_t stage, const Action* done, const Action* next) {
  std::deque<Call>& calls = calls_[stage];
  check(calls.empty(), "a stage enters a call while it is in another one");
  for (const auto& transfer :
       {sent_after(done, stage, calls_.size()), received_before(next, stage, calls_.size())}) {
    if (!transfer) continue;
    if (calls.empty() || calls.back().boundary != transfer->boundary) {
      calls.push_back({.boundary = transfer->boundary, .activation = {}, .gradient = {}});
    }
    calls.back().part(transfer->is_gradient) = {.is_open = true,
                                                .micro_batch = transfer->micro_batch};
  }
  if (!calls.empty()) begin_at(calls.front().boundary);
}

BlockingCalls::Part* BlockingCalls::open_part(std::size_t stage, std::size_t boundary,
                                              bool is_gradient) {
  if (calls_[stage].empty() || calls_[stage].front().boundary != boundary) return nullptr;
  Part& part = calls_[stage].front().part(is_gradient);
  return part.is_open ? &part : nullptr;
}

/// Begins the transfers over a boundary for which both stages are ready, gradients first.
void BlockingCalls::begin_at(std::size_t boundary) {
  Boundary& state = boundaries_[boundary];
  for (const bool is_gradient : {true, false}) {
    if (state.carries(is_gradient) || (one_at_a_time_ && state.carries(!is_gradient))) continue;
    const Part* front = open_part(boundary, boundary, is_gradient);
    const Part* behind = open_part(boundary + 1, boundary, is_gradient);
    if (front == nullptr || behind == nullptr) continue;
    check(front->micro_batch == behind->micro_batch,
          "two stages wait for transfers of different micro-batches");
    state.carries(is_gradient) = true;
    begun_.push_back({boundary, is_gradient, front->micro_batch});
  }
}

void BlockingCalls::end(const BoundaryTransfer& transfer) {
  boundaries_[transfer.boundary].carries(transfer.is_gradient) = false;
  for (const std::size_t stage : {transfer.sender(), transfer.receiver()}) {
    std::deque<Call>& calls = calls_[stage];
    Call& call = calls.front();
    call.part(transfer.is_gradient).is_open = false;
    if (call.activation.is_open || call.gradient.is_open) continue;
    calls.pop_front();
    if (!calls.empty()) begin_at(calls.front().boundary);
  }
  begin_at(transfer.boundary);
}

std::vector<BoundaryTransfer> BlockingCalls::take_begun() {
  return std::exchange(begun_, {});
}

}  // namespace dapple::simulate
