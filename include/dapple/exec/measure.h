// Times of a model's layers on the core that asks: what makes a profile of a specification.
//
// A pass runs every distinct layer forward and then, in the other order, backward, so that each
// finds the caches as another layer left them. Layers with the same `op` and the same input count
// as one. Inputs are random; forward, gradient of the input and gradient of the weights are timed
// apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/io/specification.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

struct MeasureOptions {
  std::vector<std::int64_t> batch_sizes{1, 2, 4, 8};  // ascending
  std::int64_t repeats = 15;                          // passes that count, after two that do not
  std::string device = "cpu";                         // what topologies call it
};

struct MeasuredLayer {
  std::string name;  // of the first of its kind
  std::int64_t copies = 1;
  std::vector<Measurement> measurements;  // medians; one for each batch size
  /// Half of the passes lie within a range this wide, as a share of the median: of the times of
  /// forward and backward together. One for each batch size.
  std::vector<double> spreads;
};

struct MeasuredModel {
  ModelProfile profile;               // which can be planned from, and still be run
  std::vector<MeasuredLayer> layers;  // distinct ones
  bool is_pinned = false;             // the system let the thread be bound to one core
};

/// Sizes of outputs and stashes are those of the tensors. The optimizer's step is timed on as many
/// parameters as the model has, up to four million. Throws Error(BadInput) where the layers do not
/// fit each other (make_model()), or the optimizer is none that runs here. Requires: at least one
/// batch size, each above zero and the one before; repeats >= 1.
MeasuredModel measure_model(const Specification& specification, const std::string& source_name,
                            const MeasureOptions& options);

}  // namespace dapple
