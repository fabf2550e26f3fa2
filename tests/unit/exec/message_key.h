// Names of messages, for the tests of those that bring them.
#pragma once

#include <cstdint>

#include "dapple/exec/message/transport.h"

namespace dapple::exec {

/// An activation of stage 5 that one device sends to another.
inline MessageKey key(std::int32_t from, std::int32_t to, std::int32_t number = 0) {
  return {.iteration = 0,
          .action = {ActionKind::SendActivation, number, {5}},
          .step = 0,
          .from = {from},
          .to = {to}};
}

}  // namespace dapple::exec
