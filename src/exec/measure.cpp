#include "dapple/exec/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/nn/model.h"
#include "dapple/nn/optimizer.h"
#include "pinned_thread.h"

namespace dapple {
namespace {

constexpr std::int64_t kWarmUps = 2;
constexpr std::uint64_t kSeed = 1;

template <class Work>
Duration time_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return {std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count()};
}

/// The time below which that share of them lies; of two in question the lower. Requires: there is
/// one.
Duration quantile(std::vector<Duration> times, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + at, times.end());
  return times[static_cast<std::size_t>(at)];
}

Duration median(std::vector<Duration> times) {
  return quantile(std::move(times), 0.5);
}

/// Range of the middle half over the median.
double spread_of(const std::vector<Duration>& times) {
  const auto middle = static_cast<double>(std::max<std::int64_t>(1, median(times).ns));
  return static_cast<double>((quantile(times, 0.75) - quantile(times, 0.25)).ns) / middle;
}

std::vector<std::vector<float>> room_for(const nn::Module& module) {
  std::vector<std::vector<float>> room;
  for (const nn::ParameterSpec& parameter : module.parameters()) {
    room.emplace_back(static_cast<std::size_t>(nn::count_of(parameter.shape)));
  }
  return room;
}

nn::Shape of_samples(std::int64_t samples, nn::Shape shape) {
  shape.insert(shape.begin(), samples);
  return shape;
}

/// What a layer may be given: numbers of tokens below `below`, or normal numbers where it is zero.
nn::Tensor random_tensor(nn::Shape shape, std::int64_t below) {
  nn::Tensor tensor = nn::zeros(std::move(shape));
  const RandomStream stream(kSeed);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] =
        below > 0 ? static_cast<float>(stream.below(below, i)) : stream.normal_pair(i).first;
  }
  return tensor;
}

/// A layer with parameters of its own, timed pass by pass.
class TimedLayer {
 public:
  TimedLayer(const nn::ModelLayer& layer, const Operation& operation)
      : layer_(layer),
        operation_(operation),
        parameters_(room_for(*layer.module)),
        gradients_(room_for(*layer.module)),
        parameter_views_(parameters_.begin(), parameters_.end()),
        gradient_views_(gradients_.begin(), gradients_.end()) {
    const auto& specs = layer.module->parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      nn::initialize(specs[i], layer.name + "." + specs[i].name, kSeed, parameters_[i]);
    }
  }

  void prepare(std::int64_t samples) {
    const auto* embedding = std::get_if<EmbeddingOperation>(&operation_);
    const auto* loss = std::get_if<SoftmaxCrossEntropyOperation>(&operation_);
    input_ = random_tensor(of_samples(samples, layer_.input),
                           embedding != nullptr ? embedding->vocabulary : 0);
    if (loss != nullptr) {
      nn::Shape positions = of_samples(samples, layer_.input);
      positions.pop_back();
      targets_ = random_tensor(std::move(positions), loss->classes);
    }
    forget();
    sizes_ = {};
    sizes_.batch_size = samples;
  }

  void forward() {
    nn::Tensor input = input_;
    forwards_.push_back(time_of([&] {
      output_ = layer_.module->forward(parameter_views_, std::move(input), targets_, stash_);
    }));
    sizes_.output = {static_cast<std::int64_t>(output_.values.size() * sizeof(float))};
    sizes_.stash = nn::size_of(stash_);
  }

  /// The output stands for its gradient: what the numbers are takes no time.
  void backward() {
    nn::Tensor gradient;
    input_gradients_.push_back(time_of([&] {
      gradient = layer_.module->input_gradient(parameter_views_, std::move(output_), stash_);
    }));
    weight_gradients_.push_back(
        time_of([&] { layer_.module->weight_gradient(stash_, gradient_views_); }));
    stash_ = {};
  }

  /// Passes that were made so far do not count.
  void forget() {
    forwards_.clear();
    input_gradients_.clear();
    weight_gradients_.clear();
  }

  Measurement medians() const {
    Measurement measurement = sizes_;
    measurement.forward = median(forwards_);
    measurement.input_gradient = median(input_gradients_);
    measurement.weight_gradient = median(weight_gradients_);
    measurement.backward = *measurement.input_gradient + *measurement.weight_gradient;
    return measurement;
  }

  double spread() const {
    std::vector<Duration> passes;
    for (std::size_t i = 0; i < forwards_.size(); ++i) {
      passes.push_back(forwards_[i] + input_gradients_[i] + weight_gradients_[i]);
    }
    return spread_of(passes);
  }

 private:
  const nn::ModelLayer& layer_;
  const Operation& operation_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::span<const float>> parameter_views_;
  std::vector<std::span<float>> gradient_views_;
  nn::Tensor input_;
  nn::Tensor targets_;
  nn::Tensor output_;
  nn::Stash stash_;
  Measurement sizes_;
  std::vector<Duration> forwards_;
  std::vector<Duration> input_gradients_;
  std::vector<Duration> weight_gradients_;
};

/// The distinct layers of a model, and which of them each layer is like.
struct Kinds {
  std::vector<std::size_t> first;     // layer of each kind
  std::vector<std::size_t> of_layer;  // its kind
};

Kinds kinds_of(const ModelProfile& profile, const std::vector<nn::ModelLayer>& model) {
  Kinds kinds;
  std::map<std::pair<std::string, nn::Shape>, std::size_t> known;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto [at, is_new] =
        known.try_emplace({profile.layers[i].operation, model[i].input}, kinds.first.size());
    if (is_new) kinds.first.push_back(i);
    kinds.of_layer.push_back(at->second);
  }
  return kinds;
}

void run_passes(std::vector<TimedLayer>& layers, std::int64_t count) {
  for (std::int64_t pass = 0; pass < count; ++pass) {
    for (TimedLayer& layer : layers) layer.forward();
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) layer->backward();
  }
}

std::vector<MeasuredLayer> measure_layers(const Specification& specification,
                                          const std::vector<nn::ModelLayer>& model,
                                          const Kinds& kinds, const MeasureOptions& options) {
  std::vector<TimedLayer> timed;
  timed.reserve(kinds.first.size());
  std::vector<MeasuredLayer> measured;
  for (std::size_t kind = 0; kind < kinds.first.size(); ++kind) {
    const std::size_t layer = kinds.first[kind];
    timed.emplace_back(model[layer], specification.operations[layer]);
    MeasuredLayer& like = measured.emplace_back();
    like.name = model[layer].name;
    like.copies = std::count(kinds.of_layer.begin(), kinds.of_layer.end(), kind);
  }
  for (const std::int64_t samples : options.batch_sizes) {
    for (TimedLayer& layer : timed) layer.prepare(samples);
    run_passes(timed, kWarmUps);
    for (TimedLayer& layer : timed) layer.forget();
    run_passes(timed, options.repeats);
    for (std::size_t kind = 0; kind < timed.size(); ++kind) {
      measured[kind].measurements.push_back(timed[kind].medians());
      measured[kind].spreads.push_back(timed[kind].spread());
    }
  }
  return measured;
}

/// Time per byte of parameters, rounded up to a billionth of a nanosecond.
Factor measure_step(nn::OptimizerKind kind, std::int64_t parameter_count, std::int64_t repeats) {
  constexpr std::int64_t kMost = 4'000'000;
  const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(parameter_count, 1, kMost));
  const nn::OptimizerSettings settings{.kind = kind};
  std::vector<float> parameters(count, 1.0F);
  const std::vector<float> gradients(count, 0.5F);
  std::vector<float> state(count * static_cast<std::size_t>(nn::state_count(kind)));
  std::vector<Duration> times;
  for (std::int64_t pass = 1; pass <= kWarmUps + repeats; ++pass) {
    const Duration time =
        time_of([&] { nn::update(settings, pass, parameters, gradients, state); });
    if (pass > kWarmUps) times.push_back(time);
  }
  return {
      divide_up(Wide{median(std::move(times)).ns} * kOne.billionths, Wide{sizeof(float)} * count)};
}

nn::OptimizerKind optimizer_of(const Optimizer& optimizer, const std::string& source_name) {
  const auto refusal = [&source_name](const char* place, std::string message) {
    return Error{ErrorKind::BadInput, source_name, {{place, std::move(message)}}};
  };
  const auto kind = nn::optimizer_of(optimizer.name);
  if (!kind) {
    throw refusal("/optimizer/name",
                  fmt::format("expected sgd, momentum, adam or adamw, got \"{}\"", optimizer.name));
  }
  const Factor state{nn::state_count(*kind) * kOne.billionths};
  if (optimizer.state_bytes_per_parameter_byte != state) {
    throw refusal("/optimizer/state_bytes_per_parameter_byte",
                  fmt::format("expected {}, what {} keeps, got another number",
                              nn::state_count(*kind), optimizer.name));
  }
  return *kind;
}

/// A profile that is measured anew has said already what it was made from.
void add_provenance(const MeasureOptions& options, bool is_pinned, bool is_first,
                    ModelProfile& profile) {
  if (is_first) {
    profile.notes.insert(profile.notes.begin(), profile.source);
    profile.notes.emplace_back(
        "Layers with the same op and input were measured once. Sizes are those of the tensors; "
        "workspace was not measured.");
  }
  profile.source = fmt::format(
      "measured by dapple-exec profile: medians of {} passes over all layers after {} to warm up, "
      "single precision, one thread{}",
      options.repeats, kWarmUps, is_pinned ? " bound to one core" : ", not bound to a core");
}

}  // namespace

MeasuredModel measure_model(const Specification& specification, const std::string& source_name,
                            const MeasureOptions& options) {
  check(!options.batch_sizes.empty() && options.repeats >= 1, "a measurement of nothing");
  const nn::OptimizerKind optimizer = optimizer_of(specification.profile.optimizer, source_name);
  const std::vector<nn::ModelLayer> model =
      nn::make_model(specification.profile, specification.operations, source_name);
  const Kinds kinds = kinds_of(specification.profile, model);
  const PinnedThread pinned;
  MeasuredModel measured{.profile = specification.profile,
                         .layers = measure_layers(specification, model, kinds, options),
                         .is_pinned = pinned.is_pinned()};
  ModelProfile& profile = measured.profile;
  std::int64_t parameters = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    profile.layers[i].measurements = measured.layers[kinds.of_layer[i]].measurements;
    profile.layers[i].fixed_overhead = {};
    parameters += nn::parameter_count(model[i].own_parameters());
  }
  profile.device = options.device;
  profile.batch_scaling.reset();
  if (options.batch_sizes.size() == 1) profile.batch_scaling = BatchScaling::Proportional;
  profile.optimizer.step_ns_per_parameter_byte =
      measure_step(optimizer, parameters, options.repeats);
  const bool is_first = specification.profile.layers.front().measurements.empty();
  add_provenance(options, measured.is_pinned, is_first, profile);
  return measured;
}

}  // namespace dapple
