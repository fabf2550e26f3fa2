#include "simulate/transport.h"

#include "simulate/transports.h"

namespace dapple::simulate {

std::unique_ptr<TransportLayer> make_transport(const TransportWork& work, const Topology& topology,
                                               Contention contention, TransportOutput output) {
  if (contention == Contention::Off) return std::make_unique<IsolatedTransport>(work, output);
  return std::make_unique<SharedTransport>(work, topology, output);
}

}  // namespace dapple::simulate
