// Imports Metis' profile folders, which have a JSON file for each kind of device, tensor-parallel
// degree and batch size, named accordingly: DeviceType.A100_tp1_bs4.json. Source: SamsungLabs/Metis
// README.md and profile_data_samples/.
#pragma once

#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Imports the files of one kind of device and one tensor-parallel degree, with a measurement for
/// each batch size. The files state the sum of forward and backward times, which is split according
/// to
/// --backward-ratio. A layer's stash is the growth of its memory from the smallest to the largest
/// batch or, if there is only one batch, its memory less weights, gradients and optimizer state;
/// --stash overrides both. Throws as import_model() does. O(length).
ImportedProfile import_metis(const std::vector<ForeignModelFile>& files,
                             const ForeignProfileOptions& options);

/// Whether an object looks like such a file. O(members).
bool is_metis_profile(const io::JsonValue& object);

}  // namespace dapple::interop
