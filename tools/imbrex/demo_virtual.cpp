// SPDX-License-Identifier: Apache-2.0
// `imbrex demo` on the virtual GPU: the ladders step by step, then every other kernel, as tables.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "demo_view.h"
#include "timeline_text.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

/// What a ladder is shown at: deep enough for a pipeline to fill, small enough to be quick.
const std::map<std::string, int64_t> kLadderSizes{{"m", 1024}, {"n", 1024}, {"k", 1024}};
/// Of a ladder whose first steps compute with threads, element by element.
const std::map<std::string, int64_t> kThreadLadderSizes{{"m", 512}, {"n", 512}, {"k", 128}};
/// A part of the chip that this keeps busy with several tiles per SM.
constexpr int kLadderSms = 8;

/// One run of one kernel.
struct Outcome {
  bool verified = false, good = false;
  double max_rel_err = 0;
  LaunchReport report;
  std::string shape;
  const vgpu::Statistics& statistics() const { return report.virtual_report.statistics; }
  /// Null when there is no prediction.
  const vgpu::Timeline* timeline() const {
    const vgpu::Timeline* t = report.virtual_report.timeline.get();
    return t != nullptr && t->complete ? t : nullptr;
  }
  const std::vector<vgpu::Finding>& findings() const { return report.virtual_report.findings; }
};

int64_t bytes_moved(const vgpu::Statistics& s) {
  return s.global_bytes_read + s.global_bytes_written + s.cp_async_bytes + s.tma_bytes_loaded +
         s.tma_bytes_stored;
}

void print_findings(const Outcome& outcome) {
  if (!outcome.findings().empty()) fmt::print("{}\n", outcome.report.virtual_report.format());
  std::fflush(stdout);
}

Device virtual_device(const RegisteredKernel& kernel, int sms = 0) {
  vgpu::Options options;
  options.target = kernel.target;
  options.num_sms = sms;
  options.timeline.record = true;
  return Device::virtual_gpu(options);
}

Outcome run(const RegisteredKernel& kernel, const Device& device, const Configuration& configuration,
            const std::map<std::string, int64_t>& wanted) {
  const std::map<std::string, int64_t> sizes = sizes_with(kernel, wanted);
  Case c(Case::Mode::kRun, device, sizes, 1);
  kernel.run(c, device, configuration);
  return {c.verified(), c.verified() && c.report.clean(), c.max_rel_err(), c.report,
          shape_text(kernel, sizes)};
}

/// Elements of a candidate's tiles, all dimensions together.
int64_t tile_size(const Configuration& configuration) {
  int64_t size = 1;
  for (const Setting& setting : configuration)
    if (setting.name.starts_with("block_")) size *= setting.bits;
  return size;
}

/// The first or the last candidate of the tuning space, whichever has the larger tiles; a grid of one CTA per SM
/// gets as many CTAs as SMs are modelled.
Configuration candidate(const TuningSpace& space) {
  const Configuration first = space.configuration(0), last = space.configuration(space.size() - 1);
  Configuration chosen = tile_size(first) < tile_size(last) ? last : first;
  for (Setting& setting : chosen)
    if (setting.name == "ctas") setting.bits = kLadderSms;
  return chosen;
}

Json to_json(const RegisteredKernel& kernel, const Outcome& outcome) {
  const vgpu::Statistics& s = outcome.statistics();
  const vgpu::Timeline* t = outcome.timeline();
  Json out = {{"kernel", kernel.description.name},
              {"target", kernel.target},
              {"size", outcome.shape},
              {"verified", outcome.verified},
              {"findings", outcome.findings().size()},
              {"max_rel_err", outcome.max_rel_err},
              {"instructions", s.instructions},
              {"bytes", bytes_moved(s)},
              {"predicted_us", t != nullptr ? Json(t->microseconds()) : Json()}};
  if (t != nullptr) out["predicted_for"] = {{"chip", t->chip}, {"multiprocessors", t->sms}};
  return out;
}

void print_step(const Ladder& ladder, const RegisteredKernel& kernel, const Outcome& outcome, double first_us,
                const Palette& palette) {
  const vgpu::Statistics& s = outcome.statistics();
  const vgpu::Timeline* t = outcome.timeline();
  if (&kernel == ladder.steps.front()) {
    fmt::print("\n{}{} ladder{}  {} · {} · times predicted for {} SMs of the {}\n", palette.bold,
               ladder.title(), palette.off, outcome.shape, kernel.target, kLadderSms,
               t != nullptr ? t->chip : "chip");
    fmt::print("{}{:<5}{:<10}{:>8}{:>10}{:>11}   {:<16}  {:<16} {:>10} {:>7}  {}{}\n", palette.dim, "step",
               "result", "findings", "instr.", "TMA bytes", "loads hidden", "tensor core", "predicted",
               "speed", "what it adds", palette.off);
  }
  const size_t findings = outcome.findings().size();
  fmt::print("{}{:<5}{}{}  {}{:>8}{}{:>10}{:>11}", palette.bold, ladder.step_name(kernel), palette.off,
             verdict(outcome.verified, outcome.good, palette), findings == 0 ? "" : palette.bad, findings,
             palette.off, short_number(static_cast<double>(s.instructions)),
             short_number(static_cast<double>(s.tma_bytes_loaded + s.tma_bytes_stored), "B"));
  if (t != nullptr) {
    const double busy = t->use.tensor_core * t->sms / std::max(1, t->active_sms);
    fmt::print("   {}{}{} {:>5}  {}{}{} {:>5} {:>10} {:>6.1f}×", palette.bar, bar(t->overlap), palette.off,
               t->overlap < 0 ? "-" : percent(t->overlap), palette.bar, bar(busy), palette.off, percent(busy),
               duration(t->microseconds()), first_us / t->microseconds());
  }
  fmt::print("  {}{}{}\n", palette.dim, kernel.description.summary, palette.off);
  print_findings(outcome);
}

bool show_ladder(const Ladder& ladder, const Palette& palette, Json* json) {
  bool all_good = true;
  double first_us = 0;
  Json steps = Json::array();
  const auto& sizes = ladder.steps.front()->target == "sm_80" ? kThreadLadderSizes : kLadderSizes;
  for (const RegisteredKernel* kernel : ladder.steps) {
    const Outcome outcome =
        run(*kernel, virtual_device(*kernel, kLadderSms), candidate(kernel->space), sizes);
    all_good = all_good && outcome.good;
    if (const vgpu::Timeline* t = outcome.timeline(); first_us == 0 && t != nullptr)
      first_us = t->microseconds();
    if (json != nullptr)
      steps.push_back(to_json(*kernel, outcome));
    else
      print_step(ladder, *kernel, outcome, first_us, palette);
  }
  if (json != nullptr) (*json)["ladders"].push_back({{"name", ladder.title()}, {"steps", steps}});
  return all_good;
}

/// The characters of UTF-8 text: each has one byte that does not continue another.
size_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

/// How wide the columns of names and sizes are.
struct Columns {
  size_t name = 0, size = 0;
};

void print_kernel(const RegisteredKernel& kernel, const Outcome& outcome, const Columns& columns,
                  const Palette& palette) {
  const vgpu::Statistics& s = outcome.statistics();
  const vgpu::Timeline* t = outcome.timeline();
  const size_t findings = outcome.findings().size();
  fmt::print("{:<{}} {:<{}} {}  {:>8.1e} {}{:>8}{} {:>9} {:>9} {:>10} {:>8}\n", kernel.description.name,
             columns.name, outcome.shape, columns.size, verdict(outcome.verified, outcome.good, palette),
             outcome.max_rel_err, findings == 0 ? "" : palette.bad, findings, palette.off,
             short_number(static_cast<double>(s.instructions)),
             short_number(static_cast<double>(bytes_moved(s)), "B"),
             t != nullptr ? duration(t->microseconds()) : "-", t != nullptr ? percent(t->use.hbm) : "-");
  print_findings(outcome);
}

bool show_others(const std::vector<Ladder>& shown, const Palette& palette, Json* json) {
  std::vector<const RegisteredKernel*> others;
  Columns columns;
  for (const auto& [name, kernel] : registered_kernels()) {
    bool is_step = false;
    for (const Ladder& ladder : shown)
      for (const RegisteredKernel* step : ladder.steps) is_step = is_step || step == &kernel;
    if (is_step) continue;
    others.push_back(&kernel);
    columns.name = std::max(columns.name, name.size());
    columns.size = std::max(columns.size, characters(shape_text(kernel, sizes_with(kernel, {}))));
  }
  if (json == nullptr)
    fmt::print("\n{}Other kernels{}\n{}{:<{}} {:<{}} {:<9} {:>8} {:>9} {:>9} {:>9} {:>10} {:>8}{}\n",
               palette.bold, palette.off, palette.dim, "kernel", columns.name, "size", columns.size, "result",
               "rel. err", "findings", "instr.", "bytes", "predicted", "memory", palette.off);
  bool all_good = true;
  for (const RegisteredKernel* kernel : others) {
    const Outcome outcome = run(*kernel, virtual_device(*kernel), kernel->space.configuration(0), {});
    all_good = all_good && outcome.good;
    if (json != nullptr)
      (*json)["kernels"].push_back(to_json(*kernel, outcome));
    else
      print_kernel(*kernel, outcome, columns, palette);
  }
  return all_good;
}

}  // namespace

bool demo_on_virtual_gpu(const Palette& palette, Json* json) {
  if (json == nullptr)
    fmt::print(
        "PTX on a virtual GPU: every access checked, every result compared with a float64 reference\n");
  const std::vector<Ladder> found = ladders();
  bool all_good = true;
  for (const Ladder& ladder : found) all_good = show_ladder(ladder, palette, json) && all_good;
  return show_others(found, palette, json) && all_good;
}

}  // namespace imbrex::command
