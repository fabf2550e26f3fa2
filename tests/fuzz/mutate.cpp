// Feeds seeded mutations of real files to the entries, with any compiler.
//
//   mutate READER COUNT [FILE...]        COUNT mutations of the files and the built-in example
//   mutate --one READER FILE             one input as it is, to look at what was found
//   mutate --seeds READER                the built-in example, on stdout
//
// Mutation number i depends on i and on the files alone. One that breaks a promise is written to
// mutate-READER-i in the current folder, and the exit code is 1. DAPPLE_TEST_SCALE multiplies
// COUNT.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "dapple/core/random.h"
#include "entries.h"

namespace {

using dapple::RandomSequence;
using dapple::fuzz::Entry;

template <class Element>
const Element& one_of(const std::vector<Element>& elements, RandomSequence& random) {
  return elements[random.below(elements.size())];
}

/// Half open range of a text.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// What breaks readers: edges of ranges, wrong types, half tokens, bytes that are no UTF-8.
const std::vector<std::string>& hostile_tokens() {
  static const std::vector<std::string> tokens = {"0",
                                                  "-1",
                                                  "1",
                                                  "-0",
                                                  "2",
                                                  "1e15",
                                                  "1000000000000000",
                                                  "1000000000000001",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "18446744073709551616",
                                                  "2147483647",
                                                  "2147483648",
                                                  "-9223372036854775808",
                                                  "1e308",
                                                  "1e999",
                                                  "-1e-999",
                                                  "0.5",
                                                  "0.0000000001",
                                                  "1.",
                                                  "01",
                                                  "+1",
                                                  "NaN",
                                                  "Infinity",
                                                  "null",
                                                  "true",
                                                  "[]",
                                                  "{}",
                                                  "[",
                                                  "]",
                                                  "{",
                                                  "}",
                                                  ",",
                                                  ":",
                                                  "\"",
                                                  "\"\"",
                                                  "\\",
                                                  "\"\\ud800\"",
                                                  "\"\\u0000\"",
                                                  std::string(1, '\0'),
                                                  "\xff",
                                                  "\xc3",
                                                  "\xed\xa0\x80",
                                                  "\xef\xbb\xbf",
                                                  "\"1 GB/s\"",
                                                  "\"0 B/s\"",
                                                  "\"1 us\"",
                                                  "\"1e3 GB\"",
                                                  "\"0.1 B\"",
                                                  "\"9999999999 TB\"",
                                                  "\"1  GiB\"",
                                                  "\"layer.0\"",
                                                  "\"repeat\"",
                                                  "\"inputs\"",
                                                  "100000000000000000000000000000000000000000",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  " -- ",
                                                  "node1",
                                                  "; ",
                                                  "=",
                                                  "#",
                                                  "//"};
  return tokens;
}

/// Words, numbers and quoted strings, and every other character that is not a blank by itself.
std::vector<Piece> tokens_of(const std::string& text) {
  const auto wordlike = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  };
  std::vector<Piece> tokens;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text[at] == '"') {
      while (end < text.size() && text[end] != '"') ++end;
      end = std::min(end + 1, text.size());
    } else if (wordlike(text[at])) {
      while (end < text.size() && wordlike(text[end])) ++end;
    }
    if (text[at] != ' ' && text[at] != '\n') tokens.push_back({at, end});
    at = end;
  }
  return tokens;
}

/// A stretch of whole lines, or of bytes, with lengths of all magnitudes equally likely.
Piece stretch_of(const std::string& text, RandomSequence& random) {
  const std::size_t longest = std::size_t{1} << random.below(10);
  Piece piece;
  piece.begin = random.below(text.size() + 1);
  piece.end = std::min(text.size(), piece.begin + 1 + random.below(longest));
  if (random.below(2) == 0) {
    const std::size_t line = text.rfind('\n', piece.begin);
    piece.begin = line == std::string::npos ? 0 : std::min(line + 1, text.size());
    const std::size_t line_end = text.find('\n', std::max(piece.begin, piece.end));
    piece.end = line_end == std::string::npos ? text.size() : line_end + 1;
  }
  return piece;
}

/// Another digit or letter in place of one: most often still of the right type.
void mutate_character(std::string& text, RandomSequence& random) {
  const std::size_t start = random.below(text.size() + 1);
  for (std::size_t at = start; at < text.size(); ++at) {
    const auto character = static_cast<unsigned char>(text[at]);
    if (std::isdigit(character) != 0) {
      text[at] = static_cast<char>('0' + random.below(10));
      return;
    }
    if (std::islower(character) != 0 && random.below(8) == 0) {
      text[at] = static_cast<char>('a' + random.below(26));
      return;
    }
  }
}

void mutate_token(std::string& text, RandomSequence& random) {
  const std::vector<Piece> tokens = tokens_of(text);
  if (tokens.empty()) return;
  const Piece at = one_of(tokens, random);
  const Piece other = one_of(tokens, random);
  const std::string taken = text.substr(other.begin, other.size());
  switch (random.below(4)) {
    case 0:
      text.replace(at.begin, at.size(), one_of(hostile_tokens(), random));
      break;
    case 1:
      text.replace(at.begin, at.size(), taken);
      break;
    case 2:
      text.insert(at.begin, taken);
      break;
    default:
      text.erase(at.begin, at.size());
      break;
  }
}

void mutate_bytes(std::string& text, const std::string& donor, RandomSequence& random) {
  const Piece piece = stretch_of(text, random);
  switch (random.below(6)) {
    case 0:
      text.erase(piece.begin, piece.size());
      break;
    case 1:
      text.insert(piece.begin, text.substr(piece.begin, piece.size()));
      break;
    case 2:
      text.resize(piece.begin);
      break;
    case 3: {
      const Piece given = stretch_of(donor, random);
      text.replace(piece.begin, piece.size(), donor, given.begin, given.size());
      break;
    }
    case 4:
      text.insert(piece.begin, one_of(hostile_tokens(), random));
      break;
    default:
      if (piece.begin < text.size()) { text[piece.begin] = static_cast<char>(random.below(256)); }
      break;
  }
}

/// One mutation most of the time, so that much of the text is still read; at most five.
std::string mutation(const std::vector<std::string>& seeds, std::uint64_t number) {
  RandomSequence random(number);
  std::string text = one_of(seeds, random);
  const std::string& donor = one_of(seeds, random);
  std::size_t left = 1;
  while (left < 5 && random.below(3) == 0) ++left;
  for (; left > 0; --left) {
    switch (random.below(4)) {
      case 0:
        mutate_character(text, random);
        break;
      case 1:
        mutate_bytes(text, donor, random);
        break;
      default:
        mutate_token(text, random);
        break;
    }
  }
  return text;
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path);
  return text.str();
}

struct Outcome {
  bool accepted = false;
  std::string complaint;  // which promise broke, or empty
};

Outcome outcome_of(const Entry& entry, const std::string& text) {
  try {
    return {entry.exercise(text), {}};
  } catch (const std::exception& exception) { return {false, exception.what()}; }
}

int run_mutations(const Entry& entry, std::uint64_t count, const std::vector<std::string>& seeds) {
  for (const std::string& seed : seeds) {
    const Outcome outcome = outcome_of(entry, seed);
    if (outcome.accepted) continue;
    std::cerr << entry.name << ": an unchanged file is refused: " << outcome.complaint << '\n'
              << seed << '\n';
    return 1;
  }
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < count; ++number) {
    const std::string text = mutation(seeds, number);
    const Outcome outcome = outcome_of(entry, text);
    if (outcome.accepted) ++accepted;
    if (outcome.complaint.empty()) continue;
    const std::string kept = std::string("mutate-") + entry.name + "-" + std::to_string(number);
    std::ofstream(kept, std::ios::binary) << text;
    std::cerr << entry.name << ": mutation " << number << ", in " << kept << ": "
              << outcome.complaint << '\n';
    return 1;
  }
  std::cout << entry.name << ": " << count << " mutations of " << seeds.size() << " files, "
            << accepted << " of them read\n";
  // Where next to nothing is read, only the first few checks of a reader are tried.
  return accepted * 100 < count ? 1 : 0;
}

const Entry& entry_named(const std::string& name) {
  for (const Entry& entry : dapple::fuzz::kEntries) {
    if (entry.name == name) return entry;
  }
  throw std::invalid_argument("no reader is called " + name);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "--seeds") {
    std::cout << dapple::fuzz::example_for(entry_named(arguments[1]).name);
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "--one") {
    const bool accepted = entry_named(arguments[1]).exercise(contents_of(arguments[2]));
    std::cout << (accepted ? "read\n" : "refused\n");
    return 0;
  }
  if (arguments.size() < 2) throw std::invalid_argument("mutate READER COUNT [FILE...]");
  const Entry& entry = entry_named(arguments[0]);
  const char* scale = std::getenv("DAPPLE_TEST_SCALE");
  const auto count = static_cast<std::uint64_t>(std::stod(arguments[1]) *
                                                (scale == nullptr ? 1 : std::stod(scale)));
  std::vector<std::string> seeds = {dapple::fuzz::example_for(entry.name)};
  for (std::size_t at = 2; at < arguments.size(); ++at) {
    std::string text = contents_of(arguments[at]);
    if (entry.knows == nullptr || entry.knows(text)) seeds.push_back(std::move(text));
  }
  return run_mutations(entry, count, seeds);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& exception) {
    std::cerr << "mutate: " << exception.what() << '\n';
    return 1;
  }
}
