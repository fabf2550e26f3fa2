// Streams on the host: each is a thread that does what is enqueued, one after another and now and
// then late, so that nothing is in order that no event puts in order. The thread sanitizer knows of
// no order but that which CUDA promises: what was done before something is enqueued goes before it,
// and what a stream has done goes before what follows a wait for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

struct CUstream_st;

namespace cuda_on_host {

/// When a stream comes to where an event was recorded.
class Moment {
 public:
  void reach();
  bool is_reached() const { return is_reached_.load(std::memory_order_acquire); }
  void wait();
  /// Requires: it is reached.
  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  std::atomic<bool> is_reached_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// Of a GPU.
CUstream_st* make_stream(int gpu);
int gpu_of(const CUstream_st* stream);

/// It ends once it has done what it has been given.
void end_stream(CUstream_st* stream);

void enqueue(CUstream_st* stream, std::function<void()> work);

/// Waits until all streams of a GPU have done what they have been given, those too that are ending.
void finish_all_streams(int gpu);

}  // namespace cuda_on_host
