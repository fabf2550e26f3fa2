#include "interop/plans/pipedream_conf.h"

#include <fmt/format.h>

#include <numeric>

#include "interop/text/foreign_json.h"

namespace dapple::interop {
namespace {

constexpr io::IntegerRange kNumbers{0, 999'999};

std::vector<std::int32_t> read_numbers(const io::Field& field, std::string_view what) {
  const io::ArrayReader array(field, what);
  std::vector<std::int32_t> numbers;
  for (std::size_t i = 0; i < array.size(); ++i) {
    numbers.push_back(static_cast<std::int32_t>(io::required_integer(array.at(i), kNumbers)));
  }
  return numbers;
}

class ConfReader {
 public:
  ConfReader(std::size_t modules, const std::string& answer) : modules_(modules), answer_(answer) {}

  PipedreamConf read(const io::Field& field) {
    io::ObjectReader document(field);
    if (!document.valid()) return std::move(conf_);
    read_own_keys(document);
    const io::Field depths = document.field("stage_to_depth_map");
    const io::Field ranks = document.field("stage_to_rank_map");
    if (!read_modules(document.field("module_to_stage_map"))) return std::move(conf_);
    read_ranks(ranks);
    if (depths.present()) read_depths(depths);
    return std::move(conf_);
  }

 private:
  /// Reads the keys that only `export` writes.
  void read_own_keys(io::ObjectReader& document) {
    const io::Field devices = document.field("rank_to_device_map");
    const io::Field global_batch = document.field("global_batch_size");
    const io::Field micro_batch = document.field("micro_batch_size");
    const io::Field replication = document.field("replication");
    const io::Field recompute = document.field("recompute");
    if (devices.present()) read_devices(devices);
    if (global_batch.present())
      conf_.global_batch = io::read_integer(global_batch, io::kSampleRange);
    if (micro_batch.present()) conf_.micro_batch = io::read_integer(micro_batch, io::kSampleRange);
    if (replication.present()) {
      const bool splits = io::read_choice(replication, {"split", "deal"}) == 0U;
      conf_.replication = splits ? Replication::Split : Replication::Deal;
    }
    if (recompute.present()) conf_.recompute = io::read_boolean(recompute).value_or(false);
  }

  std::size_t stage_count() const {
    return conf_.stage_of.empty() ? 0 : static_cast<std::size_t>(conf_.stage_of.back()) + 1;
  }

  /// Reads the stage of each module. Returns false if the stages could not be determined.
  bool read_modules(const io::Field& field) {
    conf_.stage_of.resize(modules_);
    std::iota(conf_.stage_of.begin(), conf_.stage_of.end(), 0);
    if (!field.present() && !answer_.empty()) return true;
    std::vector<std::int32_t> stages = read_numbers(field, "an array of stages");
    if (stages.size() == modules_ + 1) stages.pop_back();  // the loss
    if (stages.size() != modules_) {
      if (field.present()) add_wrong_count(field, stages.size());
      return false;
    }
    for (std::size_t m = 0; m < modules_; ++m) {
      const std::int32_t before = m == 0 ? -1 : stages[m - 1];
      const bool is_next = stages[m] == before + 1 || (m > 0 && stages[m] == before);
      if (is_next) continue;
      field.add(
          fmt::format("expected stages from 0 on, each as the one before it or the next, got "
                      "{} for module {}",
                      stages[m], m));
      return false;
    }
    conf_.stage_of = std::move(stages);
    return true;
  }

  void add_wrong_count(const io::Field& field, std::size_t count) const {
    field.add(answer_.empty()
                  ? fmt::format("expected a graph with stages (gpus=N.txt) next to it, or a stage "
                                "for each of the {} layers of the profile and one for the loss, "
                                "got {}",
                                modules_, count)
                  : fmt::format("expected a stage for each of the {} stages of {}, and one for the "
                                "loss, got {}",
                                modules_, answer_, count));
  }

  /// Calls `read` with the members "0", "1", ... of an object, one for each stage.
  template <class Read>
  void read_by_stage(const io::Field& field, Read read) {
    io::ObjectReader by_stage(field);
    if (!by_stage.valid()) return;
    const std::size_t count = stage_count();
    if (field.value().keys.size() != count) {
      field.add(fmt::format("expected the {} stages of {}, got {}", count,
                            answer_.empty() ? "module_to_stage_map" : answer_,
                            field.value().keys.size()));
    }
    for (std::size_t s = 0; s < count; ++s) read(by_stage.field(fmt::format("{}", s)));
  }

  void read_ranks(const io::Field& field) {
    read_by_stage(field, [&](const io::Field& stage) {
      conf_.ranks.push_back(read_numbers(stage, "an array of ranks"));
    });
  }

  /// Reads the warm-up depths. PipeDream's depth excludes the forward that immediately precedes the
  /// first backward, and is therefore one less.
  void read_depths(const io::Field& field) {
    read_by_stage(field, [&](const io::Field& stage) {
      conf_.depths.push_back(io::required_integer(stage, kNumbers) + 1);
    });
  }

  void read_devices(const io::Field& field) {
    const io::ArrayReader array(field, "an array of device names");
    for (std::size_t i = 0; i < array.size(); ++i) {
      conf_.devices.push_back(io::read_name(array.at(i)).value_or(""));
    }
  }

  std::size_t modules_;
  const std::string& answer_;
  PipedreamConf conf_;
};

}  // namespace

PipedreamConf read_pipedream_conf(const ForeignPlanFile& file, std::size_t modules,
                                  const std::string& answer) {
  return io::read_document<PipedreamConf>(file.text, file.name, [&](const io::Field& field) {
    return ConfReader(modules, answer).read(field);
  });
}

}  // namespace dapple::interop
