// Variants of layers: which forms of parallelism a profile has, and what becomes of its figures.

#include <catch2/catch.hpp>

#include "dapple/profile/layer_table.h"
#include "dapple/profile/variants.h"

namespace dapple {
namespace {

Measurement measurement(std::int64_t time, std::int64_t size) {
  return {.batch_size = 1,
          .forward = {time},
          .backward = {2 * time},
          .input_gradient = {},
          .weight_gradient = {},
          .output = {size},
          .stash = {size},
          .workspace = {}};
}

LayerVariant variant(Parallelism parallelism, std::int64_t time) {
  return {.parallelism = parallelism,
          .parameters = {50},
          .fixed_overhead = {1},
          .measurements = {measurement(time, 4)},
          .forward_collectives = {{.size_per_sample = {8}}},
          .backward_collectives = {{.size_per_sample = {16}, .count = 2}}};
}

ModelProfile two_layers() {
  ModelProfile profile;
  profile.batch_scaling = BatchScaling::Proportional;
  for (const char* name : {"a", "b"}) {
    Layer layer;
    layer.name = name;
    layer.parameters = {100};
    layer.measurements = {measurement(10, 8)};
    layer.variants = {variant({2, false}, 6), variant({2, true}, 5)};
    profile.layers.push_back(layer);
  }
  profile.layers[1].inputs = {LayerIndex{0}};
  return profile;
}

TEST_CASE("a profile has the forms that every layer has a variant for") {
  ModelProfile profile = two_layers();
  CHECK(parallelisms_of(profile) == std::vector<Parallelism>{{}, {2, false}, {2, true}});
  profile.layers[1].variants.pop_back();
  CHECK(parallelisms_of(profile) == std::vector<Parallelism>{{}, {2, false}});
  CHECK(layer_without(profile, {2, true}) == "b");
  CHECK(layer_without(profile, {2, false}) == "");
  CHECK(layer_without(profile, {}) == "");
}

TEST_CASE("layers that hold parts of parameters have to state collectives between them") {
  const Parallelism form{2, false};
  const auto lacking = [&](const ModelProfile& profile) {
    return layer_without_collectives(profile, form, CollectiveMembers::Tensor);
  };
  ModelProfile profile = two_layers();
  CHECK(lacking(profile) == "");
  LayerVariant& second = profile.layers[1].variants.front();
  second.forward_collectives.clear();
  CHECK(lacking(profile) == "");
  second.backward_collectives.clear();
  CHECK(lacking(profile) == "b");
  // A layer that each rank has whole, such as a norm, needs none where others state some.
  second.parameters = profile.layers[1].parameters;
  CHECK(lacking(profile) == "");
  LayerVariant& first = profile.layers[0].variants.front();
  first.forward_collectives.clear();
  first.backward_collectives.clear();
  first.parameters = profile.layers[0].parameters;
  CHECK(lacking(profile) == "a");
  first.backward_collectives = {{.size_per_sample = {}}};
  CHECK(lacking(profile) == "");
}

TEST_CASE("layers with experts have to state collectives between those, and others need not") {
  const Parallelism form{.tensor = 2, .sequence = true, .experts = 4};
  ModelProfile profile = two_layers();
  LayerVariant with_experts = variant(form, 5);
  profile.layers[0].variants.push_back(with_experts);
  const auto lacking = [&] {
    return layer_without_collectives(profile, form, CollectiveMembers::Experts);
  };
  CHECK(lacking() == "a");
  LayerVariant& own = profile.layers[0].variants.back();
  own.forward_collectives.front().over = CollectiveMembers::Experts;
  CHECK(lacking() == "");
  // Another layer with experts without any, first without parameters of them.
  profile.layers[1].variants.push_back(with_experts);
  CHECK(lacking() == "");
  profile.layers[1].variants.back().expert_parameters = {1};
  CHECK(lacking() == "b");
  // Its tensor ranks hold a part of its parameters because its experts are elsewhere.
  CHECK(layer_without_collectives(profile, form, CollectiveMembers::Tensor) == "");
  profile.layers[1].variants.back().forward_collectives.clear();
  profile.layers[1].variants.back().backward_collectives.clear();
  CHECK(layer_without_collectives(profile, form, CollectiveMembers::Tensor) == "");
}

TEST_CASE("with parallelism all figures are those of one device of the group") {
  GroupShape group;
  group.rings[0] = {.members = 2, .bandwidth = {1'000'000'000}, .latency = {7}};
  const ModelProfile shared = with_parallelism(two_layers(), {2, true}, group);
  CHECK(shared.tensor_parallel == 2);
  for (const Layer& layer : shared.layers) {
    CHECK(layer.parameters == Bytes{50});
    CHECK(layer.variants.empty());
  }
  // An all-reduce of n bytes over two devices takes n + 14 ns; an overhead of 1 does not scale.
  const LayerTable table(shared, 3, kOne);
  CHECK(table.forward({0, 1}) == Duration{(1 + 4 * 3) + (24 + 14)});
  CHECK(table.backward({0, 1}) == Duration{(1 + 9 * 3) + 2 * (48 + 14)});
  CHECK(table.forward_collectives({0, 2}) == Duration{2 * 38});
  CHECK(table.backward_collectives({1, 2}) == Duration{124});
  // The collectives of the backward come before the gradient of the input is complete.
  CHECK(table.input_gradient({0, 1}) == Duration{14 + 124});
  // No time scale changes them.
  CHECK(LayerTable(shared, 3, Factor{2 * kOne.billionths}).forward({0, 1}) ==
        Duration{2 * 13 + 38});
}

TEST_CASE("without parallelism a profile stays as it is") {
  const ModelProfile same = with_parallelism(two_layers(), {}, {});
  CHECK(same.layers.front().variants.size() == 2);
  CHECK(same.tensor_parallel == 1);
  const LayerTable table(same, 1, kOne);
  CHECK(table.forward_collectives({0, 2}) == Duration{});
  CHECK(table.forward({0, 2}) == Duration{20});
}

TEST_CASE("a layer without expert variants has no experts") {
  ModelProfile profile = two_layers();
  profile.layers[0].variants.push_back(variant({.tensor = 2, .experts = 4, .expert_tensor = 1}, 7));
  profile.layers[0].variants.push_back(variant({.experts = 4}, 8));
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  CHECK(forms == std::vector<Parallelism>{
                     {}, {.experts = 4}, {2, false}, {.tensor = 2, .experts = 4}, {2, true}});
  const ModelProfile shared = with_parallelism(profile, {.tensor = 2, .experts = 4}, {});
  CHECK(shared.layers[0].measurements.front().forward == Duration{7});
  CHECK(shared.layers[1].measurements.front().forward == Duration{6});
  // With one tensor rank the layer without experts runs whole on each device.
  const ModelProfile alone = with_parallelism(profile, {.experts = 4}, {});
  CHECK(alone.layers[0].measurements.front().forward == Duration{8});
  CHECK(alone.layers[1].measurements.front().forward == Duration{10});
  CHECK(layer_without(profile, {.tensor = 2, .sequence = true, .experts = 4}) == "a");
}

TEST_CASE("data-parallel ranks of a group share its samples, rounded up") {
  GroupShape group;
  group.replicas = 2;
  group.copies = {.members = 2, .bandwidth = {1'000'000'000}, .latency = {}};
  const ModelProfile shared = with_parallelism(two_layers(), {.full_shards = 2}, group);
  CHECK(LayerTable(shared, 4, kOne).forward({0, 1}) == Duration{20});
  CHECK(LayerTable(shared, 3, kOne).forward({0, 1}) == Duration{20});
  CHECK(LayerTable(shared, 2, kOne).boundary(1) == Bytes{8});
  CHECK(LayerTable(shared, 3, kOne).stash({0, 1}) == Bytes{16});
}

TEST_CASE("sharded parameters are gathered while the layer computes, as far as that lasts") {
  GroupShape group;
  group.replicas = 2;
  group.copies = {.members = 2, .bandwidth = {1'000'000'000}, .latency = {5}};
  group.shards_all_state = true;
  ModelProfile profile = two_layers();
  profile.optimizer.gradient_bytes_per_parameter_byte = {2 * kOne.billionths};
  profile.layers[1].parameters = {10};
  const ModelProfile shared = with_parallelism(profile, {.full_shards = 2}, group);
  // Half of 100 bytes and a latency are 55 ns; of 200 bytes of gradients, 105 ns.
  const LayerTable table(shared, 2, kOne);
  CHECK(table.forward({0, 1}) == Duration{55});
  CHECK(table.forward_collectives({0, 1}) == Duration{45});
  CHECK(table.backward({0, 1}) == Duration{55 + 105});
  CHECK(table.input_gradient({0, 1}) == Duration{55});
  // A gather of 10 bytes takes 10 ns, which a forward of 10 ns hides. A backward of 20 ns does not
  // hide 10 + 15 ns.
  CHECK(table.forward({1, 2}) == Duration{10});
  CHECK(table.backward({1, 2}) == Duration{25});
  CHECK(table.backward_collectives({1, 2}) == Duration{5});
  // Whole are a layer, its neighbour, and its gradients.
  CHECK(table.largest_workspace({0, 1}) == Bytes{100 + 10 + 200});
  CHECK(table.largest_workspace({1, 2}) == Bytes{10 + 100 + 20});
  // With more samples everything is hidden.
  CHECK(LayerTable(shared, 40, kOne).forward({0, 1}) == Duration{200});
}

TEST_CASE("forms of parallelism are named") {
  CHECK(to_text(Parallelism{8, false}) == "tensor 8");
  CHECK(to_text(Parallelism{8, true}) == "tensor 8 with sequence parallelism");
  CHECK(short_text(Parallelism{8, true}) == "tensor 8, sequence");
  const Parallelism all{.tensor = 4,
                        .sequence = true,
                        .context = 2,
                        .experts = 8,
                        .expert_tensor = 2,
                        .full_shards = 16};
  CHECK(to_text(all) ==
        "tensor 4 with sequence parallelism, context 2, experts 8 of tensor 2, all state sharded "
        "over 16");
  CHECK(short_text(all) == "tensor 4, sequence, context 2, experts 8 x 2, sharded over 16");
  const Parallelism some{.context = 2, .shards_optimizer = true, .optimizer_shards = 4};
  CHECK(to_text(some) == "tensor 1, context 2, optimizer state sharded over 4");
  CHECK(short_text(some) == "tensor 1, context 2, optimizer sharded over 4");
  CHECK(short_text(Parallelism{.shards_optimizer = true}) == "tensor 1, sharded");
}

TEST_CASE("a group has the ranks that its degrees leave") {
  const Parallelism folded{.tensor = 4, .context = 2, .experts = 8, .expert_tensor = 2};
  CHECK(folded.group_size() == 16);
  CHECK(folded.replicas_in_group() == 2);
  CHECK(folded.copies() == 4);
  CHECK(folded.expert_copies() == 1);
  CHECK(folded.is_sound());
  CHECK_FALSE(Parallelism{.tensor = 4, .experts = 3}.is_sound());
  CHECK_FALSE(Parallelism{.context = 2, .full_shards = 3}.is_sound());
  CHECK(Parallelism{.context = 2, .full_shards = 6}.replicas_in_group() == 3);
}

TEST_CASE("what a degree cannot divide in blocks is named, where they are known") {
  const std::vector<DividedBlocks> blocks{
      {.attention_heads = 24, .key_value_heads = 4},
      {.attention_heads = 24, .key_value_heads = 4, .experts = 8}};
  CHECK(indivisible_blocks(blocks, {.tensor = 5}) ==
        "24 attention heads cannot be divided among 5 tensor-parallel ranks");
  CHECK(indivisible_blocks(blocks, {.tensor = 6}) ==
        "4 heads of keys and values cannot be divided among 6 tensor-parallel ranks");
  // Each of the heads of keys and values may be on two ranks.
  CHECK(indivisible_blocks(blocks, {.tensor = 8, .experts = 4}) == "");
  CHECK(indivisible_blocks(blocks, {.experts = 3}) ==
        "8 experts cannot be divided among 3 expert-parallel ranks");
  CHECK(indivisible_blocks({blocks.front()}, {.experts = 2}) ==
        "no block has experts that could be divided among 2 expert-parallel ranks");
  CHECK(indivisible_blocks({}, {.tensor = 5, .experts = 3}) == "");
}

TEST_CASE("context ranks that have whole sequences divide the heads on a device") {
  const std::vector<DividedBlocks> blocks{{.attention_heads = 24, .key_value_heads = 8}};
  const auto told = [&](const Parallelism& degrees, ContextExchange exchange) {
    return indivisible_blocks(blocks, degrees, exchange);
  };
  CHECK(told({.tensor = 2, .context = 4}, ContextExchange::AllToAll) == "");
  CHECK(told({.tensor = 4, .context = 4}, ContextExchange::AllToAll) ==
        "2 heads of keys and values on a device cannot be divided among 4 context-parallel ranks");
  CHECK(told({.tensor = 8, .context = 2}, ContextExchange::AllToAll) ==
        "1 heads of keys and values on a device cannot be divided among 2 context-parallel ranks");
  CHECK(told({.tensor = 4, .context = 4}, ContextExchange::Ring) == "");
}

TEST_CASE("the exchange of context ranks is that of the figures") {
  ModelProfile profile;
  profile.layers.resize(2);
  CHECK_FALSE(context_exchange_of(profile));
  const auto add = [&](CollectiveKind kind, CollectiveMembers over) {
    profile.layers[1].variants.resize(1);
    profile.layers[1].variants[0].backward_collectives.push_back(
        {.kind = kind, .over = over, .size_per_sample = {1}});
  };
  add(CollectiveKind::AllToAll, CollectiveMembers::Experts);
  add(CollectiveKind::AllReduce, CollectiveMembers::Context);
  CHECK_FALSE(context_exchange_of(profile));
  add(CollectiveKind::AllToAll, CollectiveMembers::Context);
  CHECK(context_exchange_of(profile) == ContextExchange::AllToAll);
  add(CollectiveKind::AllGather, CollectiveMembers::Context);
  CHECK(context_exchange_of(profile) == ContextExchange::AllGather);
  profile.layers[0].forward_collectives = {{.kind = CollectiveKind::SendReceive,
                                            .over = CollectiveMembers::Context,
                                            .size_per_sample = {1}}};
  CHECK(context_exchange_of(profile) == ContextExchange::Ring);
}

TEST_CASE("shards of the optimizer's state make a group, of which others hold the same") {
  const Parallelism some{
      .tensor = 2, .context = 2, .shards_optimizer = true, .optimizer_shards = 4};
  CHECK(some.is_sound());
  CHECK(some.group_size() == 8);
  CHECK(some.replicas_in_group() == 2);
  CHECK(some.copies() == 4);
  CHECK_FALSE(some.shards_over_replicas());
  CHECK(Parallelism{.shards_optimizer = true}.shards_over_replicas());
  CHECK(form_of_layers(some) == Parallelism{.tensor = 2, .context = 2});
  const auto is_sound = [](std::int64_t shards, bool is_sharded, Parallelism form) {
    form.shards_optimizer = is_sharded;
    form.optimizer_shards = shards;
    return form.is_sound();
  };
  CHECK(is_sound(4, true, {.experts = 4}));
  CHECK(is_sound(4, true, {.tensor = 2, .experts = 4, .expert_tensor = 2}));
  CHECK_FALSE(is_sound(3, true, {.context = 2}));
  CHECK_FALSE(is_sound(2, true, {.experts = 4}));
  CHECK_FALSE(is_sound(4, false, {}));
  CHECK_FALSE(is_sound(1, true, {}));
  CHECK_FALSE(is_sound(2, true, {.group_replicas = 2}));
  CHECK_FALSE(is_sound(2, true, {.full_shards = 2}));
}

}  // namespace
}  // namespace dapple
