#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/command_line/freed_memory.h"
#include "dapple/core/error.h"
#include "dapple/exec/train/rank_connections.h"
#include "dapple/exec/train/train.h"
#include "dapple/exec/weights/checkpoint.h"
#include "dapple/exec/weights/gpt2_weights.h"
#include "dapple/io/documents/documents.h"
#include "dapple/report/show.h"
#include "exec_app/commands/beside_prediction.h"
#include "exec_app/commands/commands.h"
#include "exec_app/commands/rank_process.h"
#include "exec_app/request/compute_device.h"
#include "exec_app/request/runnable_plan.h"
#include "exec_app/request/train_request.h"
#include "exec_app/request/training_session.h"

namespace dapple::exec_app {
namespace {

double samples_per_second(const TrainingSession& session, Duration time) {
  return static_cast<double>(session.job.global_batch_size()) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(1, time.ns));
}

std::string plural(std::int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

/// Prints the progress of a training line by line: on stdout, or on stderr if a result goes to
/// stdout.
class Teller {
 public:
  Teller(command_line::Console& of, bool out_is_taken)
      : console(of), out(of.words(out_is_taken).stream), tells_out_(!out_is_taken) {}

  /// Writes as much of the output as is possible without blocking. Returns false if nothing can be
  /// written any more, because the reader has closed stdout or the disk is full; the training's
  /// files do not depend on that.
  bool is_heard() {
    if (!tells_out_ || fault_ || has_nobody_) return !fault_ && !has_nobody_;
    try {
      console.offer();
    } catch (const command_line::NobodyListens&) {
      has_nobody_ = true;
    } catch (const Error& error) { fault_ = error; }
    return !fault_ && !has_nobody_;
  }
  /// The error of a failed write; none if the reader has closed stdout, which is not reported.
  const std::optional<Error>& fault() const { return fault_; }

  command_line::Console& console;
  std::ostream& out;

 private:
  const bool tells_out_;
  bool has_nobody_ = false;
  std::optional<Error> fault_;
};

/// Returns " in groups of 1, 2 and 4", or nothing where no device shares layers with others.
std::string show_groups(const exec::TrainingJob& job) {
  std::set<std::int64_t> sizes;
  for (const StagePlan& stage : job.plan.stages) {
    sizes.insert(job.ranks() * stage.devices_per_replica);
  }
  const std::int64_t largest = *sizes.rbegin();
  if (largest == 1) return "";
  sizes.erase(largest);
  return fmt::format(" in groups of {}{}{}", fmt::join(sizes, ", "), sizes.empty() ? "" : " and ",
                     largest);
}

void report_head(const RunnablePlan& plan, const TrainingSession& session, const char* carrier,
                 const ComputeDevice& device, Teller& teller) {
  const auto devices = static_cast<std::int64_t>(session.job.devices.size());
  const std::int64_t ranks = session.job.ranks();
  const std::string groups = show_groups(session.job);
  teller.out << fmt::format(
      "{} on {}, trained on {}{}{}, {} a step", printable(plan.document.profile.name),
      printable(plan.document.topology.name), plural(devices * ranks, carrier), groups,
      to_text(device), plural(session.job.global_batch_size(), "sample"));
  const std::string_view optimizer = nn::to_string(session.job.settings.optimizer.kind);
  const std::string& planned = plan.document.profile.optimizer.name;
  teller.out << fmt::format(", by {}", optimizer);
  if (planned != optimizer) teller.out << fmt::format(" in place of {}", printable(planned));
  if (session.steps_before() > 0) {
    teller.out << fmt::format(", from step {}", session.steps_before());
  } else if (session.start) {
    teller.out << ", from given weights";
  }
  teller.out << '\n';
}

void report_step(const TrainingSession& session, const exec::StepReport& step, Teller& teller) {
  teller.out << fmt::format("  step {:>4}  loss {:.5f}  {} samples/s\n", step.number, step.loss,
                            report::show_rate(samples_per_second(session, step.time)));
}

/// Prints every Nth step when it is completed, and the last step once it is known to be the last.
class StepTeller {
 public:
  StepTeller(const TrainRequest& request, const TrainingSession& session, Teller& teller)
      : every_(request.log_every), session_(session), teller_(teller) {}

  /// Returns whether output can still be written.
  bool tell(const exec::StepReport& step) {
    untold_ = step;
    if (step.number % every_ == 0) tell_last();
    return teller_.is_heard();
  }
  void tell_last() {
    if (untold_) report_step(session_, *untold_, teller_);
    untold_.reset();
  }

 private:
  const std::int64_t every_;
  const TrainingSession& session_;
  Teller& teller_;
  std::optional<exec::StepReport> untold_;
};

/// Reports a training that was stopped before its last step.
void report_interruption(const TrainRequest& request, const TrainingSession& session,
                         const exec::Trained& trained, Teller& teller) {
  if (trained.steps == request.steps) return;
  teller.out << fmt::format("  interrupted after step {} of {}{}\n",
                            session.steps_before() + trained.steps,
                            session.steps_before() + request.steps,
                            request.checkpoint || request.save_weights
                                ? ""
                                : "; the model is not kept, as --checkpoint is not given");
}

void report_end(const TrainRequest& request, const RunnablePlan& plan,
                const TrainingSession& session, const exec::Trained& trained, Teller& teller) {
  report_interruption(request, session, trained, teller);
  const Duration measured = trained.measured.median;
  const Duration predicted = plan.document.prediction.iteration;
  teller.out << fmt::format("  predicted  {}, simulated\n", report::show(predicted))
             << fmt::format(
                    "  measured   {}, the median of the last {}; {} samples/s\n",
                    report::show(measured, predicted),
                    plural(static_cast<std::int64_t>(trained.measured.iterations.size()), "step"),
                    report::show_rate(samples_per_second(session, measured)))
             << fmt::format(
                    "  whole step {}, from the start of one to that of the next; {} samples/s\n",
                    report::show(trained.whole_step, predicted),
                    report::show_rate(samples_per_second(session, trained.whole_step)))
             << fmt::format("  difference {:+.1f} %\n", 100 * (ratio_of(measured, predicted) - 1))
             << fmt::format("  sent       {} a step\n", report::show(trained.measured.sent));
  const auto named = [](const std::string& path) { return path == "-" ? "on stdout" : path; };
  if (request.checkpoint) {
    teller.out << fmt::format("  checkpoint {}, step {}\n", named(*request.checkpoint),
                              session.steps_before() + trained.steps);
  }
  if (request.save_weights) {
    teller.out << fmt::format("  weights    {}\n", named(*request.save_weights));
  }
}

exec::Checkpoint checkpoint_of(const TrainingSession& session, std::int64_t steps,
                               exec::NamedTensors tensors) {
  return {.steps = steps,
          .seed = session.job.settings.seed,
          .optimizer = session.job.settings.optimizer,
          .tensors = std::move(tensors)};
}

void save(const TrainRequest& request, const TrainingSession& session, std::int64_t steps,
          exec::NamedTensors tensors, command_line::Console& console) {
  std::string weights;
  if (request.save_weights) {
    const RunnableModel& model = session.model;
    weights = exec::write_gpt2_weights(tensors, *model.layers, model.operations, model.source);
  }
  if (request.checkpoint) {
    command_line::write_result(
        console, *request.checkpoint,
        exec::write_checkpoint(checkpoint_of(session, steps, std::move(tensors))));
  }
  if (request.save_weights) command_line::write_result(console, *request.save_weights, weights);
}

/// Warns of a checkpoint without a digest, whose integrity could not be verified.
void warn_of_start(const TrainRequest& request, const TrainingSession& session,
                   command_line::Console& console) {
  if (!request.resume || session.start->is_checked) return;
  command_line::print_warning(
      console, fmt::format("{} is a dapple-checkpoint/1, which has no digest: whether it is "
                           "as it was written cannot be checked",
                           command_line::source_name(*request.resume)));
}

/// Returns the error of a training that has ended because its output could not be written, with
/// what was saved.
Error untold(const Error& fault, const TrainRequest& request, std::int64_t step) {
  const std::string kept =
      request.checkpoint ? "and the model is in " + command_line::source_name(*request.checkpoint)
                         : "and the model is not kept, as --checkpoint is not given";
  return {fault.kind(),
          fault.source(),
          {{"", fmt::format("{}; the training has ended after step {}, {}",
                            fault.violations().front().message, step, kept)}}};
}

/// How the devices' parts are run: all of them on threads of this process, or one as a rank.
struct Carrier {
  const char* name = "thread";
  bool is_lead = true;   // whether this process reports the result
  bool is_alone = true;  // whether all devices are in this process
  std::function<void(const std::function<void(exec::DeviceTraining& device)>& part)> run = nullptr;
};

int train_session(const TrainRequest& request, const RunnablePlan& plan,
                  const TrainingSession& session, const Carrier& carrier, Teller& teller) {
  command_line::Console& console = teller.console;
  const command_line::SignalGuard interrupt(
      carrier.is_alone ? command_line::text_of_interruption(console, "the step") : std::string());
  exec::TrainOptions options{.steps_before = session.steps_before(),
                             .steps = request.steps,
                             .save_every = request.checkpoint_every};
  // Like a signal, output that cannot be written ends the training, and its files are still saved.
  std::atomic<bool> is_heard = teller.is_heard();
  StepTeller told(request, session, teller);
  options.on_step = [&](const exec::StepReport& step) { is_heard = told.tell(step); };
  options.should_stop = [&] { return interrupt.has_received() || !is_heard; };
  if (request.checkpoint || request.save_weights) {
    options.save = [&](std::int64_t steps, exec::NamedTensors tensors) {
      save(request, session, steps, std::move(tensors), console);
    };
  }
  std::optional<exec::Trained> trained;
  carrier.run([&](exec::DeviceTraining& device) {
    if (session.start) device.restore(session.start->tensors);
    std::optional<exec::Trained> result = exec::train(device, options);
    if (result) trained = std::move(result);
  });
  if (!trained) return command_line::kDone;
  if (!teller.fault()) told.tell_last();
  if (!teller.fault()) report_end(request, plan, session, *trained, teller);
  const Timeline& timeline = trained->measured.timeline;
  if (request.timeline) {
    command_line::write_result(
        console, *request.timeline,
        io::write_timeline(timeline, plan.topology, io::hash_of(plan.document)));
  }
  if (request.trace)
    command_line::write_result(console, *request.trace, io::write_trace(timeline, plan.topology));
  if (teller.fault()) {
    throw untold(*teller.fault(), request, session.steps_before() + trained->steps);
  }
  return command_line::kDone;
}

/// Says which experts come closest to being others, if rounding may change them.
void report_routing(const exec::Verification& verified, Teller& teller) {
  if (!verified.routing) return;
  const exec::ClosestRouting& closest = *verified.routing;
  teller.out << fmt::format(
      "  routing    of layer {}, sample {}, token {} in step {} has a margin of {:.2g} between\n"
      "             scores {} and {} ({:.6g} and {:.6g}), expected more than {:g}: rounding may "
      "choose other experts\n",
      printable(closest.layer), closest.sample, closest.token, verified.routing_step,
      closest.margin.size(), closest.per_token, closest.per_token + 1, closest.margin.chosen,
      closest.margin.next, verified.least_margin());
}

/// Returns whether the plan does what one device does, in words.
std::string verdict_of(const exec::Verification& verified) {
  if (verified.is_undecided()) {
    return fmt::format("undecided: it may do what one device does, within {:g}, with other experts",
                       verified.tolerance);
  }
  return fmt::format("{} what one device does, within {:g}",
                     verified.passed() ? "verified:  it is" : "failed:    it is not",
                     verified.tolerance);
}

int verify_session(const TrainRequest& request, const TrainingSession& session,
                   const Carrier& carrier, Teller& teller) {
  std::optional<exec::Verification> verified;
  carrier.run([&](exec::DeviceTraining& device) {
    if (session.start) device.restore(session.start->tensors);
    std::optional<exec::Verification> result =
        verify(device, session.steps_before(), request.steps);
    if (result) verified = std::move(result);
  });
  if (!verified) return command_line::kDone;
  const std::string tensors = plural(static_cast<std::int64_t>(verified->tensors), "tensor");
  const std::string steps = plural(verified->steps, "step");
  if (verified->gradients.relative == 0) {
    teller.out << fmt::format("  gradients  of {} do not differ\n", tensors);
  } else {
    teller.out << fmt::format("  gradients  of {} differ by {:.2g} at most\n", tensors,
                              verified->gradients.relative)
               << fmt::format("             by that {} of step {}\n",
                              printable(verified->gradients.name), verified->gradients.step);
  }
  teller.out << (verified->loss == 0 ? fmt::format("  losses     of {} do not differ\n", steps)
                                     : fmt::format("  losses     of {} differ by {:.2g} at most\n",
                                                   steps, verified->loss));
  report_routing(*verified, teller);
  teller.out << "  " << verdict_of(*verified) << '\n';
  return verified->passed() ? command_line::kDone : command_line::kNotVerified;
}

int run_session(const TrainRequest& request, const RunnablePlan& plan,
                const TrainingSession& session, const Carrier& carrier,
                command_line::Console& console) {
  command_line::keep_freed_memory();
  Teller teller(console, command_line::takes_stdout(outputs_of(request)));
  if (carrier.is_lead) {
    warn_of_start(request, session, console);
    report_head(plan, session, carrier.name, request.device, teller);
  }
  if (!request.verifies) return train_session(request, plan, session, carrier, teller);
  console.deliver();
  return verify_session(request, session, carrier, teller);
}

/// Returns a function from a device's schedule to its connections. The session must outlive it.
ConnectionsOf connections_in(const TrainingSession& session) {
  return [&job = session.job](const DeviceSchedule& own) {
    return exec::connections_of(job, own.device);
  };
}

int train_on_threads(const TrainRequest& request, command_line::Console& console) {
  check_outputs(request);
  const RunnablePlan plan(request.plan);
  const TrainingSession session = make_session(request, plan);
  log_threads(plan, session.job.ranks());
  const GpuShare share{.devices = session.job.numbers().size()};
  exec::ThreadsOptions threads;
  threads.transport.timeout = request.timeout;
  threads.make_backend = make_backend_for(request.device, share);
  threads.make_end_over = make_gpu_ends(request.device, {.topology = plan.single_devices,
                                                         .connections_of = connections_in(session),
                                                         .share = share,
                                                         .timeout = request.timeout});
  threads.computes_on_threads = request.device.kind == ComputeDevice::Kind::Cpu;
  Carrier carrier;
  carrier.run = [&](const std::function<void(exec::DeviceTraining&)>& part) {
    exec::run_on_threads(session.job, plan.single_devices, threads, part);
  };
  return run_session(request, plan, session, carrier, console);
}

int train_as_rank(const TrainRequest& request, const RunnablePlan& plan,
                  command_line::Console& console, exec::RankJob& job,
                  exec::CrashRecord* crash_record) {
  if (job.rank() == 0) check_outputs(request);
  const TrainingSession session = make_session(request, plan);
  const std::vector<DeviceIndex> devices = session.job.numbers();
  const std::unique_ptr<exec::Transport> end =
      join_job(job, plan.single_devices, devices,
               {.pacing = {},
                .timeout = request.timeout,
                .crash_record = crash_record,
                .agreement = agreement_of(request, plan, session)});
  const DeviceIndex own = devices[static_cast<std::size_t>(job.rank())];
  const GpuShare share = gpu_share(job);
  const exec::MakeBackend make_backend = make_backend_for(request.device, share);
  const exec::MakeEndOver make_end_over =
      make_gpu_ends(request.device, {.topology = plan.single_devices,
                                     .connections_of = connections_in(session),
                                     .share = share,
                                     .timeout = request.timeout});
  const std::unique_ptr<exec::Transport> between_gpus = make_end_over(
      *end, exec::schedules_of_numbers(session.job), static_cast<std::size_t>(job.rank()));
  Carrier carrier{.name = "rank", .is_lead = job.rank() == 0, .is_alone = false};
  carrier.run = [&](const std::function<void(exec::DeviceTraining&)>& part) {
    exec::DeviceTraining device(session.job, own, between_gpus ? *between_gpus : *end,
                                make_backend);
    part(device);
  };
  return run_session(request, plan, session, carrier, console);
}

int run_train(const command_line::Options& options, command_line::Console& console) {
  const TrainRequest request = train_request(options);
  use_kernels_of(request.device);
  if (!is_rank()) return train_on_threads(request, console);
  check_rank_inputs(inputs_of(request));
  const RunnablePlan plan(request.plan);
  check_rank_count(plan.rank_count());
  return run_as_rank(console, request.timeout,
                     [&](exec::RankJob& job, exec::CrashRecord* crash_record) {
                       return train_as_rank(request, plan, console, job, crash_record);
                     });
}

}  // namespace

command_line::Command train_command() {
  return {.description =
              {.name = "train",
               .summary = "train a plan's model by the plan on this machine",
               .usage = {"dapple-exec train PLAN [options]",
                         "mpirun -np N dapple-exec train PLAN [options]"},
               .details =
                   {"Every device of the plan is a thread, or a rank that mpirun, torchrun or "
                    "srun has started, in the order of the plan's devices; --verbose says which. "
                    "Every layer is what its \"op\" in the profile says.",
                    "Ctrl-C ends the training after the current step."},
               .takes_files = true,
               .options = train_options(),
               .examples =
                   {"dapple-exec profile --spec profiles/mlp.json -o profile.json",
                    "dapple-plan --model profile.json --topo topologies/2xcpu.json -o plan.json",
                    "dapple-exec train plan.json --steps 5 --clip-norm 1"},
               .exit_codes = {{command_line::kEnvironment, "a file, a GPU or a peer failed"},
                              {command_line::kNotVerified,
                               "--verify found a difference, or cannot tell"}}},
          .run = run_train};
}

}  // namespace dapple::exec_app
