#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "dapple/schedule/schedule.h"

namespace dapple {
namespace {

/// The maximum length of an action's text: two numbers of at most 11 characters, and a name.
constexpr std::size_t kMostLetters = 2 * 11 + 16;

/// Writes an action and returns the end of the text. Requires: room for kMostLetters.
char* put_text(char* begin, Action action) {
  const std::string_view name = to_string(action.kind);
  char* const last = begin + kMostLetters;
  char* end = std::to_chars(begin, last, action.stage.value).ptr;
  end = std::copy(name.begin(), name.end(), end);
  // Most stages have one step, so the first has no number.
  const bool is_numbered = action.kind != ActionKind::OptimizerStep || action.index != 0;
  return is_numbered ? std::to_chars(end, last, action.index).ptr : end;
}

/// Appends each action after a blank, many at once, since a long schedule has millions of them.
void append_text(std::string& text, const std::vector<Action>& actions) {
  std::array<char, 64 * (kMostLetters + 1)> letters;
  char* const full = letters.data() + letters.size() - (kMostLetters + 1);
  char* end = letters.data();
  for (const Action& action : actions) {
    *end++ = ' ';
    end = put_text(end, action);
    if (end <= full) continue;
    text.append(letters.data(), end);
    end = letters.data();
  }
  text.append(letters.data(), end);
}

}  // namespace

std::string_view to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "F";
    case ActionKind::Backward:
      return "B";
    case ActionKind::InputGradient:
      return "I";
    case ActionKind::WeightGradient:
      return "W";
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
    case ActionKind::ReduceTied:
      return "REDUCE_TIED";
    case ActionKind::OptimizerStep:
      return "STEP";
  }
  throw Bug("an action without a name");
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

std::string to_text(Action action) {
  std::array<char, kMostLetters> letters;
  return {letters.data(), put_text(letters.data(), action)};
}

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  append_text(text, actions);
  return text.empty() ? text : text.substr(1);
}

namespace {

constexpr ActionKind kKindsByName[] = {
    ActionKind::Forward,        ActionKind::Backward,        ActionKind::InputGradient,
    ActionKind::WeightGradient, ActionKind::SendActivation,  ActionKind::ReceiveActivation,
    ActionKind::SendGradient,   ActionKind::ReceiveGradient, ActionKind::AllReduce,
    ActionKind::ReduceTied,     ActionKind::OptimizerStep,
};

/// Removes a number from the start of `word` and returns it; returns nothing if there is none or it
/// is too large.
std::optional<std::int32_t> cut_number(std::string_view& word) {
  std::int32_t number = 0;
  const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool starts_with_digit = !word.empty() && word.front() >= '0' && word.front() <= '9';
  if (fault != std::errc{} || !starts_with_digit) return std::nullopt;
  word.remove_prefix(static_cast<std::size_t>(end - word.data()));
  return number;
}

std::optional<Action> parse_action(std::string_view word) {
  const std::optional<std::int32_t> stage = cut_number(word);
  if (!stage) return std::nullopt;
  for (const ActionKind kind : kKindsByName) {
    const std::string_view name = to_string(kind);
    if (word.substr(0, name.size()) != name) continue;
    std::string_view rest = word.substr(name.size());
    if (kind == ActionKind::OptimizerStep && rest.empty()) return Action{kind, 0, {*stage}};
    const std::optional<std::int32_t> index = cut_number(rest);
    if (index && rest.empty()) return Action{kind, *index, {*stage}};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Action> parse_actions(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<Action> actions;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return actions;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
    const std::optional<Action> action = parse_action(word);
    if (!action) {
      throw Error(
          ErrorKind::BadInput, "",
          {{"", fmt::format("expected an action such as 2F0, got \"{}\"", word.substr(0, 40))}});
    }
    actions.push_back(*action);
    text.remove_prefix(word.size());
  }
}

void write_text(const std::vector<Action>& actions, std::string& text) {
  constexpr std::size_t kUsualLetters = 12;
  text.clear();
  text.reserve(kUsualLetters * actions.size());
  append_text(text, actions);
}

std::string to_text(const Schedule& schedule, const Topology& topology) {
  std::string text;
  std::string actions;
  for (const Lane& lane : schedule.lanes) {
    write_text(lane.actions, actions);
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
