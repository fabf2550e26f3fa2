// Plans under every schedule family, as the exports write them and as the imports read them again.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../support/exported_plan.h"
#include "../support/families.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/comparison.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/schedule/schedule.h"

namespace dapple {
namespace {

using namespace small;

TEST_CASE("interleaved stages go to Megatron-LM in turns") {
  // Four stages on two devices: stage i on the devices of stage i mod 2, and Megatron-LM's rank
  // too.
  PlanDocument document =
      document_of({.micro_batch_size = 1,
                   .num_micro_batches = 4,
                   .depths = {2, 1},
                   .stages = {{.layers = 3, .devices = {0}}, {.layers = 3, .devices = {1}}}});
  const Topology topology(document.topology);
  const auto made =
      planner::reschedule(document.plan, document.profile, topology,
                          {.family = ScheduleFamily::Interleaved, .chunks_per_device = 2});
  REQUIRE(std::holds_alternative<planner::Rescheduled>(made));
  document.plan = std::get<planner::Rescheduled>(made).plan;
  REQUIRE(document.plan.stages.size() == 4);
  const std::string text = exported(document, "megatron").text;
  CHECK_THAT(text, Catch::Contains("--pipeline-model-parallel-size 2\n"));
  CHECK_THAT(text, Catch::Matches(
                       "[\\s\\S]*layout \"E[t*0-9]*\\|[t*0-9]+\\|[t*0-9]+\\|[t*0-9]*L\"[\\s\\S]*"));
  CHECK_THAT(
      refusal(document, "deepspeed"),
      Catch::Contains("/schedule/family: expected 1f1b, which DeepSpeed runs, got interleaved"));
}

TEST_CASE("whatever the order, its columns hold every computation once") {
  const PlanDocument document = document_of(two_by_two());
  const Topology topology(document.topology);
  for (const ScheduleFamily family : kOwnFamilies) {
    CAPTURE(to_string(family));
    const auto made = planner::reschedule(
        document.plan, document.profile, topology,
        {.family = family, .chunks_per_device = has_loops(family) ? 2 : 1, .evaluations = 20});
    if (!std::holds_alternative<planner::Rescheduled>(made)) continue;
    PlanDocument other = document;
    other.plan = std::get<planner::Rescheduled>(made).plan;
    const std::string text = exported(other, "torch-csv").text;
    const std::size_t forwards = other.plan.stages.size() * 3;
    CHECK(static_cast<std::size_t>(std::count(text.begin(), text.end(), 'F')) == forwards);
    const auto all =
        std::count(text.begin(), text.end(), 'B') + std::count(text.begin(), text.end(), 'I');
    CHECK(static_cast<std::size_t>(all) == forwards);
  }
}

TEST_CASE("our own exports are the same stages on the same devices when they are read again") {
  struct RoundTrip {
    const char* name;
    std::vector<const char*> targets;
    interop::PlanFormat format;
    bool is_interleaved;
  };
  const RoundTrip table[] = {
      {"Megatron-LM", {"megatron"}, interop::PlanFormat::Megatron, false},
      {"Megatron-LM in turns", {"megatron"}, interop::PlanFormat::Megatron, true},
      {"DeepSpeed", {"deepspeed"}, interop::PlanFormat::Deepspeed, false},
      {"PyTorch", {"torchtitan", "torch-csv"}, interop::PlanFormat::Torch, false},
      {"PyTorch in turns", {"torchtitan", "torch-csv"}, interop::PlanFormat::Torch, true},
      {"PipeDream", {"pipedream"}, interop::PlanFormat::Pipedream, false}};
  PlanDocument document;
  document.profile = model_of(
      std::vector<LayerFigures>(8, {.forward = 2, .backward = 4, .output = 1, .parameters = 1}));
  const char* names[] = {"embedding", "block.0", "block.1", "block.2",
                         "block.3",   "block.4", "block.5", "head"};
  for (std::size_t i = 0; i < 8; ++i) document.profile.layers[i].name = names[i];
  document.topology = cluster({.servers = 2, .devices = 4});
  document.topology.name = "2x4";
  const Topology topology(document.topology);
  const std::vector<std::vector<std::int32_t>> placements{
      {0, 1, 2, 3}, {4, 5, 0, 1}, {7, 6, 3, 2}, {0, 4, 1, 5}};
  for (const RoundTrip& trip : table) {
    for (const auto& placement : placements) {
      for (const std::int32_t cut : {1, 3, 4, 7}) {
        CAPTURE(trip.name, placement, cut);
        document.plan =
            plan_of(document.profile,
                    {.micro_batch_size = 2,
                     .num_micro_batches = 4,
                     .depths = {2, 1},
                     .stages = {{.layers = cut, .devices = {placement[0], placement[1]}},
                                {.layers = 8 - cut, .devices = {placement[2], placement[3]}}}});
        if (trip.is_interleaved) {
          auto made =
              planner::reschedule(document.plan, document.profile, topology,
                                  {.family = ScheduleFamily::Interleaved, .chunks_per_device = 2});
          REQUIRE(std::holds_alternative<planner::Rescheduled>(made));
          document.plan = std::get<planner::Rescheduled>(made).plan;
        }
        std::vector<interop::ForeignPlanFile> files;
        for (const interop::ExportTarget& target : interop::export_targets()) {
          for (const char* wanted : trip.targets) {
            if (target.name != wanted) continue;
            const std::string text = target.make({document, topology}).text;
            CHECK(interop::detect_plan_format(text) == trip.format);
            files.push_back({text, wanted, trip.format});
          }
        }
        REQUIRE(files.size() == trip.targets.size());
        const Plan again = interop::import_plan(files, {document.profile, topology}, {}).plan;
        CHECK(stages_of(again) == stages_of(document.plan));
        CHECK(again.micro_batch_size == document.plan.micro_batch_size);
        CHECK(again.num_micro_batches == document.plan.num_micro_batches);
        CHECK(again.global_batch_size == document.plan.global_batch_size);
        CHECK(same_plan(again, document.plan));
        CHECK(io::schedule_digest(again, topology) == io::schedule_digest(document.plan, topology));
        CHECK(planner::check_plan(again, document.profile, topology).empty());
      }
    }
  }
}

}  // namespace
}  // namespace dapple
