// SPDX-License-Identifier: Apache-2.0
#include "tile_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "imbrex/core/error.h"
#include "svg.h"

namespace imbrex::command {

namespace {

/// Colours by CTAs per SM: 0 (does not fit), 1, 2, 3 ... and more.
constexpr std::array<const char*, 6> kRegions = {"#fbe9e7", "#fdf3dc", "#eef6e8",
                                                 "#dcefe3", "#d3ecec", "#cfe4f3"};
constexpr std::array<const char*, 6> kPoints = {"#c0392b", "#d68910", "#7aa32b",
                                                "#1e8449", "#148f8f", "#2471a3"};
size_t class_of(int64_t ctas) { return static_cast<size_t>(std::clamp<int64_t>(ctas, 0, 5)); }

std::string class_text(size_t ctas) {
  if (ctas == 0) return "does not fit";
  return fmt::format("{}{} CTA{} per SM", ctas, ctas == 5 ? " or more" : "", ctas == 1 ? "" : "s");
}

void legend(Svg& svg, double x, double y) {
  for (size_t i = 0; i < kPoints.size(); ++i) {
    svg.circle(x, y - 4, 5, fmt::format("fill:{}", kPoints[i]));
    svg.text(x + 10, y, class_text(i), "start", "fill:#333; font-size:12px");
    x += 118;
  }
}

constexpr double kWidth = 820, kHeight = 480, kLeft = 74, kRight = 20, kTop = 62, kBottom = 84;

/// Axes from 0 to `most_x` and `most_y`.
struct Axes {
  double most_x, most_y;
  double x(double value) const { return kLeft + (kWidth - kLeft - kRight) * value / most_x; }
  double y(double value) const { return kHeight - kBottom - (kHeight - kTop - kBottom) * value / most_y; }
};

}  // namespace

TileCandidate compile_candidate(const KernelChoice& choice, const Configuration& configuration,
                                bool with_ptxas, const std::string& target) {
  const RegisteredKernel& kernel = choice.kernel();
  const auto traced = [&] {
    Case traced(Case::Mode::kTrace, std::nullopt, choice.sizes(), 0);
    kernel.run(traced, std::nullopt, configuration);
    return traced;
  };
  TileCandidate candidate;
  candidate.config = kernel.space.to_string(configuration);
  try {
    candidate.resources = kernel_resources(*traced().function);
    if (with_ptxas) candidate.assembled = assembled_resources(*traced().function, target);
    CtaResources cta = candidate.resources.cta;
    if (candidate.assembled) cta.registers_per_thread = candidate.assembled->registers_per_thread;
    candidate.resources.target = target;
    candidate.occupancy = occupancy(target, cta);
  } catch (const CompileError& error) {
    candidate.error = error.what();
  }
  return candidate;
}

std::string tile_space_svg(const std::string& kernel, const std::string& target,
                           const std::vector<TileCandidate>& candidates) {
  std::map<std::string, int64_t> limits;
  for (const auto& [name, limit] : occupancy_limits(target)) limits[name] = limit;
  size_t compiled = 0, fit = 0;
  int64_t threads = 128;    // that the regions are drawn for: the most of any
  bool by_columns = false;  // of tensor memory, upwards
  for (const TileCandidate& c : candidates) {
    if (!c.error.empty()) continue;
    ++compiled;
    fit += c.occupancy.is_feasible();
    threads = std::max(threads, c.resources.cta.threads);
    by_columns = by_columns || c.resources.cta.tensor_memory_columns > 0;
  }
  const Axes axes{
      static_cast<double>(limits["max_shared_bytes"]) * 1.12,
      static_cast<double>(limits[by_columns ? "tensor_memory_columns" : "registers_per_sm"]) * 1.12};

  Svg svg(kWidth, kHeight);
  svg.text(kLeft, 26, fmt::format("{}: what its {} configurations take", kernel, candidates.size()), "start",
           "font-size:17px; font-weight:bold");
  svg.text(kLeft, 45,
           fmt::format("{}; {} fit, {} do not{}. Regions: CTAs of {} threads", target, fit, compiled - fit,
                       compiled < candidates.size()
                           ? fmt::format(", {} do not compile", candidates.size() - compiled)
                           : "",
                       threads),
           "start", "fill:#555");
  // The regions, in columns and rows as fine as the picture shows.
  constexpr int kColumns = 94, kRows = 84;
  const double cell_x = axes.most_x / kColumns, cell_y = axes.most_y / kRows;
  for (int column = 0; column < kColumns; ++column)
    for (int row = 0; row < kRows;) {
      const auto region = [&](int r) {
        const auto up = static_cast<int64_t>((r + 0.5) * cell_y);
        return class_of(occupancy(target, {.threads = threads,
                                           .registers_per_thread = by_columns ? 32 : up / threads,
                                           .shared_bytes = static_cast<int64_t>((column + 0.5) * cell_x),
                                           .tensor_memory_columns = by_columns ? up : 0})
                            .ctas_per_sm);
      };
      const size_t here = region(row);
      int end = row + 1;
      while (end < kRows && region(end) == here) ++end;
      svg.rect(axes.x(column * cell_x), axes.y(end * cell_y), axes.x(cell_x) - axes.x(0) + 0.3,
               axes.y(row * cell_y) - axes.y(end * cell_y) + 0.3,
               fmt::format("fill:{}; shape-rendering:crispEdges", kRegions[here]));
      row = end;
    }
  for (int kib = 0; kib * 1024.0 <= axes.most_x; kib += 32) {
    svg.line(axes.x(kib * 1024.0), kHeight - kBottom, axes.x(kib * 1024.0), kHeight - kBottom + 4,
             "stroke:#888");
    svg.text(axes.x(kib * 1024.0), kHeight - kBottom + 18, std::to_string(kib), "middle",
             "fill:#555; font-size:11px");
  }
  for (int tick = 0; tick <= axes.most_y; tick += by_columns ? 64 : 8192) {
    svg.line(kLeft - 4, axes.y(tick), kLeft, axes.y(tick), "stroke:#888");
    svg.text(kLeft - 8, axes.y(tick) + 4,
             by_columns ? std::to_string(tick) : fmt::format("{} Ki", tick / 1024), "end",
             "fill:#555; font-size:11px");
  }
  svg.text((kLeft + kWidth - kRight) / 2, kHeight - kBottom + 36, "KiB of shared memory per CTA", "middle",
           "fill:#333");
  svg.text(8, kTop - 3, by_columns ? "columns of tensor memory per CTA" : "registers per CTA", "start",
           "fill:#333; font-size:11px");
  // Points; those on one place lie side by side.
  std::map<std::pair<int, int>, int> taken;
  for (const TileCandidate& c : candidates) {
    if (!c.error.empty()) continue;
    const CtaResources& cta = c.resources.cta;
    const int64_t registers = c.assembled ? c.assembled->registers_per_thread : cta.registers_per_thread;
    const double x = axes.x(std::min(static_cast<double>(cta.shared_bytes), axes.most_x));
    const int64_t up = by_columns ? cta.tensor_memory_columns : registers * cta.threads;
    const double y = axes.y(std::min(static_cast<double>(up), axes.most_y));
    const int before = taken[{static_cast<int>(x / 3), static_cast<int>(y / 3)}]++;
    svg.circle(x + 3.2 * (before % 4), y - 3.2 * (before / 4 % 4), 4.5,
               fmt::format("fill:{}; fill-opacity:0.85; stroke:#fff; stroke-width:0.8",
                           kPoints[class_of(c.occupancy.ctas_per_sm)]),
               fmt::format("{}: {} bytes, {} registers per thread, {} threads: {} CTAs per SM", c.config,
                           cta.shared_bytes, registers, cta.threads, c.occupancy.ctas_per_sm));
  }
  legend(svg, kLeft, kHeight - 18);
  return svg.str();
}

std::string tile_region_svg(const GpuModel& gpu, const MatmulTile& tile) {
  static constexpr std::array<int64_t, 9> kBlocks = {16, 32, 48, 64, 96, 128, 192, 256, 384};
  Svg svg(kWidth, kHeight);
  svg.text(kLeft, 26, fmt::format("Tiles that fit on {}", gpu.title), "start",
           "font-size:17px; font-weight:bold");
  svg.text(kLeft, 45,
           fmt::format("block k {}, {} stages, {} threads, {}; in each cell the operations per byte loaded",
                       tile.block_k, tile.stages, tile.threads, tile.operands.name()),
           "start", "fill:#555");
  const double step_x = (kWidth - kLeft - kRight) / static_cast<double>(kBlocks.size());
  const double step_y = (kHeight - kTop - kBottom) / static_cast<double>(kBlocks.size());
  for (size_t i = 0; i < kBlocks.size(); ++i) {
    svg.text(kLeft - 8, kHeight - kBottom - step_y * (static_cast<double>(i) + 0.5) + 4,
             std::to_string(kBlocks[i]), "end", "fill:#555; font-size:11px");
    svg.text(kLeft + step_x * (static_cast<double>(i) + 0.5), kHeight - kBottom + 18,
             std::to_string(kBlocks[i]), "middle", "fill:#555; font-size:11px");
    for (size_t j = 0; j < kBlocks.size(); ++j) {
      MatmulTile other = tile;
      other.block_m = kBlocks[i];
      other.block_n = kBlocks[j];
      other.use_instructions_of(gpu.target);
      const Occupancy o = occupancy(gpu.target, other.resources());
      const double x = kLeft + step_x * static_cast<double>(j);
      const double y = kHeight - kBottom - step_y * static_cast<double>(i + 1);
      const bool is_chosen = other.block_m == tile.block_m && other.block_n == tile.block_n;
      svg.rect(x + 1, y + 1, step_x - 2, step_y - 2,
               fmt::format("fill:{}; fill-opacity:{}; stroke:{}", kPoints[class_of(o.ctas_per_sm)],
                           o.is_feasible() ? "0.45" : "0.18", is_chosen ? "#000; stroke-width:2" : "none"),
               fmt::format("{} x {}: {}", other.block_m, other.block_n,
                           o.is_feasible() ? class_text(class_of(o.ctas_per_sm)) : o.complaints()));
      svg.text(x + step_x / 2, y + step_y / 2 + 4, fmt::format("{:.0f}", other.intensity()), "middle",
               o.is_feasible() ? "fill:#222; font-size:12px" : "fill:#b08a86; font-size:12px");
    }
  }
  svg.text((kLeft + kWidth - kRight) / 2, kHeight - kBottom + 36, "block n", "middle", "fill:#333");
  svg.text(kLeft - 8, kTop - 3, "block m", "end", "fill:#333; font-size:11px");
  legend(svg, kLeft, kHeight - 18);
  return svg.str();
}

}  // namespace imbrex::command
