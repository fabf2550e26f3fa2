// Cases of the zero-bubble paper's own code, with the best of its eight greedy variants.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <string>

#include "../../support/files.h"
#include "../../support/tasks.h"
#include "dapple/schedule_search/order_search.h"

namespace dapple::schedule_search {
namespace {

TaskProblem problem_of(const nlohmann::json& text) {
  TaskProblem problem;
  problem.num_micro_batches = text["num_micro_batches"];
  for (std::int32_t s = 0; s < text["num_stages"]; ++s) {
    const auto figure = [&](const char* key) {
      return text[key][static_cast<std::size_t>(s)].get<std::int64_t>();
    };
    const Duration send{text["cost_comm"]};
    problem.stages.push_back({.device = {s},
                              .forward = {figure("cost_f_per_stage")},
                              .backward = {figure("cost_b_per_stage")},
                              .weight_gradient = {figure("cost_w_per_stage")},
                              .send_forward = send,
                              .send_backward = send,
                              .forward_memory = {figure("mem_f_per_stage")},
                              .backward_memory = {figure("mem_b_per_stage")},
                              .weight_gradient_memory = {figure("mem_w_per_stage")}});
    problem.memory_limits.push_back({figure("max_mem_per_stage")});
  }
  return problem;
}

TEST_CASE("published orders run to their published spans") {
  const std::optional<std::string> text = test::shared_file("truth/zero_bubble_cases.json");
  if (!text) return;
  const nlohmann::json document = nlohmann::json::parse(*text);
  REQUIRE(document["cases"].size() == 3);
  for (const nlohmann::json& published : document["cases"]) {
    CAPTURE(published["id"]);
    const TaskProblem problem = problem_of(published);
    TaskOrder order;
    for (const nlohmann::json& line : published["best_order_per_stage"]) {
      order.push_back(small::tasks_of(line, index_at<StageIndex>(order.size())));
    }
    const OrderTimes times = run_order(problem, order);
    CHECK(check_order(problem, order, times.starts).empty());
    CHECK(times.span.ns == published["best_span"]);
    CHECK(times.makespan.ns == published["makespan_of_that_schedule"]);
    CHECK(lower_bound(problem).ns >= published["lower_bound"]);
  }
}

TEST_CASE("each published case is solved, and proven to be") {
  const std::optional<std::string> text = test::shared_file("truth/zero_bubble_cases.json");
  if (!text) return;
  const nlohmann::json document = nlohmann::json::parse(*text);
  REQUIRE(document["cases"].size() == 3);
  for (const nlohmann::json& published : document["cases"]) {
    CAPTURE(published["id"]);
    const TaskProblem problem = problem_of(published);
    const std::optional<FoundOrder> found = search_order(problem, {.evaluations = 200'000});
    REQUIRE(found);
    CHECK(check_order(problem, found->order, found->times.starts).empty());
    CHECK(found->objective.ns <= published["best_span"]);
    CHECK(found->lower_bound == found->objective);
  }
}

}  // namespace
}  // namespace dapple::schedule_search
