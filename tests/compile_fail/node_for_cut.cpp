#include "dapple/search/indices.h"

using namespace dapple;

search::CutIndex cut = search::NodeIndex{1};  // refused
