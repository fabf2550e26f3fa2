// The bytes of a message, in host or device memory. A payload owns its bytes; it can be moved,
// which moves no bytes, but not copied.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dapple::exec {

using HostBytes = std::vector<std::byte>;

/// The kind of memory in which bytes lie.
enum class Memory { Host, Device };

/// Bytes in a device's memory. They may become valid only later, once the device has executed the
/// work that produces them. Backends and transports for a particular kind of device know the
/// derived class and what else it offers.
class DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;
  virtual std::size_t size() const = 0;

  /// Waits until the bytes are valid. Throws Error(Environment) if the device fails.
  virtual void await() const = 0;
  /// Waits until the bytes are valid and returns a copy. Throws as await().
  virtual HostBytes on_host() const = 0;
};

/// The bytes of one message.
class Payload {
 public:
  Payload() = default;
  Payload(HostBytes bytes) : host_(std::move(bytes)) {}
  /// Requires: not null.
  explicit Payload(std::unique_ptr<DeviceBytes> bytes) : device_(std::move(bytes)) {}

  std::size_t size() const { return device_ ? device_->size() : host_.size(); }
  Memory memory() const { return device_ ? Memory::Device : Memory::Host; }

  /// Waits until bytes that lie on a device are valid.
  void await() const {
    if (device_) device_->await();
  }
  /// Moves bytes that lie on a device to the host, waiting for them.
  void bring_to_host() {
    if (!device_) return;
    host_ = device_->on_host();
    device_.reset();
  }

  /// Returns the bytes if they lie on the host; otherwise an empty span.
  std::span<const std::byte> host() const { return host_; }
  std::span<std::byte> host() { return host_; }
  /// Returns the bytes on a device; null if they lie on the host.
  DeviceBytes* device() const { return device_.get(); }

 private:
  HostBytes host_;
  std::unique_ptr<DeviceBytes> device_;
};

}  // namespace dapple::exec
