#include "modes.h"

#include <string>

namespace dapple {

Contention contention_of(const Options& options, Contention otherwise) {
  if (!options.has("contention")) return otherwise;
  return options.choice("contention", {"on", "off"}) == "on" ? Contention::Shared : Contention::Off;
}

Replicas replicas_of(const Options& options, Replicas otherwise) {
  if (!options.has("replicas")) return otherwise;
  const std::string value = options.choice("replicas", {"together", "independent"});
  return value == "together" ? Replicas::Together : Replicas::Independent;
}

}  // namespace dapple
