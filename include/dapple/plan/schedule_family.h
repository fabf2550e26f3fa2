// Schedule families: who decides in which order a device works.
#pragma once

#include <string_view>

namespace dapple {

/// Who decides in which order a device works. The first four follow from the plan's numbers; the
/// orders of the others depend on costs and memory, so that the plan carries them.
enum class ScheduleFamily {
  GPipe,          // all forwards, then all backwards
  OneFOneB,       // K forwards, then one backward and one forward in turn, then the backwards left
  Interleaved,    // 1F1B in turns over several stages of each device (Megatron-LM, SC'21)
  BreadthFirst,   // all forwards stage by stage, then all backwards (Lamy-Poirier, MLSys'23)
  ListScheduled,  // at most K in flight as in 1F1B, in the order that the costs ask for
  ZeroBubbleH1,   // the backward in two parts, memory as 1F1B (Qi et al., ICLR'24)
  ZeroBubbleH2,   // the same with as much in flight as fills every bubble
  ZeroBubbleV,    // two stages per device, there and back again
  Given,          // from a file
};

/// "gpipe", "1f1b", "interleaved", "breadth-first", "list-scheduled", "zb-h1", "zb-h2", "zb-v",
/// "given".
std::string_view to_string(ScheduleFamily family);
inline constexpr ScheduleFamily kScheduleFamilies[] = {
    ScheduleFamily::GPipe,        ScheduleFamily::OneFOneB,      ScheduleFamily::Interleaved,
    ScheduleFamily::BreadthFirst, ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1,
    ScheduleFamily::ZeroBubbleH2, ScheduleFamily::ZeroBubbleV,   ScheduleFamily::Given};

/// Whether a plan of that family carries its order.
bool carries_order(ScheduleFamily family);

/// Whether a stage of that family may make the gradients of its input and of its weights apart.
bool may_split_backward(ScheduleFamily family);

}  // namespace dapple
