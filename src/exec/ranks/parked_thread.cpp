#include "exec/ranks/parked_thread.h"

#include <mutex>
#include <utility>
#include <vector>

namespace dapple::exec {
namespace {

class Parked {
 public:
  ~Parked() {
    for (std::thread& thread : threads_) thread.join();
  }
  void add(std::thread thread) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(std::move(thread));
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace

void park(std::thread thread) {
  static Parked parked;
  parked.add(std::move(thread));
}

}  // namespace dapple::exec
