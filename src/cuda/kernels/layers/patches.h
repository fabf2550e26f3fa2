// Convolution as a product: matrices whose columns hold what the kernel lies on at each place.
// Source: Chellapilla, Puri and Simard 2006.
#pragma once

#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// Where the kernel may lie along a side of so many pixels.
std::int64_t places_along(const ConvolutionOperation& operation, std::int64_t side);

/// From an image [channels, height, width] to [channels kernel kernel, places], zero on padding.
void to_patches(const Stream& stream, const ConvolutionOperation& operation, View image,
                View patches);

/// The other way: each pixel becomes the sum of where it lies in patches.
void from_patches(const Stream& stream, const ConvolutionOperation& operation, View patches,
                  View image);

/// images[sample, channel, place] += biases[channel].
void add_channel_biases(const Stream& stream, View biases, std::int64_t places, View images);

/// sums[channel] += gradient[sample, channel, place] over samples and places.
void add_channel_sums(const Stream& stream, std::int64_t places, View gradient, View sums);

}  // namespace dapple::cuda
