// A vector that is addressed by one type of index: `v[StageIndex{1}]` does not compile if `v` holds
// one entry per device.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "dapple/core/index.h"

namespace dapple {

/// The indices from `first` up to, but without, `last`, for a range-based for loop.
/// Requires: first <= last.
template <class IndexType>
class IndexRange {
 public:
  constexpr IndexRange(IndexType first, IndexType last) : first_(first), last_(last) {}

  class Iterator {
   public:
    explicit constexpr Iterator(IndexType index) : index_(index) {}
    constexpr IndexType operator*() const { return index_; }
    constexpr Iterator& operator++() {
      index_ = index_.next();
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    IndexType index_;
  };
  constexpr Iterator begin() const { return Iterator(first_); }
  constexpr Iterator end() const { return Iterator(last_); }

 private:
  IndexType first_;
  IndexType last_;
};

/// A std::vector with one entry per index, which no other type addresses. It checks no more than
/// std::vector does. Requires: fewer than 2^31 entries.
template <class IndexType, class T>
class IndexedVector {
 public:
  using reference = typename std::vector<T>::reference;
  using const_reference = typename std::vector<T>::const_reference;

  IndexedVector() = default;
  explicit IndexedVector(std::size_t size, const T& value = T()) : entries_(size, value) {}

  reference operator[](IndexType index) { return entries_[index.position()]; }
  const_reference operator[](IndexType index) const { return entries_[index.position()]; }
  reference front() { return entries_.front(); }
  reference back() { return entries_.back(); }
  const_reference back() const { return entries_.back(); }

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  std::size_t capacity() const { return entries_.capacity(); }
  bool contains(IndexType index) const { return 0 <= index.value && index < end_index(); }
  /// The index of the entry that is added next; all entries stand before it.
  IndexType end_index() const { return index_at<IndexType>(entries_.size()); }
  IndexRange<IndexType> indices() const { return {IndexType{}, end_index()}; }

  /// Adds an entry at the end and returns its index.
  IndexType push_back(T value) {
    entries_.push_back(std::move(value));
    return index_at<IndexType>(entries_.size() - 1);
  }
  void resize(std::size_t size, const T& value = T()) { entries_.resize(size, value); }
  void clear() { entries_.clear(); }

  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<T> entries_;
};

}  // namespace dapple
