// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "imbrex/core/error.h"
#include "imbrex/runtime/tuner.h"
#include "imbrex/vgpu/bent_rule.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "imbrex/vgpu/watch.h"
#include "subcommands.h"
#include "timeline_text.h"

namespace imbrex::command {
namespace {

struct Options {
  KernelChoice choice;
  std::string device = "auto", checks = "on", math = "exact";
  uint64_t seed = 0;
  int seeds = 1;
  int sms = 0, threads = 0;
  int64_t budget = 0;
  std::shared_ptr<vgpu::Watch> watch;
  bool practical = false, json = false, stats = false, no_prediction = false;
};

struct Outcome {
  uint64_t seed = 0;
  bool verified = false;
  double max_rel_err = 0;
  LaunchReport report;
  std::vector<Comparison> comparisons;
};

vgpu::Options virtual_options(const Options& options, uint64_t seed) {
  vgpu::Options result;
  result.watch = options.watch;
  result.seed = seed;
  if (options.checks == "off") result.checks = vgpu::CheckSet::none();
  if (options.checks == "all") result.checks = vgpu::CheckSet::all();
  if (options.practical) result.strictness = vgpu::Strictness::kPractical;
  result.tensor_math = options.math == "fast" ? vgpu::TensorMath::kFast : vgpu::TensorMath::kExact;
  result.num_sms = options.sms;
  result.host_threads = options.threads;
  result.instruction_budget = options.budget;
  return result;
}

Outcome run_once(const RegisteredKernel& kernel, const Device& device, const Options& options,
                 const Configuration& configuration, uint64_t seed) {
  if (device.is_virtual()) {
    vgpu::Options virtual_gpu = virtual_options(options, seed);
    virtual_gpu.target = kernel.target;
    // The schedule does not change the prediction: once is enough.
    virtual_gpu.timeline.record = !options.no_prediction && seed == options.seed;
    device.virtual_machine().set_options(virtual_gpu);
  }
  Case c(Case::Mode::kRun, device, options.choice.sizes(), seed);
  kernel.run(c, device, configuration);
  return {seed, c.verified(), c.max_rel_err(), c.report, c.comparisons};
}

/// What a CUDA GPU cannot follow.
constexpr std::initializer_list<const char*> kVirtualOptions = {
    "--seeds", "--checks",  "--strict", "--practical",     "--math",
    "--sms",   "--threads", "--budget", "--no-prediction", "--stats"};

bool passed(const Outcome& outcome) { return outcome.verified && outcome.report.clean(); }

std::string with_thousands(int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    digits.insert(at, "'");
  return digits;
}

void print_statistics(const vgpu::Statistics& s) {
  auto row = [](const char* name, int64_t value) {
    if (value != 0) fmt::print("  {:<28}{:>20}\n", name, with_thousands(value));
  };
  row("CTAs", s.ctas);
  row("warp instructions", s.instructions);
  row("lane instructions", s.lane_instructions);
  row("global bytes read", s.global_bytes_read);
  row("global bytes written", s.global_bytes_written);
  row("shared bytes read", s.shared_bytes_read);
  row("shared bytes written", s.shared_bytes_written);
  row("local bytes read", s.local_bytes_read);
  row("local bytes written", s.local_bytes_written);
  row("cp.async bytes", s.cp_async_bytes);
  row("TMA bytes loaded", s.tma_bytes_loaded);
  row("TMA bytes stored", s.tma_bytes_stored);
  row("tensor memory bytes", s.tensor_memory_bytes);
  row("tensor core FLOP", s.tensor_flops);
  row("asynchronous operations", s.async_operations);
  row("waits at barriers", s.barrier_waits);
}

nlohmann::ordered_json finding_json(const vgpu::Finding& finding) {
  return {{"kind", vgpu::name(finding.kind)},
          {"severity", vgpu::name(finding.severity)},
          {"rule", vgpu::name(finding.rule)},
          {"message", finding.message},
          {"file", finding.place.file},
          {"line", finding.place.line},
          {"ptx_line", finding.place.ptx_line},
          {"cta", finding.actor.cta},
          {"warp", finding.actor.warp},
          {"lane", finding.actor.lane},
          {"count", finding.count},
          {"hint", finding.hint},
          {"text", finding.format()}};
}

void add_prediction(nlohmann::ordered_json& out, const vgpu::Timeline& timeline) {
  if (!timeline.complete) return;
  out["predicted_us"] = timeline.microseconds();
  out["predicted_cycles"] = timeline.cycles;
  out["predicted_for"] = {{"chip", timeline.chip},
                          {"clock_ghz", timeline.clock_ghz},
                          {"multiprocessors", timeline.sms},
                          {"at_work", timeline.active_sms}};
  out["overlap"] = timeline.overlap < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(timeline.overlap);
  out["utilisation"] = {{"tensor_core", timeline.use.tensor_core},
                        {"tma", timeline.use.tma},
                        {"l2", timeline.use.l2},
                        {"memory", timeline.use.hbm},
                        {"issue", timeline.use.issue},
                        {"waiting", timeline.use.waiting}};
}

void print_json(const RegisteredKernel& kernel, const Device& device, const Options& options,
                const Configuration& configuration, const std::string& origin,
                const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array(), notes = findings,
                         failing = nlohmann::ordered_json::array();
  bool verified = true;
  double max_rel_err = 0, ms = 0;
  for (const Outcome& outcome : outcomes) {
    verified = verified && outcome.verified;
    max_rel_err = std::max(max_rel_err, outcome.max_rel_err);
    ms += outcome.report.milliseconds / static_cast<double>(outcomes.size());
    const auto add = [&](const std::vector<vgpu::Finding>& from, nlohmann::ordered_json& to) {
      for (const vgpu::Finding& finding : from) {
        to.push_back(finding_json(finding));
        to.back()["seed"] = outcome.seed;
      }
    };
    add(outcome.report.virtual_report.findings, findings);
    add(outcome.report.virtual_report.notes, notes);
    if (!passed(outcome)) failing.push_back(outcome.seed);
  }
  nlohmann::ordered_json sizes(options.choice.sizes());
  const vgpu::Statistics& s = outcomes.back().report.virtual_report.statistics;
  nlohmann::ordered_json out = {{"kernel", kernel.description.name},
                                {"device", device.name()},
                                {"target", kernel.target},
                                {"config", kernel.space.to_string(configuration)},
                                {"tuned", !origin.empty()},
                                {"sizes", sizes},
                                {"seeds", outcomes.size()},
                                {"failing_seeds", failing},
                                {"verified", verified},
                                {"max_rel_err", max_rel_err},
                                {"findings", findings},
                                {"notes", notes},
                                {"ms", ms}};
  if (device.is_virtual()) {
    out["tensor_math"] = options.math;
    out["checks"] = options.checks;
    out["statistics"] = {{"ctas", s.ctas},
                         {"instructions", s.instructions},
                         {"lane_instructions", s.lane_instructions},
                         {"tensor_flops", s.tensor_flops},
                         {"tma_bytes_loaded", s.tma_bytes_loaded},
                         {"tma_bytes_stored", s.tma_bytes_stored},
                         {"cp_async_bytes", s.cp_async_bytes}};
  }
  if (const auto& timeline = outcomes.front().report.virtual_report.timeline; timeline != nullptr)
    add_prediction(out, *timeline);
  fmt::print("{}\n", out.dump(2));
}

void print_text(const RegisteredKernel& kernel, const Device& device, const Options& options,
                const Configuration& configuration, const std::string& origin,
                const std::vector<Outcome>& outcomes) {
  std::vector<std::string> sizes;
  for (const SizeOption& size : kernel.description.sizes)
    sizes.push_back(fmt::format("{}={}", size.name, options.choice.sizes().at(size.name)));
  fmt::print("{}  {}\n", kernel.description.name, fmt::join(sizes, " "));
  if (!configuration.empty())
    fmt::print("  config    {}{}\n", kernel.space.to_string(configuration),
               origin.empty() ? "" : fmt::format("  ({})", origin));
  fmt::print("  device    {}", device.name());
  if (device.is_virtual()) fmt::print(", tensor math {}, checks {}", options.math, options.checks);
  fmt::print("\n");
  int failures = 0;
  bool has_findings = false;
  double ms = 0;
  for (const Outcome& outcome : outcomes) {
    ms += outcome.report.milliseconds;
    has_findings = has_findings || !outcome.report.virtual_report.findings.empty();
    if (passed(outcome)) continue;
    if (++failures > 3) continue;
    if (outcomes.size() > 1)
      fmt::print("  seed {} failed; replay it with --seed {}\n", outcome.seed, outcome.seed);
    std::string findings = outcome.report.virtual_report.format();
    if (!findings.empty()) fmt::print("{}\n", findings);
    for (const Comparison& comparison : outcome.comparisons)
      if (!comparison.passed) fmt::print("  WRONG     {}\n", comparison.format());
    if (outcome.comparisons.empty())
      fmt::print("  WRONG     nothing was compared: the case states no reference, by c.expect(...)\n");
  }
  const Outcome& last = outcomes.back();
  if (failures == 0) {
    for (const Comparison& comparison : last.comparisons) fmt::print("  verified  {}\n", comparison.format());
  } else {
    fmt::print("  FAILED    {} of {} runs\n", failures, outcomes.size());
  }
  if (device.is_virtual())
    fmt::print("  findings  {}{}\n", has_findings ? "see above" : "none",
               outcomes.size() > 1 ? fmt::format(" in {} schedules", outcomes.size()) : "");
  fmt::print("  time      {:.3f} ms{}\n", ms / static_cast<double>(outcomes.size()),
             device.is_virtual() ? " on the CPU" : "");
  if (const auto& timeline = outcomes.front().report.virtual_report.timeline; timeline != nullptr)
    fmt::print("{}", prediction_text(*timeline));
  if (!last.report.virtual_report.printf_output.empty())
    fmt::print("  printf output:\n{}", last.report.virtual_report.printf_output);
  if (options.stats && device.is_virtual()) print_statistics(last.report.virtual_report.statistics);
}

/// A program where a kernel's name belongs: who types it means `imbrex run -- PROGRAM`.
void refuse_program(const std::string& name) {
  const bool is_program = name.find('/') != name.npos && access(name.c_str(), X_OK) == 0;
  if (is_program)
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("'{}' is a program; a kernel of `imbrex list` is expected here", name),
                   {},
                   fmt::format("a CUDA program is run by: imbrex run -- {}", name)});
}

int run(Options options, const Subcommand& command) {
  refuse_program(options.choice.name());
  const RegisteredKernel& kernel = options.choice.kernel();
  Device device = Device::open(options.device, kernel.target, virtual_options(options, options.seed));
  if (device.is_virtual())
    options.watch = vgpu::watch_for_commands();
  else
    refuse_given(command, kVirtualOptions, "is of the virtual GPU: add --device virtual");
  Configuration configuration = options.choice.configuration();
  std::string origin;  // of the configuration, where it is not plain
  if (!options.choice.has_configuration() && kernel.space.size() > 1) {
    if (const auto tuned = find_tuned(kernel, options.choice.sizes(), device)) {
      configuration = tuned->configuration;
      origin = tuned->is_exact ? "tuned"
                               : fmt::format("tuned for {}, the nearest shape", fmt::join(tuned->shape, ","));
    }
  }
  const int runs = device.is_virtual() ? options.seeds : 1;
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  std::vector<Outcome> outcomes;
  bool all_passed = true;
  for (int i = 0; i < runs && !(options.watch != nullptr && options.watch->stop); ++i) {
    if (runs > 1 && is_terminal) fmt::print(stderr, "\r  seed {} of {} ", i + 1, runs);
    outcomes.push_back(run_once(kernel, device, options, configuration, options.seed + i));
    all_passed = all_passed && passed(outcomes.back());
  }
  if (runs > 1 && is_terminal) fmt::print(stderr, "\r\033[K");
  if (options.json) {
    print_json(kernel, device, options, configuration, origin, outcomes);
  } else {
    print_text(kernel, device, options, configuration, origin, outcomes);
  }
  return all_passed ? 0 : 1;
}

}  // namespace

void add_run(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand("run", "Run a kernel and verify it against its float64 reference");
  command->footer(
      "With --, another program: imbrex run [OPTIONS] -- PROGRAM ARGS runs any CUDA program on the virtual "
      "GPU; imbrex run --help --");
  options->choice.add_to(*command);
  command->add_option("--device", options->device, "auto: a CUDA GPU that fits, else the virtual GPU")
      ->one_of({"auto", "virtual", "cuda"})
      ->capture_default_str();
  Option* seed =
      command->add_option("--seed", options->seed, "seed of the inputs and of the virtual GPU's schedule");
  command->add_option("--seeds", options->seeds, "run this many seeds, each another schedule")
      ->between(1, 1000000)
      ->excludes(seed);
  command->add_option("--checks", options->checks, "virtual GPU checkers: on or off (all: as on)")
      ->one_of({"on", "off", "all"})
      ->capture_default_str();
  Option* practical = command->add_flag("--practical", options->practical,
                                        "what libraries rely on is a note (docs/checkers.md)");
  command->add_flag("--strict")
      ->description("the default: hold the kernel to the letter of PTX")
      ->excludes(practical);
  command
      ->add_option("--math", options->math,
                   "virtual tensor cores: exact (the hardware's bits) or fast (fp32 SIMD)")
      ->one_of({"exact", "fast"})
      ->capture_default_str();
  command->add_option("--sms", options->sms, "multiprocessors of the virtual GPU (0: as the real chip)")
      ->between(0, 100000);
  command->add_option("--threads", options->threads, "host threads of the virtual GPU (0: one per core)")
      ->between(0, 1024);
  command->add_option("--budget", options->budget, "warp instructions before a launch counts as endless")
      ->at_least_zero();
  command->add_flag("--no-prediction", options->no_prediction,
                    "do not predict the time on the chip (saves the time of recording)");
  command->add_flag("--stats", options->stats, "print what the launch cost");
  command->add_flag("--json", options->json, "print JSON");
  command->callback(
      [&chosen, command, options] { chosen = [command, options] { return run(*options, *command); }; });
}

}  // namespace imbrex::command
