#include "dapple/core/index.h"

using namespace dapple;

DeviceIndex device = StageIndex{1};  // refused
