#include "streams.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "dapple/core/random.h"

namespace cuda_on_host {

/// Counts what a thread is given, and has it sleep meanwhile: by bare system calls, since those of
/// the library would put what the thread has done before whatever the giver does next.
class Counter {
 public:
  void count() {
    number_.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &number_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void await_other_than(std::uint32_t known) {
    while (number_.load(std::memory_order_acquire) == known) {
      syscall(SYS_futex, &number_, FUTEX_WAIT_PRIVATE, known, nullptr, nullptr, 0);
    }
  }

 private:
  std::atomic<std::uint32_t> number_ = 0;
};

/// What a stream is to do: given by many and done by one, who holds on to what it took last.
class Queue {
 public:
  Queue(int gpu, unsigned seed) : gpu_(gpu), random_(seed) {}

  int gpu() const { return gpu_; }

  void give(std::function<void()> work) {
    const std::lock_guard lock(givers_);
    last_->next = std::make_unique<Entry>(Entry{std::move(work), nullptr});
    last_ = last_->next.get();
    given_.count();
  }
  void end() {
    give([this] { is_ending_ = true; });
  }

  /// Until end(), and then what finish_all_streams() gives.
  void run();

 private:
  struct Entry {
    std::function<void()> work;
    std::unique_ptr<Entry> next;
  };

  void do_next() {
    given_.await_other_than(done_++);
    first_ = std::move(first_->next);
    dawdle();
    std::exchange(first_->work, {})();
  }

  void dawdle() {
    constexpr unsigned kSeldom = 16;
    constexpr unsigned kLongest = 200;  // microseconds
    if (random_() % kSeldom != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % kLongest));
  }

  const int gpu_;
  dapple::RandomSequence random_;
  Counter given_;
  std::uint32_t done_ = 0;
  bool is_ending_ = false;
  std::unique_ptr<Entry> first_ = std::make_unique<Entry>();
  std::mutex givers_;
  Entry* last_ = first_.get();
};

namespace {

/// Of all streams that have not ended.
struct Registry {
  std::mutex mutex;
  unsigned made = 0;
  std::vector<std::shared_ptr<Queue>> queues;
};

/// It is never destroyed: streams may end after everything else.
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

}  // namespace

void Queue::run() {
  while (!is_ending_) do_next();
  {
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().queues, [this](const auto& queue) { return queue.get() == this; });
  }
  while (first_.get() != last_) do_next();
}

void Moment::reach() {
  time_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  is_reached_.store(true, std::memory_order_release);
  reached_.notify_all();
}

void Moment::wait() {
  std::unique_lock lock(mutex_);
  reached_.wait(lock, [&] { return is_reached(); });
}

}  // namespace cuda_on_host

struct CUstream_st {
  std::shared_ptr<cuda_on_host::Queue> queue;
};

namespace cuda_on_host {

CUstream_st* make_stream(int gpu) {
  const std::lock_guard lock(registry().mutex);
  auto queue = std::make_shared<Queue>(gpu, ++registry().made);
  registry().queues.push_back(queue);
  std::thread([queue] { queue->run(); }).detach();
  return new CUstream_st{std::move(queue)};
}

int gpu_of(const CUstream_st* stream) {
  return stream->queue->gpu();
}

void end_stream(CUstream_st* stream) {
  stream->queue->end();
  delete stream;
}

void enqueue(CUstream_st* stream, std::function<void()> work) {
  stream->queue->give(std::move(work));
}

void finish_all_streams(int gpu) {
  std::vector<std::shared_ptr<Moment>> ends;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& queue : registry().queues) {
      if (queue->gpu() != gpu) continue;
      const auto& end = ends.emplace_back(std::make_shared<Moment>());
      queue->give([end] { end->reach(); });
    }
  }
  for (const auto& end : ends) end->wait();
}

}  // namespace cuda_on_host
