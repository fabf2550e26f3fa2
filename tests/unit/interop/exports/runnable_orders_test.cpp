// Which schedule families each runtime runs, and in which orders.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "../../../support/exported_plan.h"
#include "dapple/plan/schedule_family.h"

namespace dapple::interop {
namespace {

using namespace small;

const RuntimeLimits& limits_of(std::string_view name) {
  return *target(name).limits;
}

TEST_CASE("each runtime has its own orders of 1F1B, and Megatron-LM interleaves") {
  struct Expected {
    const char* target;
    RunnableOrders one_f_one_b;
    RunnableOrders interleaved;
    RunnableOrders others;
  };
  using enum RunnableOrders;
  for (const Expected& expected :
       {Expected{"megatron", LeastDepths, OfTheFamily, None},
        Expected{"deepspeed", LeastDepths, None, None},
        Expected{"torch-python", ForwardsInTurn, ForwardsInTurn, ForwardsInTurn},
        Expected{"torch-csv", ForwardsInTurn, ForwardsInTurn, ForwardsInTurn},
        Expected{"torchtitan", ForwardsInTurn, ForwardsInTurn, ForwardsInTurn},
        Expected{"colossalai", LeastDepths, None, None},
        Expected{"pipedream", OfTheFamily, None, None},
        Expected{"sailor", LeastDepths, None, None}}) {
    CAPTURE(expected.target);
    const RuntimeLimits& limits = limits_of(expected.target);
    for (const ScheduleFamily family : kScheduleFamilies) {
      CAPTURE(to_string(family));
      const RunnableOrders orders = runnable_orders(limits, family);
      if (family == ScheduleFamily::OneFOneB) {
        CHECK(orders == expected.one_f_one_b);
      } else if (family == ScheduleFamily::Interleaved) {
        CHECK(orders == expected.interleaved);
      } else {
        CHECK(orders == expected.others);
      }
    }
  }
}

TEST_CASE("a family that a runtime lacks is refused with those that it has") {
  CHECK(family_refusal(limits_of("megatron"), ScheduleFamily::GPipe) ==
        "expected 1f1b or interleaved, which Megatron-LM runs, got gpipe");
  CHECK(family_refusal(limits_of("sailor"), ScheduleFamily::ZeroBubbleV) ==
        "expected 1f1b, which Sailor runs, got zb-v");
}

TEST_CASE("only families that may split a backward are lost where layers share weights") {
  ModelProfile profile = document_of(two_by_two()).profile;
  const RuntimeLimits& torch = limits_of("torch-csv");
  CHECK(runs(torch, profile, ScheduleFamily::ZeroBubbleH1));
  profile.ties = {{{4}, {{5}}}};
  for (const ScheduleFamily family : kScheduleFamilies) {
    CAPTURE(to_string(family));
    CHECK(runs(torch, profile, family) == !may_split_backward(family));
  }
  // Megatron-LM sums such gradients, and has no order with split backwards.
  CHECK_FALSE(needs_whole_backwards(limits_of("megatron"), profile));
  CHECK_FALSE(runs(limits_of("megatron"), profile, ScheduleFamily::ZeroBubbleH1));
  CHECK(runs(limits_of("megatron"), profile, ScheduleFamily::Interleaved));
}

}  // namespace
}  // namespace dapple::interop
