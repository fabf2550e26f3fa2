// All devices of a job side by side, each on a thread of this process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dapple/exec/message/thread_transport.h"

namespace dapple::exec {

/// Runs `work` for every device's place among `devices`, with its end, and waits for all. Throws
/// what the first one to fail has thrown, once all are at rest; that ends the others' waiting.
inline void on_threads(ThreadNetwork& network, const std::vector<DeviceIndex>& devices,
                       const std::function<void(std::size_t place, Transport& transport)>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto fail = [&](Transport& end) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    end.abort();
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t place = 0; place < devices.size(); ++place) {
        threads.emplace_back([&, place] {
          const std::unique_ptr<Transport> end = network.end_of(devices[place]);
          try {
            work(place, *end);
          } catch (const JobAborted&) {  // another one says why
          } catch (...) { fail(*end); }
        });
      }
    } catch (...) {  // no more threads can be had: those that are there wait in vain
      fail(*network.end_of(devices.front()));
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dapple::exec
