// Comparison of a simulated timeline with the reference simulator, for tests.
#pragma once

#include <catch2/catch.hpp>

#include "../oracle/simulation_reference.h"

namespace dapple::small {

/// Fails unless every action of the timeline starts and ends when the reference says. Returns the
/// reference's times. Requires: no stage deals.
inline ReferenceTimes require_reference_times(const Pipeline& pipeline, Contention contention,
                                              const simulate::SimulationResult& result) {
  const ReferenceTimes expected = Reference(pipeline, contention).run();
  const ReferenceTimes times = times_of(pipeline, result);
  REQUIRE((times.forward == expected.forward));
  REQUIRE((times.backward == expected.backward));
  REQUIRE((times.activation == expected.activation));
  REQUIRE((times.gradient == expected.gradient));
  REQUIRE((times.reduction == expected.reduction));
  REQUIRE((times.tied == expected.tied));
  REQUIRE((times.step == expected.step));
  return expected;
}

}  // namespace dapple::small
