#include "dapple/cuda/kernels/optimizer.h"

#include <catch2/catch.hpp>

#include "../support/scaled.h"
#include "on_device.h"

using namespace dapple;
using small::Dice;

TEST_CASE("optimizers step as nn's do, and write the copy in the precision of computation",
          "[cuda]") {
  Dice dice(71);
  cuda::Device& device = small::device_of_tests();
  for (const nn::OptimizerKind kind : {nn::OptimizerKind::Sgd, nn::OptimizerKind::Momentum,
                                       nn::OptimizerKind::Adam, nn::OptimizerKind::AdamW}) {
    for (const cuda::Type type : {cuda::Type::Float32, cuda::Type::BFloat16, cuda::Type::Float16}) {
      INFO(nn::to_string(kind) << ", type " << static_cast<int>(type));
      const std::int64_t count = dice.chance(50) ? 4 * dice.roll(1, 300) : dice.roll(1, 1'200);
      const nn::OptimizerSettings settings{
          .kind = kind, .learning_rate = 0.01F, .weight_decay = 0.1F};
      nn::Tensor parameters = small::random_normal({count}, 1, dice);
      nn::Tensor state = nn::zeros({nn::state_count(kind) * count});
      const cuda::DeviceTensor device_parameters =
          to_device(device, parameters, cuda::Type::Float32);
      const cuda::DeviceTensor device_state = to_device(device, state, cuda::Type::Float32);
      const cuda::DeviceTensor copy = make_tensor(device, {count}, type);
      for (std::int64_t number = 1; number <= 3; ++number) {
        nn::Tensor gradients = small::random_normal({count}, 8, dice);
        const cuda::DeviceTensor device_gradients =
            to_device(device, gradients, cuda::Type::Float32);
        constexpr float kFactor = 0.125F;
        update(device.compute(), settings, number, kFactor,
               {.parameters = device_parameters.view(),
                .gradients = device_gradients.view(),
                .state = device_state.view(),
                .copy = copy.view()});
        for (float& gradient : gradients.values) gradient *= kFactor;
        nn::update(settings, number, parameters.values, gradients.values, state.values);
      }
      const nn::Tensor found = to_host(device, device_parameters);
      CHECK(small::difference(found.values, parameters.values) < 1e-6);
      CHECK(small::difference(to_host(device, device_state).values, state.values) < 1e-6);
      CHECK(to_host(device, copy).values == small::rounded(found, type).values);
    }
  }
}

TEST_CASE("an optimizer steps on what lies anywhere in an array, and on nothing else", "[cuda]") {
  Dice dice(72);
  cuda::Device& device = small::device_of_tests();
  const nn::OptimizerSettings settings{.kind = nn::OptimizerKind::Momentum, .learning_rate = 0.1F};
  const nn::Tensor before = small::random_normal({64}, 1, dice);
  const nn::Tensor gradients = small::random_normal({64}, 1, dice);
  for (std::int64_t begin = 0; begin < 5; ++begin) {
    const std::int64_t end = begin + 32;
    const cuda::DeviceTensor parameters = to_device(device, before, cuda::Type::Float32);
    const cuda::DeviceTensor slopes = to_device(device, gradients, cuda::Type::Float32);
    const cuda::DeviceTensor state = to_device(device, nn::zeros({64}), cuda::Type::Float32);
    update(device.compute(), settings, 1, 1,
           {.parameters = parameters.view().part(begin, end),
            .gradients = slopes.view().part(begin, end),
            .state = state.view().part(begin, end),
            .copy = {}});
    const nn::Tensor after = to_host(device, parameters);
    for (std::int64_t i = 0; i < 64; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const float moved = begin <= i && i < end ? 0.1F * gradients.values[at] : 0;
      CHECK(after.values[at] == Approx(before.values[at] - moved).margin(1e-6));
    }
  }
}
