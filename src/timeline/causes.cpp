#include "timeline/causes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "dapple/core/error.h"
#include "dapple/core/parallel.h"

namespace dapple {
namespace {

constexpr std::size_t kStreams = static_cast<std::size_t>(Stream::None) + 1;

}  // namespace

Causes::Causes(const Timeline& timeline)
    : timeline_(timeline),
      lines_(timeline.lanes.size(), std::vector<std::vector<std::uint32_t>>(kStreams)) {
  for (const auto& [from, to] : timeline.skips) {
    by_receiver_.emplace_back(to, from);
    by_sender_.emplace_back(from, to);
  }
  for (auto* const pairs : {&by_receiver_, &by_sender_}) {
    std::sort(pairs->begin(), pairs->end());
    pairs->erase(std::unique(pairs->begin(), pairs->end()), pairs->end());
  }
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

void Causes::index_by_key() {
  for (const Timeline::LaneName& lane : timeline_.lanes) {
    stages_.insert(stages_.end(), lane.stages.begin(), lane.stages.end());
  }
  stages_.push_back(StageIndex{0});
  std::sort(stages_.begin(), stages_.end());
  stages_.erase(std::unique(stages_.begin(), stages_.end()), stages_.end());
  groups_.resize(stages_.size() * kActionKinds);
  std::vector<bool> is_sorted(groups_.size(), true);
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    const Key key = key_of(i);
    const std::size_t place = place_of(key);
    check(place < groups_.size(), "a lane has an action of a stage that is not its own");
    Group& group = groups_[place];
    const std::vector<Entry>& entries = group.entries;
    if (!entries.empty() && key.index < entries.back().index) is_sorted[place] = false;
    group.entries.push_back({.index = key.index, .action = static_cast<std::uint32_t>(i)});
    if (!group.lane) group.lane = at(i).lane;
    group.is_on_several_lanes = group.is_on_several_lanes || *group.lane != at(i).lane;
  }
  const auto by_index = [](const Entry& a, const Entry& b) { return a.index < b.index; };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::vector<Entry>& entries = groups_[g].entries;
    if (!is_sorted[g]) std::stable_sort(entries.begin(), entries.end(), by_index);
    groups_[g].repeats = repeats_of(entries);
  }
}

std::size_t Causes::repeats_of(const std::vector<Entry>& entries) {
  const auto another = std::find_if(entries.begin(), entries.end(),
                                    [](const Entry& entry) { return entry.index != 0; });
  const auto repeats = static_cast<std::size_t>(another - entries.begin());
  if (repeats == 0 || entries.size() % repeats != 0) return 0;
  for (std::size_t first = 0; first < entries.size(); first += repeats) {
    for (std::size_t i = first; i < first + repeats; ++i) {
      if (static_cast<std::size_t>(entries[i].index) * repeats != first) return 0;
    }
  }
  return repeats;
}

std::span<const Causes::Entry> Causes::Group::with(std::int32_t index) const {
  if (repeats > 0) {
    const std::size_t first = static_cast<std::size_t>(index) * repeats;
    if (index < 0 || first >= entries.size()) return {};
    return std::span(entries).subspan(first, repeats);
  }
  const auto begin =
      std::lower_bound(entries.begin(), entries.end(), index,
                       [](const Entry& entry, std::int32_t i) { return entry.index < i; });
  const auto end =
      std::upper_bound(begin, entries.end(), index,
                       [](std::int32_t i, const Entry& entry) { return i < entry.index; });
  return {begin, end};
}

Causes::Key Causes::key_of(std::size_t action) const {
  const Action& own = at(action).action;
  // Lanes of different stages reduce tied gradients together, so these share one key.
  const StageIndex stage = own.kind == ActionKind::ReduceTied ? StageIndex{0} : own.stage;
  return {own.kind, stage, own.index};
}

const std::vector<std::uint32_t>& Causes::line(LaneIndex lane, Stream stream) const {
  return lines_[lane.position()][static_cast<std::size_t>(stream)];
}

/// Returns the position of the key's group in groups_, or the number of groups for a stage that no
/// lane has.
std::size_t Causes::place_of(const Key& key) const {
  const auto value = static_cast<std::size_t>(key.stage.value);
  // Stages are usually numbered without gaps, which makes the search unnecessary.
  auto stage = stages_.begin() + static_cast<std::ptrdiff_t>(std::min(value, stages_.size() - 1));
  if (*stage != key.stage) stage = std::lower_bound(stages_.begin(), stages_.end(), key.stage);
  if (stage == stages_.end() || *stage != key.stage) return groups_.size();
  return static_cast<std::size_t>(stage - stages_.begin()) * kActionKinds +
         static_cast<std::size_t>(key.kind);
}

const Causes::Group* Causes::group_of(const Key& key) const {
  const std::size_t place = place_of(key);
  return place < groups_.size() ? &groups_[place] : nullptr;
}

std::span<const Causes::Entry> Causes::with(const Key& key) const {
  const Group* group = group_of(key);
  return group == nullptr ? std::span<const Entry>() : group->with(key.index);
}

/// Whether both lanes process some common samples of each micro-batch that both process.
bool Causes::feeds(LaneIndex from, LaneIndex to) const {
  const std::optional<SampleRange>& made = timeline_.lanes[from.position()].samples;
  const std::optional<SampleRange>& wanted = timeline_.lanes[to.position()].samples;
  return !made || !wanted || (made->begin < wanted->end && wanted->begin < made->end);
}

/// Returns the action needed by `action` that ends last; of equals, the first. What is still sent
/// to other stages when `action` starts had arrived at this one by then, at an unknown moment: it
/// comes behind what ends just then.
std::optional<std::size_t> Causes::last_needed(std::size_t action, bool computed) const {
  const Duration start = at(action).start;
  const bool sends_to_several = !timeline_.skips.empty();
  const auto moment = [&](std::size_t needed) {
    const Duration end = at(needed).end;
    const bool goes_on = sends_to_several && end > start;
    return std::pair{goes_on ? start : end, !goes_on};
  };
  std::optional<std::size_t> last;
  visit_needed(action, computed, [&](std::size_t needed) {
    if (!last || moment(*last) < moment(needed)) last = needed;
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
  // If steps of further buckets follow, this step does not wait for the reductions of those.
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

/// Returns, on each participating lane, the last computation of weight gradients that started no
/// later than the reduction: a backward that fills the bucket while it runs, or one that has ended.
/// For other participants than the lane itself it also returns the previous reduction, since tied
/// gradients wait for that too.
std::vector<std::size_t> Causes::makers_of_bucket(std::size_t reduction) const {
  std::vector<std::size_t> makers;
  for (const Entry& entry : with(key_of(reduction))) {
    const LaneIndex lane = at(entry.action).lane;
    const bool is_own = lane == at(reduction).lane;
    const std::vector<std::uint32_t>& computed = line(lane, Stream::Compute);
    auto behind =
        std::upper_bound(computed.begin(), computed.end(), at(reduction).start,
                         [this](Duration start, std::uint32_t i) { return start < at(i).start; });
    while (behind != computed.begin() && !makes_weight_gradient(at(*(behind - 1)).action.kind)) {
      --behind;
    }
    // The lane's own computation comes first so that it is preferred among equals.
    if (behind != computed.begin()) {
      makers.insert(is_own ? makers.begin() : makers.end(), *(behind - 1));
    }
    const std::optional<std::size_t> before = previous(entry.action);
    if (!is_own && before) makers.push_back(*before);
  }
  return makers;
}

/// Adds the computation and the sends of a lane that ended last until then.
void Causes::add_latest_ended(LaneIndex lane, Duration until,
                              std::vector<std::size_t>& found) const {
  for (const Stream stream : {Stream::Compute, Stream::SendForward, Stream::SendBackward}) {
    const std::vector<std::uint32_t>& own = line(lane, stream);
    auto behind =
        std::upper_bound(own.begin(), own.end(), until,
                         [this](Duration moment, std::uint32_t i) { return moment < at(i).end; });
    if (behind != own.begin()) found.push_back(*(behind - 1));
  }
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
  if (timeline_.transfers == Transfers::Overlapped) return found;
  // What ended on the lane before an action may have kept it from beginning and, of a send, what
  // ended on the lane that receives.
  add_latest_ended(at(action).lane, at(action).start, found);
  visit_receivers_of(
      action, [&](LaneIndex receiver) { add_latest_ended(receiver, at(action).start, found); });
  return found;
}

std::optional<Cause> Causes::of(std::size_t action) const {
  std::optional<Cause> last;
  for (const std::size_t candidate : candidates(action)) {
    // Clocks of measured lanes may disagree: an action that started later is not a cause.
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
