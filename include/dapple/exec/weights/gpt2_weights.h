// GPT-2's weights as they are published: safetensors under the names of Hugging Face's GPT2Model
// ("wte.weight", "h.0.attn.c_attn.weight", ...), with or without "transformer." before them.
//
// A model is of GPT-2's form if its layers are an embedding, with positions or those as a layer of
// their own, transformer blocks, a layer norm, a head that is linear without bias and held by
// outputs, and the loss. Matrices lie as ours do, by inputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/exec/train/device_training.h"
#include "dapple/nn/model.h"
#include "dapple/profile/operation.h"

namespace dapple::exec {

/// Throws Error(BadInput) of `model_name` where the model is of another form.
void check_gpt2_form(const std::vector<nn::ModelLayer>& layers,
                     const std::vector<Operation>& operations, const std::string& model_name);

/// Parameters under our names, of F32, F16 or BF16. Buffers of masks are passed over, and a head's
/// matrix where the model has tied it and it is the embedding's. Throws Error(BadInput): of
/// `model_name` where the model is of another form, of `source_name` as read_checkpoint() does, and
/// with the first tensor that is missing, has another shape or is none of GPT-2's, and how many
/// more. O(bytes).
NamedTensors read_gpt2_weights(std::string_view bytes, const std::string& source_name,
                               const std::vector<nn::ModelLayer>& layers,
                               const std::vector<Operation>& operations,
                               const std::string& model_name);

/// A file of the parameters among `tensors`, which are under our names; what else is there, as the
/// optimizer's state, is left out. Throws Error(BadInput) of `model_name` where the model is of
/// another form. O(bytes).
std::string write_gpt2_weights(const NamedTensors& tensors,
                               const std::vector<nn::ModelLayer>& layers,
                               const std::vector<Operation>& operations,
                               const std::string& model_name);

}  // namespace dapple::exec
