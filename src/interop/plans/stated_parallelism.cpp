#include "dapple/interop/plans/stated_parallelism.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "dapple/interop/plans/layout.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/variants.h"
#include "interop/text/foreign_text.h"
#include "interop/text/shell_words.h"

namespace dapple::interop {
namespace {

/// Returns the first value of an option in any of the files.
std::optional<std::int64_t> count_in(const std::vector<ForeignPlanFile>& files,
                                     std::string_view option) {
  for (const ForeignPlanFile& file : files) {
    if (auto count = ShellOptions(file.text, file.name).count(option)) return count;
  }
  return std::nullopt;
}

/// Returns the forms among which the stated one has to be, for messages.
std::string degrees_in(const std::vector<Parallelism>& forms) {
  std::string text;
  for (const Parallelism& form : forms) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", form.tensor,
                        form.sequence ? " with sequence parallelism" : "");
  }
  return text;
}

}  // namespace

StatedParallelism stated_in_layout(const Layout& layout) {
  const auto refuse = [&](std::string message) {
    throw Error{ErrorKind::BadInput, layout.source, {{layout.place, std::move(message)}}};
  };
  StatedParallelism stated;
  if (const std::string* const tensor = layout.value("tp")) {
    const std::optional<std::int32_t> degree = parse_count(*tensor);
    if (!degree || *degree < 1 || *degree > kMaxTensorParallel) {
      refuse(fmt::format("tp: expected a number from 1 to {}, got \"{}\"", kMaxTensorParallel,
                         shown(*tensor)));
    }
    stated.tensor = *degree;
  }
  if (const std::string* const sequence = layout.value("sp")) {
    if (*sequence != "on" && *sequence != "off") {
      refuse(fmt::format("sp: expected on or off, got \"{}\"", shown(*sequence)));
    }
    stated.sequence = *sequence == "on";
  }
  if (const std::string* const zero = layout.value("zero")) {
    if (*zero != "0" && *zero != "1") {
      refuse(
          fmt::format("zero: expected 0 or 1, as replicas of a plan hold whole gradients and "
                      "parameters, got \"{}\"",
                      shown(*zero)));
    }
    stated.shards_optimizer = *zero == "1";
  }
  return stated;
}

StatedParallelism stated_in(const std::vector<ForeignPlanFile>& files,
                            const ForeignPlanOptions& options) {
  const ForeignPlanFile& first = files.front();
  StatedParallelism stated;
  if (first.format == PlanFormat::Layout) {
    stated = stated_in_layout(read_layout(first.text, first.name));
  } else if (first.format == PlanFormat::Megatron) {
    stated.tensor = count_in(files, "--tensor-model-parallel-size");
    stated.shards_optimizer = ShellOptions(first.text, "").has("--use-distributed-optimizer");
    // With one tensor rank Megatron-LM ignores the option.
    if (stated.tensor.value_or(1) > 1)
      stated.sequence = ShellOptions(first.text, "").has("--sequence-parallel");
  } else if (first.format == PlanFormat::Torch) {
    stated.tensor = count_in(files, "--parallelism.tensor_parallel_degree");
  }
  if (!stated.tensor) stated.tensor = options.tensor_parallel;
  return stated;
}

Parallelism find_parallelism(const StatedParallelism& stated, const ModelProfile& profile,
                             const std::string& source, const std::string& place) {
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  const std::int64_t degree = stated.tensor.value_or(1);
  const bool is_apart =
      degree == 1 && profile.tensor_parallel == 1 && stated.sequence.value_or(false);
  Parallelism parallelism{.shards_optimizer = stated.shards_optimizer};
  // Without variants the profile's own degree counts, which importers check.
  if (forms.size() == 1 && !is_apart) return parallelism;
  const auto found = std::find_if(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return form.tensor == degree && stated.sequence.value_or(form.sequence) == form.sequence;
  });
  if (found != forms.end()) {
    parallelism = *found;
    parallelism.shards_optimizer = stated.shards_optimizer;
    return parallelism;
  }
  throw Error{
      ErrorKind::BadInput,
      source,
      {{place, is_apart ? std::string("expected sequence parallelism beside tensor parallelism, "
                                      "got it alone")
                        : fmt::format("expected tensor parallelism of degree {}, for which all "
                                      "layers have variants, got {}{}",
                                      degrees_in(forms), degree,
                                      !stated.sequence   ? ""
                                      : *stated.sequence ? " with sequence parallelism"
                                                         : " without sequence parallelism")}}};
}

}  // namespace dapple::interop
