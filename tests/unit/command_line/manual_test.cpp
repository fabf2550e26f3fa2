#include "dapple/command_line/manual.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <sstream>
#include <string>

namespace dapple::command_line {
namespace {

using Catch::Matchers::Contains;

Tool example_tool() {
  Command paint{
      .description = {.name = "paint",
                      .summary = "paint a wall",
                      .usage = {"tool paint WALL [options]"},
                      .about = ".paint begins with a dot, and C:\\walls has a backslash.",
                      .takes_files = true,
                      .options = {{"Colours",
                                   {{.name = "colour",
                                     .letter = 'c',
                                     .value = "NAME",
                                     .choices = {"red", "green", "blue"},
                                     .text = "Paint the wall {}.",
                                     .default_value = "red",
                                     .details = "It's [bright]: \"red\" most of all."},
                                    {.name = "layers-of-the-very-same-paint",
                                     .value = "N",
                                     .repeats = true,
                                     .text = "Paint N layers, each of them when the one below it "
                                             "has dried for a day."}}}},
                      .examples = {"tool paint a.wall \\", "    -c blue"}}};
  return {.description = {.name = "tool",
                          .summary = "do things",
                          .usage = {"tool COMMAND"},
                          .about = "The tool does things.",
                          .examples = {"tool paint a.wall"},
                          .exit_codes = {{kDone, "done"}, {kInfeasible, "no paint"}}},
          .version = "tool 1.0\nreads walls\n",
          .commands = {std::move(paint)}};
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST_CASE("the sentence of an option has its choices, its default, and whether it repeats") {
  CHECK(sentence_of({.name = "a", .text = "Do it."}) == "Do it.");
  CHECK(sentence_of({.name = "a",
                     .value = "X",
                     .choices = {"b", "c", "d"},
                     .repeats = true,
                     .text = "Take {} first.",
                     .default_value = "b"}) == "Take b, c or d first (default: b) (repeatable).");
  CHECK(list_of({}).empty());
  CHECK(list_of({"a"}) == "a");
  CHECK(list_of({"a", "b"}) == "a or b");
}

TEST_CASE("a help text aligns its sentences and stays within 80 columns") {
  const Tool tool = example_tool();
  const std::string text = help_of(tool.commands.front(), "tool paint");
  CHECK(widest_line(text) <= 80);
  CHECK_THAT(text, Contains("tool paint: paint a wall.\n\nUsage: tool paint WALL [options]\n"));
  // The label of the second option is wider than the column, which is that of the first.
  CHECK_THAT(text,
             Contains("Colours\n"
                      "  -c, --colour NAME  Paint the wall red, green or blue (default: red).\n"
                      "  --layers-of-the-very-same-paint N  Paint N layers, each of them when "
                      "the one\n"
                      "                     below it has dried for a day (repeatable).\n"));
  CHECK_THAT(text, Contains("Example\n  tool paint a.wall \\\n      -c blue\n"));
  CHECK_THAT(text, !Contains("bright"));
}

TEST_CASE("the help of a tool lists its commands and exit codes") {
  const std::string text = help_of(example_tool());
  CHECK(widest_line(text) <= 80);
  CHECK_THAT(text, Contains("Commands\n  paint  paint a wall\n  help   "));
  CHECK_THAT(text, Contains("Exit code: 0 done, 4 no paint.\n"));
}

TEST_CASE("a manual page shows every character as it is") {
  const Tool tool = example_tool();
  const std::string page = manual_page(tool, tool.commands.front(), "tool paint");
  CHECK_THAT(page,
             Contains(".TH \"TOOL\\-PAINT\" 1 \"\" \"tool 1.0\" \"User Commands\"\n.nh\n.ad l\n"
                      ".SH \"NAME\"\ntool\\-paint \\- paint a wall\n"));
  CHECK_THAT(page, Contains("\n\\&.paint begins with a dot, and C:\\ewalls has a backslash.\n"));
  CHECK_THAT(page,
             Contains(".SS \"Colours\"\n.TP\n\\fB\\-c\\fR, \\fB\\-\\-colour\\fR \\fINAME\\fR\n"
                      "Paint the wall red, green or blue (default: red). It\\(aqs [bright]: "
                      "\"red\" most of all.\n"));
  CHECK_THAT(page, Contains(".nf\ntool paint a.wall \\e\n    \\-c blue\n.fi\n"));
  // Only a command that says so ends with the code for plans that do not fit.
  CHECK_THAT(page, !Contains("No paint"));
  CHECK_THAT(manual_page(tool), Contains("No paint."));
}

TEST_CASE("completions quote what shells would interpret") {
  Tool tool = example_tool();
  tool.commands.front().description.options.front().options.front().text = "It's a [wall]: {}.";
  CHECK_THAT(
      zsh_completion(tool),
      Contains("'(-c --colour)--colour=[It'\\''s a \\[wall\\]\\: red, green or blue (default\\: "
               "red).]:NAME:(red green blue)'"));
  CHECK_THAT(bash_completion(tool),
             Contains("'paint --colour' | 'paint -c') words='red green blue' ;;"));
}

TEST_CASE("every command has a manual page, and every shell a completion") {
  std::string names;
  for (const ManualFile& file : manual_files(example_tool())) {
    names += file.folder + '/' + file.name + ' ';
  }
  CHECK(names ==
        "man/man1/tool.1 man/man1/tool-paint.1 bash-completion/completions/tool "
        "zsh/site-functions/_tool ");
}

}  // namespace
}  // namespace dapple::command_line
