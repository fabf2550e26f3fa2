// What every reader promises for any bytes: it reads them, or throws Error(BadInput) with at least
// one violation; and what reads fine survives being written and read again. Each entry throws a Bug
// where a promise is broken; whatever else comes out of one breaks a promise, too. They return
// whether the bytes were read, rather than refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dapple::fuzz {

bool exercise_profile(std::string_view text);

/// A profile, with measurements or without, whose layers say what they do; also makes the modules.
bool exercise_specification(std::string_view text);

/// Also expands the description to a Topology, and asks it for its routes.
bool exercise_topology(std::string_view text);

/// Also validates the plan, which the reader need not have found sound; only a sound one is
/// written.
bool exercise_plan(std::string_view text);

/// A timeline of a small cluster's, of the plan whose hash is all zeros.
bool exercise_timeline(std::string_view text);
/// A proof of the bound of the plan whose hash is all zeros.
bool exercise_proof(std::string_view text);

/// A trade-off; what is read must be one that can be written.
bool exercise_trade_off(std::string_view text);

/// PipeDream's graph text; what is imported must be a profile that can be written.
bool exercise_pipedream(std::string_view text);

/// Topologies of other tools, of whatever kind the text looks like, Slurm's and nccl-tests' beside
/// a sound server; what is imported must be a topology that can be written, with its routes.
bool exercise_foreign(std::string_view text);

/// Profiles of other planners, of whatever kind the text looks like, Galvatron's two beside a sound
/// other one; what is imported must be a profile that can be written.
bool exercise_foreign_model(std::string_view text);

/// Plans of other tools for a small model and topology, those of several files beside sound others;
/// what is imported must be sound and have a schedule.
bool exercise_foreign_plan(std::string_view text);

/// Configurations of models; what is estimated of one must be a profile that can be written, or
/// larger than any profile may be.
bool exercise_configuration(std::string_view text);

/// Figures of GPUs.
bool exercise_gpus(std::string_view text);

/// Whether other tools' files of the three kinds are told from all others.
bool knows_foreign(std::string_view text);
bool knows_foreign_model(std::string_view text);
bool knows_foreign_plan(std::string_view text);

struct Entry {
  const char* name;
  bool (*exercise)(std::string_view text);
  /// Whether a sample is for this entry; null if all that it is given are.
  bool (*knows)(std::string_view text) = nullptr;
};
inline constexpr Entry kEntries[] = {
    {"profile", exercise_profile},
    {"specification", exercise_specification},
    {"topology", exercise_topology},
    {"plan", exercise_plan},
    {"timeline", exercise_timeline},
    {"proof", exercise_proof},
    {"trade_off", exercise_trade_off},
    {"pipedream", exercise_pipedream},
    {"foreign", exercise_foreign, knows_foreign},
    {"foreign_model", exercise_foreign_model, knows_foreign_model},
    {"foreign_plan", exercise_foreign_plan, knows_foreign_plan},
    {"configuration", exercise_configuration},
    {"gpus", exercise_gpus},
};

/// A small sound document for the entry of that name. Requires: there is one.
std::string example_for(std::string_view entry);

}  // namespace dapple::fuzz
