#include "block.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fiber.h"

thread_local dim3 threadIdx;
thread_local dim3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;

namespace cuda_on_host {
namespace {

constexpr unsigned kLanes = 32;

/// Where threads wait until all that are expected have come. The generation counts how often.
struct Barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct Warp {
  Barrier barrier;
  unsigned alive = 0;  // lanes that have not ended, a bit each
  unsigned arrived_lanes = 0;
  Word words[2][kLanes] = {};  // of this generation and the one before
};

/// The threads of one block. A fiber runs them one after another; once one has to wait, the next
/// fiber goes on with those that have not begun.
class Block {
 public:
  static Block& of_this_thread() {
    thread_local Block block;
    return block;
  }

  void run(const dim3& size, const std::function<void()>& thread) {
    thread_ = &thread;
    size_ = size;
    count_ = size.x * size.y * size.z;
    begun_ = 0;
    alive_ = count_;
    barrier_ = {};
    warps_.assign((count_ + kLanes - 1) / kLanes, Warp{});
    for (unsigned i = 0; i < count_; ++i) warps_[i / kLanes].alive |= 1U << i % kLanes;
    while (alive_ > 0) {
      if (!resume_all()) fail(std::logic_error("threads of a block wait for some that never come"));
    }
  }

  void meet() {
    if (++barrier_.arrived == alive_) return release(barrier_);
    wait_for(barrier_);
  }

  Word exchange(unsigned lanes, Word word, int lane_mask) {
    Warp& warp = warps_[current_->number / kLanes];
    const unsigned lane = current_->number % kLanes;
    const unsigned other = lane ^ static_cast<unsigned>(lane_mask);
    if ((lanes & warp.alive) != lanes || (lanes >> lane & 1U) == 0 || (lanes >> other & 1U) == 0) {
      throw std::logic_error("a lane is asked for that is not there");
    }
    Word* words = warp.words[warp.barrier.generation % 2];
    words[lane] = word;
    warp.arrived_lanes |= 1U << lane;
    if (warp.arrived_lanes == lanes) {
      warp.arrived_lanes = 0;
      release(warp.barrier);
    } else {
      wait_for(warp.barrier);
    }
    return words[other];
  }

 private:
  struct Runner {
    explicit Runner(Block& block) : fiber([&block] { block.run_threads(); }) {}
    Fiber fiber;
    unsigned number = 0;  // of the thread that it runs
    const Barrier* waits_at = nullptr;
    unsigned generation = 0;
  };

  /// Threads that still wait are given up.
  [[noreturn]] void fail(const std::logic_error& error) {
    const std::logic_error kept = error;
    runners_.clear();
    throw kept;
  }

  /// False where nobody could go on.
  bool resume_all() {
    bool has_moved = false;
    for (const auto& runner : runners_) {
      if (runner->fiber.has_returned()) continue;
      if (runner->waits_at->generation == runner->generation) continue;
      resume(*runner);
      has_moved = true;
    }
    while (begun_ < count_) {
      resume(unused_runner());
      has_moved = true;
    }
    return has_moved;
  }

  void resume(Runner& runner) {
    current_ = &runner;
    set_index(runner.number);
    runner.fiber.resume();
    if (error_) fail(*std::exchange(error_, std::nullopt));
  }

  Runner& unused_runner() {
    for (const auto& runner : runners_) {
      if (runner->fiber.has_returned()) return *runner;
    }
    return *runners_.emplace_back(std::make_unique<Runner>(*this));
  }

  /// Inside a fiber.
  void run_threads() {
    Runner& own = *current_;
    while (begun_ < count_) {
      own.number = begun_++;
      set_index(own.number);
      try {
        (*thread_)();
      } catch (const std::logic_error& error) {
        error_ = error;
        return;
      }
      warps_[own.number / kLanes].alive &= ~(1U << own.number % kLanes);
      --alive_;
      // Those who wait for all that are left may now be all.
      if (alive_ > 0 && barrier_.arrived == alive_) release(barrier_);
    }
  }

  void set_index(unsigned number) {
    threadIdx = {number % size_.x, number / size_.x % size_.y, number / (size_.x * size_.y)};
  }

  static void release(Barrier& barrier) {
    barrier.arrived = 0;
    ++barrier.generation;
  }

  void wait_for(const Barrier& barrier) {
    current_->waits_at = &barrier;
    current_->generation = barrier.generation;
    current_->fiber.give_way();
  }

  const std::function<void()>* thread_ = nullptr;
  dim3 size_;
  unsigned count_ = 0;
  unsigned begun_ = 0;
  unsigned alive_ = 0;
  Barrier barrier_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Runner>> runners_;
  Runner* current_ = nullptr;
  std::optional<std::logic_error> error_;
};

}  // namespace

bool is_launchable(const dim3& grid, const dim3& block) {
  constexpr unsigned kMostThreads = 1'024;
  constexpr unsigned kMostBlocks = 65'535;
  return block.x * block.y * block.z - 1 < kMostThreads && grid.x - 1 < 0x7fffffffU &&
         grid.y - 1 < kMostBlocks && grid.z - 1 < kMostBlocks;
}

void run_grid(const dim3& grid, const dim3& block, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = block;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        Block::of_this_thread().run(block, thread);
      }
    }
  }
}

void meet_block() {
  Block::of_this_thread().meet();
}

Word exchange(unsigned lanes, Word word, int lane_mask) {
  return Block::of_this_thread().exchange(lanes, word, lane_mask);
}

}  // namespace cuda_on_host
