#include "dapple/core/index.h"

using namespace dapple;

StageIndex stage = 1;  // refused
