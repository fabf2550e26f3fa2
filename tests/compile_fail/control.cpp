// Everything that the other sources refuse has a form that compiles.
#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"
#include "dapple/search/indices.h"

using namespace dapple;

static_assert(StageIndex{1}.next() == StageIndex{2});
static_assert(DeviceIndex{3}.position() == 3);
static_assert(search::layers_between({1}, {3}).end == 3);
static_assert(Duration{1} + Duration{2} == Duration{3});
static_assert(Bytes{1} < Bytes{2});
static_assert(to_ticks(Duration{1}) + Ticks{1} == Ticks{kTicksPerNanosecond + 1});
static_assert(2 * Duration{3} == Duration{6});

Duration sum_of(const IndexedVector<StageIndex, Duration>& times) {
  Duration sum;
  for (const StageIndex stage : times.indices()) sum += times[stage];
  return sum;
}

search::NodeIndex add_node(IndexedVector<search::NodeIndex, Bytes>& nodes) {
  return nodes.push_back(Bytes{1});
}
