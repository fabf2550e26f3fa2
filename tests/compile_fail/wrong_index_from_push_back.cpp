#include "dapple/core/indexed_vector.h"
#include "dapple/core/quantity.h"

using namespace dapple;

DeviceIndex add(IndexedVector<StageIndex, Bytes>& sizes) {
  return sizes.push_back({});  // refused
}
