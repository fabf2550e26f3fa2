#include <fmt/format.h>

#include <iterator>

#include "dapple/schedule/schedule.h"

namespace dapple {
namespace {

void append_text(std::string& text, StageIndex stage, Action action) {
  const auto end = std::back_inserter(text);
  fmt::format_to(end, "{}{}", stage.value, to_string(action.kind));
  // There is one step, so it has no number; one that claims another must not read the same.
  if (action.kind == ActionKind::OptimizerStep && action.index == 0) return;
  fmt::format_to(end, "{}", action.index);
}

}  // namespace

std::string_view to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "F";
    case ActionKind::Backward:
      return "B";
    case ActionKind::SendActivation:
      return "SEND_F";
    case ActionKind::ReceiveActivation:
      return "RECV_F";
    case ActionKind::SendGradient:
      return "SEND_B";
    case ActionKind::ReceiveGradient:
      return "RECV_B";
    case ActionKind::AllReduce:
      return "REDUCE_GRAD";
    case ActionKind::OptimizerStep:
      return "STEP";
  }
  throw Bug("an action without a name");
}

Stream stream_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::OptimizerStep:
      return Stream::Compute;
    case ActionKind::SendActivation:
      return Stream::SendForward;
    case ActionKind::SendGradient:
      return Stream::SendBackward;
    case ActionKind::AllReduce:
      return Stream::Collective;
    case ActionKind::ReceiveActivation:
    case ActionKind::ReceiveGradient:
      return Stream::None;
  }
  throw Bug("an action without a stream");
}

std::string_view to_string(Stream stream) {
  switch (stream) {
    case Stream::Compute:
      return "compute";
    case Stream::SendForward:
      return "send_forward";
    case Stream::SendBackward:
      return "send_backward";
    case Stream::Collective:
      return "collective";
    case Stream::None:
      return "none";
  }
  throw Bug("a stream without a name");
}

std::string to_text(StageIndex stage, Action action) {
  std::string text;
  append_text(text, stage, action);
  return text;
}

std::string to_text(const Schedule& schedule, const Topology& topology) {
  std::string text;
  std::string actions;
  for (const Lane& lane : schedule.lanes) {
    actions.clear();
    for (const Action& action : lane.actions) {
      actions += ' ';
      append_text(actions, lane.stage, action);
    }
    for (const DeviceIndex device : lane.devices) {
      text += topology.device(device).name;
      text += ':';
      text += actions;
      text += '\n';
    }
  }
  return text;
}

}  // namespace dapple
