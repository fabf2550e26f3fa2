#include "dapple/core/quantity.h"

using namespace dapple;

bool is_less = Duration{1} < Bytes{1};  // refused
