// The names by which a rank calls all ranks in its errors.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dapple::exec {

/// A thread-safe list of names, "rank 2" until set() is called.
class RankNames {
 public:
  void set(std::vector<std::string> names) {
    const std::lock_guard lock(mutex_);
    names_ = std::move(names);
  }

  std::string of(int rank) const {
    const std::lock_guard lock(mutex_);
    return names_.empty() ? fmt::format("rank {}", rank) : names_[static_cast<std::size_t>(rank)];
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

}  // namespace dapple::exec
