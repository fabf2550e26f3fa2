#include "causes.h"

#include <algorithm>

namespace dapple {
namespace {

/// An action of a stage needs one of the same index, so many stages further on.
struct Need {
  ActionKind action;
  std::int32_t stages_on;
  ActionKind needed;
};
constexpr Need kNeeds[] = {
    {ActionKind::Forward, -1, ActionKind::SendActivation},
    {ActionKind::Forward, -1, ActionKind::Forward},
    {ActionKind::Backward, 1, ActionKind::SendGradient},
    {ActionKind::Backward, 1, ActionKind::Backward},
    {ActionKind::Backward, 1, ActionKind::InputGradient},
    {ActionKind::InputGradient, 1, ActionKind::SendGradient},
    {ActionKind::InputGradient, 1, ActionKind::Backward},
    {ActionKind::InputGradient, 1, ActionKind::InputGradient},
    {ActionKind::WeightGradient, 0, ActionKind::InputGradient},
    {ActionKind::SendActivation, 0, ActionKind::Forward},
    {ActionKind::SendGradient, 0, ActionKind::Backward},
    {ActionKind::SendGradient, 0, ActionKind::InputGradient},
};

constexpr std::size_t kStreams = static_cast<std::size_t>(Stream::None) + 1;

bool is_computed(ActionKind kind) {
  return stream_of(kind) == Stream::Compute;
}

}  // namespace

Causes::Causes(const Timeline& timeline)
    : timeline_(timeline),
      lines_(timeline.lanes.size(), std::vector<std::vector<std::size_t>>(kStreams)) {
  entries_.reserve(timeline.actions.size());
  place_in_line_.reserve(timeline.actions.size());
  for (std::size_t i = 0; i < timeline.actions.size(); ++i) {
    entries_.push_back({key_of(i), i});
    const auto stream = static_cast<std::size_t>(stream_of(at(i).action.kind));
    std::vector<std::size_t>& line = lines_[at(i).lane.position()][stream];
    place_in_line_.push_back(line.size());
    line.push_back(i);
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
}

Causes::Key Causes::key_of(std::size_t action) const {
  const Action& own = at(action).action;
  // Lanes of different stages reduce what is tied together.
  const StageIndex stage = own.kind == ActionKind::ReduceTied ? StageIndex{0} : own.stage;
  return {own.kind, stage, own.index};
}

const std::vector<std::size_t>& Causes::line(LaneIndex lane, Stream stream) const {
  return lines_[lane.position()][static_cast<std::size_t>(stream)];
}

std::size_t Causes::first_with(const Key& key) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const Entry& entry, const Key& wanted) { return entry.key < wanted; });
  return static_cast<std::size_t>(found - entries_.begin());
}

/// Whether both work on some samples of each micro-batch that they have in common.
bool Causes::feeds(LaneIndex from, LaneIndex to) const {
  const std::optional<SampleRange>& made = timeline_.lanes[from.position()].samples;
  const std::optional<SampleRange>& wanted = timeline_.lanes[to.position()].samples;
  return !made || !wanted || (made->begin < wanted->end && wanted->begin < made->end);
}

/// What the action needs from the stage that makes it: of every lane that makes a part of it.
std::vector<std::size_t> Causes::needed(std::size_t action, bool computed) const {
  const auto& [kind, stage, index] = key_of(action);
  std::vector<std::size_t> found;
  for (const Need& need : kNeeds) {
    if (need.action != kind || is_computed(need.needed) != computed) continue;
    const Key key{need.needed, StageIndex{stage.value + need.stages_on}, index};
    for (std::size_t e = first_with(key); e < entries_.size() && entries_[e].key == key; ++e) {
      const LaneIndex from = at(entries_[e].action).lane;
      const LaneIndex to = at(action).lane;
      if (need.stages_on == 0 ? from == to : feeds(from, to)) found.push_back(entries_[e].action);
    }
    if (!found.empty()) break;
  }
  return found;
}

std::optional<std::size_t> Causes::last_of(const std::vector<std::size_t>& actions) const {
  const auto last =
      std::max_element(actions.begin(), actions.end(),
                       [this](std::size_t a, std::size_t b) { return at(a).end < at(b).end; });
  return last == actions.end() ? std::nullopt : std::optional(*last);
}

std::optional<std::size_t> Causes::transfer_to(std::size_t action) const {
  return last_of(needed(action, false));
}

std::optional<std::size_t> Causes::producer_for(std::size_t action) const {
  return last_of(needed(action, true));
}

std::vector<std::size_t> Causes::transfers_to(std::size_t action) const {
  return needed(action, false);
}

std::vector<std::size_t> Causes::reductions_before(std::size_t step) const {
  const Action& own = at(step).action;
  const std::vector<std::size_t>& computed = line(at(step).lane, Stream::Compute);
  const std::size_t next = place_in_line_[step] + 1;
  // Where the steps of further buckets follow, their reductions are not waited for.
  const bool is_part =
      next < computed.size() &&
      at(computed[next]).action == Action{ActionKind::OptimizerStep, own.index + 1, own.stage};
  std::vector<std::size_t> reductions;
  for (const std::size_t other : line(at(step).lane, Stream::Collective)) {
    const Action& reduction = at(other).action;
    const bool is_awaited =
        reduction.kind == ActionKind::ReduceTied
            ? !is_part
            : reduction.stage == own.stage && (!is_part || reduction.index <= own.index);
    if (is_awaited) reductions.push_back(other);
  }
  return reductions;
}

std::optional<std::size_t> Causes::previous(std::size_t action) const {
  const std::size_t place = place_in_line_[action];
  if (place == 0) return std::nullopt;
  return line(at(action).lane, stream_of(at(action).action.kind))[place - 1];
}

/// On each lane that takes part, the last computation of gradients that began before the reduction
/// did: a backward that fills the bucket on its way, or had ended; and where what is tied waits for
/// other reductions of any of the lanes, those.
std::vector<std::size_t> Causes::makers_of_bucket(std::size_t reduction) const {
  std::vector<std::size_t> makers;
  const Key key = key_of(reduction);
  for (std::size_t e = first_with(key); e < entries_.size() && entries_[e].key == key; ++e) {
    const LaneIndex lane = at(entries_[e].action).lane;
    const bool is_own = lane == at(reduction).lane;
    const std::vector<std::size_t>& computed = line(lane, Stream::Compute);
    auto behind =
        std::upper_bound(computed.begin(), computed.end(), at(reduction).start,
                         [this](Duration start, std::size_t i) { return start < at(i).start; });
    while (behind != computed.begin() && !makes_weight_gradient(at(*(behind - 1)).action.kind)) {
      --behind;
    }
    // The lane's own comes first, so that it wins where several are as late.
    if (behind != computed.begin()) {
      makers.insert(is_own ? makers.begin() : makers.end(), *(behind - 1));
    }
    const std::optional<std::size_t> before = previous(entries_[e].action);
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
    for (const std::size_t transfer : causes.transfers_to(i)) {
      messages.push_back({.transfer = transfer, .receiver = i});
    }
  }
  return messages;
}

}  // namespace dapple
