#include <fmt/format.h>

#include <algorithm>

#include "dapple/report/comparison.h"
#include "dapple/report/table.h"
#include "report/palette.h"

namespace dapple::report {
namespace {

std::string change(Duration predicted, Duration measured) {
  if (predicted == measured) return "same";
  if (predicted.ns == 0) return "-";
  return fmt::format("{:+.1f} %", 100 * static_cast<double>((measured - predicted).ns) /
                                      static_cast<double>(predicted.ns));
}

/// Names the actions: "forward of stage 2", "activations from stage 1 to 2".
std::string name_of(const LengthComparison& length) {
  const std::int32_t stage = length.stage.value;
  if (length.kind == ActionKind::SendActivation) {
    return fmt::format("activations from stage {} to {}", stage, stage + 1);
  }
  if (length.kind == ActionKind::SendGradient) {
    return fmt::format("gradients from stage {} to {}", stage, stage - 1);
  }
  return fmt::format("{} of stage {}", style_of(length.kind).words, stage);
}

/// Names the action that differs most from its prediction: "+140.0 %, micro-batch 3".
std::string farthest_text(const LengthComparison& length) {
  const LengthComparison::Single& farthest = length.farthest;
  if (farthest.predicted == farthest.measured) return "same";
  const bool is_bucket = reduces(length.kind);
  const std::string text = change(farthest.predicted, farthest.measured);
  if (length.kind == ActionKind::OptimizerStep) return text;
  return fmt::format("{}, {} {}", text, is_bucket ? "bucket" : "micro-batch", farthest.index);
}

std::string length_table(const TimelineComparison& comparison, const TextStyle& style) {
  Table table{{{"action", Align::Left, 12},
               {"times", Align::Right},
               {"predicted", Align::Right},
               {"measured", Align::Right},
               {"difference", Align::Right},
               {"largest difference", Align::Left}}};
  for (const LengthComparison& length : comparison.lengths) {
    table.add_row({{name_of(length)},
                   {show_count(length.count)},
                   {show(length.predicted, length.predicted)},
                   {show(length.measured, length.predicted)},
                   {change(length.predicted, length.measured)},
                   {farthest_text(length)}});
  }
  table.add_row({{"waiting between actions"},
                 {""},
                 {show(comparison.predicted_waiting, comparison.predicted)},
                 {show(comparison.measured_waiting, comparison.predicted)},
                 {change(comparison.predicted_waiting, comparison.measured_waiting)},
                 {""}});
  table.add_row({{"iteration", Ink::Strong},
                 {""},
                 {show(comparison.predicted, comparison.predicted)},
                 {show(comparison.measured, comparison.predicted)},
                 {change(comparison.predicted, comparison.measured)},
                 {""}});
  return table.text(0, style);
}

}  // namespace

std::string write_measured(const MeasuredPair& pair, const TextStyle& style) {
  std::string text = fmt::format("predicted  {}, simulated\nmeasured   {}\n\n",
                                 printable(pair.plan), printable(pair.measurement));
  text += length_table(pair.comparison, style) + '\n';
  const std::vector<LengthComparison> slower = slower_than_predicted(pair.comparison);
  const Duration waiting = pair.comparison.measured_waiting - pair.comparison.predicted_waiting;
  const bool is_much_waiting = 100 * waiting >= pair.comparison.predicted && waiting > Duration{};
  if (is_much_waiting) {
    text += fmt::format(
        "Waiting between actions makes the iteration {} longer than predicted: devices had all\n"
        "their inputs but did not continue yet, as happens to threads that share a core.\n",
        show(waiting, pair.comparison.predicted));
  }
  if (slower.empty()) {
    return text +
           "By their medians, no actions took longer than predicted by a tenth and by a hundredth "
           "of the iteration.\n";
  }
  text += "Slower than predicted by their medians, the costliest first:\n";
  for (const LengthComparison& length : slower) {
    text += fmt::format("  {}: {}, {} in all\n", name_of(length),
                        change(length.predicted, length.measured),
                        show(length.beyond(), pair.comparison.predicted));
  }
  return text;
}

}  // namespace dapple::report
