// SPDX-License-Identifier: Apache-2.0
// `imbrex predict`: the time that a kernel would take on a chip, as quickly as it can be told.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/vgpu/power.h"
#include "kernel_study.h"
#include "predict_ranks.h"
#include "subcommands.h"
#include "timeline_text.h"

namespace imbrex::command {

namespace {

constexpr double kLeastClock = 0.1, kMostClock = 10;
constexpr const char *kCool = "cool", *kSustained = "sustained";

struct Options {
  KernelChoice choice;
  GpuChoice gpu;
  int sms = 0;
  std::string clock, trace;
  int ranks = 0;
  bool whole = false, json = false;
};

/// --clock: a number of GHz; 0 where it is the GPU's own, or to be predicted.
double clock_of(const std::string& text) {
  if (text.empty() || text == kCool || text == kSustained) return 0;
  char* end = nullptr;
  const double ghz = std::strtod(text.c_str(), &end);
  if (*end != 0 || !(ghz >= kLeastClock && ghz <= kMostClock))
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("--clock {}", text),
                   {fmt::format("allowed: {} to {} GHz, cool, sustained", kLeastClock, kMostClock)},
                   "cool and sustained are the clocks that the kernel's power would leave"});
  return ghz;
}

int predict(const Options& options) {
  if (options.ranks > 0)
    return predict_ranks(options.choice, options.gpu.gpu("h200"), options.ranks, options.sms,
                         clock_of(options.clock), options.trace, options.json);
  if (!options.trace.empty())
    throw LaunchError(Diagnostic{{}, "--trace goes with --ranks", {}, "of one GPU `imbrex trace` draws"});
  const RegisteredKernel& kernel = options.choice.kernel();
  const GpuModel gpu = options.gpu.gpu_for(kernel);
  const Configuration configuration = options.choice.configuration();
  const auto begin = std::chrono::steady_clock::now();
  const auto products =
      kernel.target.starts_with("sm_8") ? vgpu::Products::kWarp : vgpu::Products::kWarpgroup;
  const auto launch = [&](double ghz) {
    const Device device = predicting_device(gpu, options.sms, {.sample = !options.whole, .clock_ghz = ghz});
    // Inputs of their own: tensors stay with their device, and so would the clock.
    vgpu::Report report =
        predicted_launch(options.choice, device, configuration, std::make_shared<CaseData>());
    if (report.timeline == nullptr) throw LaunchError(Diagnostic{{}, report.format(), {}, ""});
    if (!report.timeline->complete)
      throw LaunchError(Diagnostic{
          {}, "the simulation of its time got stuck, so nothing can be said of it", {}, "try other sizes"});
    return report;
  };
  vgpu::Report report = launch(clock_of(options.clock));
  if (options.clock == kCool || options.clock == kSustained) {
    // At another clock memory takes another number of clocks, and so does the launch.
    const vgpu::TimelinePower power = predicted_power(*report.timeline, products);
    if (power.watts == 0)
      throw LaunchError(Diagnostic{
          {},
          fmt::format("--clock {}: what {} takes in power was not measured", options.clock, gpu.title),
          {},
          "give the clock in GHz"});
    report = launch(options.clock == kCool ? power.cool_ghz : power.sustained_ghz);
  }
  const vgpu::Timeline& t = *report.timeline;
  const vgpu::TimelinePower power = predicted_power(t, products);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (options.json) {
    nlohmann::ordered_json json = {{"kernel", kernel.description.name},
                                   {"sizes", options.choice.sizes()},
                                   {"config", kernel.space.to_string(configuration)},
                                   {"chip", t.chip},
                                   {"clock_ghz", t.clock_ghz},
                                   {"cycles", t.cycles},
                                   {"sms", t.sms},
                                   {"active_sms", t.active_sms},
                                   {"microseconds", t.microseconds()},
                                   {"replayed", t.replayed},
                                   {"sampling_error", t.sampling_error},
                                   {"watts", power.watts},
                                   {"cool_ghz", power.cool_ghz},
                                   {"sustained_ghz", power.sustained_ghz},
                                   {"l2_bytes", t.l2_bytes},
                                   {"hbm_bytes", t.hbm_bytes},
                                   {"busy",
                                    {{"tensor_core", t.use.tensor_core},
                                     {"tma", t.use.tma},
                                     {"l2", t.use.l2},
                                     {"memory", t.use.hbm},
                                     {"issue", t.use.issue}}},
                                   {"seconds", took.count()}};
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  fmt::print("{}  {}   {}\n{}", kernel.description.name, sizes_text(options.choice),
             kernel.space.to_string(configuration), prediction_text(t));
  if (power.watts > 0)
    fmt::print(
        "  power     {:.0f} W at this clock; cool it would run at {:.2f} GHz, again and again at {:.2f}\n",
        power.watts, power.cool_ghz, power.sustained_ghz);
  if (t.replayed < 1)
    fmt::print("  replayed  {} of it in {:.1f} s; what was left out may be off by {} of the whole\n",
               percent(t.replayed), took.count(), percent(t.sampling_error));
  return 0;
}

}  // namespace

void add_predict(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "predict",
      "Predict a kernel's time on a chip, without its products: from a part of it where the rest repeats");
  options->choice.add_to(*command);
  options->gpu.add_to(*command);
  GpuChoice::add_sms_to(*command, options->sms);
  command->add_option(
      "--clock", options->clock,
      "clock of the multiprocessors in GHz (else the chip's), or the one that power leaves: cool, sustained");
  command
      ->add_option("--ranks", options->ranks,
                   "of a collective, or a product fused with one, on so many GPUs of a server: all_reduce, "
                   "all_gather, reduce_scatter, all_gather_matmul, matmul_reduce_scatter, matmul_all_reduce")
      ->between(1, 16);
  command->add_option("--trace", options->trace,
                      "with --ranks: write CTA 0 and the links of every rank for Perfetto here");
  command->add_flag("--whole", options->whole, "replay all of it");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, options] { chosen = [options] { return predict(*options); }; });
}

}  // namespace imbrex::command
