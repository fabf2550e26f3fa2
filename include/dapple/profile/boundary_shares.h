// Tensors that cross a boundary in shares (scatter-gather): where every tensor rank of a group has
// the whole tensor, each sends an equal share of it, and the ranks that receive the shares gather
// the tensor from one another.
//
// Source: Narayanan et al. 2021 (Megatron-LM, SC'21) section 4.1.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// Returns "whole" or "scatter-gather".
std::string_view to_string(Boundaries boundaries);

/// Returns the number of shares in which tensors cross a boundary between two stages in the form of
/// this profile: the tensor ranks of a group where tensors are sent by scatter-gather, and 1, for
/// whole tensors, where they are not, where sequences are divided among these ranks, or where the
/// ranks are on several servers. Tensors that are divided already are sent as they are
/// (cuts_with_divided_tensors()). O(kinds of device).
std::int64_t boundary_shares(const ModelProfile& form);
/// Returns the same of a boundary between a stage in that form and one in another: tensors are
/// whole where the two differ in their tensor or context ranks, or in the sizes of their groups.
std::int64_t shares_between(const ModelProfile& form, const Parallelism& other);

/// Whether a rank of a form with several tensor ranks, whose layer has the figures of `variant`,
/// has less of the layer's output than all of them have together: less than three quarters of what
/// one of its context ranks has of that of the layer by itself. O(1). Requires: both are measured.
bool divides_output(const Layer& layer, const LayerVariant& variant);

/// By cut, whether some tensor that crosses it is divided among the tensor ranks
/// (divides_output()), so that all that crosses is sent as it is. O(layers * cuts).
std::vector<bool> cuts_with_divided_tensors(const ModelProfile& form);

/// Lower bound on the time in which a device in this form gathers a tensor of `size` bytes or more,
/// whatever its kind; zero where tensors are sent whole. O(kinds of device * measurements).
Duration least_gather_time(const ModelProfile& form, Bytes size);

}  // namespace dapple
