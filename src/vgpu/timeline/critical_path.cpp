// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/critical_path.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace imbrex::vgpu {

namespace {

constexpr size_t kStripSteps = 240;

/// Adds the clocks from `begin` to `end` to the steps of a strip that they lie in.
void draw(std::vector<TimelineExplanation::Shares>& strip, double step, double begin, double end,
          Resource resource) {
  const auto last = strip.size() - 1;
  for (size_t i = std::min(last, static_cast<size_t>(begin / step)); i <= last; ++i) {
    const double from = std::max(begin, static_cast<double>(i) * step),
                 to = i == last ? end : std::min(end, static_cast<double>(i + 1) * step);
    if (to <= from) break;
    strip[i][static_cast<size_t>(resource)] += to - from;
  }
}

}  // namespace

TimelineExplanation::Shares CriticalPath::shares(PathNode node, double since) const {
  TimelineExplanation::Shares shares{};
  for (; node != 0 && nodes_[node].end > since; node = nodes_[node].before) {
    const Node& n = nodes_[node];
    shares[static_cast<size_t>(n.resource)] += n.end - std::max(since, nodes_[n.before].end);
  }
  return shares;
}

void CriticalPath::explain(PathNode last, double end, const std::function<int32_t(uint32_t)>& place,
                           TimelineExplanation& why) const {
  std::map<std::tuple<Resource, uint32_t, int>, double> parts;
  why.strip.assign(kStripSteps, {});
  const double step = std::max(1.0, end) / kStripSteps;
  for (PathNode node = last; node != 0; node = nodes_[node].before) {
    const Node& n = nodes_[node];
    const double begin = nodes_[n.before].end;
    parts[{n.resource, n.insn, n.warp}] += n.end - begin;
    why.path[static_cast<size_t>(n.resource)] += n.end - begin;
    draw(why.strip, step, begin, n.end, n.resource);
  }
  for (const auto& [key, cycles] : parts) {
    const auto& [resource, insn, warp] = key;
    why.parts.push_back({resource, warp, insn == kNoInsn ? -1 : place(insn), cycles});
  }
  std::stable_sort(why.parts.begin(), why.parts.end(),
                   [](const auto& a, const auto& b) { return a.cycles > b.cycles; });
}

}  // namespace imbrex::vgpu
