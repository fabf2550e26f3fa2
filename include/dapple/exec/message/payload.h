// The bytes of a message, in the memory of the host or in that of a device. Who has a payload owns
// its bytes; it can be moved, which moves no byte, and not copied.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dapple::exec {

using HostBytes = std::vector<std::byte>;

/// Where bytes lie.
enum class Memory { Host, Device };

/// Bytes in a device's memory. They may be there only later: the device has been given the work
/// that makes them. Backends and transports that know the kind of device know what else there is to
/// them.
class DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;
  virtual std::size_t size() const = 0;

  /// Waits until they are there. Throws Error(Environment) where the device fails.
  virtual void await() const = 0;
  /// A copy, once they are there. As await().
  virtual HostBytes on_host() const = 0;
};

class Payload {
 public:
  Payload() = default;
  Payload(HostBytes bytes) : host_(std::move(bytes)) {}
  /// Requires: not null.
  explicit Payload(std::unique_ptr<DeviceBytes> bytes) : device_(std::move(bytes)) {}

  std::size_t size() const { return device_ ? device_->size() : host_.size(); }
  Memory memory() const { return device_ ? Memory::Device : Memory::Host; }

  /// Waits until what lies on a device is there.
  void await() const {
    if (device_) device_->await();
  }
  /// Copies what lies on a device, and waits until it is there.
  void bring_to_host() {
    if (!device_) return;
    host_ = device_->on_host();
    device_.reset();
  }

  /// Of what lies on the host; none where it does not.
  std::span<const std::byte> host() const { return host_; }
  std::span<std::byte> host() { return host_; }
  /// Null for what lies on the host.
  DeviceBytes* device() const { return device_.get(); }

 private:
  HostBytes host_;
  std::unique_ptr<DeviceBytes> device_;
};

}  // namespace dapple::exec
