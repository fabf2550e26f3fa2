#include "dapple/profile/down_sets.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dapple {

DownSets::DownSets(const std::vector<std::vector<std::int32_t>>& inputs)
    : inputs_(inputs),
      consumers_(inputs.size()),
      words_((inputs.size() + kWordBits - 1) / kWordBits) {
  for (std::size_t node = 0; node < inputs.size(); ++node) {
    for (const std::int32_t input : inputs[node]) {
      consumers_[static_cast<std::size_t>(input)].push_back(static_cast<std::int32_t>(node));
    }
  }
}

bool DownSets::is_needed(DownSetIndex set, std::int32_t node) const {
  const auto& consumers = consumers_[static_cast<std::size_t>(node)];
  return std::any_of(consumers.begin(), consumers.end(),
                     [&](std::int32_t consumer) { return !contains(set, consumer); });
}

/// Lists the down-sets, those with one node more after those with one node less.
class DownSets::Finder {
 public:
  Finder(DownSets& sets, std::int64_t most) : sets_(sets), most_(most) {}
  bool run();

 private:
  // The nodes outside a down-set whose inputs it has, ascending.
  using Ready = std::vector<std::int32_t>;

  bool add(std::vector<Word> members, Ready ready);
  Ready ready_after(DownSetIndex next, const Ready& before, std::int32_t node) const;
  bool extend(DownSetIndex set, const Ready& ready);

  DownSets& sets_;
  std::int64_t most_;
  std::int32_t found_ = 0;
  // The down-sets of the next size, and what is ready behind each.
  std::map<std::vector<Word>, DownSetIndex> next_;
  std::vector<Ready> ready_;
};

/// Adds a down-set. Returns whether there are not too many.
bool DownSets::Finder::add(std::vector<Word> members, Ready ready) {
  sets_.members_.insert(sets_.members_.end(), members.begin(), members.end());
  next_.emplace(std::move(members), DownSetIndex{found_});
  ready_.push_back(std::move(ready));
  ++found_;
  return found_ <= most_ && static_cast<std::int64_t>(sets_.members_.size()) <= kMostWords;
}

/// Returns what is ready behind `next`, which has `node` more than a down-set behind which `before`
/// is ready.
DownSets::Finder::Ready DownSets::Finder::ready_after(DownSetIndex next, const Ready& before,
                                                      std::int32_t node) const {
  Ready ready = before;
  std::erase(ready, node);
  for (const std::int32_t consumer : sets_.consumers_[static_cast<std::size_t>(node)]) {
    const auto& inputs = sets_.inputs_[static_cast<std::size_t>(consumer)];
    const bool has_all = std::all_of(inputs.begin(), inputs.end(), [&](std::int32_t input) {
      return sets_.contains(next, input);
    });
    if (has_all) ready.insert(std::lower_bound(ready.begin(), ready.end(), consumer), consumer);
  }
  return ready;
}

/// Adds the steps from a down-set, and the down-sets that they lead to.
bool DownSets::Finder::extend(DownSetIndex set, const Ready& ready) {
  const std::size_t first = set.position() * sets_.words_;
  for (const std::int32_t node : ready) {
    const auto begin = sets_.members_.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<Word> members(begin, begin + static_cast<std::ptrdiff_t>(sets_.words_));
    const auto bit = static_cast<std::size_t>(node);
    members[bit / kWordBits] |= Word{1} << (bit % kWordBits);
    const auto known = next_.find(members);
    if (known != next_.end()) {
      sets_.steps_.push_back({node, known->second});
      continue;
    }
    const DownSetIndex next{found_};
    if (!add(std::move(members), {})) return false;
    ready_.back() = ready_after(next, ready, node);
    sets_.steps_.push_back({node, next});
  }
  return true;
}

bool DownSets::Finder::run() {
  Ready sources;
  for (std::size_t node = 0; node < sets_.inputs_.size(); ++node) {
    if (sets_.inputs_[node].empty()) sources.push_back(static_cast<std::int32_t>(node));
  }
  if (!add(std::vector<Word>(sets_.words_), std::move(sources))) return false;
  for (std::int32_t begin = 0; begin < found_;) {
    const std::vector<Ready> ready = std::exchange(ready_, {});
    next_.clear();
    const std::int32_t end = found_;
    for (std::int32_t set = begin; set < end; ++set) {
      sets_.first_steps_.push_back(sets_.steps_.size());
      if (!extend({set}, ready[static_cast<std::size_t>(set - begin)])) return false;
    }
    begin = end;
  }
  sets_.first_steps_.push_back(sets_.steps_.size());
  return true;
}

std::optional<DownSets> DownSets::of(const std::vector<std::vector<std::int32_t>>& inputs,
                                     std::int64_t most) {
  DownSets sets(inputs);
  if (!Finder(sets, most).run()) return std::nullopt;
  return sets;
}

std::vector<Wide> DownSets::sums(const std::vector<Wide>& figures) const {
  std::vector<Wide> sums(static_cast<std::size_t>(size()));
  for (DownSetIndex set; set <= last(); set = set.next()) {
    for (const Step& step : steps(set)) {
      sums[step.next.position()] =
          sums[set.position()] + figures[static_cast<std::size_t>(step.node)];
    }
  }
  return sums;
}

std::vector<Wide> DownSets::crossing(const std::vector<Wide>& figures) const {
  std::vector<Wide> crossing(static_cast<std::size_t>(size()));
  for (DownSetIndex set; set <= last(); set = set.next()) {
    for (const Step& step : steps(set)) {
      const auto node = static_cast<std::size_t>(step.node);
      Wide sum = crossing[set.position()];
      if (!consumers_[node].empty()) sum += figures[node];
      for (const std::int32_t input : inputs_[node]) {
        if (!is_needed(step.next, input)) sum -= figures[static_cast<std::size_t>(input)];
      }
      crossing[step.next.position()] = sum;
    }
  }
  return crossing;
}

}  // namespace dapple
