// SPDX-License-Identifier: Apache-2.0
#include "roofline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernel_study.h"
#include "svg.h"

namespace imbrex::command {

std::string roofline_svg(const GpuModel& gpu, const Roofline& r, const std::string& title) {
  constexpr double kWidth = 820, kHeight = 480, kLeft = 80, kRight = 30, kTop = 60, kBottom = 60;
  constexpr double kMinX = 0.25, kMaxX = 16384;  // operations per byte
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
               fmt::format("{}: {:.1f} operations per byte, ridge {:.1f}, attainable {}op/s", level.name,
                           level.intensity, level.ridge, scaled(level.attainable)));
    svg.text(kWidth - kRight, kHeight - kBottom - 12 - 18.0 * static_cast<double>(r.levels.size() - 1 - i),
             fmt::format("{}: {}B/s, intensity {:.1f}, ridge {:.1f}", level.name,
                         scaled(level.bytes_per_second), level.intensity, level.ridge),
             "end", fmt::format("fill:{}", colour));
  }
  return svg.str();
}

std::string roofline_text(const GpuModel& gpu, const Roofline& r, const std::string& title) {
  std::string text = fmt::format("{}\non {}: peak {}op/s for {}; {}op\n\n", title, gpu.title, scaled(r.peak),
                                 r.operands.name(), scaled(r.flops));
  text += fmt::format("  {:14} {:>12} {:>12} {:>11} {:>8} {:>14}  {}\n", "level", "moved", "bandwidth",
                      "op/byte", "ridge", "attainable", "");
  for (const RoofLevel& level : r.levels)
    text += fmt::format("  {:14} {:>12} {:>12} {:>11.1f} {:>8.1f} {:>14}  {}\n", level.name,
                        scaled(level.bytes) + "B", scaled(level.bytes_per_second) + "B/s", level.intensity,
                        level.ridge, scaled(level.attainable) + "op/s",
                        level.is_compute_bound() ? "the peak can be reached" : "limits");
  const RoofLevel& bound = r.bound();
  text += fmt::format("\n{}: at least {:.3g} us, at most {:.0f} % of the peak\n",
                      bound.is_compute_bound() ? "bound by computing" : "bound by " + bound.name,
                      r.seconds() * 1e6, 100 * bound.attainable / r.peak);
  return text;
}

nlohmann::ordered_json roofline_json(const Roofline& r) {
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

}  // namespace imbrex::command
