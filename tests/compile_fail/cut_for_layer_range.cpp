#include "dapple/search/indices.h"

using namespace dapple;

LayerRange layers = search::layers_between(search::NodeIndex{1}, search::CutIndex{2});  // refused
