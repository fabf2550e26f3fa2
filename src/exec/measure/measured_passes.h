// The passes that are measured for a model's layers, and their times.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/exec/measure/measure.h"
#include "dapple/nn/model.h"
#include "dapple/nn/optimizer.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::exec {

/// The number of warm-up passes, which do not count.
inline constexpr std::int64_t kWarmUps = 2;
/// The seed of inputs and parameters.
inline constexpr std::uint64_t kMeasuredSeed = 1;

/// Returns the median, of an even number of times the lower one. Requires: `times` is not empty.
Duration median(std::vector<Duration> times);

/// The times of the parts of a pass.
struct PassTimes {
  Duration forward;
  Duration input_gradient;
  Duration weight_gradient;

  PassTimes& operator+=(const PassTimes& other) {
    forward += other.forward;
    input_gradient += other.input_gradient;
    weight_gradient += other.weight_gradient;
    return *this;
  }
};

/// The times of the passes over one layer or several at one batch size.
struct Passes {
  Measurement sizes;
  std::vector<Duration> forwards;
  std::vector<Duration> input_gradients;
  std::vector<Duration> weight_gradients;

  /// Appends the other passes to its own.
  void append(const Passes& others);
  /// Adds the other times to its own, pass by pass. Requires: as many passes, or none so far.
  void add(const Passes& others);

  PassTimes medians() const;
  /// Returns the times of whole passes.
  std::vector<Duration> wholes() const;
  /// The interquartile range of the times of whole passes, divided by their median.
  double spread() const;
};

/// Returns the layer's share of the median of whole passes, in proportion to the layers' medians.
/// Their sum `all_medians` is less than the median of whole passes `whole`, because delays that are
/// rare in each layer, such as interrupts, are common in the sum over all layers.
Measurement measurement_of(const Passes& layer, const PassTimes& all_medians,
                           const PassTimes& whole);

/// The layers of a model by kind: those of a kind have the same operation and input shape.
struct Kinds {
  /// The first layer of each kind.
  std::vector<std::size_t> first;
  /// The kind of each layer.
  std::vector<std::size_t> of_layer;
  /// The layers that are timed, in ascending order: the first few of each kind.
  std::vector<std::size_t> timed;
};

/// The subject of a measurement: the distinct layers of a model, and the optimizer's step.
struct MeasurementSubject {
  const io::Specification& specification;
  const std::vector<nn::ModelLayer>& model;
  Kinds kinds;
  nn::OptimizerKind optimizer;
  /// How the layers are run.
  nn::LayerRank rank = {};

  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (const nn::ModelLayer& layer : model) count += nn::parameter_count(layer.own_parameters());
    return count;
  }
};

/// The passes on one core or GPU, each over all batch sizes, and the optimizer's steps between
/// them.
struct CorePasses {
  /// The passes of each kind of layers, by batch size.
  std::vector<std::vector<Passes>> by_kind;
  /// The sums over all timed layers, by batch size.
  std::vector<Passes> whole;
  std::vector<Duration> steps;
  /// The number of counted passes of each batch size.
  std::int64_t counted = 0;
  /// The number of passes before those.
  std::int64_t warm_ups = 0;
  /// Whether should_stop() ended the passes.
  bool was_stopped = false;
  /// The largest drift_of() any batch size.
  double drift = 0;
  /// The bytes of the parameters that a step updates.
  std::int64_t stepped = 0;
  /// Whether the thread was pinned to a core.
  bool is_pinned = false;
  /// The GPU's name; empty for a core.
  std::string gpu;
};

/// The cores that make passes at the same time, and end together.
class Agreement {
 public:
  explicit Agreement(std::size_t cores)
      : barrier_(static_cast<std::ptrdiff_t>(cores)), is_stable_(cores, 0) {}

  /// Waits for all cores that have not left, and returns whether the medians of all are stable.
  bool agree(std::size_t core, bool is_stable) {
    is_stable_[core] = is_stable ? 1 : 0;
    barrier_.arrive_and_wait();
    const bool is_agreed =
        std::all_of(is_stable_.begin(), is_stable_.end(), [](char other) { return other != 0; });
    barrier_.arrive_and_wait();  // All have read it.
    return is_agreed;
  }
  /// Waits no more for this core. Its medians no longer count.
  void leave(std::size_t core) {
    is_stable_[core] = 1;
    barrier_.arrive_and_drop();
  }

 private:
  std::barrier<> barrier_;
  // By core; one byte each, as cores write at the same time.
  std::vector<char> is_stable_;
};

/// One of the cores of an agreement, which leaves it at the end.
class AgreeingCore {
 public:
  AgreeingCore(Agreement& agreement, std::size_t core) : agreement_(agreement), core_(core) {}
  ~AgreeingCore() { agreement_.leave(core_); }
  AgreeingCore(const AgreeingCore&) = delete;
  AgreeingCore& operator=(const AgreeingCore&) = delete;

  bool agree(bool is_stable) { return agreement_.agree(core_, is_stable); }

 private:
  Agreement& agreement_;
  const std::size_t core_;
};

/// Makes the passes on a GPU of this machine, timed by its own clock. Throws Error(Environment) if
/// there is none.
CorePasses passes_on_gpu(const MeasurementSubject& subject, const MeasureOptions& options);

}  // namespace dapple::exec
