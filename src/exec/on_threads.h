// All devices of a job side by side, each on a thread of this process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dapple/exec/thread_transport.h"

namespace dapple {

/// Runs `work` for every device's place among `devices`, with its end, and waits for all. Throws
/// what the first one to fail has thrown, once all are at rest; that ends the others' waiting.
inline void on_threads(ThreadNetwork& network, const std::vector<DeviceIndex>& devices,
                       const std::function<void(std::size_t place, Transport& transport)>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (std::size_t place = 0; place < devices.size(); ++place) {
      threads.emplace_back([&, place] {
        const std::unique_ptr<Transport> end = network.end_of(devices[place]);
        try {
          work(place, *end);
        } catch (const JobAborted&) {  // another one says why
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
          end->abort();
        }
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dapple
