#include "dapple/search/indices.h"

using namespace dapple;

search::AllocationIndex allocation = search::UseIndex{1};  // refused
