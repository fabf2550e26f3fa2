#include "dapple/core/index.h"

using namespace dapple;

bool is_same = StageIndex{1} == DeviceIndex{1};  // refused
