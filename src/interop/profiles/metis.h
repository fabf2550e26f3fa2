// Metis' profile folders: a JSON file for each kind of device, tensor-parallel degree and batch
// size, which its name says: DeviceType.A100_tp1_bs4.json. Source: SamsungLabs/Metis README.md and
// profile_data_samples/.
#pragma once

#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

/// One kind of device and one degree, a measurement for each batch size. Times are those of both
/// directions together. Of a layer's memory, what grows from the smallest batch to the largest is
/// its stash; with one batch, what is left beside weights, gradients and the optimizer's state.
/// Throws as import_model(). O(length).
ImportedProfile import_metis(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options);

}  // namespace dapple::interop
