// Runs all devices of a job concurrently, each on a thread of this process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dapple/exec/message/thread_transport.h"

namespace dapple::exec {

/// Calls `work` for every device's position in `devices`, with its endpoint, and waits for all. If
/// one fails, aborts the waits of the others and, once all have ended, rethrows the exception of
/// the first one to fail.
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
          } catch (const JobAborted&) {  // the device that failed reports the cause
          } catch (...) { fail(*end); }
        });
      }
    } catch (...) {  // a thread could not be created, so the others would wait in vain
      fail(*network.end_of(devices.front()));
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dapple::exec
