#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "dapple/command_line/manual.h"

namespace dapple::command_line {
namespace {

/// Returns text for the body of a page: every character is shown as it is, and no line begins with
/// a control character.
std::string in_roff(std::string_view text) {
  std::string escaped;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) escaped += "\\&";
    begins_line = c == '\n';
    switch (c) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

/// Returns text for an argument of a macro, in quotes.
std::string in_quotes(std::string_view text) {
  std::string argument = "\"";
  for (const char c : in_roff(text))
    argument += c == '"' ? std::string("\\(dq") : std::string(1, c);
  return argument + '"';
}

char capital(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

/// Returns a clause with a capital letter and a full stop.
std::string as_sentence(std::string clause) {
  clause.front() = capital(clause.front());
  return clause + '.';
}

std::string in_capitals(std::string text) {
  for (char& c : text) c = capital(c);
  return text;
}

std::string heading(std::string_view title) {
  return fmt::format(".SH {}\n", in_quotes(title));
}

std::string paragraph(std::string_view text) {
  return fmt::format(".PP\n{}\n", in_roff(text));
}

/// Returns an entry of a list: the term in bold, and text.
std::string entry(std::string_view term, std::string_view text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", in_roff(term), in_roff(text));
}

std::string entry(const OptionSpec& option) {
  std::string text = ".TP\n";
  if (option.letter != 0) text += fmt::format("\\fB\\-{}\\fR, ", option.letter);
  text += fmt::format("\\fB{}\\fR", in_roff("--" + option.name));
  if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", in_roff(option.value));
  text += '\n' + in_roff(sentence_of(option));
  if (!option.details.empty()) text += ' ' + in_roff(option.details);
  return text + '\n';
}

std::string options_part(const std::vector<OptionSection>& sections) {
  std::string text = heading("OPTIONS");
  for (const OptionSection& section : sections) {
    if (!section.title.empty()) text += fmt::format(".SS {}\n", in_quotes(section.title));
    for (const OptionSpec& option : section.options) text += entry(option);
  }
  text += ".SS \"Options of every command\"\n";
  for (const OptionSpec& option : common_options()) text += entry(option);
  return text;
}

std::string synopsis(const std::vector<std::string>& usage) {
  std::string text = heading("SYNOPSIS") + ".nf\n";
  for (const std::string& line : usage) text += in_roff(line) + '\n';
  return text + ".fi\n";
}

std::string list_part(std::string_view title, const std::vector<Explanation>& list) {
  if (list.empty()) return {};
  std::string text = heading(title);
  for (const Explanation& each : list) text += entry(each.term, each.text);
  return text;
}

std::string examples_part(const std::vector<std::string>& examples) {
  if (examples.empty()) return {};
  std::string text = heading("EXAMPLES") + ".nf\n";
  for (const std::string& line : examples) text += in_roff(line) + '\n';
  return text + ".fi\n";
}

std::string exit_status(const std::map<int, std::string>& codes) {
  std::string text = heading("EXIT STATUS");
  for (const auto& [code, meaning] : codes) {
    text += entry(fmt::format("{}", code), as_sentence(meaning));
  }
  return text;
}

/// Returns the codes that any command of the tool may end with.
std::map<int, std::string> general_codes(const Tool& tool) {
  std::map<int, std::string> codes;
  for (const ExitCode& each : tool.description.exit_codes) {
    if (each.code != kInfeasible && each.code != kNotVerified) codes[each.code] = each.meaning;
  }
  return codes;
}

std::string page_name(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

/// Returns the names of the pages of all commands, with those of two words.
std::vector<std::string> command_pages(const Tool& tool) {
  std::vector<std::string> names;
  for (const Command& command : tool.commands) {
    const std::string name = tool.description.name + '-' + command.description.name;
    names.push_back(name);
    for (const Command& part : command.parts) names.push_back(name + '-' + part.description.name);
  }
  return names;
}

std::string see_also(const std::string& own, std::vector<std::string> pages) {
  std::erase(pages, own);
  std::string text = heading("SEE ALSO");
  for (const std::string& page : pages) {
    text += fmt::format(".BR {} (1){}\n", in_roff(page), page == pages.back() ? "" : ",");
  }
  return text;
}

std::string title(const Tool& tool, const std::string& page, const std::string& summary) {
  const std::string version = tool.version.substr(0, tool.version.find('\n'));
  return fmt::format(".TH {} 1 \"\" {} \"User Commands\"\n.nh\n.ad l\n",
                     in_quotes(in_capitals(page)), in_quotes(version)) +
         heading("NAME") + fmt::format("{} \\- {}\n", in_roff(page), in_roff(summary));
}

}  // namespace

std::string manual_page(const Tool& tool) {
  const ToolDescription& description = tool.description;
  std::string text = title(tool, description.name, description.summary) +
                     synopsis(description.usage) + heading("DESCRIPTION") +
                     paragraph(description.about);
  for (const std::string& each : description.details) text += paragraph(each);
  text += heading("COMMANDS");
  for (const Command& command : tool.commands) {
    text += entry(command.description.name, as_sentence(command.description.summary));
  }
  text += entry("help [COMMAND...]", "Print the help of the tool or of a command.");
  text += entry("help --install FOLDER",
                "Write the manual pages and the completions for bash and zsh below FOLDER, such as "
                "~/.local/share.");
  text += heading("OPTIONS");
  for (const OptionSpec& option : common_options()) text += entry(option);
  text += entry("--version", "Print the version and the formats that are read and written.");
  std::map<int, std::string> codes;
  for (const ExitCode& each : description.exit_codes) codes[each.code] = each.meaning;
  text += exit_status(codes);
  text += list_part("ENVIRONMENT", description.environment);
  text += examples_part(description.examples);
  std::vector<std::string> pages = command_pages(tool);
  pages.insert(pages.end(), description.see_also.begin(), description.see_also.end());
  return text + see_also(description.name, std::move(pages));
}

std::string manual_page(const Tool& tool, const Command& command, const std::string& name) {
  const CommandDescription& description = command.description;
  const std::string page = page_name(name);
  std::string text =
      title(tool, page, description.summary) + synopsis(description.usage) + heading("DESCRIPTION");
  if (!description.about.empty()) text += paragraph(description.about);
  for (const std::string& each : description.details) text += paragraph(each);
  text += list_part(in_capitals(description.terms_title), description.terms);
  text += options_part(description.options);
  std::map<int, std::string> codes = general_codes(tool);
  for (const ExitCode& each : description.exit_codes) codes[each.code] = each.meaning;
  text += exit_status(codes);
  text += list_part("FILES", description.files);
  text += examples_part(description.examples);
  std::vector<std::string> pages = command_pages(tool);
  pages.insert(pages.begin(), tool.description.name);
  return text + see_also(page, std::move(pages));
}

std::vector<ManualFile> manual_files(const Tool& tool) {
  const std::string& tool_name = tool.description.name;
  std::vector<ManualFile> files;
  const auto add = [&files](const std::string& page, std::string text) {
    files.push_back({.folder = "man/man1", .name = page + ".1", .text = std::move(text)});
  };
  add(tool_name, manual_page(tool));
  for (const Command& command : tool.commands) {
    const std::string name = tool_name + ' ' + command.description.name;
    add(page_name(name), manual_page(tool, command, name));
    for (const Command& part : command.parts) {
      const std::string part_name = name + ' ' + part.description.name;
      add(page_name(part_name), manual_page(tool, part, part_name));
    }
  }
  files.push_back(
      {.folder = "bash-completion/completions", .name = tool_name, .text = bash_completion(tool)});
  files.push_back(
      {.folder = "zsh/site-functions", .name = "_" + tool_name, .text = zsh_completion(tool)});
  return files;
}

}  // namespace dapple::command_line
