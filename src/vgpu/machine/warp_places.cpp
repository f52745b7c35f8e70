// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/warp_places.h"

#include <fmt/format.h>

#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

namespace {

std::string lanes_text(const Warp& warp, Mask lanes) {
  return lanes == warp.live() ? "" : fmt::format("lanes 0x{:08x} ", lanes);
}

/// What the warp does, without its number: the same for warps at the same place.
std::string place_of(Warp& warp) {
  std::string text;
  for (const Split& split : warp.splits()) {
    if (!text.empty()) text += ", ";
    text += lanes_text(warp, split.mask);
    const std::string at = warp.program().place_text(split.blocked ? split.waits_at : split.pc);
    text += split.blocked ? fmt::format("waiting at {} {}", at, split.wait.describe(warp, split.wait))
                          : "at " + at;
  }
  return text.empty() ? "waiting for its lanes to reconverge" : text;
}

}  // namespace

void describe_places(Cluster& cluster, std::vector<std::string>& lines) {
  for (const std::unique_ptr<Cta>& cta : cluster.ctas()) {
    const auto& id = cta->id();
    const std::string whose = fmt::format("CTA ({}, {}, {})", id[0], id[1], id[2]);
    std::string place;
    int first = 0, last = -1;
    const auto tell = [&] {
      if (last < first) return;
      lines.push_back(first == last ? fmt::format("{} warp {} {}", whose, first, place)
                                    : fmt::format("{} warps {} to {} {}", whose, first, last, place));
    };
    for (const std::unique_ptr<Warp>& warp : cta->warps()) {
      std::string now = warp->finished() ? "" : place_of(*warp);
      if (!now.empty() && now == place && last == warp->index() - 1) {
        last = warp->index();
        continue;
      }
      tell();
      place = std::move(now);
      first = warp->index();
      last = place.empty() ? first - 1 : first;
    }
    tell();
  }
}

}  // namespace imbrex::vgpu
