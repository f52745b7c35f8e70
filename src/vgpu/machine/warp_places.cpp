// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/warp_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/machine/cluster.h"
#include "vgpu/memory/raced_bytes.h"

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
                          : "at " + at + looked_at(warp);
  }
  return text.empty() ? "waiting for its lanes to reconverge" : text;
}

}  // namespace

std::string looked_at(Warp& warp) {
  const LaunchContext& launch = warp.cta().cluster().launch();
  const Warp::Look& look = warp.last_look;
  if (look.at == nullptr || launch.rank < 0) return "";
  const uint64_t address = kGlobalBase + static_cast<uint64_t>(look.at - launch.memory.host(kGlobalBase));
  const Allocation* allocation = launch.memory.find(address);
  if (allocation == nullptr) return "";
  uint64_t value = 0;
  read_bytes(&value, look.at, std::min<uint32_t>(look.bytes, 8));
  return fmt::format(", having last looked at byte {} of {}, which holds {}", address - allocation->address,
                     allocation->name, value);
}

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
