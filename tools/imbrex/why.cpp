// SPDX-License-Identifier: Apache-2.0
// `imbrex why`: what limits a kernel on the chip, from replays of one recorded run with one resource made free at
// a time, and what its neighbours in the tuning space would change.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "kernel_study.h"
#include "subcommands.h"
#include "svg.h"
#include "why_view.h"

namespace imbrex::command {

namespace {

struct Options {
  KernelChoice choice;
  GpuChoice gpu;
  int sms = 0;
  double clock = 0, seconds = 20;
  bool no_trials = false, json = false;
  std::string svg;
};

Device machine_of(const Options& options, const GpuModel& gpu, bool explain) {
  return predicting_device(
      gpu, options.sms,
      {.cta = explain ? 0 : -1, .explain = explain, .sample = !explain, .clock_ghz = options.clock});
}

/// The members in which two configurations differ.
std::set<std::string> difference(const Configuration& a, const Configuration& b) {
  std::set<std::string> names;
  for (const Setting& setting : a)
    for (const Setting& other : b)
      if (setting.name == other.name && setting.bits != other.bits) names.insert(setting.name);
  return names;
}

/// Configurations that differ in as few members as the space allows: no other one differs in fewer of the same.
/// Members that are chosen together change together.
std::vector<Configuration> neighbours(const TuningSpace& space, const Configuration& from) {
  std::vector<Configuration> found;
  std::vector<std::set<std::string>> differences;
  const std::vector<Configuration> all = space.configurations();
  for (const Configuration& other : all) differences.push_back(difference(from, other));
  for (size_t i = 0; i < all.size(); ++i) {
    if (differences[i].empty()) continue;
    const bool is_nearest = std::ranges::none_of(differences, [&](const std::set<std::string>& d) {
      return !d.empty() && d.size() < differences[i].size() && std::ranges::includes(differences[i], d);
    });
    if (is_nearest) found.push_back(all[i]);
  }
  return found;
}

std::string change_text(const TuningSpace& space, const Configuration& from, const Configuration& to) {
  std::vector<std::string> words;
  for (const Setting& now : from)
    for (const Setting& then : to)
      if (now.name == then.name && now.bits != then.bits) {
        const std::string was = space.to_string({now});
        words.push_back(fmt::format("{} (now {})", space.to_string({then}), was.substr(was.find('=') + 1)));
      }
  return fmt::format("{}", fmt::join(words, ", "));
}

Trials try_neighbours(const Options& options, const GpuModel& gpu, const Configuration& from,
                      const std::vector<Configuration>& candidates) {
  using Clock = std::chrono::steady_clock;
  const TuningSpace& space = options.choice.kernel().space;
  const auto begin = Clock::now();
  const auto data = std::make_shared<CaseData>();
  const Device device = machine_of(options, gpu, false);
  Trials trials;
  for (const Configuration& candidate : candidates) {
    if (std::chrono::duration<double>(Clock::now() - begin).count() > options.seconds) {
      ++trials.left_out;
      continue;
    }
    Trial trial{.change = change_text(space, from, candidate)};
    try {
      const vgpu::Report report = predicted_launch(options.choice, device, candidate, data);
      if (report.timeline == nullptr || !report.timeline->complete)
        trial.refused = "its run did not end";
      else
        trial.microseconds = report.timeline->microseconds();
    } catch (const Error& error) {
      trial.refused = error.what();
    }
    trials.tried.push_back(std::move(trial));
  }
  std::ranges::stable_sort(trials.tried, [](const Trial& a, const Trial& b) {
    return std::pair(!a.refused.empty(), a.microseconds) < std::pair(!b.refused.empty(), b.microseconds);
  });
  return trials;
}

int why(const Options& options) {
  const RegisteredKernel& kernel = options.choice.kernel();
  const GpuModel gpu = options.gpu.gpu_for(kernel);
  const Configuration configuration = options.choice.configuration();
  const vgpu::Report report = predicted_launch(options.choice, machine_of(options, gpu, true), configuration,
                                               std::make_shared<CaseData>());
  if (report.timeline == nullptr) {
    fmt::print(stderr, "{}\n", report.format());
    return 1;
  }
  if (!report.timeline->complete || report.timeline->lanes.empty())
    throw LaunchError(Diagnostic{
        {}, "the simulation of its time got stuck, so nothing can be said of it", {}, "try other sizes"});
  const Case traced = traced_kernel(options.choice);
  const TimelineView lanes = view_of(*report.timeline, thread_groups(*traced.function));
  WhyView view = why_view(lanes);
  view.kernel = kernel.description.name;
  view.sizes = sizes_text(options.choice);
  view.configuration = kernel.space.to_string(configuration);
  if (!options.no_trials)
    view.trials = try_neighbours(options, gpu, configuration, neighbours(kernel.space, configuration));
  if (!options.svg.empty()) write_file(options.svg, why_svg(view));
  fmt::print("{}", options.json ? why_json(view).dump(2) + "\n" : why_text(view));
  return 0;
}

}  // namespace

void add_why(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "why",
      "Explain what limits a kernel on the chip: the critical path, who waits for what, what would help");
  options->choice.add_to(*command);
  options->gpu.add_to(*command);
  GpuChoice::add_sms_to(*command, options->sms);
  command->add_option("--clock", options->clock, "clock of the multiprocessors in GHz (0: the chip's)")
      ->between(0.0, 100.0);
  command->add_option("--seconds", options->seconds, "time for trying neighbours in the tuning space")
      ->between(0.0, 86400.0)
      ->capture_default_str();
  command->add_flag("--no-trials", options->no_trials, "try none of the neighbours");
  command->add_option("--svg", options->svg, "draw the critical path into this file");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->no_trials) refuse_given(*command, {"--seconds"}, "does not go with --no-trials");
      return why(*options);
    };
  });
}

}  // namespace imbrex::command
