#include "dapple/exec/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include "dapple/core/error.h"
#include "exec/measure/cpu_engine.h"
#include "exec/measure/lone_rank.h"
#include "exec/measure/measured_passes.h"
#include "exec/measure/timed_passes.h"
#include "exec/run/pinned_thread.h"

namespace dapple::exec {
namespace {

/// The most layers of a kind that are timed: enough for each to find the caches as other layers
/// left them.
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

CorePasses passes_on_core(std::size_t core, const MeasurementSubject& subject,
                          const MeasureOptions& options, Agreement& agreement) {
  AgreeingCore agreeing(agreement, core);
  const PinnedThread pinned(core);
  CpuEngine engine;
  CorePasses passes = timed_passes(engine, subject, options, agreeing);
  passes.is_pinned = pinned.is_pinned();
  return passes;
}

/// Makes passes on all cores at the same time and merges them.
CorePasses passes_on_cores(const MeasurementSubject& subject, const MeasureOptions& options) {
  Agreement agreement(static_cast<std::size_t>(options.cores));
  std::vector<std::future<CorePasses>> cores;
  for (std::int64_t core = 0; core < options.cores; ++core) {
    try {
      cores.push_back(std::async(std::launch::async, [&, core] {
        return passes_on_core(static_cast<std::size_t>(core), subject, options, agreement);
      }));
    } catch (...) {
      // Those that run must not wait for those that cannot be started.
      for (std::int64_t rest = core; rest < options.cores; ++rest) {
        agreement.leave(static_cast<std::size_t>(rest));
      }
      throw;
    }
  }
  CorePasses all = cores.front().get();
  for (std::size_t core = 1; core < cores.size(); ++core) {
    const CorePasses own = cores[core].get();
    all.is_pinned = all.is_pinned && own.is_pinned;
    all.counted = std::min(all.counted, own.counted);
    all.warm_ups = std::min(all.warm_ups, own.warm_ups);
    all.was_stopped = all.was_stopped || own.was_stopped;
    all.drift = std::max(all.drift, own.drift);
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

/// Returns the sums of the medians of all timed layers, by batch size.
std::vector<PassTimes> sums_of_medians(const Kinds& kinds, const CorePasses& passes) {
  std::vector<PassTimes> sums(passes.whole.size());
  for (const std::size_t layer : kinds.timed) {
    const std::vector<Passes>& of_kind = passes.by_kind[kinds.of_layer[layer]];
    for (std::size_t n = 0; n < sums.size(); ++n) sums[n] += of_kind[n].medians();
  }
  return sums;
}

std::vector<MeasuredLayer> measured_layers(const MeasurementSubject& subject,
                                           const CorePasses& passes) {
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

/// Returns the step's time per byte of parameters, rounded up to a billionth of a nanosecond.
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
                  fmt::format("expected {}, as for {}, got another number", nn::state_count(*kind),
                              optimizer.name));
  }
  return *kind;
}

/// Throws Error(BadInput) if a part is to be computed again that no layer has.
void check_parts(const MeasureOptions& options, const std::vector<nn::ModelLayer>& model,
                 const std::string& source_name) {
  for (const RecomputedParts parts : options.recomputes) {
    for (const RecomputedPart part : kRecomputedParts) {
      const bool is_somewhere = std::any_of(
          model.begin(), model.end(),
          [&](const nn::ModelLayer& layer) { return nn::has_any_of({part}, layer.operation); });
      if (!parts.contains(part) || is_somewhere) continue;
      throw Error{ErrorKind::BadInput,
                  source_name,
                  {{"/layers", fmt::format("expected a transformer block with {}, which is to be "
                                           "computed again, got none",
                                           part == RecomputedPart::Experts       ? "experts"
                                           : part == RecomputedPart::FeedForward ? "a feed-forward"
                                                                                 : "parts")}}};
    }
  }
}

nn::LayerRank first_rank_of(const Parallelism& form) {
  return {.tensor = {.ranks = form.tensor, .is_sequence_parallel = form.sequence},
          .context = {.ranks = form.context},
          .experts = {.ranks = form.experts},
          .expert_tensor = {.ranks = form.expert_tensor},
          .recomputes = form.recomputes};
}

CorePasses make_passes(const MeasurementSubject& subject, const MeasureOptions& options) {
  return options.on_gpu ? passes_on_gpu(subject, options) : passes_on_cores(subject, options);
}

/// Sets the sizes of collectives of single precision to what GPUs send: sums are sent in single
/// precision, and what is gathered in that of computation.
void set_precision(cuda::Precision precision, LayerCollectives& collectives) {
  const std::int64_t numbers_in_a_float =
      cuda::size_of(cuda::Type::Float32) / cuda::size_of(cuda::type_of(precision));
  for (std::vector<Collective>* some : {&collectives.forward, &collectives.backward}) {
    for (Collective& one : *some) {
      if (one.kind == CollectiveKind::AllGather) one.size_per_sample.count /= numbers_in_a_float;
    }
  }
}

/// Sets what ranks with different experts exchange of a sample, in so many forwards and backwards,
/// to what GPUs send: the numbers of rows as whole numbers of eight bytes, rows in the precision of
/// computation, and in the backward a number of each row in single precision. Ranks that share
/// experts send all of it on to each other, and what they sum in single precision.
void set_rows_of_experts(const TransformerBlockOperation& block, const nn::LayerRank& rank,
                         cuda::Precision precision, std::int64_t forwards, std::int64_t backwards,
                         std::vector<Collective>& collectives) {
  std::erase_if(collectives,
                [](const Collective& one) { return one.kind == CollectiveKind::AllToAll; });
  const std::int64_t parts =
      rank.context.ranks * (rank.tensor.is_sequence_parallel ? rank.tensor.ranks : 1);
  const std::int64_t rows = block.sequence / parts * block.experts->per_token;
  const auto add_over = [&](CollectiveMembers over, std::int64_t count, std::int64_t size) {
    if (count == 0) return;
    const auto equal = std::find_if(collectives.begin(), collectives.end(), [&](const auto& some) {
      return some.kind == CollectiveKind::AllToAll && some.over == over &&
             some.size_per_sample.count == size;
    });
    if (equal != collectives.end()) {
      equal->count += count;
      return;
    }
    collectives.push_back({CollectiveKind::AllToAll, over, {size}, count});
  };
  const std::int64_t passes = forwards + backwards;
  const std::int64_t counts = block.experts->count * std::int64_t{sizeof(std::int64_t)};
  const std::int64_t numbers = rows * block.hidden;
  const std::int64_t as_computed = cuda::size_of(cuda::type_of(precision));
  constexpr std::int64_t kSingle = cuda::size_of(cuda::Type::Float32);
  add_over(CollectiveMembers::Experts, forwards, counts);
  add_over(CollectiveMembers::Experts, 2 * passes, numbers * as_computed);
  add_over(CollectiveMembers::Experts, backwards, rows * kSingle);
  const std::int64_t sharing = rank.expert_tensor.ranks;
  if (sharing == 1) return;
  add_over(CollectiveMembers::Tensor, forwards, sharing * counts);
  add_over(CollectiveMembers::Tensor, passes, sharing * numbers * as_computed);
  add_over(CollectiveMembers::Tensor, passes, sharing * numbers * kSingle);
  add_over(CollectiveMembers::Tensor, backwards, sharing * rows * kSingle);
}

/// Sets the sizes of a layer's collectives to what GPUs send.
void set_to_gpus(const Operation& operation, const nn::LayerRank& rank, cuda::Precision precision,
                 LayerCollectives& collectives) {
  if (!std::holds_alternative<SoftmaxCrossEntropyOperation>(operation)) {
    set_precision(precision, collectives);
  }
  const auto* block = std::get_if<TransformerBlockOperation>(&operation);
  if (block == nullptr || !block->experts || rank.experts.ranks == 1) return;
  const bool is_repeated = rank.recomputes.contains(RecomputedPart::Layer) ||
                           rank.recomputes.contains(RecomputedPart::Experts);
  set_rows_of_experts(*block, rank, precision, 1, 0, collectives.forward);
  set_rows_of_experts(*block, rank, precision, is_repeated ? 1 : 0, 1, collectives.backward);
}

/// Sets the layers' variants for some form of parallelism, as the first rank of a group runs them
/// on its own. Their times are added to `measured`. Returns whether the passes were stopped, in
/// which case there are no variants.
bool add_variants(const MeasurementSubject& whole, const Parallelism& form,
                  const MeasureOptions& options, const std::string& source_name,
                  MeasuredModel& measured) {
  LoneRank alone;
  nn::LayerRank rank = first_rank_of(form);
  rank.tensor.group = &alone;
  rank.context.group = &alone;
  rank.experts.group = &alone;
  rank.expert_tensor.group = &alone;
  const std::vector<nn::ModelLayer> shared = nn::share_model(whole.model, rank, source_name);
  const MeasurementSubject subject{.specification = whole.specification,
                                   .model = shared,
                                   .kinds = kinds_of(whole.specification.profile, shared),
                                   .optimizer = whole.optimizer,
                                   .rank = rank};
  const CorePasses passes = make_passes(subject, options);
  if (passes.was_stopped) return true;
  std::vector<MeasuredLayer> layers = measured_layers(subject, passes);
  std::vector<LayerCollectives> collectives;
  for (const std::size_t first : subject.kinds.first) {
    collectives.push_back(collectives_of(whole.model, first, rank));
    if (options.on_gpu) {
      set_to_gpus(whole.model[first].operation, rank, options.precision, collectives.back());
    }
  }
  const auto has_variant = [&](const nn::ModelLayer& layer) {
    const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
    const bool has_experts = form.experts == 1 || (block != nullptr && block->experts);
    return has_experts &&
           (form.recomputes.none() || nn::has_any_of(form.recomputes, layer.operation));
  };
  const auto size_of = [](const nn::ModelLayer& layer, bool only_experts) {
    std::int64_t numbers = 0;
    for (const nn::ParameterSpec& parameter : layer.own_parameters()) {
      if (parameter.is_of_experts || !only_experts) numbers += nn::count_of(parameter.shape);
    }
    return Bytes{numbers * static_cast<std::int64_t>(sizeof(float))};
  };
  for (std::size_t i = 0; i < shared.size(); ++i) {
    if (!has_variant(shared[i])) continue;
    const std::size_t kind = subject.kinds.of_layer[i];
    measured.profile.layers[i].variants.push_back(
        {.parallelism = form,
         .parameters = size_of(shared[i], false),
         .expert_parameters = size_of(shared[i], true),
         .fixed_overhead = {},
         .measurements = layers[kind].measurements,
         .forward_collectives = collectives[kind].forward,
         .backward_collectives = collectives[kind].backward});
  }
  for (std::size_t kind = 0; kind < layers.size(); ++kind) {
    if (!has_variant(shared[subject.kinds.first[kind]])) continue;
    MeasuredLayer& layer = layers[kind];
    layer.name += ", " + short_text(form);
    layer.is_variant = true;
    measured.layers.push_back(std::move(layer));
  }
  return false;
}

/// Returns the forms of parallelism that are to be measured.
std::vector<Parallelism> forms_of(const MeasureOptions& options) {
  std::vector<std::int64_t> contexts{1};
  contexts.insert(contexts.end(), options.context_degrees.begin(), options.context_degrees.end());
  std::vector<Parallelism> shared{{}};
  for (const std::int64_t context : contexts) {
    if (context > 1) shared.push_back({.context = context});
    for (const std::int64_t tensor : options.tensor_degrees) {
      for (const bool is_sequence_parallel : {false, true}) {
        shared.push_back({.tensor = tensor, .sequence = is_sequence_parallel, .context = context});
      }
    }
  }
  // Ranks with different experts have different positions.
  const std::size_t without_experts = shared.size();
  for (const std::int64_t experts : options.expert_degrees) {
    for (std::size_t i = 0; i < without_experts; ++i) {
      Parallelism form = shared[i];
      form.experts = experts;
      const bool has_other_positions = form.tensor == 1 || form.sequence;
      if (!has_other_positions) continue;
      if (form.is_sound()) shared.push_back(form);
      if (!options.divides_experts || form.tensor == 1) continue;
      form.expert_tensor = form.tensor;
      if (form.is_sound()) shared.push_back(form);
    }
  }
  std::vector<Parallelism> forms{shared.begin() + 1, shared.end()};
  for (const RecomputedParts parts : options.recomputes) {
    for (Parallelism form : shared) {
      form.recomputes = parts;
      forms.push_back(form);
    }
  }
  return forms;
}

const char* precision_name(cuda::Precision precision) {
  switch (precision) {
    case cuda::Precision::BFloat16:
      return "bfloat16";
    case cuda::Precision::Float16:
      return "half precision";
    case cuda::Precision::Float32:
      break;
  }
  return "single precision";
}

/// Describes in the profile how it was measured. Its original source is added to the notes only by
/// the first measurement, not when a profile is measured again.
void add_provenance(const MeasureOptions& options, const CorePasses& passes, bool is_first,
                    ModelProfile& profile) {
  if (is_first) {
    profile.notes.insert(profile.notes.begin(), profile.source);
    profile.notes.push_back(
        "Layers with the same op and input were measured together. Sizes are those of the "
        "tensors; " +
        std::string(passes.gpu.empty() ? "workspace was not measured."
                                       : "workspace is the most that a layer took of the GPU's "
                                         "memory beside them."));
  }
  const std::string where =
      !passes.gpu.empty()
          ? fmt::format("{} on {}", precision_name(options.precision), passes.gpu)
          : fmt::format("single precision, {}{}",
                        options.cores == 1 ? "one thread"
                                           : fmt::format("{} threads at once", options.cores),
                        passes.is_pinned ? " bound to a core" : ", not bound to a core");
  profile.source = fmt::format(
      "measured by dapple-exec profile: medians of {} pass{} over all layers after {} to warm up, "
      "{}",
      passes.counted, passes.counted == 1 ? "" : "es", passes.warm_ups, where);
}

std::string drift_warning(const CorePasses& passes) {
  return fmt::format(
      "measured times are not stable: after {} passes the medians of their first and second half "
      "differ by {:.1f} %, added up over the layers; a quieter machine or more passes (--repeat) "
      "make them truer",
      passes.counted, 100 * passes.drift);
}

}  // namespace

std::vector<std::string> warn_of_spread(const std::vector<MeasuredLayer>& layers) {
  double widest = 0;
  std::string where;
  std::size_t count = 0;
  for (const MeasuredLayer& layer : layers) {
    for (std::size_t i = 0; i < layer.spreads.size(); ++i) {
      if (layer.spreads[i] <= kTrustedSpread) continue;
      ++count;
      if (layer.spreads[i] <= widest) continue;
      widest = layer.spreads[i];
      where = fmt::format("{} at batch {}", layer.name, layer.measurements[i].batch_size);
    }
  }
  if (count == 0) return {};
  return {
      fmt::format("measured times spread by more than {:.0f} % in {} of the profile's "
                  "measurements, most in {}, by {:.0f} %: a quieter machine or more passes "
                  "(--repeat) make them truer",
                  100 * kTrustedSpread, count, where, 100 * widest)};
}

MeasuredModel measure_model(const io::Specification& specification, const std::string& source_name,
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
  check_parts(options, model, source_name);
  for (const Parallelism& form : forms_of(options)) {
    // Throws before anything is measured.
    nn::share_model(model, first_rank_of(form), source_name);
  }
  const MeasurementSubject subject{.specification = specification,
                                   .model = model,
                                   .kinds = kinds_of(specification.profile, model),
                                   .optimizer = optimizer};
  const CorePasses passes = make_passes(subject, options);
  MeasuredModel measured{.profile = specification.profile,
                         .layers = measured_layers(subject, passes),
                         .is_pinned = passes.is_pinned,
                         .passes = passes.counted,
                         .was_stopped = passes.was_stopped};
  ModelProfile& profile = measured.profile;
  for (std::size_t i = 0; i < model.size(); ++i) {
    profile.layers[i].measurements = measured.layers[subject.kinds.of_layer[i]].measurements;
    profile.layers[i].fixed_overhead = {};
    profile.layers[i].variants.clear();
  }
  for (const Parallelism& form : forms_of(options)) {
    if (measured.was_stopped) break;
    measured.was_stopped = add_variants(subject, form, options, source_name, measured);
  }
  profile.device = options.device;
  profile.warnings = warn_of_spread(measured.layers);
  if (passes.drift > kTrustedDrift) profile.warnings.push_back(drift_warning(passes));
  profile.batch_scaling.reset();
  if (options.batch_sizes.size() == 1) profile.batch_scaling = BatchScaling::Proportional;
  profile.optimizer.step_ns_per_parameter_byte = measured_step(passes);
  const bool is_first = specification.profile.layers.front().measurements.empty();
  add_provenance(options, passes, is_first, profile);
  return measured;
}

}  // namespace dapple::exec
