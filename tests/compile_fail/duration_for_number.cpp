#include "dapple/core/quantity.h"

using namespace dapple;

long long number = Duration{1};  // refused
