// cuDNN has kernels for our graphs of attention, and makes them, for GPUs that are only described.
#include <catch2/catch.hpp>
#include <string>

#include "cuda/cudnn/cudnn_attention_graph.h"

using namespace dapple;
using namespace dapple::cuda;

namespace {

struct DescribedGpu {
  const char* name;
  int capability;  // a hundred times major plus ten times minor
  int multiprocessors;
  int shared_memory;  // of a block, at most
  int cache;
};
constexpr DescribedGpu kGpus[] = {{"H100", 900, 132, 232'448, 52'428'800},
                                  {"A100", 800, 108, 166'912, 41'943'040}};

std::string description_of(const DescribedGpu& gpu) {
  const auto number = [](const char* name, int value) {
    return "\"" + std::string(name) + "\":" + std::to_string(value) + ",";
  };
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
         R"("regsPerBlock":65536,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
         R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"totalGlobalMem":80000000000,"smClockRateKHz":1410000,)"
         R"("memClockRateKHz":1593000,"cudaDeviceId":0,"driverVer":13000,)" +
         number("multiProcessorCount", gpu.multiprocessors) + number("deviceVer", gpu.capability) +
         number("maxSharedMemoryPerBlockOptin", gpu.shared_memory) +
         number("l2CacheSize", gpu.cache) + R"("deviceName":")" + gpu.name + "\"}";
}

}  // namespace

TEST_CASE("attention of GPT-2 has fused kernels in both directions and little workspace") {
  constexpr AttentionShape kShapes[] = {{4, 1'024, 12, 64, true, Type::BFloat16},
                                        {2, 1'024, 16, 64, true, Type::Float16},
                                        {3, 70, 2, 24, false, Type::BFloat16}};
  for (const DescribedGpu& gpu : kGpus) {
    CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const std::string description = description_of(gpu);
    properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                   static_cast<std::int64_t>(description.size()), description.data());
    properties.finalize();
    for (const AttentionShape& shape : kShapes) {
      INFO(gpu.name << ", " << shape.sequence << " positions of " << shape.width);
      CudnnGraph forward = forward_graph(shape);
      CudnnGraph backward = backward_graph(shape);
      const bool has_forward = forward.plan({.properties = &properties});
      INFO(forward.why_not());
      CHECK(has_forward);
      const bool has_backward = backward.plan({.properties = &properties});
      INFO(backward.why_not());
      CHECK(has_backward);
      const std::int64_t of_queries =
          shape.samples * shape.sequence * shape.heads * (shape.width + 4) * 4;
      CHECK(forward.workspace().count <= 4'096);
      CHECK(backward.workspace().count <= of_queries + 4'096);
    }
  }
}

TEST_CASE("what a version of cuDNN is known to get wrong is not asked of it") {
  const AttentionShape whole{4, 1'024, 12, 64, true, Type::BFloat16};
  const AttentionShape odd{4, 1'000, 12, 64, true, Type::BFloat16};
  const AttentionShape single{4, 1, 12, 64, true, Type::BFloat16};
  CHECK(is_sound(whole, 90'500));
  CHECK_FALSE(is_sound(odd, 90'500));
  CHECK_FALSE(is_sound(whole, 91'001));
  CHECK(is_sound(odd, 91'900));
  CHECK_FALSE(is_sound(single, 91'900));
}
