#include "dapple/search/indices.h"

using namespace dapple;

search::AllocationIndex allocation = search::AllocationClassIndex{1};  // refused
