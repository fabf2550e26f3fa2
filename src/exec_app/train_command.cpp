#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/exec/batches.h"
#include "dapple/exec/checkpoint.h"
#include "dapple/exec/freed_memory.h"
#include "dapple/exec/train.h"
#include "dapple/io/documents.h"
#include "dapple/io/specification.h"
#include "dapple/nn/model.h"
#include "runnable_plan.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-exec train: a plan's model, trained by the plan on this machine's CPU.

Usage: dapple-exec train --plan PLAN [options]

Every device is a thread, every layer what its "op" says, in single precision.

  --plan FILE           whose profile dapple-exec profile wrote; "-" is stdin
  --steps N             optimizer steps                            (default: 10)
  --tokens FILE         little-endian tokens of two bytes; without it, made up
  --seed N              of first parameters and samples             (default: 1)
  --optimizer KIND      adamw, adam, momentum or sgd            (default: adamw)
  --learning-rate X                                             (default: 0.001)
  --weight-decay X      from 0 to below 1                           (default: 0)
  --clip-norm X         the largest norm of all gradients together
  --checkpoint FILE     the model in the end, in safetensors; Ctrl-C ends the
                        training after the step that it is at
  --checkpoint-every N  and after every N steps
  --resume FILE         goes on from a checkpoint, of any plan of the model;
                        seed and optimizer are its own unless given
  --verify              compares losses and gradients with those of one device;
                        exit code 1 if one differs by more than 1e-5
  --timeline FILE       the median step of the last hundred, dapple-timeline/1
  --trace FILE          the same for chrome://tracing or ui.perfetto.dev
  --timeout SECONDS     of every wait for another device           (default: 30)
  -v, --verbose         what is done, on stderr
  -h, --help            this

Example
  dapple-exec train --plan gpt2-tiny.plan.json --steps 100 --clip-norm 1

Exit code: 0 done, 1 not verified, 2 usage, 3 bad input, 5 files, or a device
that does not answer.
)";

constexpr std::int64_t kMostSteps = 1'000'000'000;

/// Nothing where an option was not given.
struct GivenSettings {
  std::optional<nn::OptimizerKind> optimizer;
  std::optional<float> learning_rate;
  std::optional<float> weight_decay;
  std::optional<double> clip_norm;
  std::optional<std::uint64_t> seed;
};

struct Request {
  std::string plan;
  GivenSettings settings;
  std::int64_t steps = 10;
  std::optional<std::string> tokens;
  std::optional<std::string> checkpoint;
  std::int64_t checkpoint_every = 0;
  std::optional<std::string> resume;
  bool verifies = false;
  std::optional<std::string> timeline;
  std::optional<std::string> trace;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

double number_of(Factor factor) {
  return static_cast<double>(factor.billionths) * 1e-9;
}

GivenSettings given_settings(const Options& options) {
  GivenSettings given;
  if (options.has("optimizer")) {
    const std::string kind = options.choice("optimizer", {"adamw", "adam", "momentum", "sgd"});
    for (const auto candidate : {nn::OptimizerKind::Sgd, nn::OptimizerKind::Momentum,
                                 nn::OptimizerKind::Adam, nn::OptimizerKind::AdamW}) {
      if (nn::to_string(candidate) == kind) given.optimizer = candidate;
    }
  }
  if (const auto rate = options.positive_factor("learning-rate")) {
    given.learning_rate = static_cast<float>(number_of(*rate));
  }
  if (const auto decay = options.fraction("weight-decay")) {
    given.weight_decay = static_cast<float>(number_of(*decay));
  }
  if (const auto norm = options.positive_factor("clip-norm")) given.clip_norm = number_of(*norm);
  if (const auto seed = options.positive_integer("seed", INT64_MAX)) {
    given.seed = static_cast<std::uint64_t>(*seed);
  }
  return given;
}

/// What was given goes before what the checkpoint says, and that before the defaults.
TrainingSettings settings_of(const GivenSettings& given, const std::optional<Checkpoint>& start) {
  TrainingSettings settings{.clip_norm = given.clip_norm};
  if (start) {
    settings.optimizer = start->optimizer;
    settings.seed = start->seed;
  }
  nn::OptimizerSettings& optimizer = settings.optimizer;
  optimizer.kind = given.optimizer.value_or(optimizer.kind);
  optimizer.learning_rate = given.learning_rate.value_or(optimizer.learning_rate);
  optimizer.weight_decay = given.weight_decay.value_or(optimizer.weight_decay);
  settings.seed = given.seed.value_or(settings.seed);
  return settings;
}

Request request_of(const Options& options) {
  if (!options.positional().empty()) {
    throw usage_error(options.positional().front(), "expected options only");
  }
  Request request{.plan = options.required("plan", "a plan file"),
                  .settings = given_settings(options),
                  .tokens = options.text("tokens"),
                  .checkpoint = options.text("checkpoint"),
                  .resume = options.text("resume"),
                  .verifies = options.has("verify"),
                  .timeline = options.text("timeline"),
                  .trace = options.text("trace")};
  if (const auto steps = options.positive_integer("steps", kMostSteps)) request.steps = *steps;
  if (const auto every = options.positive_integer("checkpoint-every", kMostSteps)) {
    if (!request.checkpoint) {
      throw usage_error("--checkpoint-every", "expected --checkpoint FILE beside it");
    }
    request.checkpoint_every = *every;
  }
  if (const auto timeout = options.positive_seconds("timeout")) {
    request.timeout = std::chrono::nanoseconds(timeout->ns);
  }
  for (const char* name : {"checkpoint", "timeline", "trace"}) {
    if (request.verifies && options.has(name)) {
      throw usage_error(std::string("--") + name, "expected no --verify beside it");
    }
  }
  return request;
}

void check_outputs(const Request& request) {
  std::vector<NamedPath> outputs;
  std::vector<NamedPath> inputs{{"--plan", request.plan}};
  if (request.checkpoint) outputs.push_back({"--checkpoint", *request.checkpoint});
  if (request.timeline) outputs.push_back({"--timeline", *request.timeline});
  if (request.trace) outputs.push_back({"--trace", *request.trace});
  if (request.tokens) inputs.push_back({"--tokens", *request.tokens});
  check_outputs(outputs, inputs);
}

/// A job with what it goes on from.
struct Session {
  TrainingJob job;
  std::optional<Checkpoint> start;
  std::int64_t steps_before() const { return start ? start->steps : 0; }
};

std::optional<Checkpoint> read_start(const Request& request) {
  constexpr std::size_t kMost = std::size_t{1} << 40;
  if (!request.resume) return std::nullopt;
  return read_checkpoint(read_file(*request.resume, kMost), source_name(*request.resume));
}

Session make_session(const Request& request, const RunnablePlan& plan) {
  const std::string source = source_name(request.plan);
  const std::vector<Operation> operations = read_operations(plan.document.profile, source);
  auto layers = std::make_shared<const std::vector<nn::ModelLayer>>(
      nn::make_model(plan.document.profile, operations, source));
  std::optional<Checkpoint> start = read_start(request);
  const TrainingSettings settings = settings_of(request.settings, start);
  std::vector<Violation> faults =
      training_faults(plan.document.plan, plan.document.profile, *layers, settings);
  if (!faults.empty()) throw Error(ErrorKind::BadInput, source, std::move(faults));
  if (start) {
    faults = restoring_faults(*start, *layers, settings.optimizer.kind);
    if (!faults.empty()) {
      throw Error(ErrorKind::BadInput, source_name(*request.resume), std::move(faults));
    }
  }
  const BatchShape shape = batch_shape(operations, *layers);
  std::shared_ptr<const Batches> batches =
      request.tokens ? make_token_batches(read_file(*request.tokens), source_name(*request.tokens),
                                          shape, settings.seed)
                     : make_synthetic_batches(shape, settings.seed);
  return {.job = make_training_job(plan.document.plan, plan.document.profile, plan.topology,
                                   std::move(layers), std::move(batches), settings),
          .start = std::move(start)};
}

double milliseconds(Duration time) {
  return static_cast<double>(time.ns) * 1e-6;
}

double samples_per_second(const Session& session, Duration time) {
  return static_cast<double>(session.job.plan.global_batch_size) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(1, time.ns));
}

std::string plural(std::int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

void report_head(const RunnablePlan& plan, const Session& session, Console& console) {
  const auto devices = static_cast<std::int64_t>(session.job.devices.size());
  console.out << fmt::format("{} on {}, trained on {}, {} a step", plan.document.profile.name,
                             plan.document.topology.name, plural(devices, "thread"),
                             plural(session.job.plan.global_batch_size, "sample"));
  if (session.start) { console.out << fmt::format(", from step {}", session.start->steps); }
  console.out << '\n';
  console.deliver();
}

void report_step(const Session& session, const StepReport& step, Console& console) {
  console.out << fmt::format("  step {:>4}  loss {:.5f}  {:.1f} samples/s\n", step.number,
                             step.loss, samples_per_second(session, step.time));
  console.deliver();
}

void report_end(const RunnablePlan& plan, const Session& session, const Trained& trained,
                Console& console) {
  const Duration measured = trained.measured.median;
  const Duration predicted = plan.document.prediction.iteration;
  const double ratio = static_cast<double>(measured.ns) /
                       static_cast<double>(std::max<std::int64_t>(1, predicted.ns));
  console.out << fmt::format("  predicted  {:.3f} ms, simulated\n", milliseconds(predicted));
  console.out << fmt::format(
      "  measured   {:.3f} ms, the median of the last {}; {:.1f} samples/s\n",
      milliseconds(measured),
      plural(static_cast<std::int64_t>(trained.measured.iterations.size()), "step"),
      samples_per_second(session, measured));
  console.out << fmt::format("  difference {:+.1f} %\n", 100 * (ratio - 1));
  console.out << fmt::format("  sent       {:.3f} MB a step\n",
                             static_cast<double>(trained.measured.sent.count) * 1e-6);
}

Checkpoint checkpoint_of(const Session& session, std::int64_t steps, NamedTensors tensors) {
  return {.steps = steps,
          .seed = session.job.settings.seed,
          .optimizer = session.job.settings.optimizer,
          .tensors = std::move(tensors)};
}

int train_session(const Request& request, const RunnablePlan& plan, const Session& session,
                  Console& console) {
  const SignalGuard interrupt;
  TrainOptions options{.steps_before = session.steps_before(),
                       .steps = request.steps,
                       .save_every = request.checkpoint_every};
  options.on_step = [&](const StepReport& step) { report_step(session, step, console); };
  options.should_stop = [&] { return interrupt.has_received(); };
  if (request.checkpoint) {
    options.save = [&](std::int64_t steps, NamedTensors tensors) {
      write_result(console, *request.checkpoint,
                   write_checkpoint(checkpoint_of(session, steps, std::move(tensors))));
    };
  }
  report_head(plan, session, console);
  std::optional<Trained> trained;
  run_on_threads(session.job, plan.topology, {.pacing = {}, .timeout = request.timeout},
                 [&](DeviceTraining& device) {
                   if (session.start) device.restore(session.start->tensors);
                   std::optional<Trained> result = train(device, options);
                   if (result) trained = std::move(result);
                 });
  report_end(plan, session, *trained, console);
  if (request.checkpoint) {
    console.out << fmt::format("  checkpoint {}, step {}\n", *request.checkpoint,
                               session.steps_before() + trained->steps);
  }
  const Timeline& timeline = trained->measured.timeline;
  if (request.timeline) {
    write_result(console, *request.timeline,
                 write_timeline(timeline, plan.topology, hash_of(plan.document)));
  }
  if (request.trace) write_result(console, *request.trace, write_trace(timeline, plan.topology));
  return kDone;
}

int verify_session(const Request& request, const RunnablePlan& plan, const Session& session,
                   Console& console) {
  report_head(plan, session, console);
  std::optional<Verification> verified;
  run_on_threads(session.job, plan.topology, {.pacing = {}, .timeout = request.timeout},
                 [&](DeviceTraining& device) {
                   if (session.start) device.restore(session.start->tensors);
                   auto result = verify(device, session.steps_before(), request.steps);
                   if (result) verified = std::move(result);
                 });
  console.out << fmt::format("  gradients  {} differ by {:.2g} at most, {} of step {}\n",
                             plural(static_cast<std::int64_t>(verified->tensors), "tensor"),
                             verified->gradients.relative, verified->gradients.name,
                             verified->gradients.step);
  console.out << fmt::format("  losses     of {} differ by {:.2g} at most\n",
                             plural(verified->steps, "step"), verified->loss);
  console.out << fmt::format("  {} what one device does, within {:g}\n",
                             verified->passed() ? "verified:  it is" : "failed:    it is not",
                             Verification::kTolerance);
  return verified->passed() ? kDone : kBug;
}

int run_train(const Options& options, Console& console) {
  const Request request = request_of(options);
  check_outputs(request);
  keep_freed_memory();
  const RunnablePlan plan(request.plan);
  const Session session = make_session(request, plan);
  return request.verifies ? verify_session(request, plan, session, console)
                          : train_session(request, plan, session, console);
}

}  // namespace

Command train_command() {
  return {.name = "train",
          .help = kHelp,
          .options = {{.name = "plan"},
                      {.name = "steps"},
                      {.name = "tokens"},
                      {.name = "seed"},
                      {.name = "optimizer"},
                      {.name = "learning-rate"},
                      {.name = "weight-decay"},
                      {.name = "clip-norm"},
                      {.name = "checkpoint"},
                      {.name = "checkpoint-every"},
                      {.name = "resume"},
                      {.name = "verify", .takes_value = false},
                      {.name = "timeline"},
                      {.name = "trace"},
                      {.name = "timeout"}},
          .run = run_train};
}

}  // namespace dapple
