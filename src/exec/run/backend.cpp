#include "dapple/exec/run/backend.h"

#include "exec/message/clock.h"

namespace dapple::exec {

Mark Backend::mark(Stream /*stream*/) {
  return {.moment = monotonic_now()};
}

std::int64_t Backend::moment_of(const Mark& mark) {
  return mark.moment;
}

}  // namespace dapple::exec
