// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/runtime/machine_code.h"
#include "imbrex/runtime/tuner.h"
#include "itself.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

std::atomic<bool> interrupted = false;

struct Options {
  KernelChoice choice;
  GpuChoice gpu;
  TuneOptions tune;
  bool json = false, all = false;
};

void show_progress(const std::string& phase, size_t done, size_t total) {
  constexpr size_t kWidth = 30;
  const size_t filled = total == 0 ? 0 : kWidth * done / total;
  fmt::print(stderr, "\r  {:<12} [{:#<{}}{:.<{}}] {}/{} \033[K", phase, "", filled, "", kWidth - filled, done,
             total);
  std::fflush(stderr);
}

/// "all" as 0, which is no number of GPUs by itself.
WordCheck number_of_gpus() {
  return [](std::string& text) -> std::string {
    if (text == "all") {
      text = "0";
      return "";
    }
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [read_to, error] = std::from_chars(text.data(), end, number);
    const bool is_number = error == std::errc() && read_to == end && number >= 1 && number <= 1024;
    return is_number ? "" : fmt::format("'{}' is no number of GPUs: give 1 to 1024, or all", text);
  };
}

std::string sizes_text(const TuneResult& result) {
  std::vector<std::string> words;
  for (const auto& [name, value] : result.sizes) words.push_back(fmt::format("{}={}", name, value));
  return fmt::format("{}", fmt::join(words, " "));
}

/// ", 7.95 s of assembling in parallel: 36 kernels, 221 ms each, 260 ms the longest".
std::string assembling_text(const TuneResult& result) {
  double longest = 0;
  int count = 0;
  for (const Candidate& candidate : result.candidates) {
    longest = std::max(longest, candidate.assembling_ms);
    count += candidate.assembling_ms > 0;
  }
  if (count == 0) return "";
  return fmt::format(
      ", {:.2f} s of assembling in parallel: {} kernels, {:.0f} ms each, {:.0f} ms the longest",
      result.assembling_seconds, count, 1e3 * result.assembling_seconds / count, longest);
}

/// Right candidates, the winner among them, whose predicted times are as near to the winner's as predictions err.
size_t rivals(const TuneResult& result) {
  const Candidate& winner = *result.winner();
  return static_cast<size_t>(std::ranges::count_if(result.candidates, [&](const Candidate& c) {
    return c.is_right() &&
           c.microseconds <= winner.microseconds * (1 + result.prediction_error + c.sampling_error);
  }));
}

/// How sure a choice by prediction is: its lead, against what predictions are off.
std::string certainty_text(const TuneResult& result, const GpuModel& gpu) {
  const Candidate& winner = *result.winner();
  double second = 0;
  for (const Candidate& c : result.candidates)
    if (c.is_right() && &c != &winner && (second == 0 || c.microseconds < second)) second = c.microseconds;
  if (second == 0) return "";
  const size_t near = rivals(result);
  return fmt::format(
      "  sure      {:.1f} % ahead of the next; predictions for one kernel are {:.0f} % off{}: {}\n",
      100 * (second / winner.microseconds - 1), 100 * result.prediction_error,
      gpu.is_measured ? "" : " on an H200, and were held against no run on this chip",
      near <= 1 ? gpu.is_measured ? "the choice is safe" : "no other is as near as that"
                : fmt::format("any of the first {} may be the fastest (--all shows them)", near));
}

/// `gpu`: whose times are predicted.
void print_text(const TuneResult& result, const GpuModel& gpu, bool all) {
  fmt::print("{}  {}\n  device    {}\n", result.kernel, sizes_text(result), result.device);
  if (result.is_modelled)
    fmt::print("  times     predicted for {} by the timeline of the virtual GPU{}; not measured\n", gpu.title,
               predict_from_machine_code() ? ", those of the best few from machine code" : "");
  const Candidate* winner = result.winner();
  if (result.is_remembered) {
    fmt::print("  best      {}  {:.2f} µs  (tuned before; --again measures again)\n", winner->text,
               winner->microseconds);
    fmt::print("  took      {:.1f} ms\n", 1e3 * result.seconds);
    return;
  }
  std::map<std::string, int> counts;
  for (const Candidate& candidate : result.candidates) ++counts[name(candidate.status)];
  std::vector<std::string> words;
  for (const auto& [status, count] : counts) words.push_back(fmt::format("{} {}", count, status));
  fmt::print("  tried     {}: {}\n", result.candidates.size(), fmt::join(words, ", "));
  constexpr size_t kShown = 5;
  size_t shown = 0;
  for (const Candidate& candidate : result.candidates) {
    const bool was_not_tried =
        candidate.status == Candidate::Status::kPassedOver || candidate.status == Candidate::Status::kWaiting;
    if (was_not_tried && !all) {
      continue;
    } else if (!candidate.is_right()) {
      fmt::print("  {:<9} {}: {}\n", name(candidate.status), candidate.text, candidate.reason);
    } else if (result.is_modelled && (all || ++shown <= kShown)) {
      const std::string sampled =
          candidate.sampling_error > 0 && candidate.round < 2
              ? fmt::format(" ±{:.1f} %, from a part of the launch", 100 * candidate.sampling_error)
              : "";
      fmt::print("  {:<9} {}  {:.2f} µs{}{}\n", name(candidate.status), candidate.text,
                 candidate.microseconds, sampled, candidate.is_verified ? ", verified" : "");
    } else if (!result.is_modelled && (all || ++shown <= kShown)) {
      const std::string behind =
          candidate.behind > 1
              ? fmt::format(", {:.1f} % behind in round {}", 100 * (candidate.behind - 1), candidate.round)
              : "";
      fmt::print("  {:<9} {}  {:.2f} µs ±{:.1f}%{}  {} launches{}{}\n", name(candidate.status),
                 candidate.text, candidate.microseconds, 100 * candidate.spread, behind, candidate.launches,
                 candidate.registers > 0 ? fmt::format(", {} registers", candidate.registers) : "",
                 candidate.predicted > 0 ? fmt::format(", {:.2f} µs predicted", candidate.predicted) : "");
    }
  }
  if (result.is_modelled && winner != nullptr) fmt::print("{}", certainty_text(result, gpu));
  fmt::print("  took      {:.2f} s{}\n", result.seconds, assembling_text(result));
  if (result.is_interrupted)
    fmt::print("  stopped   what was measured is kept; the same command goes on from here\n");
  if (winner == nullptr) fmt::print("  FAILED    no candidate is right\n");
}

void print_json(const TuneResult& result) {
  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  for (const Candidate& candidate : result.candidates)
    candidates.push_back({{"config", candidate.text},
                          {"status", name(candidate.status)},
                          {"reason", candidate.reason},
                          {"microseconds", candidate.microseconds},
                          {"predicted", candidate.predicted},
                          {"sampling_error", candidate.sampling_error},
                          {"verified", candidate.is_verified},
                          {"spread", candidate.spread},
                          {"round", candidate.round},
                          {"behind", candidate.behind},
                          {"launches", candidate.launches},
                          {"registers", candidate.registers},
                          {"assembling_ms", candidate.assembling_ms},
                          {"remembered", candidate.is_remembered}});
  const Candidate* winner = result.winner();
  const nlohmann::ordered_json out = {
      {"kernel", result.kernel},
      {"sizes", result.sizes},
      {"device", result.device},
      {"target", result.target},
      {"modelled", result.is_modelled},
      {"remembered", result.is_remembered},
      {"interrupted", result.is_interrupted},
      {"best", winner == nullptr ? "" : winner->text},
      {"microseconds", winner == nullptr ? 0 : winner->microseconds},
      {"prediction_error", result.prediction_error},
      {"rivals", result.is_modelled && winner != nullptr && !result.is_remembered ? rivals(result) : 0},
      {"seconds", result.seconds},
      {"assembling_seconds", result.assembling_seconds},
      {"candidates", candidates}};
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run(Options options) {
  if (options.choice.has_configuration())
    throw LaunchError(Diagnostic{{}, "tune tries every configuration", {}, "leave --config out"});
  if (options.gpu.is_given()) {
    if (options.tune.device != "virtual")
      throw LaunchError(Diagnostic{{}, "--gpu goes with --device virtual, which predicts times", {}, ""});
    options.tune.gpu = options.gpu.gpu_for(options.choice.kernel()).name;
  }
  const bool shows_progress = isatty(STDERR_FILENO) != 0 && !options.json;
  if (shows_progress) options.tune.progress = show_progress;
  options.tune.stop = &interrupted;
  options.tune.worker = itself();
  options.tune.worker.push_back("worker");
  std::signal(SIGINT, [](int) { interrupted = true; });
  std::signal(SIGTERM, [](int) { interrupted = true; });
  const TuneResult result = tune(options.choice.kernel(), options.choice.sizes(), options.tune);
  if (shows_progress) fmt::print(stderr, "\r\033[K");
  if (options.json)
    print_json(result);
  else
    print_text(result,
               options.tune.gpu.empty() ? gpu_model_for(options.choice.kernel().target)
                                        : gpu_model(options.tune.gpu),
               options.all);
  return result.winner() != nullptr ? 0 : 1;
}

}  // namespace

void add_tune(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand("tune", "Find a kernel's fastest configuration for its sizes");
  options->choice.add_to(*command);
  command->add_option("--device", options->tune.device, "auto: a CUDA GPU that fits, else the virtual GPU")
      ->one_of({"auto", "virtual", "cuda"})
      ->capture_default_str();
  options->gpu.add_to(*command);
  command
      ->add_option("--gpus", options->tune.gpus,
                   "GPUs of one name to measure on at once, or `all`; on the virtual GPU: processes at once")
      ->transform(number_of_gpus())
      ->capture_default_str();
  command->add_option("--seed", options->tune.seed, "seed of the inputs");
  command->add_option("--timeout", options->tune.timeout_s, "seconds after which a candidate counts as hung")
      ->between(0.05, 3600.0)
      ->capture_default_str();
  command->add_option("--jobs", options->tune.jobs, "assemblers at once (0: one per core)")->between(0, 1024);
  command
      ->add_option("--measure-best", options->tune.measure_best,
                   "on a CUDA GPU: predict all, and measure only this many of the best (0: all)")
      ->between(0, 1000000);
  command->add_flag("--again", options->tune.again, "measure again what was measured before");
  command->add_flag("--all", options->all, "print every candidate");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "The winner is kept in the cache; `imbrex run` and Kernel<K>::tuned() use it for this and for near "
      "shapes.\n"
      "Ctrl-C stops without loss: the same command goes on where it stopped.");
  command->callback([&chosen, options] { chosen = [options] { return run(*options); }; });
}

void add_worker(Subcommand& app, Action& chosen) {
  app.add_subcommand("worker", "Runs candidates for `imbrex tune`; not for people")
      ->group("")  // not in --help
      ->callback([&chosen] { chosen = tune_worker_main; });
}

}  // namespace imbrex::command
