#include "dapple/core/index.h"

using namespace dapple;

int number = StageIndex{1};  // refused
