// SPDX-License-Identifier: Apache-2.0
// `imbrex demo` on a CUDA GPU: the ladder that its generation has, beside cuBLASLt, and kernels beside the GPU's
// peaks. Each is verified first, then timed: the median of launches that begin with a cold L2.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "demo_view.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/runtime/bench.h"
#include "imbrex/runtime/tuner.h"
#include "timeline_text.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPause = 0.2;  // seconds before each measurement, which lets the chip cool a little
constexpr int kLaunches = 10;   // measured

int target_number(const std::string& target) { return std::atoi(target.c_str() + target.find('_') + 1); }

/// The newest ladder that the device runs in full; null where there is none.
const Ladder* ladder_for(const Device& device, const std::vector<Ladder>& ladders) {
  const Ladder* newest = nullptr;
  for (const Ladder& ladder : ladders) {
    const bool runs = std::ranges::all_of(
        ladder.steps, [&](const RegisteredKernel* step) { return device.can_run(step->target); });
    if (runs && (newest == nullptr ||
                 target_number(ladder.steps.front()->target) > target_number(newest->steps.front()->target)))
      newest = &ladder;
  }
  return newest;
}

/// One kernel, verified and timed; `error` where it could not be run.
struct Measured {
  BenchResult result;
  std::string error;
  double microseconds() const { return result.modes.empty() ? 0 : result.modes[0].kernel.median; }
  double rival_microseconds() const { return result.modes.empty() ? 0 : result.modes[0].rival.median; }
  /// Operations per second of what computes, bytes per second of what moves.
  double rate() const {
    if (microseconds() <= 0) return 0;
    return (result.flop > 0 ? result.flop : static_cast<double>(result.bytes)) / microseconds() * 1e6;
  }
  bool is_good() const { return error.empty() && result.verified; }
};

Measured measure(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                 const Device& device, const std::shared_ptr<CaseData>& data) {
  Measured measured;
  try {
    const auto tuned = find_tuned(kernel, sizes, device);
    BenchOptions options;
    options.device = device;
    options.pause_s = kPause;
    options.burst_launches = kLaunches;
    options.data = data;
    measured.result =
        bench(kernel, sizes, tuned ? tuned->configuration : kernel.space.configuration(0), options);
    if (!measured.result.verified) measured.error = "wrong: " + measured.result.wrong;
  } catch (const Error& error) {
    measured.error = error.what();
  }
  return measured;
}

/// "712 TFLOPS", "3.91 TB/s".
std::string rate_text(double rate, bool computes) {
  if (rate <= 0) return "-";
  return computes ? fmt::format("{:.0f} TFLOPS", rate / 1e12) : fmt::format("{:.2f} TB/s", rate / 1e12);
}

/// A bar and a percentage of `roof`; blank where the roof is not known.
std::string share_text(double rate, double roof, const Palette& palette) {
  if (roof <= 0 || rate <= 0) return fmt::format("{:<16}", "");
  return fmt::format("{}{}{} {:>5}", palette.bar, bar(rate / roof), palette.off, percent(rate / roof));
}

Json to_json(const std::string& name, const Measured& m, double roof) {
  const BenchResult& r = m.result;
  Json out = {{"kernel", name},
              {"sizes", r.sizes},
              {"config", r.config},
              {"verified", m.is_good()},
              {"error", m.error},
              {"max_rel_err", r.max_rel_err},
              {"microseconds", m.microseconds()},
              {"spread", r.modes.empty() ? 0 : r.modes[0].kernel.spread()},
              {"clock_mhz", r.modes.empty() ? 0 : r.modes[0].clock_mhz},
              {r.flop > 0 ? "flop_per_second" : "bytes_per_second", m.rate()},
              {"roof", roof > 0 ? Json(roof) : Json()},
              {"rival", r.rival},
              {"rival_microseconds", m.rival_microseconds()}};
  return out;
}

bool show_ladder(const Ladder& ladder, int64_t extent, const Device& device, const GpuModel* model,
                 const Palette& palette, Json* json) {
  const bool takes_bfloat16 = std::ranges::any_of(ladder.steps.front()->description.sizes,
                                                  [](const SizeOption& size) { return size.name == "bf16"; });
  const DataType type = takes_bfloat16 ? bfloat16 : float16;
  const double roof = model != nullptr ? model->peak(type) : 0;
  const std::map<std::string, int64_t> wanted{{"m", extent}, {"n", extent}, {"k", extent}, {"bf16", 1}};
  const auto data = std::make_shared<CaseData>();  // all steps multiply the same matrices
  if (json == nullptr) {
    fmt::print("\n{}{} ladder{}  {}×{}×{} · {}{}\n", palette.bold, ladder.title(), palette.off, extent,
               extent, extent, type.name(),
               roof > 0 ? fmt::format(" · peak of the {}: {:.0f} TFLOPS", model->title, roof / 1e12) : "");
    fmt::print("{}{:<5}{:<9} {:>11} {:>12}  {:<16}  {:>11}  {}{}\n", palette.dim, "step", "result", "time",
               "rate", "of the peak", "of cuBLASLt", "what it adds", palette.off);
    std::fflush(stdout);
  }
  bool all_good = true;
  Measured last;
  for (const RegisteredKernel* step : ladder.steps) {
    const Measured m = measure(*step, sizes_with(*step, wanted), device, data);
    all_good = all_good && m.is_good();
    if (m.is_good()) last = m;
    if (json != nullptr) {
      (*json)["ladder"].push_back(to_json(step->description.name, m, roof));
      continue;
    }
    const double ratio = m.result.is_rival_cublas_lt ? m.result.modes[0].ratio() : 0;
    fmt::print("{}{:<5}{}{}  {:>11} {:>12}  {}  {:>11}  {}{}{}\n", palette.bold, ladder.step_name(*step),
               palette.off, verdict(m.is_good(), m.is_good(), palette),
               m.is_good() ? duration(m.microseconds()) : "-", rate_text(m.rate(), true),
               share_text(m.rate(), roof, palette), ratio > 0 ? fmt::format("{:.3f}", ratio) : "-",
               palette.dim, step->description.summary, palette.off);
    if (!m.error.empty()) fmt::print("{}\n", m.error);
    std::fflush(stdout);
  }
  if (json != nullptr) return all_good;
  if (last.result.is_rival_cublas_lt) {
    const double rate = last.result.flop / last.rival_microseconds() * 1e6;
    fmt::print("{:<15}{:>11} {:>12}  {}\n", last.result.rival, duration(last.rival_microseconds()),
               rate_text(rate, true), share_text(rate, roof, palette));
  } else if (!last.result.rival_missing.empty()) {
    fmt::print("{}no comparison with cuBLASLt: {}{}\n", palette.dim, last.result.rival_missing, palette.off);
  }
  return all_good;
}

/// What is shown beside the GPU's peaks, at sizes that fill it.
const std::vector<std::pair<std::string, std::map<std::string, int64_t>>>& kernels_beside_roofs() {
  static const std::vector<std::pair<std::string, std::map<std::string, int64_t>>> shown = {
      {"attention", {{"heads", 32}, {"q", 4096}, {"kv", 4096}, {"bf16", 1}}},
      {"softmax", {{"m", 16384}, {"n", 4096}}},
      {"layer_norm", {{"m", 16384}, {"n", 4096}}}};
  return shown;
}

bool show_beside_roofs(const Device& device, const GpuModel* model, const Palette& palette, Json* json) {
  if (json == nullptr)
    fmt::print("\n{}Beside their roofs{}\n{}{:<12}{:<19}{:<9} {:>11} {:>12} {:>12}  {}{}\n", palette.bold,
               palette.off, palette.dim, "kernel", "size", "result", "time", "rate", "roof", "of the roof",
               palette.off);
  bool all_good = true;
  for (const auto& [name, wanted] : kernels_beside_roofs()) {
    const auto found = registered_kernels().find(name);  // absent in a program with kernels of its own
    if (found == registered_kernels().end() || !device.can_run(found->second.target)) continue;
    const RegisteredKernel& kernel = found->second;
    const std::map<std::string, int64_t> sizes = sizes_with(kernel, wanted);
    const Measured m = measure(kernel, sizes, device, nullptr);
    all_good = all_good && m.is_good();
    const bool computes = m.result.flop > 0;
    const double roof = model == nullptr ? 0 : computes ? model->peak(bfloat16) : model->hbm_bytes_per_second;
    if (json != nullptr) {
      (*json)["kernels"].push_back(to_json(name, m, roof));
      continue;
    }
    fmt::print("{:<12}{:<19}{}  {:>11} {:>12} {:>12}  {}\n", name, shape_text(kernel, sizes),
               verdict(m.is_good(), m.is_good(), palette), m.is_good() ? duration(m.microseconds()) : "-",
               rate_text(m.rate(), computes), rate_text(roof, computes), share_text(m.rate(), roof, palette));
    if (!m.error.empty()) fmt::print("{}\n", m.error);
    std::fflush(stdout);
  }
  return all_good;
}

}  // namespace

bool demo_on_cuda(int64_t extent, const Palette& palette, Json* json) {
  const Device device = Device::cuda();
  const GpuModel* model = find_gpu_model_of_device(device.name());
  if (json != nullptr)
    *json = {
        {"device", device.name()}, {"size", extent}, {"ladder", Json::array()}, {"kernels", Json::array()}};
  else
    fmt::print("{}{}{}: verified against float64, then the median of {} launches with a cold L2\n",
               palette.bold, device.name(), palette.off, kLaunches);
  const std::vector<Ladder> all = ladders();
  bool all_good = true;
  if (const Ladder* ladder = ladder_for(device, all))
    all_good = show_ladder(*ladder, extent, device, model, palette, json);
  return show_beside_roofs(device, model, palette, json) && all_good;
}

}  // namespace imbrex::command
