// Convolution as a matrix product: the columns of a matrix are the patches of the image under the
// kernel at each place. Source: Chellapilla, Puri and Simard 2006.
#pragma once

#include "dapple/cuda/memory/tensor.h"
#include "dapple/profile/operation.h"

namespace dapple::cuda {

/// Returns the number of places of the kernel along a side of `side` pixels.
std::int64_t places_along(const ConvolutionOperation& operation, std::int64_t side);

/// Converts an image [channels, height, width] to [channels kernel kernel, places], with zeros for
/// padding.
void to_patches(const Stream& stream, const ConvolutionOperation& operation, View image,
                View patches);

/// Performs the reverse: each pixel becomes the sum of its occurrences in patches.
void from_patches(const Stream& stream, const ConvolutionOperation& operation, View patches,
                  View image);

/// Computes images[sample, channel, place] += biases[channel].
void add_channel_biases(const Stream& stream, View biases, std::int64_t places, View images);

/// Computes sums[channel] += gradient[sample, channel, place] over samples and places.
void add_channel_sums(const Stream& stream, std::int64_t places, View gradient, View sums);

}  // namespace dapple::cuda
