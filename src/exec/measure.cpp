#include "dapple/exec/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/nn/model.h"
#include "dapple/nn/optimizer.h"
#include "passes.h"
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
  TimedLayer(const nn::ModelLayer& layer, const Operation& operation,
             const std::vector<std::int64_t>& batch_sizes)
      : layer_(layer),
        parameters_(room_for(*layer.module)),
        gradients_(room_for(*layer.module)),
        parameter_views_(parameters_.begin(), parameters_.end()),
        gradient_views_(gradients_.begin(), gradients_.end()) {
    const auto& specs = layer.module->parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      nn::initialize(specs[i], layer.name + "." + specs[i].name, kSeed, parameters_[i]);
    }
    for (const std::int64_t samples : batch_sizes) {
      batches_.push_back(batch_of(samples, layer, operation));
    }
  }

  /// Of the `number`th batch size, as backward().
  void forward(std::size_t number) {
    Batch& batch = batches_[number];
    nn::Tensor input = batch.input;
    batch.passes.forwards.push_back(time_of([&] {
      output_ = layer_.module->forward(parameter_views_, std::move(input), batch.targets, stash_);
    }));
    batch.passes.sizes.output = {static_cast<std::int64_t>(output_.values.size() * sizeof(float))};
    batch.passes.sizes.stash = nn::size_of(stash_);
  }

  /// The output stands for its gradient: what the numbers are takes no time.
  void backward(std::size_t number) {
    Passes& passes = batches_[number].passes;
    nn::Tensor gradient;
    passes.input_gradients.push_back(time_of([&] {
      gradient = layer_.module->input_gradient(parameter_views_, std::move(output_), stash_);
    }));
    passes.weight_gradients.push_back(
        time_of([&] { layer_.module->weight_gradient(stash_, gradient_views_); }));
    stash_ = {};
  }

  /// Passes that were made so far do not count.
  void forget() {
    for (Batch& batch : batches_) {
      batch.passes.forwards.clear();
      batch.passes.input_gradients.clear();
      batch.passes.weight_gradients.clear();
    }
  }

  const Passes& passes(std::size_t number) const { return batches_[number].passes; }

 private:
  struct Batch {
    nn::Tensor input;
    nn::Tensor targets;
    Passes passes;
  };

  static Batch batch_of(std::int64_t samples, const nn::ModelLayer& layer,
                        const Operation& operation) {
    const auto* embedding = std::get_if<EmbeddingOperation>(&operation);
    const auto* loss = std::get_if<SoftmaxCrossEntropyOperation>(&operation);
    Batch batch;
    batch.input = random_tensor(of_samples(samples, layer.input),
                                embedding != nullptr ? embedding->vocabulary : 0);
    if (loss != nullptr) {
      nn::Shape positions = of_samples(samples, layer.input);
      positions.pop_back();
      batch.targets = random_tensor(std::move(positions), loss->classes);
    }
    batch.passes.sizes.batch_size = samples;
    return batch;
  }

  const nn::ModelLayer& layer_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::span<const float>> parameter_views_;
  std::vector<std::span<float>> gradient_views_;
  std::vector<Batch> batches_;  // by size
  nn::Tensor output_;           // of the pass under way
  nn::Stash stash_;
};

/// The distinct layers of a model, and which of them each layer is like.
struct Kinds {
  std::vector<std::size_t> first;     // layer of each kind
  std::vector<std::size_t> of_layer;  // its kind
  std::vector<std::size_t> timed;     // layers, ascending: the first few of each kind
};

/// So many layers of a kind are timed: enough for one to find the caches as the others left them.
constexpr std::ptrdiff_t kMostCopies = 4;

Kinds kinds_of(const ModelProfile& profile, const std::vector<nn::ModelLayer>& model) {
  Kinds kinds;
  std::map<std::pair<std::string, nn::Shape>, std::size_t> known;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto [at, is_new] =
        known.try_emplace({profile.layers[i].operation, model[i].input}, kinds.first.size());
    if (is_new) kinds.first.push_back(i);
    const auto copies = std::count(kinds.of_layer.begin(), kinds.of_layer.end(), at->second);
    if (copies < kMostCopies) kinds.timed.push_back(i);
    kinds.of_layer.push_back(at->second);
  }
  return kinds;
}

void run_pass(std::vector<TimedLayer>& layers, std::size_t number) {
  for (TimedLayer& layer : layers) layer.forward(number);
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) layer->backward(number);
}

/// The optimizer's step on parameters that lay still since the step before.
class TimedStep {
 public:
  TimedStep(nn::OptimizerKind kind, std::int64_t parameter_count)
      : settings_{.kind = kind},
        parameters_(size_for(parameter_count), 1.0F),
        gradients_(parameters_.size(), 0.5F),
        state_(parameters_.size() * static_cast<std::size_t>(nn::state_count(kind))) {}

  void run() {
    times_.push_back(
        time_of([&] { nn::update(settings_, ++number_, parameters_, gradients_, state_); }));
  }
  void forget() { times_.clear(); }

  const std::vector<Duration>& times() const { return times_; }
  std::int64_t size() const {
    return static_cast<std::int64_t>(sizeof(float) * parameters_.size());
  }

 private:
  static std::size_t size_for(std::int64_t parameter_count) {
    constexpr std::int64_t kMost = 4'000'000;
    return static_cast<std::size_t>(std::clamp<std::int64_t>(parameter_count, 1, kMost));
  }

  nn::OptimizerSettings settings_;
  std::int64_t number_ = 0;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> state_;
  std::vector<Duration> times_;
};

/// What is measured: the distinct layers of a model, and the optimizer's step on all parameters.
struct Subject {
  const Specification& specification;
  const std::vector<nn::ModelLayer>& model;
  Kinds kinds;
  nn::OptimizerKind optimizer;

  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (const nn::ModelLayer& layer : model) count += nn::parameter_count(layer.own_parameters());
    return count;
  }
};

/// Passes on one core, each for all batch sizes, and the steps between them.
struct CorePasses {
  std::vector<std::vector<Passes>> by_kind;  // the distinct layers'
  std::vector<Passes> whole;                 // all timed layers'
  std::vector<Duration> steps;
  std::int64_t stepped = 0;  // bytes of parameters in a step
  bool is_pinned = false;
};

CorePasses passes_on(std::size_t core, const Subject& subject, const MeasureOptions& options) {
  const PinnedThread pinned(core);
  std::vector<TimedLayer> timed;
  timed.reserve(subject.kinds.timed.size());
  for (const std::size_t layer : subject.kinds.timed) {
    timed.emplace_back(subject.model[layer], subject.specification.operations[layer],
                       options.batch_sizes);
  }
  TimedStep step(subject.optimizer, subject.parameter_count());
  for (std::int64_t pass = 0; pass < kWarmUps + options.repeats; ++pass) {
    if (pass == kWarmUps) {
      for (TimedLayer& layer : timed) layer.forget();
      step.forget();
    }
    for (std::size_t n = 0; n < options.batch_sizes.size(); ++n) run_pass(timed, n);
    step.run();
  }
  CorePasses passes{.by_kind = {},
                    .whole = std::vector<Passes>(options.batch_sizes.size()),
                    .steps = step.times(),
                    .stepped = step.size(),
                    .is_pinned = pinned.is_pinned()};
  passes.by_kind.resize(subject.kinds.first.size(),
                        std::vector<Passes>(options.batch_sizes.size()));
  for (std::size_t i = 0; i < timed.size(); ++i) {
    std::vector<Passes>& of_kind = passes.by_kind[subject.kinds.of_layer[subject.kinds.timed[i]]];
    for (std::size_t n = 0; n < of_kind.size(); ++n) {
      of_kind[n].append(timed[i].passes(n));
      passes.whole[n].add(timed[i].passes(n));
    }
  }
  return passes;
}

/// Of all cores together.
CorePasses passes_on_all(const Subject& subject, const MeasureOptions& options) {
  std::vector<std::future<CorePasses>> cores;
  for (std::int64_t core = 0; core < options.cores; ++core) {
    cores.push_back(std::async(std::launch::async, [&, core] {
      return passes_on(static_cast<std::size_t>(core), subject, options);
    }));
  }
  CorePasses all = cores.front().get();
  for (std::size_t core = 1; core < cores.size(); ++core) {
    const CorePasses own = cores[core].get();
    all.is_pinned = all.is_pinned && own.is_pinned;
    all.steps.insert(all.steps.end(), own.steps.begin(), own.steps.end());
    for (std::size_t n = 0; n < all.whole.size(); ++n) all.whole[n].append(own.whole[n]);
    for (std::size_t kind = 0; kind < all.by_kind.size(); ++kind) {
      for (std::size_t n = 0; n < all.by_kind[kind].size(); ++n) {
        all.by_kind[kind][n].append(own.by_kind[kind][n]);
      }
    }
  }
  return all;
}

/// The medians of all timed layers, by batch size.
std::vector<PassTimes> sums_of_medians(const Kinds& kinds, const CorePasses& passes) {
  std::vector<PassTimes> sums(passes.whole.size());
  for (const std::size_t layer : kinds.timed) {
    const std::vector<Passes>& of_kind = passes.by_kind[kinds.of_layer[layer]];
    for (std::size_t n = 0; n < sums.size(); ++n) sums[n] += of_kind[n].medians();
  }
  return sums;
}

std::vector<MeasuredLayer> measured_layers(const Subject& subject, const CorePasses& passes) {
  const Kinds& kinds = subject.kinds;
  const std::vector<PassTimes> sums = sums_of_medians(kinds, passes);
  std::vector<MeasuredLayer> measured;
  for (std::size_t kind = 0; kind < kinds.first.size(); ++kind) {
    MeasuredLayer& like = measured.emplace_back();
    like.name = subject.model[kinds.first[kind]].name;
    like.copies = std::count(kinds.of_layer.begin(), kinds.of_layer.end(), kind);
    for (std::size_t n = 0; n < sums.size(); ++n) {
      const Passes& of_size = passes.by_kind[kind][n];
      like.measurements.push_back(measurement_of(of_size, sums[n], passes.whole[n].medians()));
      like.spreads.push_back(of_size.spread());
    }
  }
  return measured;
}

/// Time per byte of parameters, rounded up to a billionth of a nanosecond.
Factor measured_step(const CorePasses& passes) {
  return {divide_up(Wide{median(passes.steps).ns} * kOne.billionths, Wide{passes.stepped})};
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
        "Layers with the same op and input were measured together. Sizes are those of the tensors; "
        "workspace was not measured.");
  }
  profile.source = fmt::format(
      "measured by dapple-exec profile: medians of {} passes over all layers after {} to warm up, "
      "single precision, {}{}",
      options.repeats, kWarmUps,
      options.cores == 1 ? "one thread" : fmt::format("{} threads at once", options.cores),
      is_pinned ? " bound to a core" : ", not bound to a core");
}

}  // namespace

MeasuredModel measure_model(const Specification& specification, const std::string& source_name,
                            const MeasureOptions& options) {
  check(!options.batch_sizes.empty() && options.repeats >= 1 && options.cores >= 1,
        "a measurement of nothing");
  const std::size_t usable = usable_cores();
  if (static_cast<std::size_t>(options.cores) > usable) {
    throw Error{ErrorKind::Usage,
                "--cores",
                {{"", fmt::format("expected at most {}, which this process may use, got {}", usable,
                                  options.cores)}}};
  }
  const nn::OptimizerKind optimizer = optimizer_of(specification.profile.optimizer, source_name);
  const std::vector<nn::ModelLayer> model =
      nn::make_model(specification.profile, specification.operations, source_name);
  const Subject subject{.specification = specification,
                        .model = model,
                        .kinds = kinds_of(specification.profile, model),
                        .optimizer = optimizer};
  const CorePasses passes = passes_on_all(subject, options);
  MeasuredModel measured{.profile = specification.profile,
                         .layers = measured_layers(subject, passes),
                         .is_pinned = passes.is_pinned};
  ModelProfile& profile = measured.profile;
  for (std::size_t i = 0; i < model.size(); ++i) {
    profile.layers[i].measurements = measured.layers[subject.kinds.of_layer[i]].measurements;
    profile.layers[i].fixed_overhead = {};
  }
  profile.device = options.device;
  profile.batch_scaling.reset();
  if (options.batch_sizes.size() == 1) profile.batch_scaling = BatchScaling::Proportional;
  profile.optimizer.step_ns_per_parameter_byte = measured_step(passes);
  const bool is_first = specification.profile.layers.front().measurements.empty();
  add_provenance(options, measured.is_pinned, is_first, profile);
  return measured;
}

}  // namespace dapple
