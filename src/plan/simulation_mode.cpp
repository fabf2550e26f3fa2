#include "dapple/plan/simulation_mode.h"

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(Contention contention) {
  switch (contention) {
    case Contention::Shared:
    case Contention::SharedWithCollectives:
      return "on";
    case Contention::Off:
      return "off";
  }
  throw Bug("a treatment of contention without a name");
}

Contention suited_to(const TopologyDescription& topology, Contention contention) {
  const bool has_others = topology.servers_of_group > 1;
  return contention == Contention::SharedWithCollectives && !has_others ? Contention::Shared
                                                                        : contention;
}

std::string_view to_string(Replicas replicas) {
  switch (replicas) {
    case Replicas::Together:
      return "together";
    case Replicas::Independent:
      return "independent";
  }
  throw Bug("a treatment of replicas without a name");
}

std::string_view to_string(Transfers transfers) {
  switch (transfers) {
    case Transfers::Overlapped:
      return "overlapped";
    case Transfers::Blocking:
      return "blocking";
    case Transfers::Serial:
      return "serial";
  }
  throw Bug("a treatment of transfers without a name");
}

}  // namespace dapple
