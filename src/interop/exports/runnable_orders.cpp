// Which schedule families a runtime runs, and in which orders.

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "dapple/interop/exports/exports.h"

namespace dapple::interop {

RunnableOrders runnable_orders(const RuntimeLimits& runtime, ScheduleFamily family) {
  if (runtime.any_order) return RunnableOrders::ForwardsInTurn;
  if (family == ScheduleFamily::OneFOneB) {
    return runtime.any_depths ? RunnableOrders::OfTheFamily : RunnableOrders::LeastDepths;
  }
  const bool interleaves = runtime.interleaves && family == ScheduleFamily::Interleaved;
  return interleaves ? RunnableOrders::OfTheFamily : RunnableOrders::None;
}

bool needs_whole_backwards(const RuntimeLimits& runtime, const ModelProfile& profile) {
  return !runtime.ties && !profile.ties.empty();
}

bool runs(const RuntimeLimits& runtime, const ModelProfile& profile, ScheduleFamily family) {
  if (may_split_backward(family) && needs_whole_backwards(runtime, profile)) return false;
  return runnable_orders(runtime, family) != RunnableOrders::None;
}

std::string family_refusal(const RuntimeLimits& runtime, ScheduleFamily family) {
  std::vector<std::string_view> runnable;
  for (const ScheduleFamily each : kScheduleFamilies) {
    if (runnable_orders(runtime, each) != RunnableOrders::None) runnable.push_back(to_string(each));
  }
  return fmt::format("expected {}, which {} runs, got {}", fmt::join(runnable, " or "),
                     runtime.name, to_string(family));
}

}  // namespace dapple::interop
