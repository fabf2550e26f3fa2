// How much passes each of many ports, where equally much passes most of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "dapple/core/index.h"

namespace dapple {

/// Ports in ascending order, each with a position in a list of sizes. A port may have several
/// entries, whose sizes add up.
using PortPositions = std::vector<std::pair<PortIndex, std::uint32_t>>;

/// A range of pairs of a port and the size that passes it, by port. The ports are shared by copies,
/// and by all sizes that pass the same ports in the same proportions; there are few sizes.
template <class Size>
class PortSizes {
 public:
  PortSizes() = default;
  /// Requires: `ports` is not null, each position is one of `sizes`, and each size has a port.
  PortSizes(std::shared_ptr<const PortPositions> ports, std::vector<Size> sizes)
      : ports_(std::move(ports)), sizes_(std::move(sizes)) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::pair<PortIndex, Size>;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = value_type;

    Iterator() = default;
    Iterator(const PortSizes& of, std::size_t entry) : of_(&of), entry_(entry) {}
    value_type operator*() const {
      const auto& [port, position] = (*of_->ports_)[entry_];
      return {port, of_->sizes_[position]};
    }
    Iterator& operator++() {
      ++entry_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++entry_;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const PortSizes* of_ = nullptr;
    std::size_t entry_ = 0;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

  /// The number of entries.
  std::size_t size() const { return ports_ ? ports_->size() : 0; }

  /// The distinct sizes, in no order. Several may be equal.
  const std::vector<Size>& sizes() const { return sizes_; }
  /// Returns the size that passes a port; nothing where it has no entry. O(log ports).
  Size through(PortIndex port) const {
    Size sum{};
    if (!ports_) return sum;
    auto entry =
        std::lower_bound(ports_->begin(), ports_->end(), port,
                         [](const auto& some, PortIndex wanted) { return some.first < wanted; });
    for (; entry != ports_->end() && entry->first == port; ++entry) {
      sum.count += sizes_[entry->second].count;
    }
    return sum;
  }

  /// Returns change(size) through each port that a size passes.
  template <class Change>
  PortSizes with_each(const Change& change) const {
    PortSizes changed = *this;
    for (Size& size : changed.sizes_) size = change(size);
    return changed;
  }

 private:
  std::shared_ptr<const PortPositions> ports_;
  std::vector<Size> sizes_;
};

}  // namespace dapple
