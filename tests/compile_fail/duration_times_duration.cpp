#include "dapple/core/quantity.h"

using namespace dapple;

Duration product = Duration{2} * Duration{3};  // refused
