#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "dapple/command_line/manual.h"

namespace dapple::command_line {
namespace {

constexpr std::size_t kHelpWidth = 80;
/// A label that is wider than this does not move the column of the texts.
constexpr std::size_t kMostLabel = 22;

/// Returns lines that begin with `head`; words that do not fit are on lines that begin with
/// `indent` blanks.
std::string filled(std::string head, std::string_view text, std::size_t indent) {
  std::string lines;
  std::string line = std::move(head);
  bool begins_line = true;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word; begins_line = false) {
    if (!begins_line && line.size() + 1 + word.size() > kHelpWidth) {
      lines += line + '\n';
      line = std::string(indent, ' ');
    } else if (!begins_line) {
      line += ' ';
    }
    line += word;
  }
  return lines + line + '\n';
}

/// A label at the left and a sentence about it.
struct Row {
  std::string label;
  std::string text;
};

std::size_t column_of(const std::vector<Row>& rows) {
  std::size_t widest = 0;
  for (const Row& row : rows) {
    if (row.label.size() <= kMostLabel) widest = std::max(widest, row.label.size());
  }
  return widest + 2;
}

std::string text_of(const std::vector<Row>& rows, std::size_t column) {
  std::string text;
  for (const Row& row : rows) {
    std::string head = row.label + "  ";
    if (head.size() < column) head.resize(column, ' ');
    text += filled(std::move(head), row.text, column);
  }
  return text;
}

Row row_of(const OptionSpec& option) {
  return {fmt::format("  {}--{}{}{}", option.letter == 0 ? "" : fmt::format("-{}, ", option.letter),
                      option.name, option.value.empty() ? "" : " ", option.value),
          sentence_of(option)};
}

/// Returns the names of a section's options behind its title.
std::string names_text(const OptionSection& section) {
  std::string names;
  for (const OptionSpec& option : section.options) {
    names += fmt::format("{}--{}", names.empty() ? "" : ", ", option.name);
  }
  return filled("", fmt::format("{} (manual page): {}", section.title, names), 2);
}

std::string options_text(const std::vector<OptionSection>& sections) {
  std::vector<Row> all;
  for (const OptionSection& section : sections) {
    for (const OptionSpec& option : section.options) {
      if (!section.is_brief) all.push_back(row_of(option));
    }
  }
  const std::size_t column = column_of(all);
  std::string text;
  for (const OptionSection& section : sections) {
    if (section.is_brief) {
      text += names_text(section);
      continue;
    }
    std::vector<Row> rows;
    for (const OptionSpec& option : section.options) rows.push_back(row_of(option));
    text += (section.title.empty() ? "" : section.title + '\n') + text_of(rows, column);
  }
  return text;
}

std::string usage_text(const std::vector<std::string>& usage) {
  std::string text;
  for (const std::string& line : usage) {
    const std::string head = text.empty() ? "Usage: " : "       ";
    text += filled(head, line, head.size() + 4);
  }
  return text;
}

std::string examples_text(const std::vector<std::string>& examples) {
  std::string text = "Example\n";
  for (const std::string& line : examples) text += "  " + line + '\n';
  return text;
}

std::string exit_codes_text(const std::vector<ExitCode>& codes) {
  std::string text;
  for (const ExitCode& each : codes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.code, each.meaning);
  }
  return filled("Exit code: ", text + '.', 0);
}

/// Returns the rows of the first command's options that the tool's help lists.
std::vector<Row> first_rows(const Tool& tool) {
  std::vector<Row> rows;
  for (const std::string& name : tool.description.first_options) {
    for (const OptionSpec& option : all_options(tool.commands.front().description)) {
      if (option.name == name) rows.push_back(row_of(option));
    }
  }
  return rows;
}

}  // namespace

std::vector<OptionSpec> all_options(const CommandDescription& description) {
  std::vector<OptionSpec> all;
  for (const OptionSection& section : description.options) {
    all.insert(all.end(), section.options.begin(), section.options.end());
  }
  return all;
}

std::string help_of(const Tool& tool) {
  const ToolDescription& description = tool.description;
  std::vector<Row> commands;
  for (const Command& command : tool.commands) {
    const bool is_default = tool.first_is_default && commands.empty();
    commands.push_back({"  " + command.description.name,
                        command.description.summary + (is_default ? " (the default)" : "")});
  }
  commands.push_back(
      {"  help", "print the help of a command; --install FOLDER writes manual pages"});
  std::vector<Row> common;
  for (const OptionSpec& option : common_options()) common.push_back(row_of(option));
  common.push_back({"  --version", "Print the version and the formats that are read."});
  std::vector<Row> first = first_rows(tool);
  const std::size_t column = std::max(column_of(common), column_of(first));
  std::string text = filled("", fmt::format("{}: {}.", description.name, description.summary), 0);
  if (!description.about.empty()) text += '\n' + filled("", description.about, 0);
  text += '\n' + usage_text(description.usage);
  text += "\nCommands\n" + text_of(commands, column_of(commands));
  if (!first.empty()) {
    const std::string name = description.name + ' ' + tool.commands.front().description.name;
    text += fmt::format("\nFirst options of {}; \"{} --help\" has all of them\n",
                        tool.commands.front().description.name, name) +
            text_of(first, column);
  }
  text += "\nOptions of every command\n" + text_of(common, column);
  text += '\n' + examples_text(description.examples);
  return text + '\n' + exit_codes_text(description.exit_codes);
}

std::string help_of(const Command& command, const std::string& name) {
  const CommandDescription& description = command.description;
  std::string text = filled("", fmt::format("{}: {}.", name, description.summary), 0);
  text += '\n' + usage_text(description.usage);
  if (!description.about.empty()) text += '\n' + filled("", description.about, 0);
  if (!description.terms.empty()) {
    std::vector<Row> rows;
    for (const Explanation& each : description.terms) rows.push_back({"  " + each.term, each.text});
    text += '\n' + description.terms_title + '\n' + text_of(rows, column_of(rows));
  }
  if (!description.options.empty()) text += '\n' + options_text(description.options);
  if (!description.examples.empty()) text += '\n' + examples_text(description.examples);
  if (!description.exit_codes.empty()) text += '\n' + exit_codes_text(description.exit_codes);
  return text;
}

}  // namespace dapple::command_line
