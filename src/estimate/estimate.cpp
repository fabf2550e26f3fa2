#include "dapple/estimate/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "dapple/profile/limits.h"
#include "estimate/layer_estimate.h"

namespace dapple::estimate {
namespace {

/// Bytes of memory traffic of Adam's step for each parameter: parameter, gradient and both moments
/// are read, all but the gradient are written, in single precision.
constexpr std::int64_t kBytesOfStep = 28;

/// Adam's state of a parameter, two moments, and in mixed precision a copy of the parameter.
constexpr std::int64_t kBytesOfState = 8;
constexpr std::int64_t kBytesOfCopy = 4;

/// The most variants of all blocks together.
constexpr std::int64_t kMostWays = 100'000;

bool has_encoder(const Architecture& architecture) {
  return !architecture.encoder.empty();
}

std::int64_t sequence_of(const Architecture& architecture, const EstimateOptions& options) {
  return architecture.embedding.patches > 0 ? architecture.embedding.patches + 1 : options.sequence;
}

std::int64_t decoder_sequence_of(const Architecture& architecture, const EstimateOptions& options) {
  return options.decoder_sequence.value_or(sequence_of(architecture, options));
}

/// Calls `use` with every run of blocks and whether it is of the encoder.
template <class Use>
void for_each_run(const Architecture& architecture, Use use) {
  for (const BlockRun& run : architecture.encoder) use(run, true);
  for (const BlockRun& run : architecture.blocks) use(run, false);
}

bool has_experts(const Architecture& architecture) {
  bool found = false;
  for_each_run(architecture,
               [&](const BlockRun& run, bool) { found = found || run.shape.experts.has_value(); });
  return found;
}

/// Returns the blocks of each shape, as they come.
std::vector<DividedBlocks> divided_blocks(const Architecture& architecture) {
  std::vector<DividedBlocks> blocks;
  for_each_run(architecture, [&](const BlockRun& run, bool) {
    const AttentionShape& attention = run.shape.attention;
    const DividedBlocks block{
        .attention_heads = attention.heads,
        .key_value_heads = attention.latent ? attention.heads : attention.kv_heads,
        .experts = run.shape.experts ? run.shape.experts->experts : 0};
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
  });
  return blocks;
}

/// Makes the layers of a model in each form.
class Estimator {
 public:
  Estimator(const Architecture& architecture, const EstimateOptions& options)
      : architecture_(architecture),
        options_(options),
        forms_(possible_forms()),
        recomputations_(options.recomputations) {
    if (options.pinned && has_too_many()) leave_out_excluded(*options.pinned);
  }

  /// The forms without recomputation, and what they recompute.
  const std::vector<Parallelism>& forms() const { return forms_; }
  const std::vector<RecomputedParts>& recomputations() const { return recomputations_; }

  /// The number of variants of the layer that has most.
  std::size_t most_variants() const { return forms_.size() * (1 + recomputations_.size()) - 1; }

  /// The number of ways to run all blocks together.
  std::int64_t ways_of_blocks() const {
    return block_count() * static_cast<std::int64_t>(most_variants() + 1);
  }

  std::int64_t block_count() const {
    std::int64_t blocks = 0;
    for_each_run(architecture_, [&](const BlockRun& run, bool) { blocks += run.count; });
    return blocks;
  }

  Division division(const Parallelism& form, bool of_encoder) const {
    const std::int64_t whole = sequence_of(architecture_, options_);
    const bool is_decoder = has_encoder(architecture_) && !of_encoder;
    return {.form = form,
            .bytes = bytes_of(options_.precision),
            .hidden = architecture_.hidden,
            .has_dropout = architecture_.has_dropout,
            .has_fused_attention = options_.has_fused_attention,
            .context_exchange = options_.context_exchange,
            .merges_copies = options_.merges_copies,
            .keeps_gathered_inputs = options_.framework.keeps_gathered_inputs,
            .keeps_activated_gates = options_.framework.keeps_activated_gates,
            .keeps_core_output_twice = options_.framework.keeps_core_output_twice,
            .vocabulary_multiple = options_.vocabulary_multiple,
            .imbalance = options_.imbalance,
            .sequence = is_decoder ? decoder_sequence_of(architecture_, options_) : whole,
            .encoder_sequence = whole};
  }

  /// Calls `use` with the name, the estimate and the number of every layer of the model in the
  /// form; equal blocks that follow each other are one of them.
  template <class Use>
  void for_each_layer(const Parallelism& form, Use use) const {
    const bool is_pair = has_encoder(architecture_);
    use("embedding", embedding_of(architecture_.embedding, division(form, is_pair)), 1);
    for (const BlockRun& run : architecture_.encoder) {
      use(run.name, block_of(run.shape, division(form, true)), run.count);
    }
    if (is_pair) {
      use("encoder_norm", encoder_norm_of(division(form, true)), 1);
      use("decoder_embedding", decoder_embedding_of(division(form, false)), 1);
    }
    for (const BlockRun& run : architecture_.blocks) {
      use(run.name, block_of(run.shape, division(form, false)), run.count);
    }
    use("head", head_of(architecture_.head, division(form, false)), 1);
  }

  /// Returns the division_fault() of the first block that has one; empty if none has.
  std::string fault_of(const Parallelism& form) const {
    std::string fault;
    for_each_run(architecture_, [&](const BlockRun& run, bool of_encoder) {
      if (fault.empty()) fault = division_fault(run.shape, division(form, of_encoder));
    });
    return fault;
  }

 private:
  /// The normalization behind an encoder.
  LayerEstimate encoder_norm_of(const Division& division) const {
    LayerEstimate layer;
    const Wide size = Wide{division.bytes} * division.whole_tokens() * division.hidden;
    layer.add(pass(2 * size));
    layer.kept = size;
    layer.output = size;
    layer.parameters = division.hidden;
    return layer;
  }

  /// The embedding of a decoder's tokens, which uses that of the encoder's.
  LayerEstimate decoder_embedding_of(const Division& division) const {
    LayerEstimate layer = embedding_of(architecture_.embedding, division);
    layer.parameters = 0;
    return layer;
  }

  bool is_possible(const Parallelism& form) const {
    return form.is_sound() && form.group_size() <= kMaxGroup && fault_of(form).empty();
  }

  /// Appends the form for every number of devices that may share an expert.
  void add_forms(Parallelism form, std::vector<Parallelism>& forms) const {
    const std::int64_t most = form.experts > 1 ? options_.max_expert_tensor : 1;
    for (form.expert_tensor = 1; form.expert_tensor <= most; form.expert_tensor *= 2) {
      if (is_possible(form)) forms.push_back(form);
    }
  }

  std::vector<Parallelism> possible_forms() const {
    std::vector<Parallelism> forms;
    const std::int64_t most_experts = has_experts(architecture_) ? options_.max_experts : 1;
    for (std::int64_t tensor = 1; tensor <= options_.max_tensor; tensor *= 2) {
      for (std::int64_t context = 1; context <= options_.max_context; context *= 2) {
        for (std::int64_t experts = 1; experts <= most_experts; experts *= 2) {
          add_forms({.tensor = tensor,
                     .sequence = tensor > 1 && options_.has_sequence_parallelism,
                     .context = context,
                     .experts = experts},
                    forms);
        }
      }
    }
    return forms;
  }

  bool has_too_many() const {
    return most_variants() > kMaxVariants || ways_of_blocks() > kMostWays;
  }

  /// Leaves out what pins exclude, but for the layers themselves and for the forms that layers
  /// without experts then have.
  void leave_out_excluded(const PinnedForms& pinned) {
    PinnedForms without_experts = pinned;
    without_experts.experts = 1;
    without_experts.expert_tensor = 1;
    std::erase_if(forms_, [&](const Parallelism& form) {
      return !form.is_none() && !pinned.allow_degrees(form) && !without_experts.allow_degrees(form);
    });
    if (!pinned.recomputes) return;
    std::erase_if(recomputations_,
                  [&](RecomputedParts parts) { return parts != *pinned.recomputes; });
  }

  const Architecture& architecture_;
  const EstimateOptions& options_;
  std::vector<Parallelism> forms_;
  std::vector<RecomputedParts> recomputations_;
};

/// An option that says up to which degree there are variants, and what a degree is pinned by.
struct DegreeOption {
  const char* name;
  std::int64_t EstimateOptions::*most;
  std::optional<std::int64_t> PinnedForms::*pin;
};

constexpr DegreeOption kDegreeOptions[] = {
    {"--max-tensor", &EstimateOptions::max_tensor, &PinnedForms::tensor},
    {"--max-context", &EstimateOptions::max_context, &PinnedForms::context},
    {"--max-experts", &EstimateOptions::max_experts, &PinnedForms::experts},
    {"--max-expert-tensor", &EstimateOptions::max_expert_tensor, &PinnedForms::expert_tensor}};

/// The options that leave forms out: the one that leaves out most, and words for all of them.
struct OptionsForFewer {
  std::string first = "--recompute";
  std::string words;
};

/// Returns "a", "a or b" or "a, b or c".
std::string either_of(const std::vector<std::string>& texts) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) all += i + 1 == texts.size() ? " or " : ", ";
    all += texts[i];
  }
  return all;
}

/// Returns the options that leave out some of the forms, of those that are not pinned.
OptionsForFewer options_for_fewer(const Architecture& architecture,
                                  const EstimateOptions& options) {
  const std::size_t all = Estimator(architecture, options).most_variants();
  std::size_t least = all;
  OptionsForFewer found;
  std::vector<std::string> names;
  for (const DegreeOption& option : kDegreeOptions) {
    if (options.pinned && (*options.pinned).*option.pin) continue;
    EstimateOptions fewer = options;
    fewer.*option.most = 1;
    const std::size_t left = Estimator(architecture, fewer).most_variants();
    if (left >= all) continue;
    names.emplace_back(option.name);
    if (left >= least) continue;
    least = left;
    found.first = option.name;
  }
  std::vector<std::string> ways;
  if (!names.empty()) {
    ways.push_back("by smaller values of " + either_of(names));
    if (options.pinned) ways.emplace_back("by --pin with their degrees");
  }
  if (options.recomputations.size() > 1 || ways.empty())
    ways.emplace_back("by fewer sets of --recompute");
  found.words = "fewer are left " + either_of(ways);
  return found;
}

/// Adds up equal collectives.
std::vector<Collective> merged(const std::vector<Collective>& collectives) {
  std::vector<Collective> sums;
  for (const Collective& one : collectives) {
    const auto same = std::find_if(sums.begin(), sums.end(), [&](const Collective& sum) {
      return sum.kind == one.kind && sum.over == one.over &&
             sum.size_per_sample == one.size_per_sample && sum.beside == one.beside &&
             sum.merged == one.merged;
    });
    if (same == sums.end()) {
      sums.push_back(one);
    } else {
      same->count += one.count;
    }
  }
  return sums;
}

bool has_part(const BlockShape& shape, RecomputedPart part) {
  switch (part) {
    case RecomputedPart::FeedForward:
      return shape.feed_forward.has_value();
    case RecomputedPart::Experts:
    case RecomputedPart::ExpertActivation:
      return shape.experts.has_value();
    default:
      return true;
  }
}

/// Whether some block has every part.
bool can_recompute(const Architecture& architecture, RecomputedParts parts) {
  return std::all_of(std::begin(kRecomputedParts), std::end(kRecomputedParts),
                     [&](RecomputedPart part) {
                       if (!parts.contains(part)) return true;
                       bool found = false;
                       for_each_run(architecture, [&](const BlockRun& run, bool) {
                         found = found || has_part(run.shape, part);
                       });
                       return found;
                     });
}

Bytes in_bytes(Wide parameters, std::int64_t bytes_of_parameter) {
  return {capped(parameters * bytes_of_parameter)};
}

/// A layer of a profile, or a run of equal blocks.
struct RunLayer {
  Layer layer;
  std::int64_t count = 1;
  bool is_block = false;
};

bool has_variant(const Layer& layer, const Parallelism& form) {
  return std::any_of(layer.variants.begin(), layer.variants.end(),
                     [&](const LayerVariant& some) { return some.parallelism == form; });
}

LayerVariant variant_of(const LayerEstimate& estimate, const Parallelism& form, const Rates& rates,
                        std::int64_t bytes_of_parameter) {
  return {.parallelism = form,
          .parameters = in_bytes(estimate.parameters, bytes_of_parameter),
          .expert_parameters = in_bytes(estimate.expert_parameters, bytes_of_parameter),
          .fixed_overhead = {},
          .measurements = measurements_of(estimate, rates),
          .forward_collectives = merged(estimate.forward_collectives),
          .backward_collectives = merged(estimate.backward_collectives)};
}

/// Adds the variant of a form, or what the layer itself takes if there is no form.
void add_variant(LayerVariant variant, Layer& layer) {
  if (variant.parallelism.is_none()) {
    layer.parameters = variant.parameters;
    layer.measurements = std::move(variant.measurements);
  } else {
    layer.variants.push_back(std::move(variant));
  }
}

/// Adds what the layer takes in a form, recomputing nothing and each of the sets that are asked
/// for. A layer without experts has a variant for every tensor and context degree, whether or not
/// experts that are not spread allow it.
void add_form(const LayerEstimate& estimate, Parallelism form, const Rates& rates,
              std::int64_t bytes_of_parameter, const std::vector<RecomputedParts>& recomputations,
              RunLayer& run) {
  if (form.experts > 1 && !estimate.part(RecomputedPart::Experts).exists) {
    form.experts = 1;
    form.expert_tensor = 1;
    if (form.is_none() || has_variant(run.layer, form)) return;
  }
  add_variant(variant_of(estimate, form, rates, bytes_of_parameter), run.layer);
  if (!run.is_block) return;
  for (const RecomputedParts parts : recomputations) {
    form.recomputes = parts;
    add_variant(variant_of(recomputed(estimate, parts), form, rates, bytes_of_parameter),
                run.layer);
  }
}

/// Makes every layer and its variants.
std::vector<RunLayer> make_layers(const Estimator& estimator, const Rates& rates,
                                  const EstimateOptions& options) {
  std::vector<RunLayer> layers;
  for (const Parallelism& form : estimator.forms()) {
    std::size_t position = 0;
    estimator.for_each_layer(
        form, [&](const std::string& name, const LayerEstimate& estimate, std::int64_t count) {
          if (layers.size() == position) {
            RunLayer& made = layers.emplace_back();
            made.layer.name = name;
            made.count = count;
            made.is_block = estimate.part(RecomputedPart::CoreAttention).exists;
          }
          add_form(estimate, form, rates, bytes_of(options.precision), estimator.recomputations(),
                   layers[position++]);
        });
  }
  for (RunLayer& run : layers) {
    std::sort(
        run.layer.variants.begin(), run.layer.variants.end(),
        [](const LayerVariant& a, const LayerVariant& b) { return a.parallelism < b.parallelism; });
  }
  return layers;
}

/// Appends the layers, each of a run, to the profile, in a chain; the blocks behind an encoder have
/// its output as an input too.
void chain(const std::vector<RunLayer>& runs, ModelProfile& profile) {
  std::optional<LayerIndex> encoder_norm;
  // Runs of one name are numbered on.
  std::map<std::string, std::int64_t> counts;
  for (const RunLayer& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      Layer layer = run.layer;
      const auto index = index_at<LayerIndex>(profile.layers.size());
      if (run.is_block) layer.name += fmt::format(".{}", counts[run.layer.name]++);
      if (encoder_norm && run.is_block) layer.inputs.push_back(*encoder_norm);
      if (index.value > 0) layer.inputs.push_back(index.previous());
      if (layer.name == "encoder_norm") encoder_norm = index;
      profile.layers.push_back(std::move(layer));
    }
  }
}

/// Ties the decoder's embedding, and the head, to the embedding.
void tie(const Architecture& architecture, ModelProfile& profile) {
  Tie tie{.owner = LayerIndex{0}, .users = {}};
  for (std::size_t l = 1; l < profile.layers.size(); ++l) {
    const bool is_head = l + 1 == profile.layers.size();
    if (profile.layers[l].name == "decoder_embedding" || (is_head && architecture.head.is_tied)) {
      tie.users.push_back(index_at<LayerIndex>(l));
    }
  }
  if (!tie.users.empty()) profile.ties.push_back(std::move(tie));
}

Factor ratio(std::int64_t numerator, std::int64_t denominator) {
  return {divide_up(Wide{numerator} * kOne.billionths, denominator)};
}

Optimizer optimizer_of(const EstimateOptions& options, const Rates& rates) {
  const std::int64_t x = bytes_of(options.precision);
  const std::int64_t state = kBytesOfState + (x < 4 ? kBytesOfCopy : 0);
  const Wide step = Wide{kBytesOfStep} * kNanosecondsPerSecond * kOne.billionths;
  const Wide memory = Wide{x} * rates.memory;
  return {.name = "adam",
          .state_bytes_per_parameter_byte = ratio(state, x),
          .gradient_bytes_per_parameter_byte = ratio(options.gradient_bytes, x),
          .framework_bytes_per_parameter_byte = ratio(options.framework.bytes_per_parameter, x),
          .step_ns_per_parameter_byte = Factor{capped((step + memory - 1) / memory)}};
}

/// Returns what a sample is. Its operations are those of model_operations(), rounded down to 10^9.
SampleWork sample_of(const Architecture& architecture, const Gpu& gpu,
                     const EstimateOptions& options) {
  constexpr Wide kGiga = 1'000'000'000;
  const Wide gflop = model_operations(architecture, options) / kGiga;
  // Peaks are in operations per nanosecond, which are 10^9 per second.
  return {.tokens = sequence_of(architecture, options),
          .gflop = static_cast<std::int64_t>(std::clamp<Wide>(gflop, 1, kMaxCount)),
          .peak_gflop_per_second = *gpu.peak(options.precision)};
}

/// Returns the warning that times are estimated, with what is known of how far off they are.
std::string warning_of_times(const Gpu& gpu, const Calibration& calibration, bool is_asked_for) {
  std::string text =
      fmt::format("times are estimated by calibration {}, not measured", calibration.name);
  if (!calibration.gpu.empty() && calibration.gpu != gpu.name) {
    text +=
        is_asked_for
            ? fmt::format("; it is of {} and not of {}, as was asked", calibration.gpu, gpu.name)
            : fmt::format("; it is of {}, as there is none of {}", calibration.gpu, gpu.name);
  }
  if (!calibration.left_out_error) return text;
  return text + fmt::format(
                    "; it was {}, and such runs left out of the fit were {:.1f} % off on average, "
                    "others more (docs/accuracy.md)",
                    calibration.source,
                    100.0 * static_cast<double>(calibration.left_out_error->billionths) /
                        static_cast<double>(kOne.billionths));
}

/// Returns the warning that memory is estimated, with what is known of how far off it is.
std::string warning_of_memory(const Framework& framework) {
  if (framework.name.empty()) {
    return "memory is estimated without what frameworks keep in addition to the model, which "
           "estimate "
           "--framework counts: estimates of the fullest GPU of published runs were 23 % too low "
           "on "
           "average (docs/accuracy.md)";
  }
  return fmt::format(
      "memory is estimated with what {} keeps in addition to the model: {} "
      "(docs/accuracy.md)",
      framework.name, framework.source);
}

Wide sum_of_parameters(const Architecture& architecture, Wide LayerEstimate::*part) {
  // No sizes but those of the model decide its parameters.
  const EstimateOptions options{.sequence = 1, .max_tensor = 1, .max_experts = 1};
  Wide sum = 0;
  Estimator(architecture, options)
      .for_each_layer({}, [&](const std::string&, const LayerEstimate& layer, std::int64_t count) {
        sum += count * (layer.*part);
      });
  return sum;
}

}  // namespace

bool PinnedForms::allow_degrees(const Parallelism& form) const {
  return tensor.value_or(form.tensor) == form.tensor &&
         context.value_or(form.context) == form.context &&
         experts.value_or(form.experts) == form.experts &&
         expert_tensor.value_or(form.expert_tensor) == form.expert_tensor;
}

std::int64_t parameter_count(const Architecture& architecture) {
  return static_cast<std::int64_t>(sum_of_parameters(architecture, &LayerEstimate::parameters));
}

std::int64_t expert_parameter_count(const Architecture& architecture) {
  return static_cast<std::int64_t>(
      sum_of_parameters(architecture, &LayerEstimate::expert_parameters));
}

std::vector<Violation> option_faults(const Architecture& architecture, const Gpu& gpu,
                                     const EstimateOptions& options) {
  std::vector<Violation> faults;
  const bool is_of_images = architecture.embedding.patches > 0;
  if (is_of_images && options.sequence > 0) {
    faults.push_back(
        {"--sequence", fmt::format("expected no number of tokens for images, of which each has {} "
                                   "patches, got {}",
                                   architecture.embedding.patches, options.sequence)});
  } else if (!is_of_images && options.sequence == 0) {
    faults.push_back(
        {"--sequence", "expected the number of tokens of a sample, such as 4096, got none"});
  }
  if (options.decoder_sequence && !has_encoder(architecture)) {
    faults.push_back(
        {"--decoder-sequence", fmt::format("expected a model with an encoder and a decoder, got {}",
                                           architecture.family)});
  }
  const std::int64_t longest =
      std::max(sequence_of(architecture, options), decoder_sequence_of(architecture, options));
  if (architecture.most_tokens > 0 && longest > architecture.most_tokens) {
    faults.push_back({"--sequence", fmt::format("expected at most {} tokens, for which the model "
                                                "has learned positions, got {}",
                                                architecture.most_tokens, longest)});
  }
  if (!gpu.peak(options.precision)) {
    std::string others;
    for (const Precision precision : kPrecisions) {
      if (!gpu.peak(precision)) continue;
      others += fmt::format("{}{}", others.empty() ? "" : ", ", to_string(precision));
    }
    faults.push_back({"--precision", fmt::format("expected one that {} has matrix units for, {}, "
                                                 "got {}",
                                                 gpu.name, others, to_string(options.precision))});
  }
  for (const RecomputedParts parts : options.recomputations) {
    if (can_recompute(architecture, parts)) continue;
    faults.push_back({"--recompute", fmt::format("expected parts that {} has, got {}",
                                                 architecture.family, to_text(parts))});
  }
  if (!faults.empty()) return faults;
  const Estimator estimator(architecture, options);
  if (estimator.most_variants() > kMaxVariants) {
    const OptionsForFewer fewer = options_for_fewer(architecture, options);
    faults.push_back(
        {fewer.first, fmt::format("expected at most {} ways to run a layer, got {}: {}",
                                  kMaxVariants, estimator.most_variants(), fewer.words)});
  } else if (estimator.ways_of_blocks() > kMostWays) {
    const OptionsForFewer fewer = options_for_fewer(architecture, options);
    faults.push_back(
        {fewer.first,
         fmt::format("expected at most {} ways to run all {} blocks together, got {}: "
                     "{}",
                     kMostWays, estimator.block_count(), estimator.ways_of_blocks(), fewer.words)});
  }
  return faults;
}

ModelProfile estimate_profile(const Architecture& architecture, const Gpu& gpu,
                              const Calibration& calibration, const EstimateOptions& options) {
  const Rates rates(gpu, calibration, options.precision);
  const Estimator estimator(architecture, options);
  ModelProfile profile;
  profile.name = architecture.name;
  profile.source = fmt::format(
      "estimated from the configuration of a {} model with {} parameters, {} tokens a sample, {}, "
      "for {} ({}), by the closed forms of docs/estimate.md",
      architecture.family, parameter_count(architecture), sequence_of(architecture, options),
      to_string(options.precision), gpu.name, gpu.source);
  profile.notes.push_back(fmt::format("calibration {}: {}", calibration.name, calibration.source));
  if (options.vocabulary_multiple > 1) {
    profile.notes.push_back(
        fmt::format("the vocabulary is padded to a multiple of {} on each tensor-parallel rank",
                    options.vocabulary_multiple));
  }
  profile.warnings.push_back(warning_of_times(gpu, calibration, options.has_asked_calibration));
  profile.warnings.push_back(warning_of_memory(options.framework));
  if (has_experts(architecture) && options.imbalance == kOne) {
    profile.warnings.emplace_back(
        "tokens are taken to be spread evenly over experts; estimate --imbalance takes more for "
        "the busiest device");
  }
  if (options.imbalance != kOne) {
    profile.warnings.push_back(
        fmt::format("the busiest device with experts is taken to have {} times the mean number of "
                    "tokens: times and bounds are for that routing",
                    static_cast<double>(options.imbalance.billionths) / kOne.billionths));
  }
  profile.sample = sample_of(architecture, gpu, options);
  profile.blocks = divided_blocks(architecture);
  profile.precision = to_string(options.precision);
  profile.calibration_error = calibration.left_out_error;
  profile.device = gpu.name;
  profile.optimizer = optimizer_of(options, rates);
  chain(make_layers(estimator, rates, options), profile);
  tie(architecture, profile);
  return profile;
}

std::string indivisible(const Architecture& architecture, const EstimateOptions& options,
                        const Parallelism& degrees) {
  const bool shares_experts = degrees.expert_tensor > 1;
  if ((degrees.experts > 1 || shares_experts) && !has_experts(architecture)) {
    return fmt::format("no block has experts that could be divided among {} {}-parallel ranks",
                       shares_experts ? degrees.expert_tensor : degrees.experts,
                       shares_experts ? "expert-tensor" : "expert");
  }
  const Estimator estimator(architecture, options);
  for (Parallelism alone :
       {Parallelism{.tensor = degrees.tensor}, Parallelism{.context = degrees.context},
        Parallelism{.experts = degrees.experts},
        Parallelism{.expert_tensor = degrees.expert_tensor},
        Parallelism{.tensor = degrees.tensor, .context = degrees.context}}) {
    alone.sequence = alone.tensor > 1 && options.has_sequence_parallelism;
    std::string fault = estimator.fault_of(alone);
    if (!fault.empty()) return fault;
  }
  return "";
}

Wide model_operations(const Architecture& architecture, const EstimateOptions& options) {
  EstimateOptions plain = options;
  // As frameworks count: masked pairs too, backward twice the forward.
  plain.has_fused_attention = false;
  plain.vocabulary_multiple = 1;
  Wide sum = 0;
  Estimator(architecture, plain)
      .for_each_layer({}, [&](const std::string&, const LayerEstimate& layer, std::int64_t count) {
        sum += count * (layer.forward.operations + layer.forward.core + layer.backward.operations +
                        layer.backward.core);
      });
  return sum;
}

}  // namespace dapple::estimate
