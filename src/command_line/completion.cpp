#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "dapple/command_line/manual.h"

namespace dapple::command_line {
namespace {

/// A command that can be run, with all words of its name: "import topology".
struct NamedCommand {
  std::string words;
  const Command& command;
};

std::vector<NamedCommand> named_commands(const Tool& tool) {
  std::vector<NamedCommand> all;
  for (const Command& command : tool.commands) {
    all.push_back({command.description.name, command});
    for (const Command& part : command.parts) {
      all.push_back({command.description.name + ' ' + part.description.name, part});
    }
  }
  return all;
}

std::vector<OptionSpec> options_of(const Command& command) {
  std::vector<OptionSpec> options = all_options(command.description);
  for (OptionSpec& common : common_options()) options.push_back(std::move(common));
  return options;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.description.name);
  return names;
}

std::string option_words(const Command& command) {
  std::vector<std::string> words;
  for (const OptionSpec& option : options_of(command)) {
    words.push_back("--" + option.name);
    if (option.letter != 0) words.push_back(std::string("-") + option.letter);
  }
  return joined(words);
}

/// Returns the name of the tool's functions in a shell: "_dapple_plan".
std::string function_of(const Tool& tool) {
  std::string name = "_" + tool.description.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Returns the assignment that says what completes the value: files, folders or its choices.
std::string bash_value(const OptionSpec& option) {
  if (option.kind == ValueKind::File) return "kind=file";
  if (option.kind == ValueKind::Folder) return "kind=folder";
  return fmt::format("words='{}'", joined(option.choices));
}

/// Returns the branches of a case on "COMMAND OPTION", the option being the word before the one
/// that is completed.
std::string bash_values(const std::vector<NamedCommand>& commands) {
  std::string branches;
  for (const NamedCommand& named : commands) {
    for (const OptionSpec& option : options_of(named.command)) {
      if (option.value.empty()) continue;
      std::string pattern = fmt::format("'{} --{}'", named.words, option.name);
      if (option.letter != 0) pattern += fmt::format(" | '{} -{}'", named.words, option.letter);
      branches += fmt::format("    {}) {} ;;\n", pattern, bash_value(option));
    }
  }
  return branches;
}

/// Returns the branches of a case on the command: its options, or what may stand beside them.
std::string bash_arguments(const std::vector<NamedCommand>& commands) {
  std::string branches;
  for (const NamedCommand& named : commands) {
    const std::vector<std::string> parts = names_of(named.command.parts);
    std::string beside = "kind=none";
    if (named.command.description.takes_files) beside = "kind=file";
    if (!parts.empty()) beside = fmt::format("words='{}'", joined(parts));
    branches += fmt::format("        '{}') options='{}'; {} ;;\n", named.words,
                            option_words(named.command), beside);
  }
  return branches;
}

/// Returns the code that finds the command, into $name, among the words before the completed one.
std::string bash_search(const Tool& tool) {
  std::string parts;
  for (const Command& command : tool.commands) {
    if (!command.parts.empty()) {
      parts += (parts.empty() ? "" : " | ") + command.description.name;
    }
  }
  std::string text = fmt::format(
      "  while ((at < COMP_CWORD)); do\n"
      "    case ${{COMP_WORDS[at]}} in\n"
      "      -q | --quiet | -v | --verbose) ;;\n"
      "      -*) name='{}'; break ;;\n"
      "      *) name=${{COMP_WORDS[at]}}; break ;;\n"
      "    esac\n"
      "    ((++at))\n"
      "  done\n",
      tool.first_is_default ? tool.commands.front().description.name : "");
  if (parts.empty()) return text;
  return text + fmt::format(
                    "  case $name in\n"
                    "    {}) ((at + 1 < COMP_CWORD)) && name+=\" ${{COMP_WORDS[at + 1]}}\" ;;\n"
                    "  esac\n",
                    parts);
}

/// Returns the text in single quotes, as shells read it.
std::string in_single_quotes(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + '\'';
}

/// Returns text for _arguments and _describe of zsh, which give brackets and colons a meaning.
std::string for_zsh(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string zsh_action(const OptionSpec& option) {
  if (option.kind == ValueKind::File) return "_files";
  if (option.kind == ValueKind::Folder) return "_files -/";
  return option.choices.empty() ? " " : fmt::format("({})", joined(option.choices));
}

/// Returns the specifications of an option for _arguments.
std::string zsh_option(const OptionSpec& option) {
  std::string rest = '[' + for_zsh(sentence_of(option)) + ']';
  if (!option.value.empty()) {
    rest += fmt::format(":{}:{}", for_zsh(option.value), zsh_action(option));
  }
  const std::string repeats = option.repeats ? "*" : "";
  const std::string name = fmt::format("--{}{}", option.name, option.value.empty() ? "" : "=");
  if (option.letter == 0) return in_single_quotes(repeats + name + rest);
  const std::string both = fmt::format("(-{0} --{1})", option.letter, option.name);
  return in_single_quotes(both + '-' + option.letter + rest) + ' ' +
         in_single_quotes(both + name + rest);
}

std::string zsh_names(const std::vector<Command>& commands) {
  std::string names;
  for (const Command& command : commands) {
    names += "    " +
             in_single_quotes(for_zsh(command.description.name) + ':' +
                              for_zsh(command.description.summary)) +
             '\n';
  }
  return names;
}

/// Returns a function that completes behind the command's name, which is $words[1] there.
std::string zsh_function(const std::string& name, const Command& command) {
  std::string text = name + "() {\n";
  if (!command.parts.empty()) {
    text += "  local -a parts=(\n" + zsh_names(command.parts) + "  )\n";
    text += "  if (( CURRENT == 2 )); then _describe part parts; return; fi\n";
    text += "  shift words; (( --CURRENT ))\n  case $words[1] in\n";
    for (const Command& part : command.parts) {
      text += fmt::format("    {0}) {1}_{0} ;;\n", part.description.name, name);
    }
    return text + "  esac\n}\n\n";
  }
  text += "  _arguments";
  for (const OptionSpec& option : options_of(command)) text += " \\\n    " + zsh_option(option);
  if (command.description.takes_files) text += " \\\n    '*:file:_files'";
  return text + "\n}\n\n";
}

std::string zsh_functions(const Tool& tool) {
  std::string text;
  for (const Command& command : tool.commands) {
    const std::string name = function_of(tool) + '_' + command.description.name;
    for (const Command& part : command.parts) {
      text += zsh_function(name + '_' + part.description.name, part);
    }
    text += zsh_function(name, command);
  }
  return text;
}

}  // namespace

std::string bash_completion(const Tool& tool) {
  const std::vector<NamedCommand> commands = named_commands(tool);
  const std::string name = tool.description.name;
  std::string first = "--version --help -h --verbose -v --quiet -q";
  if (tool.first_is_default) first += ' ' + option_words(tool.commands.front());
  return fmt::format(
             "# Completion of {0} for bash, written by \"{0} help --install\".\n"
             "{1}() {{\n"
             "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
             "  local name= words= options= kind=words at=1\n"
             "  COMPREPLY=()\n"
             "  # Bash makes the \"=\" of --option=value a word of its own.\n"
             "  [[ $before == = ]] && before=${{COMP_WORDS[COMP_CWORD - 2]}}\n"
             "  [[ $word == = ]] && word=\n",
             name, function_of(tool)) +
         bash_search(tool) + "  case \"$name $before\" in\n" + bash_values(commands) +
         fmt::format(
             "    *)\n"
             "      case $name in\n"
             "        '') options='{0}'; words='{1} help' ;;\n"
             "        help) options='--install'; words='{1}' ;;\n",
             first, joined(names_of(tool.commands))) +
         bash_arguments(commands) +
         fmt::format(
             "      esac\n"
             "      [[ $word == -* ]] && kind=words words=$options\n"
             "      ;;\n"
             "  esac\n"
             "  case $kind in\n"
             "    words) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\") ;;\n"
             "    file) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
             "    folder) mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;\n"
             "  esac\n"
             "  [[ $kind == words ]] || compopt -o filenames 2>/dev/null\n"
             "  [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null\n"
             "  return 0\n"
             "}}\n"
             "complete -F {1} {0}\n",
             name, function_of(tool));
}

std::string zsh_completion(const Tool& tool) {
  const std::string name = tool.description.name;
  const std::string function = function_of(tool);
  std::string text = fmt::format(
                         "#compdef {0}\n"
                         "# Completion of {0} for zsh, written by \"{0} help --install\".\n\n",
                         name) +
                     zsh_functions(tool) +
                     fmt::format(
                         "{}() {{\n"
                         "  local -a commands=(\n"
                         "{}"
                         "    'help:print the help of a command'\n"
                         "  )\n"
                         "  while (( CURRENT > 2 )) && [[ $words[2] == "
                         "(-q|--quiet|-v|--verbose|help) ]]; do\n"
                         "    shift words; (( --CURRENT ))\n"
                         "  done\n"
                         "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
                         "    _describe command commands\n"
                         "    return\n"
                         "  fi\n"
                         "  case $words[2] in\n",
                         function, zsh_names(tool.commands));
  for (const Command& command : tool.commands) {
    text += fmt::format("    {0}) shift words; (( --CURRENT )); {1}_{0} ;;\n",
                        command.description.name, function);
  }
  if (tool.first_is_default) {
    text += fmt::format("    -*) {}_{} ;;\n", function, tool.commands.front().description.name);
  }
  return text + fmt::format("  esac\n}}\n\n{} \"$@\"\n", function);
}

}  // namespace dapple::command_line
