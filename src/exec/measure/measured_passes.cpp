#include "exec/measure/measured_passes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dapple::exec {
namespace {

/// Returns the quantile of the times, between two times the lower one. Requires: `times` is not
/// empty.
Duration quantile(std::vector<Duration> times, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + at, times.end());
  return times[static_cast<std::size_t>(at)];
}

void append_to(std::vector<Duration>& times, const std::vector<Duration>& more) {
  times.insert(times.end(), more.begin(), more.end());
}

void add_to(std::vector<Duration>& sums, const std::vector<Duration>& more) {
  sums.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

/// Returns the part of `whole` in the proportion of `own` to `all`.
Duration share_of(Duration whole, Duration own, Duration all) {
  if (all.ns == 0) return own;
  return {divide_up(Wide{whole.ns} * own.ns, Wide{all.ns})};
}

}  // namespace

Duration median(std::vector<Duration> times) {
  return quantile(std::move(times), 0.5);
}

void Passes::append(const Passes& others) {
  const Bytes workspace = std::max(sizes.workspace, others.sizes.workspace);
  sizes = others.sizes;
  sizes.workspace = workspace;
  append_to(forwards, others.forwards);
  append_to(input_gradients, others.input_gradients);
  append_to(weight_gradients, others.weight_gradients);
}

void Passes::add(const Passes& others) {
  add_to(forwards, others.forwards);
  add_to(input_gradients, others.input_gradients);
  add_to(weight_gradients, others.weight_gradients);
}

PassTimes Passes::medians() const {
  return {median(forwards), median(input_gradients), median(weight_gradients)};
}

std::vector<Duration> Passes::wholes() const {
  std::vector<Duration> whole;
  for (std::size_t i = 0; i < forwards.size(); ++i) {
    whole.push_back(forwards[i] + input_gradients[i] + weight_gradients[i]);
  }
  return whole;
}

double Passes::spread() const {
  const std::vector<Duration> whole = wholes();
  const auto middle = static_cast<double>(std::max<std::int64_t>(1, median(whole).ns));
  return static_cast<double>((quantile(whole, 0.75) - quantile(whole, 0.25)).ns) / middle;
}

double drift_of(const std::vector<std::vector<Duration>>& times) {
  constexpr std::size_t kFewest = 4;
  Wide changes = 0;
  Wide all = 0;
  for (const std::vector<Duration>& of_layer : times) {
    if (of_layer.size() < kFewest) return 0;
    const auto middle = of_layer.begin() + static_cast<std::ptrdiff_t>(of_layer.size() / 2);
    const Duration first = median({of_layer.begin(), middle});
    const Duration second = median({middle, of_layer.end()});
    changes += std::max(first, second).ns - std::min(first, second).ns;
    all += median(of_layer).ns;
  }
  return all == 0 ? 0 : static_cast<double>(changes) / static_cast<double>(all);
}

Measurement measurement_of(const Passes& layer, const PassTimes& all_medians,
                           const PassTimes& whole) {
  const PassTimes own = layer.medians();
  Measurement measurement = layer.sizes;
  measurement.forward = share_of(whole.forward, own.forward, all_medians.forward);
  measurement.input_gradient =
      share_of(whole.input_gradient, own.input_gradient, all_medians.input_gradient);
  measurement.weight_gradient =
      share_of(whole.weight_gradient, own.weight_gradient, all_medians.weight_gradient);
  measurement.backward = *measurement.input_gradient + *measurement.weight_gradient;
  return measurement;
}

}  // namespace dapple::exec
