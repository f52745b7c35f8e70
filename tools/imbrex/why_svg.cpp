// SPDX-License-Identifier: Apache-2.0
// The critical path as a picture: what its time goes to, moment by moment, and what each resource would gain.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "svg.h"
#include "timeline_text.h"
#include "why_view.h"

namespace imbrex::command {

namespace {

using vgpu::Resource;

constexpr double kLeft = 18, kPlotWidth = 880, kTop = 78, kHeight = 92, kRow = 24, kNames = 150;

const char* colour(Resource resource) {
  static constexpr std::array<const char*, vgpu::kResources> kColours{
      {"#93a5ba", "#64748b", "#2a9d74", "#e07b28", "#8a63c9", "#1f5fa8", "#7fb0e6", "#b8322a", "#e39a94",
       "#c9a227", "#4fb79a", "#c2487f"}};
  return kColours[static_cast<size_t>(resource)];
}

}  // namespace

std::string why_svg(const WhyView& view) {
  const vgpu::Timeline& t = *view.timeline;
  const vgpu::TimelineExplanation& why = *t.why;
  std::vector<std::pair<double, Resource>> rows;
  for (int i = 0; i < vgpu::kResources; ++i)
    if (view.share(static_cast<Resource>(i)) >= 0.005)
      rows.emplace_back(view.share(static_cast<Resource>(i)), static_cast<Resource>(i));
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.first > b.first; });
  const double bars = kTop + kHeight + 46, height = bars + kRow * static_cast<double>(rows.size()) + 16;
  Svg svg(2 * kLeft + kPlotWidth, height);
  const std::string plain = "font:12px sans-serif;fill:#222", small = "font:11px sans-serif;fill:#6e7781";
  svg.rect(0, 0, 2 * kLeft + kPlotWidth, height, "fill:#ffffff");
  svg.text(kLeft, 26, fmt::format("{}  {}", view.kernel, view.sizes), "start",
           "font:bold 15px sans-serif;fill:#222");
  svg.text(kLeft, 44, view.configuration, "start", small);
  svg.text(kLeft, 64,
           fmt::format("the critical path of {} predicted on {}", duration(t.microseconds()), t.chip),
           "start", plain);
  // Columns of the strip: what each moment goes to, the launch's start at the left.
  const double width = kPlotWidth / static_cast<double>(why.strip.size());
  for (size_t i = 0; i < why.strip.size(); ++i) {
    double sum = 0, y = kTop;
    for (double cycles : why.strip[i]) sum += cycles;
    for (int r = 0; r < vgpu::kResources && sum > 0; ++r) {
      const double part = kHeight * why.strip[i][static_cast<size_t>(r)] / sum;
      if (part < 0.2) continue;
      svg.rect(kLeft + width * static_cast<double>(i), y, width + 0.3, part,
               fmt::format("fill:{}", colour(static_cast<Resource>(r))), name(static_cast<Resource>(r)));
      y += part;
    }
  }
  svg.text(kLeft, kTop + kHeight + 14, "0", "start", small);
  svg.text(kLeft + kPlotWidth, kTop + kHeight + 14, fmt::format("{} cycles", t.cycles), "end", small);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [share, resource] = rows[i];
    const double y = bars + kRow * static_cast<double>(i), scale = kPlotWidth - kNames - 250;
    svg.text(kLeft, y + 12, name(resource), "start", plain);
    svg.rect(kLeft + kNames, y, std::max(1.0, scale * share), kRow - 8,
             fmt::format("fill:{}", colour(resource)));
    std::string words = percent(share);
    for (const auto& what_if : why.what_if)
      if (what_if.free == resource)
        words += fmt::format("; {:.1f} % less time if free", std::max(0.0, 100 * view.gain(what_if)));
    svg.text(kLeft + kNames + scale * share + 8, y + 12, words, "start", plain);
  }
  return svg.str();
}

}  // namespace imbrex::command
