// Layouts: plans in the words in which people give them, degrees of parallelism and the size of a
// micro-batch, such as "pp=4,dp=2,mbs=1". A table of layouts is a CSV file with these words above
// its columns.
//
// The words are those of Megatron-LM's documentation: pp and dp are numbers of pipeline ranks and
// of replicas, vpp is the number of stages on each rank, mbs is the samples of a micro-batch on
// each replica. Ranks are numbered replica by replica and then stage by stage, as Megatron-LM does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/interop/plans/foreign_plan.h"

namespace dapple::interop {

/// One layout: the values that were given, by the words of kLayoutWords.
struct Layout {
  std::vector<std::pair<std::string, std::string>> words;
  /// What faults name: an option, or a file and a line in it.
  std::string source = {};
  std::string place = {};

  /// Returns the value of a word, or null if the layout does not say it. O(words).
  const std::string* value(std::string_view word) const;
  /// Returns the error with the layout's place in front of its faults; unchanged if there is none.
  Error at_its_place(const Error& error) const;
};

/// The words of a layout, in the order in which help lists them.
inline constexpr std::string_view kLayoutWords[] = {
    "pp", "dp", "mbs", "vpp", "gbs", "layers", "schedule", "recompute",
    "tp", "sp", "cp",  "ep",  "etp", "zero",   "fsdp"};

/// Whether the text is one of kLayoutWords. O(1).
bool is_layout_word(std::string_view word);

/// Splits "pp=4,dp=2,mbs=1", which may be on several lines. Throws Error(BadInput) for an unknown
/// word, a word without a value, a word given twice, and no word. O(length).
Layout read_layout(std::string_view text, const std::string& source);

/// Reads a table of layouts: a row of words, then a row of values per layout; a layout does not say
/// what it has no value for. Lines that are empty or begin with "#", quotes around a value and a
/// byte order mark are skipped. Throws Error(BadInput) with the lines of up to 20 faults, and for
/// more than 100,000 layouts. O(length).
std::vector<Layout> read_layouts(std::string_view text, const std::string& source);

/// Returns the plan of a layout. Stages have equal numbers of transformer blocks or, in a model
/// without blocks, numbers of layers that differ by one at most, the larger first; what stands
/// before and behind the blocks is on the first and the last stage. "layers=3:5" says how many
/// blocks, or layers, each stage has. The schedule is 1F1B at the least depths that keep all stages
/// busy, interleaved where there are several stages on a rank. Without dp, all devices are used.
///
/// Options say what the layout does not, and the micro-batch size of all replicas together.
///
/// Throws Error(Usage) for an option that contradicts the layout, and Error(BadInput) with the
/// faults: a value that is no number, what does not divide, a degree other than that of the
/// ground's profile (tp, cp and ep), and those that validate() finds in the plan, in_words().
/// Memory is not checked. O(layers + stages).
Plan plan_of_layout(const Layout& layout, const PlanGround& ground,
                    const ForeignPlanOptions& options);

}  // namespace dapple::interop
