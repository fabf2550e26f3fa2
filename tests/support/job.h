// Devices that run a schedule side by side, each in a thread, for the tests of the executor.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "dapple/exec/message/thread_transport.h"
#include "dapple/plan/document.h"
#include "pipeline.h"

namespace dapple::small {

/// Runs `work(i)` for every i at once. Throws the first exception by number that is a cause, where
/// one is: that the job was aborted says only that another has failed.
inline void side_by_side(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::exception_ptr> aborted(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          work(i);
        } catch (const exec::JobAborted&) { aborted[i] = std::current_exception(); } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const auto* const some : {&failures, &aborted}) {
    for (const std::exception_ptr& failure : *some) {
      if (failure) std::rethrow_exception(failure);
    }
  }
}

inline exec::Payload payload_of(const std::vector<float>& values) {
  exec::HostBytes bytes(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::vector<float> floats_of(const exec::Payload& payload) {
  std::vector<float> values(payload.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), payload.host().data(), payload.size());
  return values;
}

inline std::vector<DeviceIndex> all_devices(const Topology& topology) {
  std::vector<DeviceIndex> devices;
  for (std::int32_t i = 0; i < topology.device_count(); ++i) devices.push_back({i});
  return devices;
}

inline PlanDocument document_of(const Pipeline& pipeline) {
  PlanDocument document;
  document.profile = pipeline.profile;
  document.topology = pipeline.topology.description();
  document.plan = pipeline.plan;
  return document;
}

}  // namespace dapple::small
