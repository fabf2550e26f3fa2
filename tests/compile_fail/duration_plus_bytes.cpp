#include "dapple/core/quantity.h"

using namespace dapple;

Duration sum = Duration{1} + Bytes{1};  // refused
