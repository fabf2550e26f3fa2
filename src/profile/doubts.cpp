#include "dapple/profile/doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "dapple/profile/collective.h"

namespace dapple {
namespace {

/// Differences of up to one part in kShare are considered measurement noise.
constexpr std::int64_t kShare = 20;

/// The description of the first layer found to have a fault, and the number of layers that have it.
struct Found {
  std::string first;
  std::int64_t count = 0;

  void add(std::string words) {
    if (count++ == 0) first = std::move(words);
  }
  std::string others() const {
    if (count <= 1) return "";
    return fmt::format(", and {} other layer{} likewise", count - 1, count == 2 ? "" : "s");
  }
};

double seconds(Duration time) {
  return static_cast<double>(time.ns) / kNanosecondsPerSecond;
}

void find_slow_layers(const ModelProfile& profile, std::vector<std::string>& doubts) {
  Found found;
  for (const Layer& layer : profile.layers) {
    const Measurement& largest = layer.measurements.back();
    const Duration both = largest.forward + largest.backward;
    if (Wide{both.ns} <= Wide{kNanosecondsPerSecond} * largest.batch_size) continue;
    found.add(fmt::format("{} takes {:.4g} s", layer.name,
                          seconds(both) / static_cast<double>(largest.batch_size)));
  }
  if (found.count == 0) return;
  doubts.push_back(fmt::format(
      "layers above a second a sample: {} for a sample, forward and backward{}; is the unit of "
      "times right? (--time-unit of import model says another)",
      found.first, found.others()));
}

/// Whether `after` is below `before` by more than one part in kShare.
bool has_fallen(Duration before, Duration after) {
  return Wide{after.ns} * kShare < Wide{before.ns} * (kShare - 1);
}

void find_falling_times(const ModelProfile& profile, std::vector<std::string>& doubts) {
  Found found;
  for (const Layer& layer : profile.layers) {
    for (std::size_t i = 1; i < layer.measurements.size(); ++i) {
      const Measurement& less = layer.measurements[i - 1];
      const Measurement& more = layer.measurements[i];
      const bool is_forward = has_fallen(less.forward, more.forward);
      if (!is_forward && !has_fallen(less.backward, more.backward)) continue;
      const Duration before = is_forward ? less.forward : less.backward;
      const Duration after = is_forward ? more.forward : more.backward;
      found.add(fmt::format("{} {} takes {} ns for {} sample{} and {} ns for {}", layer.name,
                            is_forward ? "forward" : "backward", before.ns, less.batch_size,
                            less.batch_size == 1 ? "" : "s", after.ns, more.batch_size));
      break;
    }
  }
  if (found.count == 0) return;
  doubts.push_back(
      fmt::format("times that fall as the batch grows: {}{}; plans lean on what was measured amiss",
                  found.first, found.others()));
}

/// Whether the size `own` for `samples` samples differs by more than one part in kShare, and by
/// more than a byte, from the proportional share of the size `largest` for `batch` samples.
bool is_out_of_proportion(Bytes own, std::int64_t samples, Bytes largest, std::int64_t batch) {
  const Wide exact = Wide{own.count} * batch;
  const Wide proportional = Wide{largest.count} * samples;
  const Wide difference = exact > proportional ? exact - proportional : proportional - exact;
  // Sizes are rounded to whole bytes, so a difference of one byte is ignored.
  return difference * kShare > proportional && difference > Wide{batch};
}

struct Size {
  const char* name;
  Bytes Measurement::*figure;
};
constexpr Size kSizes[] = {{"output", &Measurement::output},
                           {"stash", &Measurement::stash},
                           {"workspace", &Measurement::workspace}};

/// Returns a description such as "the stash of a is 5 bytes for 1 sample and 8 for 4"; empty if all
/// sizes are in proportion.
std::string disproportion_of(const Layer& layer) {
  const Measurement& largest = layer.measurements.back();
  for (const Size& size : kSizes) {
    for (const Measurement& own : layer.measurements) {
      if (!is_out_of_proportion(own.*size.figure, own.batch_size, largest.*size.figure,
                                largest.batch_size)) {
        continue;
      }
      return fmt::format("the {} of {} is {} bytes for {} sample{} and {} for {}", size.name,
                         layer.name, (own.*size.figure).count, own.batch_size,
                         own.batch_size == 1 ? "" : "s", (largest.*size.figure).count,
                         largest.batch_size);
    }
  }
  return "";
}

void find_disproportion(const ModelProfile& profile, std::vector<std::string>& doubts) {
  Found found;
  for (const Layer& layer : profile.layers) {
    std::string words = disproportion_of(layer);
    if (!words.empty()) found.add(std::move(words));
  }
  if (found.count == 0) return;
  doubts.push_back(fmt::format(
      "sizes that do not grow in proportion to the batch: {}{}; those of the largest batch that "
      "was measured are used for all, in proportion",
      found.first, found.others()));
}

/// Returns the first key of the core's times that send-receives of these figures pass beside and
/// that no measurement states; empty if there is none.
template <class Figures>
std::string_view missing_core(const Figures& figures) {
  for (const auto* list : {&figures.forward_collectives, &figures.backward_collectives}) {
    for (const Collective& some : *list) {
      if (some.beside == Beside::Nothing) continue;
      const bool is_stated = std::any_of(
          figures.measurements.begin(), figures.measurements.end(),
          [&](const Measurement& own) { return own.core.of(some.beside) > Duration{}; });
      if (is_stated) continue;
      return some.beside == Beside::ForwardCore ? "forward_core_ns" : "backward_core_ns";
    }
  }
  return "";
}

void find_missing_cores(const ModelProfile& profile, std::vector<std::string>& doubts) {
  Found found;
  for (const Layer& layer : profile.layers) {
    std::string_view key = missing_core(layer);
    for (const LayerVariant& variant : layer.variants) {
      if (key.empty()) key = missing_core(variant);
    }
    if (!key.empty()) found.add(fmt::format("{} states no {}", layer.name, key));
  }
  if (found.count == 0) return;
  doubts.push_back(fmt::format("{}: {}{}; nothing of them is hidden", kMissingCore, found.first,
                               found.others()));
}

}  // namespace

std::vector<std::string> doubts_about(const ModelProfile& profile) {
  std::vector<std::string> doubts = profile.warnings;
  find_slow_layers(profile, doubts);
  find_falling_times(profile, doubts);
  find_disproportion(profile, doubts);
  find_missing_cores(profile, doubts);
  return doubts;
}

}  // namespace dapple
