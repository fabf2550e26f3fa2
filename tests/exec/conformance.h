// What every transport must do, whatever carries its messages. A case is what each device does at
// its end; all devices do it at the same time, in threads or in processes.
#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dapple/exec/message/transport.h"

namespace dapple::conformance {

/// A device's own view of a case: `devices` are 0 to count - 1.
struct Place {
  std::int32_t number = 0;
  std::int32_t count = 1;
  std::int64_t iteration = 0;  // of this case's messages, and of no other's

  std::int32_t next() const { return (number + 1) % count; }
  std::int32_t previous() const { return (number + count - 1) % count; }
};

struct Case {
  std::string claim;
  std::function<void(const Place& place, exec::Transport& end)> part;
};

/// A claim that does not hold.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool condition, const std::string& what) {
  if (!condition) throw Broken(what);
}

/// Cases after which the transport is as good as new.
const std::vector<Case>& cases();

/// One after which it is of no use: a device aborts, and the others wait in different ways.
const Case& aborting_case();

}  // namespace dapple::conformance
