// GPT-2's weights as published: safetensors with the names of Hugging Face's GPT2Model
// ("wte.weight", "h.0.attn.c_attn.weight", ...), with or without the prefix "transformer.".
//
// A model has GPT-2's form if its layers are an embedding with positions, or followed by a position
// embedding; transformer blocks; a layer norm; a linear head without bias and transposed; and the
// loss. The blocks' matrices are stored by inputs, as ours are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/exec/train/device_training.h"
#include "dapple/nn/model.h"
#include "dapple/profile/operation.h"

namespace dapple::exec {

/// Throws Error(BadInput) naming `model_name` if the model has another form.
void check_gpt2_form(const std::vector<nn::ModelLayer>& layers,
                     const std::vector<Operation>& operations, const std::string& model_name);

/// Reads parameters of F32, F16 or BF16 and returns them under our names. Ignores attention masks,
/// and the head's matrix if the model ties it to the embedding and both are equal. Throws
/// Error(BadInput): naming `model_name` if the model has another form; naming `source_name` as
/// read_checkpoint() does, or with the first tensor that is missing, has another shape or is not
/// one of GPT-2's, and the number of further ones. O(bytes).
NamedTensors read_gpt2_weights(std::string_view bytes, const std::string& source_name,
                               const std::vector<nn::ModelLayer>& layers,
                               const std::vector<Operation>& operations,
                               const std::string& model_name);

/// Returns the bytes of a file of the parameters among `tensors`, which have our names; other
/// tensors, such as the optimizer's state, are omitted. Throws Error(BadInput) naming `model_name`
/// if the model has another form. O(bytes).
std::string write_gpt2_weights(const NamedTensors& tensors,
                               const std::vector<nn::ModelLayer>& layers,
                               const std::vector<Operation>& operations,
                               const std::string& model_name);

}  // namespace dapple::exec
