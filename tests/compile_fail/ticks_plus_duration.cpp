#include "dapple/core/quantity.h"

using namespace dapple;

Ticks sum = Ticks{1} + Duration{1};  // refused
