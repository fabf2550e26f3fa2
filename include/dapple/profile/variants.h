// The variants of layers: a profile's layers as they run when a group of devices shares each of
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/profile/collective.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"

namespace dapple {

/// Returns how the figures of layers and of their variants let context-parallel ranks exchange keys
/// and values: around a ring, if they have a send-receive of such ranks, else by all-gathers or by
/// all-to-alls; nothing if they have none of these. O(collectives).
std::optional<ContextExchange> context_exchange_of(const ModelProfile& profile);

/// Returns the same of the figures in one form alone; of the layers' own where these are of that
/// form. O(collectives + layers * variants).
std::optional<ContextExchange> context_exchange_of(const ModelProfile& profile,
                                                   const Parallelism& form);

/// Whether figures in one form are of a dispatcher that merges copies of tokens. O(collectives +
/// layers * variants).
bool merges_copies(const ModelProfile& profile, const Parallelism& form);

/// Returns the forms of parallelism that every layer has a variant for, ascending, no parallelism
/// first; none with sharded state, which needs no variants. A layer of which no variant is of
/// expert parallelism has no experts: under expert parallelism its variant for the other degrees
/// counts. Likewise a layer of which no variant recomputes a part recomputes nothing.
/// O(forms * layers * variants).
std::vector<Parallelism> parallelisms_of(const ModelProfile& profile);

/// Whether some of these forms recompute parts of layers. O(forms * layers * variants).
bool recomputes_in_some_form(const ModelProfile& profile);

/// Returns the name of the first layer without a variant for `parallelism`, or an empty text. How
/// state is sharded does not matter. O(layers * variants).
std::string layer_without(const ModelProfile& profile, const Parallelism& parallelism);

/// Returns the name of the first layer whose variant for `parallelism` states no collectives over
/// `members`, where it must have some or none of the layers states any; an empty text if there is
/// no such layer. A variant must have some over tensor ranks that hold a part each of its
/// parameters, and over ranks with different experts. Its times may then contain those of the
/// devices that were measured. O(layers * variants). Requires: layer_without() is empty, and there
/// are several such ranks.
std::string layer_without_collectives(const ModelProfile& profile, const Parallelism& parallelism,
                                      CollectiveMembers members);

/// Returns "64 attention heads cannot be divided among 48 tensor-parallel ranks".
std::string indivisible_text(std::int64_t count, const char* what, std::int64_t ranks,
                             const char* kind);

/// Returns what of the blocks the tensor-parallel or the expert-parallel degree cannot divide, or
/// the context-parallel degree where ranks exchange keys and values by all-to-alls, as
/// indivisible_text(); empty if they divide all, or blocks are not known. O(blocks).
std::string indivisible_blocks(const std::vector<DividedBlocks>& blocks, const Parallelism& degrees,
                               std::optional<ContextExchange> exchange = {});

/// Returns how many layers have a variant that recomputes what this form does. O(layers *
/// variants). Requires: layer_without() is empty.
std::int64_t layers_that_recompute(const ModelProfile& profile, const Parallelism& parallelism);

/// Returns what the layers take that a device of such a group has, where the group shards all state
/// (docs/model.md, section 2.6). O(layers * ties).
std::vector<ShardedLayer> sharded_layers(const ModelProfile& profile, const GroupShape& group);

/// Returns the profile in which every layer is its variant for `parallelism`: times, sizes and
/// parameters are those of one device of a group of this shape. Where the group shards all state,
/// layers have what that takes (docs/model.md, section 2.6). Without a form, this is the profile
/// itself. O(size of the profile). Requires: layer_without() is empty.
ModelProfile with_parallelism(const ModelProfile& profile, const Parallelism& parallelism,
                              const GroupShape& group);

/// Returns the profile of stages that run in a form: `profile` itself for form 0, otherwise one of
/// its stage_forms. O(1). Requires: there is such a form.
const ModelProfile& in_form(const ModelProfile& profile, FormIndex form);

}  // namespace dapple
