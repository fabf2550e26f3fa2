// Schedule families: the ways to order the computations of a device.
#pragma once

#include <string_view>

namespace dapple {

/// How the computations of a device are ordered. The orders of GPipe, 1F1B, interleaved and
/// breadth-first schedules follow from the plan's numbers; those of the other families depend on
/// costs and memory, so the plan carries them.
enum class ScheduleFamily {
  /// All forwards, then all backwards.
  GPipe,
  /// K forwards, then one backward and one forward in turn, then the remaining backwards.
  OneFOneB,
  /// 1F1B in turns over several stages of each device (Megatron-LM, SC'21).
  Interleaved,
  /// All forwards stage by stage, then all backwards (Lamy-Poirier, MLSys'23).
  BreadthFirst,
  /// At most K micro-batches in flight as in 1F1B, in an order that is optimized for the costs.
  ListScheduled,
  /// The backward in two parts, with the memory of 1F1B (Qi et al., ICLR'24).
  ZeroBubbleH1,
  /// ZeroBubbleH1 with as many micro-batches in flight as fill every bubble.
  ZeroBubbleH2,
  /// The backward in two parts, with two stages per device placed in a V: the first half of the
  /// stages in the order of the devices, the second half in the reverse order.
  ZeroBubbleV,
  /// The order is read from a file.
  Given,
};

/// Returns "gpipe", "1f1b", "interleaved", "breadth-first", "list-scheduled", "zb-h1", "zb-h2",
/// "zb-v" or "given".
std::string_view to_string(ScheduleFamily family);
inline constexpr ScheduleFamily kScheduleFamilies[] = {
    ScheduleFamily::GPipe,        ScheduleFamily::OneFOneB,      ScheduleFamily::Interleaved,
    ScheduleFamily::BreadthFirst, ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1,
    ScheduleFamily::ZeroBubbleH2, ScheduleFamily::ZeroBubbleV,   ScheduleFamily::Given};

/// Whether a plan of the family carries its order.
bool carries_order(ScheduleFamily family);

/// Whether a schedule of the family may split a backward into input gradient and weight gradient.
bool may_split_backward(ScheduleFamily family);

/// Whether each device holds several stages under the family.
bool has_loops(ScheduleFamily family);

/// Whether the exact search and the DAPPLE planner plan the family: 1F1B, and GPipe, which is 1F1B
/// with all micro-batches in flight.
bool is_planned_as_1f1b(ScheduleFamily family);

/// Returns the family in whose record a plan of this family stands, where several are compared:
/// that of 1F1B for GPipe, which is searched there, and otherwise its own.
ScheduleFamily recorded_family(ScheduleFamily family);

}  // namespace dapple
