#include "timeline/causes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <utility>

#include "dapple/core/parallel.h"

namespace dapple {
namespace {

constexpr std::size_t kStreams = static_cast<std::size_t>(Stream::None) + 1;
constexpr std::size_t kKinds = static_cast<std::size_t>(ActionKind::OptimizerStep) + 1;

}  // namespace

Causes::Causes(const Timeline& timeline)
    : timeline_(timeline),
      lines_(timeline.lanes.size(), std::vector<std::vector<std::uint32_t>>(kStreams)) {
  constexpr std::size_t kFewActions = 100'000;
  const std::function<void()> parts[] = {[this] { fill_lines(); }, [this] { index_by_key(); }};
  parallel_for(std::size(parts), timeline.actions.size() > kFewActions ? 2 : 1,
               [&](std::size_t i) { parts[i](); });
}

void Causes::fill_lines() {
  std::vector<std::array<std::size_t, kStreams>> counts(timeline_.lanes.size());
  for (const TimedAction& timed : timeline_.actions) {
    ++counts[timed.lane.position()][static_cast<std::size_t>(stream_of(timed.action.kind))];
  }
  for (std::size_t l = 0; l < counts.size(); ++l) {
    for (std::size_t s = 0; s < kStreams; ++s) lines_[l][s].reserve(counts[l][s]);
  }
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    const auto stream = static_cast<std::size_t>(stream_of(at(i).action.kind));
    lines_[at(i).lane.position()][stream].push_back(static_cast<std::uint32_t>(i));
  }
}

/// Sorted by counting: kinds and stages are few, and so are the indices of one kind.
void Causes::index_by_key() {
  const std::size_t count = timeline_.actions.size();
  for (std::size_t i = 0; i < count; ++i) {
    stages_.collect(key_of(i).stage.value);
    indices_.collect(key_of(i).index);
  }
  stages_.finish(count, [this](std::size_t i) { return key_of(i).stage.value; });
  indices_.finish(count, [this](std::size_t i) { return key_of(i).index; });
  groups_.resize(kKinds * stages_.size());
  // The n-th index is counted one place further on. There, while the actions are put in their
  // places, stands where the next of them goes, and in the end where those with the index end.
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = indices_.of(key_of(i).index);
    Group& group = groups_[group_of(key_of(i))];
    if (group.first.size() < index + 2) group.first.resize(index + 2, 0);
    ++group.first[index + 1];
    if (!group.lane) group.lane = at(i).lane;
    group.is_on_several_lanes = group.is_on_several_lanes || *group.lane != at(i).lane;
  }
  std::uint32_t before = 0;
  for (Group& group : groups_) {
    if (group.first.empty()) continue;
    group.first.front() = before;
    for (std::size_t n = 1; n < group.first.size(); ++n) {
      before += std::exchange(group.first[n], before);
    }
  }
  by_key_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t& place = groups_[group_of(key_of(i))].first[indices_.of(key_of(i).index) + 1];
    by_key_[place++] = static_cast<std::uint32_t>(i);
  }
}

Causes::Key Causes::key_of(std::size_t action) const {
  const Action& own = at(action).action;
  // Lanes of different stages reduce what is tied together.
  const StageIndex stage = own.kind == ActionKind::ReduceTied ? StageIndex{0} : own.stage;
  return {own.kind, stage, own.index};
}

const std::vector<std::uint32_t>& Causes::line(LaneIndex lane, Stream stream) const {
  return lines_[lane.position()][static_cast<std::size_t>(stream)];
}

Causes::Range Causes::with(const Key& key) const {
  if (stages_.of(key.stage.value) == stages_.size()) return {};
  const std::vector<std::uint32_t>& first = groups_[group_of(key)].first;
  const std::size_t index = indices_.of(key.index);
  if (index + 1 >= first.size()) return {};
  return {.begin = first[index], .end = first[index + 1]};
}

/// Whether both work on some samples of each micro-batch that they have in common.
bool Causes::feeds(LaneIndex from, LaneIndex to) const {
  const std::optional<SampleRange>& made = timeline_.lanes[from.position()].samples;
  const std::optional<SampleRange>& wanted = timeline_.lanes[to.position()].samples;
  return !made || !wanted || (made->begin < wanted->end && wanted->begin < made->end);
}

/// Of equals the first.
std::optional<std::size_t> Causes::last_needed(std::size_t action, bool computed) const {
  std::optional<std::size_t> last;
  visit_needed(action, computed, [&](std::size_t needed) {
    if (!last || at(*last).end < at(needed).end) last = needed;
  });
  return last;
}

std::optional<std::size_t> Causes::transfer_to(std::size_t action) const {
  return last_needed(action, false);
}

std::optional<std::size_t> Causes::producer_for(std::size_t action) const {
  return last_needed(action, true);
}

std::vector<std::size_t> Causes::reductions_before(std::size_t step) const {
  const Action& own = at(step).action;
  const std::vector<std::uint32_t>& computed = line(at(step).lane, Stream::Compute);
  const std::size_t next = place_in_line(step) + 1;
  // Where the steps of further buckets follow, their reductions are not waited for.
  const bool is_part =
      next < computed.size() &&
      at(computed[next]).action == Action{ActionKind::OptimizerStep, own.index + 1, own.stage};
  std::vector<std::size_t> reductions;
  for (const std::uint32_t other : line(at(step).lane, Stream::Collective)) {
    const Action& reduction = at(other).action;
    const bool is_awaited =
        reduction.kind == ActionKind::ReduceTied
            ? !is_part
            : reduction.stage == own.stage && (!is_part || reduction.index <= own.index);
    if (is_awaited) reductions.push_back(other);
  }
  return reductions;
}

std::size_t Causes::place_in_line(std::size_t action) const {
  const std::vector<std::uint32_t>& own = line(at(action).lane, stream_of(at(action).action.kind));
  return static_cast<std::size_t>(std::lower_bound(own.begin(), own.end(), action) - own.begin());
}

std::optional<std::size_t> Causes::previous(std::size_t action) const {
  const std::size_t place = place_in_line(action);
  if (place == 0) return std::nullopt;
  return line(at(action).lane, stream_of(at(action).action.kind))[place - 1];
}

/// On each lane that takes part, the last computation of gradients that began before the reduction
/// did: a backward that fills the bucket on its way, or had ended; and where what is tied waits for
/// other reductions of any of the lanes, those.
std::vector<std::size_t> Causes::makers_of_bucket(std::size_t reduction) const {
  std::vector<std::size_t> makers;
  const Range range = with(key_of(reduction));
  for (std::size_t e = range.begin; e < range.end; ++e) {
    const LaneIndex lane = at(by_key_[e]).lane;
    const bool is_own = lane == at(reduction).lane;
    const std::vector<std::uint32_t>& computed = line(lane, Stream::Compute);
    auto behind =
        std::upper_bound(computed.begin(), computed.end(), at(reduction).start,
                         [this](Duration start, std::uint32_t i) { return start < at(i).start; });
    while (behind != computed.begin() && !makes_weight_gradient(at(*(behind - 1)).action.kind)) {
      --behind;
    }
    // The lane's own comes first, so that it wins where several are as late.
    if (behind != computed.begin()) {
      makers.insert(is_own ? makers.begin() : makers.end(), *(behind - 1));
    }
    const std::optional<std::size_t> before = previous(by_key_[e]);
    if (!is_own && before) makers.push_back(*before);
  }
  return makers;
}

std::vector<std::size_t> Causes::candidates(std::size_t action) const {
  std::vector<std::size_t> found;
  const auto add = [&found](std::optional<std::size_t> candidate) {
    if (candidate) found.push_back(*candidate);
  };
  add(previous(action));
  add(producer_for(action));
  add(transfer_to(action));
  const ActionKind kind = at(action).action.kind;
  std::vector<std::size_t> more;
  if (reduces(kind)) more = makers_of_bucket(action);
  if (kind == ActionKind::OptimizerStep) more = reductions_before(action);
  found.insert(found.end(), more.begin(), more.end());
  return found;
}

std::optional<Cause> Causes::of(std::size_t action) const {
  std::optional<Cause> last;
  for (const std::size_t candidate : candidates(action)) {
    // Clocks of measured lanes may disagree: what began later is no cause.
    if (at(candidate).start > at(action).start) continue;
    const Duration moment = std::min(at(candidate).end, at(action).start);
    if (!last || moment > last->moment) last = Cause{.action = candidate, .moment = moment};
  }
  return last;
}

std::vector<Message> messages_of(const Timeline& timeline) {
  const Causes causes(timeline);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < timeline.actions.size(); ++i) {
    causes.visit_transfers_to(i, [&](std::size_t transfer) {
      messages.push_back({.transfer = transfer, .receiver = i});
    });
  }
  return messages;
}

}  // namespace dapple
