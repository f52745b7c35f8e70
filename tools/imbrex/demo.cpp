// SPDX-License-Identifier: Apache-2.0
// `imbrex demo`: the ladders step by step, then every other kernel, as tables.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <regex>

#include "imbrex/core/error.h"
#include "subcommands.h"
#include "timeline_text.h"

namespace imbrex::command {
namespace {

/// What a ladder is shown at: deep enough for a pipeline to fill, small enough to be quick.
const std::map<std::string, int64_t> kLadderSizes{{"m", 1024}, {"n", 1024}, {"k", 1024}};
/// Of a ladder whose first steps compute with threads, element by element.
const std::map<std::string, int64_t> kThreadLadderSizes{{"m", 512}, {"n", 512}, {"k", 128}};
/// A part of the chip that this keeps busy with several tiles an SM.
constexpr int kLadderSms = 8;
constexpr int kBar = 10;

/// 1234567 -> "1.23 M".
std::string short_number(double value, const char* unit = "") {
  const char* prefix[] = {"", "k", "M", "G", "T"};
  int i = 0;
  while (value >= 1000 && i < 4) value /= 1000, ++i;
  if (value == 0) return "-";
  return fmt::format("{:.{}f} {}{}", value,
                     i == 0 || value >= 100 ? 0
                     : value >= 10          ? 1
                                            : 2,
                     prefix[i], unit);
}

struct Palette {
  const char *good = "", *bad = "", *dim = "", *bold = "", *bar = "", *off = "";
};

/// A share as a bar of kBar characters, in eighths.
std::string bar(double share) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBar * 8 + 0.5);
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < kBar; ++i) out += "·";
  return out;
}

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
};

Device virtual_device(const RegisteredKernel& kernel, int sms = 0) {
  vgpu::Options options;
  options.target = kernel.target;
  options.num_sms = sms;
  options.timeline.record = true;
  return Device::virtual_gpu(options);
}

Outcome run(const RegisteredKernel& kernel, const Device& device, const Configuration& configuration,
            const std::map<std::string, int64_t>& wanted) {
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> shape;
  for (const SizeOption& size : kernel.description.sizes) {
    sizes[size.name] = wanted.contains(size.name) ? wanted.at(size.name) : size.otherwise;
    if (size.otherwise > 1) shape.push_back(std::to_string(sizes[size.name]));  // else it is a switch
  }
  Case c(Case::Mode::kRun, device, sizes, 1);
  kernel.run(c, device, configuration);
  return {c.verified(), c.verified() && c.report.clean(), c.max_rel_err(), c.report,
          fmt::format("{}", fmt::join(shape, "×"))};
}

std::string verdict(const Outcome& outcome, const Palette& palette) {
  return fmt::format("{}{:<8}{}", outcome.good ? palette.good : palette.bad,
                     outcome.verified ? "verified" : "WRONG", palette.off);
}

// ---- ladders
// ------------------------------------------------------------------------------------------------

/// Kernels NAME_x0, NAME_x1, ... of one name and letter, in order.
struct Ladder {
  std::string name;
  std::vector<const RegisteredKernel*> steps;
};

std::vector<Ladder> ladders() {
  static const std::regex kStep(R"((.+_[a-z])\d+)");
  std::map<std::string, Ladder> found;
  for (const auto& [name, kernel] : registered_kernels()) {
    std::smatch match;
    if (!std::regex_match(name, match, kStep)) continue;
    found[match[1]].name = match[1];
    found[match[1]].steps.push_back(&kernel);
  }
  std::vector<Ladder> out;
  for (auto& [name, ladder] : found)
    if (ladder.steps.size() > 1) out.push_back(std::move(ladder));
  return out;
}

/// Elements of a candidate's tiles, all dimensions together.
int64_t tile_size(const Configuration& configuration) {
  int64_t size = 1;
  for (const Setting& setting : configuration)
    if (setting.name.starts_with("block_")) size *= setting.bits;
  return size;
}

/// The first or the last candidate of the tuning space, whichever has the larger tiles; a grid of a CTA an SM
/// has the SMs that are modelled.
Configuration candidate(const TuningSpace& space) {
  const Configuration first = space.configuration(0), last = space.configuration(space.size() - 1);
  Configuration chosen = tile_size(first) < tile_size(last) ? last : first;
  for (Setting& setting : chosen)
    if (setting.name == "ctas") setting.bits = kLadderSms;
  return chosen;
}

bool show_ladder(const Ladder& ladder, const Palette& palette) {
  std::string title = ladder.name.substr(0, ladder.name.size() - 2);
  std::replace(title.begin(), title.end(), '_', ' ');
  bool all_good = true;
  double first = 0;
  const auto& sizes = ladder.steps.front()->target == "sm_80" ? kThreadLadderSizes : kLadderSizes;
  for (const RegisteredKernel* kernel : ladder.steps) {
    const Outcome outcome =
        run(*kernel, virtual_device(*kernel, kLadderSms), candidate(kernel->space), sizes);
    all_good = all_good && outcome.good;
    const vgpu::Statistics& s = outcome.statistics();
    const vgpu::Timeline* t = outcome.timeline();
    if (kernel == ladder.steps.front()) {
      if (t != nullptr) first = t->microseconds();
      fmt::print("\n{}{} ladder{}  {} · {} · times predicted for {} SMs of the {}\n", palette.bold, title,
                 palette.off, outcome.shape, kernel->target, kLadderSms, t != nullptr ? t->chip : "chip");
      fmt::print("{}{:<5}{:<10}{:>8}{:>10}{:>11}   {:<16}  {:<15} {:>10} {:>7}  {}{}\n", palette.dim, "step",
                 "result", "findings", "instr.", "TMA bytes", "loads hidden", "tensor core", "predicted",
                 "speed", "what it adds", palette.off);
    }
    const size_t findings = outcome.report.virtual_report.findings.size();
    fmt::print("{}{:<5}{}{}  {}{:>8}{}{:>10}{:>11}", palette.bold,
               kernel->description.name.substr(ladder.name.size() - 1), palette.off,
               verdict(outcome, palette), findings == 0 ? "" : palette.bad, findings, palette.off,
               short_number(static_cast<double>(s.instructions)),
               short_number(static_cast<double>(s.tma_bytes_loaded + s.tma_bytes_stored), "B"));
    if (t != nullptr) {
      const double busy = t->use.tensor_core * t->sms / std::max(1, t->active_sms);
      fmt::print("   {}{}{} {:>5}  {}{}{} {:>4} {:>10} {:>6.1f}×", palette.bar, bar(t->overlap), palette.off,
                 t->overlap < 0 ? "-" : percent(t->overlap), palette.bar, bar(busy), palette.off,
                 percent(busy), duration(t->microseconds()), first / t->microseconds());
    }
    fmt::print("  {}{}{}\n", palette.dim, kernel->description.summary, palette.off);
    if (findings > 0) fmt::print("{}\n", outcome.report.virtual_report.format());
    std::fflush(stdout);
  }
  return all_good;
}

// ---- other kernels
// ------------------------------------------------------------------------------------------

bool show(const RegisteredKernel& kernel, const Device& device, const Palette& palette) {
  const Outcome outcome = run(kernel, device, kernel.space.configuration(0), {});
  const vgpu::Statistics& s = outcome.statistics();
  const vgpu::Timeline* t = outcome.timeline();
  const size_t findings = outcome.report.virtual_report.findings.size();
  fmt::print("{:<29} {:<14} {}  {:>8.1e} ", kernel.description.name, outcome.shape, verdict(outcome, palette),
             outcome.max_rel_err);
  if (device.is_virtual()) {
    fmt::print("{}{:>8}{} {:>9} {:>9} {:>10} {:>8} ", findings == 0 ? "" : palette.bad, findings, palette.off,
               short_number(static_cast<double>(s.instructions)),
               short_number(static_cast<double>(s.global_bytes_read + s.global_bytes_written +
                                                s.cp_async_bytes + s.tma_bytes_loaded + s.tma_bytes_stored),
                            "B"),
               t != nullptr ? duration(t->microseconds()) : "-", t != nullptr ? percent(t->use.hbm) : "-");
  } else {
    fmt::print("{:>10}", duration(outcome.report.milliseconds * 1e3));
  }
  fmt::print("\n");
  if (findings > 0) fmt::print("{}\n", outcome.report.virtual_report.format());
  return outcome.good;
}

bool show_others(const std::vector<Ladder>& shown, const Palette& palette) {
  bool all_good = true;
  fmt::print("\n{}Other kernels{}\n{}{:<29} {:<14} {:<9} {:>8} {:>9} {:>9} {:>9} {:>10} {:>8}{}\n",
             palette.bold, palette.off, palette.dim, "kernel", "size", "result", "rel. err", "findings",
             "instr.", "bytes", "predicted", "memory", palette.off);
  for (const auto& [name, kernel] : registered_kernels()) {
    bool is_step = false;
    for (const Ladder& ladder : shown)
      for (const RegisteredKernel* step : ladder.steps) is_step = is_step || step == &kernel;
    if (!is_step) all_good = show(kernel, virtual_device(kernel), palette) && all_good;
  }
  return all_good;
}

bool show_cuda(const Palette& palette) {
  std::string why_not;
  if (!Device::has_cuda(&why_not)) {
    fmt::print("\n{}No CUDA GPU: {}.{}\n", palette.dim, why_not, palette.off);
    return true;
  }
  bool all_good = true;
  Device gpu = Device::cuda();
  fmt::print("\n{}{}{}\n{}{:<29} {:<14} {:<9} {:>8} {:>10}{}\n", palette.bold, gpu.name(), palette.off,
             palette.dim, "kernel", "size", "result", "rel. err", "time", palette.off);
  for (const auto& [name, kernel] : registered_kernels())
    if (gpu.can_run(kernel.target)) all_good = show(kernel, gpu, palette) && all_good;
  return all_good;
}

int demo() {
  using Clock = std::chrono::steady_clock;
  Palette palette;
  if (isatty(STDOUT_FILENO) != 0)
    palette = {"\033[32m", "\033[31m", "\033[2m", "\033[1m", "\033[36m", "\033[0m"};
  const Clock::time_point start = Clock::now();
  fmt::print("PTX on a virtual GPU: every access checked, every result compared with a float64 reference\n");
  const std::vector<Ladder> found = ladders();
  bool all_good = true;
  for (const Ladder& ladder : found) all_good = show_ladder(ladder, palette) && all_good;
  all_good = show_others(found, palette) && all_good;
  all_good = show_cuda(palette) && all_good;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("{}{:.0f} s on this machine{}\n", palette.dim, seconds, palette.off);
  return all_good ? 0 : 1;
}

}  // namespace

void add_demo(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "demo", "Run every kernel once, on the virtual GPU and on a CUDA GPU if there is one");
  command->callback([&chosen] { chosen = demo; });
}

}  // namespace imbrex::command
