// How the outputs of layers are divided among the ranks that share them.
#include <algorithm>
#include <variant>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

using Range = OutputPart::Range;

/// Returns consecutive positions as ranges.
std::vector<Range> ranges_of(const std::vector<std::int64_t>& positions) {
  std::vector<Range> ranges;
  for (const std::int64_t position : positions) {
    if (ranges.empty() || ranges.back().end != position) ranges.push_back({position, position});
    ++ranges.back().end;
  }
  return ranges;
}

}  // namespace

OutputPart output_part(const ModelLayer& whole, const LayerRank& rank) {
  const bool is_sequence = whole.output.size() == 2;
  const std::int64_t sequence = is_sequence ? whole.output[0] : 1;
  const std::int64_t columns = is_sequence ? whole.output[1] : count_of(whole.output);
  std::vector<std::int64_t> positions = positions_of(rank.context, sequence);
  OutputPart part{.positions = {}, .columns = {0, columns}, .width = columns};
  if (rank.tensor.ranks > 1 && std::holds_alternative<LinearOperation>(whole.operation)) {
    // By columns, as it is before the loss.
    part.width = divide_up(columns, rank.tensor.ranks);
    part.columns = {std::min(columns, rank.tensor.rank * part.width),
                    std::min(columns, (rank.tensor.rank + 1) * part.width)};
  } else if (rank.tensor.is_sequence_parallel) {
    const Range own = part_of_rank(static_cast<std::int64_t>(positions.size()), rank.tensor);
    positions = {positions.begin() + own.begin, positions.begin() + own.end};
  } else {
    part.copy = rank.tensor.rank;
    part.copies = rank.tensor.ranks;
  }
  part.positions = ranges_of(positions);
  return part;
}

}  // namespace dapple::nn
