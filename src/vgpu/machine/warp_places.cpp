// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/warp_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/machine/awaited_value.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/memory/raced_bytes.h"

namespace imbrex::vgpu {

namespace {

std::string lanes_text(const Warp& warp, Mask lanes) {
  return lanes == warp.live() ? "" : fmt::format("lanes 0x{:08x} ", lanes);
}

struct GlobalPlace {
  uint64_t address;
  const Allocation* allocation;  // null: of no allocation, but shared memory
};
GlobalPlace global_place(const Warp& warp, const std::byte* at) {
  const GlobalMemory& memory = warp.cta().cluster().launch().memory;
  const uint64_t address = kGlobalBase + static_cast<uint64_t>(at - memory.host(kGlobalBase));
  return {address, memory.find(address)};
}

/// "byte 8 of allocation 2 (0x1000200108)", "byte 0x410 of shared memory".
std::string place_looked_at(Warp& warp) {
  const std::byte* const at = warp.last_look.at;
  SharedMemory& shared = warp.cta().shared();
  if (at >= shared.at(shared.user_base()) &&
      at < shared.at(shared.user_base()) + (shared.end() - shared.user_base()))
    return fmt::format("byte 0x{:x} of shared memory",
                       static_cast<uint64_t>(at - shared.at(shared.user_base())) + shared.user_base());
  const auto [address, allocation] = global_place(warp, at);
  if (allocation == nullptr) return "memory of another CTA";
  return fmt::format("byte {} of {} (0x{:x})", address - allocation->address, allocation->name, address);
}

/// What the warp does, without its number: the same for warps at the same place.
std::string place_of(Warp& warp) {
  std::string text;
  for (const Split& split : warp.splits()) {
    if (!text.empty()) text += ", ";
    text += lanes_text(warp, split.mask);
    const std::string at = warp.program().place_text(split.blocked ? split.waits_at : split.pc);
    if (split.blocked)
      text += fmt::format("waiting at {} {}", at, split.wait.describe(warp, split.wait));
    else if (split.asked)  // in a loop, as kernels wait for barriers that have no try_wait
      text += fmt::format("at {}, asking {}", at, split.wait.describe(warp, split.wait));
    else
      text += "at " + at + looked_at(warp, split.mask);
  }
  return text.empty() ? "waiting for its lanes to reconverge" : text;
}

}  // namespace

std::string looked_at(Warp& warp, Mask lanes) {
  const Warp::Look& look = warp.last_look;
  if (look.at == nullptr || (lanes & lane_bit(look.lane)) == 0) return "";
  uint64_t value = 0;
  read_bytes(&value, look.at, std::min<uint32_t>(look.bytes, 8));
  const std::string awaited = awaited_value(warp);
  return fmt::format(", having last looked at {}, which holds {}{}", place_looked_at(warp), value,
                     awaited.empty() ? "" : " and is waited for to be " + awaited);
}

bool looks_at_host_memory(const Warp& warp) {
  if (warp.last_look.at == nullptr) return false;
  const Allocation* allocation = global_place(warp, warp.last_look.at).allocation;
  return allocation != nullptr && allocation->host_visible;
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
