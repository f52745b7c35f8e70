// SPDX-License-Identifier: Apache-2.0
// `imbrex roofline`: the roofs of a GPU, and where a matrix product or a kernel stands under them at every
// level of the memory hierarchy. A kernel's traffic is what the virtual GPU sees move.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/error.h"
#include "imbrex/tiling.h"
#include "matmul_options.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {
namespace {

struct RooflineOptions {
  KernelChoice choice;
  GpuChoice gpu;
  MatmulTile tile;
  std::string dtype = "float16";
  std::string svg;
  bool json = false;
};

/// "1.23 T" of a number of units.
std::string scaled(double value) {
  static constexpr std::pair<double, const char*> kPrefixes[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [factor, prefix] : kPrefixes)
    if (value >= factor) return fmt::format("{:.4g} {}", value / factor, prefix);
  return fmt::format("{:.4g} ", value);
}

std::string as_svg(const GpuModel& gpu, const Roofline& r, const std::string& title) {
  constexpr double kWidth = 820, kHeight = 480, kLeft = 80, kRight = 30, kTop = 60, kBottom = 60;
  constexpr double kMinX = 0.25, kMaxX = 16384;  // operations a byte
  const double max_y = r.peak * 2, min_y = r.peak / 5000;
  auto x = [&](double v) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(v / kMinX) / std::log(kMaxX / kMinX);
  };
  auto y = [&](double v) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::log(v / min_y) / std::log(max_y / min_y);
  };
  static constexpr const char* kColours[] = {"#c0392b", "#d68910", "#2471a3", "#1e8449"};

  Svg svg(kWidth, kHeight);
  svg.text(kLeft, 26, title, "start", "font-size:17px; font-weight:bold");
  svg.text(kLeft, 45, fmt::format("{}, {}: peak {}op/s", gpu.title, r.operands.name(), scaled(r.peak)),
           "start", "fill:#555");
  for (double v = 1; v <= kMaxX; v *= 4) {
    svg.line(x(v), kTop, x(v), kHeight - kBottom, "stroke:#eee");
    svg.text(x(v), kHeight - kBottom + 18, fmt::format("{:.0f}", v), "middle", "fill:#555; font-size:11px");
  }
  for (double v = std::pow(10, std::ceil(std::log10(min_y))); v <= max_y; v *= 10) {
    svg.line(kLeft, y(v), kWidth - kRight, y(v), "stroke:#eee");
    svg.text(kLeft - 8, y(v) + 4, scaled(v), "end", "fill:#555; font-size:11px");
  }
  svg.text((kLeft + kWidth - kRight) / 2, kHeight - 18, "operations per byte moved at that level", "middle",
           "fill:#333");
  svg.line(x(kMinX), y(r.peak), x(kMaxX), y(r.peak), "stroke:#222; stroke-width:2");
  for (size_t i = 0; i < r.levels.size(); ++i) {
    const RoofLevel& level = r.levels[i];
    const char* colour = kColours[i % std::size(kColours)];
    const double start = std::max(kMinX, min_y / level.bytes_per_second);
    svg.line(x(start), y(start * level.bytes_per_second), x(level.ridge), y(r.peak),
             fmt::format("stroke:{}; stroke-width:2", colour));
    const double at = std::clamp(level.intensity, kMinX, kMaxX);
    svg.line(x(at), y(level.attainable), x(at), kHeight - kBottom,
             fmt::format("stroke:{}; stroke-dasharray:3 3", colour));
    svg.circle(x(at), y(level.attainable), 6, fmt::format("fill:{}", colour),
               fmt::format("{}: {:.1f} operations a byte, ridge {:.1f}, attainable {}op/s", level.name,
                           level.intensity, level.ridge, scaled(level.attainable)));
    svg.text(kWidth - kRight, kHeight - kBottom - 12 - 18.0 * static_cast<double>(r.levels.size() - 1 - i),
             fmt::format("{}: {}B/s, intensity {:.1f}, ridge {:.1f}", level.name,
                         scaled(level.bytes_per_second), level.intensity, level.ridge),
             "end", fmt::format("fill:{}", colour));
  }
  return svg.str();
}

void print_roofline(const GpuModel& gpu, const Roofline& r, const std::string& title) {
  fmt::print("{}\non {}: peak {}op/s for {}; {}op\n\n", title, gpu.title, scaled(r.peak), r.operands.name(),
             scaled(r.flops));
  fmt::print("  {:14} {:>12} {:>12} {:>11} {:>8} {:>14}  {}\n", "level", "moved", "bandwidth", "op/byte",
             "ridge", "attainable", "");
  for (const RoofLevel& level : r.levels)
    fmt::print("  {:14} {:>12} {:>12} {:>11.1f} {:>8.1f} {:>14}  {}\n", level.name, scaled(level.bytes) + "B",
               scaled(level.bytes_per_second) + "B/s", level.intensity, level.ridge,
               scaled(level.attainable) + "op/s",
               level.is_compute_bound() ? "the peak can be reached" : "limits");
  const RoofLevel& bound = r.bound();
  fmt::print("\n{}: at least {:.3g} us, at most {:.0f} % of the peak\n",
             bound.is_compute_bound() ? "bound by computing" : "bound by " + bound.name, r.seconds() * 1e6,
             100 * bound.attainable / r.peak);
}

nlohmann::ordered_json to_json(const Roofline& r) {
  nlohmann::ordered_json levels = nlohmann::ordered_json::array();
  for (const RoofLevel& level : r.levels)
    levels.push_back({{"level", level.name},
                      {"bytes", level.bytes},
                      {"bytes_per_second", level.bytes_per_second},
                      {"intensity", level.intensity},
                      {"ridge", level.ridge},
                      {"attainable", level.attainable},
                      {"compute_bound", level.is_compute_bound()}});
  return {{"gpu", r.gpu},
          {"dtype", r.operands.name()},
          {"peak", r.peak},
          {"operations", r.flops},
          {"bound_by", r.bound().is_compute_bound() ? "compute" : r.bound().name},
          {"seconds", r.seconds()},
          {"levels", levels}};
}

/// Operations and bytes of a kernel: what the virtual GPU counts while it runs it.
Roofline kernel_roofline(const RegisteredKernel& kernel, const RooflineOptions& options,
                         const GpuModel& gpu) {
  vgpu::Options machine;
  machine.target = kernel.target;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kFast;
  const Device device = Device::open("virtual", kernel.target, machine);
  Case c(Case::Mode::kRun, device, options.choice.sizes(), 0);
  kernel.run(c, device, options.choice.configuration());
  const vgpu::Statistics& s = c.report.virtual_report.statistics;
  Traffic traffic;
  traffic.l2 = static_cast<double>(s.global_bytes_read + s.global_bytes_written + s.cp_async_bytes +
                                   s.tma_bytes_loaded + s.tma_bytes_stored);
  traffic.shared = static_cast<double>(s.shared_bytes_read + s.shared_bytes_written + s.cp_async_bytes +
                                       s.tma_bytes_loaded + s.tma_bytes_stored);
  traffic.hbm = static_cast<double>(c.tensor_bytes());
  const bool has_tensor_work = s.tensor_flops > 0;
  const double flops = static_cast<double>(has_tensor_work ? s.tensor_flops : s.lane_instructions);
  return roofline(gpu, has_tensor_work ? dtype_named(options.dtype) : float32, flops, traffic);
}

int roofline_command(const RooflineOptions& options) {
  const bool is_kernel = options.choice.is_given();
  const GpuModel gpu = options.gpu.gpu(!is_kernel                                             ? "h200"
                                       : options.choice.kernel().target.starts_with("sm_100") ? "b200"
                                       : options.choice.kernel().target.starts_with("sm_90")  ? "h200"
                                                                                              : "a100");
  Roofline r;
  std::string title;
  if (is_kernel) {
    const RegisteredKernel& kernel = options.choice.kernel();
    r = kernel_roofline(kernel, options, gpu);
    title =
        fmt::format("{} {}", kernel.description.name, kernel.space.to_string(options.choice.configuration()));
  } else {
    MatmulTile tile = options.tile;
    tile.operands = dtype_named(options.dtype);
    tile.use_instructions_of(gpu.target);
    MatmulShape shape;
    shape.m = options.choice.given("m", shape.m);
    shape.n = options.choice.given("n", shape.n);
    shape.k = options.choice.given("k", shape.k);
    r = roofline(gpu, tile.operands, shape.flops(), matmul_traffic(shape, tile));
    title = fmt::format("matrix product {} x {} x {}, tile {} x {} x {}", shape.m, shape.n, shape.k,
                        tile.block_m, tile.block_n, tile.block_k);
  }
  if (!options.svg.empty()) write_file(options.svg, as_svg(gpu, r, title));
  if (options.json) {
    fmt::print("{}\n", to_json(r).dump(2));
  } else {
    print_roofline(gpu, r, title);
  }
  return 0;
}

}  // namespace

void add_roofline(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RooflineOptions>();
  CLI::App* command = app.add_subcommand(
      "roofline",
      "Where a kernel, or a matrix product cut into tiles, stands under a GPU's roofs at every memory level");
  options->choice.add_to(*command, KernelChoice::Need::kOptional);
  options->gpu.add_to(*command);
  add_tile_options(*command, options->tile, options->dtype);
  command->add_option("--svg", options->svg, "draw it into this file");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, options] { chosen = [options] { return roofline_command(*options); }; });
}

}  // namespace imbrex::command
