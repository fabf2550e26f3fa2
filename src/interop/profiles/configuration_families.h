// What the configurations of each family of models say, and the defaults of what they leave out.
#pragma once

#include "dapple/estimate/architecture.h"
#include "interop/profiles/configuration_keys.h"

namespace dapple::interop {

// Encoders, decoders and pairs of them with learned positions or tables, and vision transformers.
void read_bert(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_gpt2(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_gpt_neox(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_t5(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_vit(ConfigurationKeys& keys, estimate::Architecture& architecture);

// Decoders with rotary positions, gated feed-forward layers and root-mean-square normalization.
void read_llama(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_llama4(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_mistral(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_mixtral(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_qwen2(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_qwen2_moe(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_qwen3(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_qwen3_moe(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_gemma(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_gemma2(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_gemma3(ConfigurationKeys& keys, estimate::Architecture& architecture);
void read_deepseek(ConfigurationKeys& keys, estimate::Architecture& architecture);

}  // namespace dapple::interop
