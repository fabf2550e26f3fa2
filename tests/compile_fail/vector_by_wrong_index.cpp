#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"

using namespace dapple;

Bytes size_of(const IndexedVector<StageIndex, Bytes>& sizes) {
  return sizes[DeviceIndex{1}];  // refused
}
