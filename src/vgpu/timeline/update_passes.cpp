// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/update_passes.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace imbrex::vgpu {

namespace {

constexpr int kBanks = 32, kWordShift = 2, kSectorShift = 5, kLineShift = 7;
constexpr double kLoopClocks =
    47;  // M: a round of the loop that adds float32 (docs/measurements/2026-11-23-instructions.md)

/// The words that lanes name, in ascending order.
struct Words {
  Words(const std::byte* const* host, Mask lanes) {
    for_each_lane(lanes,
                  [&](int lane) { at[count++] = reinterpret_cast<uintptr_t>(host[lane]) >> kWordShift; });
    std::sort(at.begin(), at.begin() + count);
  }
  /// Calls `body` with each word and the number of its lanes.
  template <class Body>
  void for_each(Body&& body) const {
    for (int begin = 0, end = 0; begin < count; begin = end) {
      while (end < count && at[static_cast<size_t>(end)] == at[static_cast<size_t>(begin)]) ++end;
      body(at[static_cast<size_t>(begin)], end - begin);
    }
  }
  std::array<uintptr_t, kWarpSize> at;
  int count = 0;
};

}  // namespace

double shared_update_clocks(const std::byte* const* host, Mask lanes, bool returns, bool is_native) {
  std::array<int, kBanks> passes = {};
  int most = 1;
  Words(host, lanes).for_each([&](uintptr_t word, int same) {
    passes[word % kBanks] += returns ? same : 1;
    most = std::max(most, same);
  });
  const int conflict = *std::max_element(passes.begin(), passes.end());
  return is_native ? conflict : kLoopClocks * most;
}

StoredSectors stored_sectors(const std::byte* const* host, Mask lanes, uint32_t bytes) {
  constexpr uint32_t kMostBytes = 16, kSectorBytes = 1u << kSectorShift;
  // Each lane writes a part of one sector, or, where its address is no multiple of its size, of two.
  struct Piece {
    uintptr_t sector;
    uint32_t bits;  // a byte each
  };
  std::array<Piece, 2 * kWarpSize> pieces;
  int count = 0;
  for_each_lane(lanes, [&](int lane) {
    const auto at = reinterpret_cast<uintptr_t>(host[lane]);
    const auto begin = static_cast<uint32_t>(at % kSectorBytes);
    const uint64_t bits = ((uint64_t{1} << std::min(bytes, kMostBytes)) - 1) << begin;
    pieces[static_cast<size_t>(count++)] = {at >> kSectorShift, static_cast<uint32_t>(bits)};
    if (bits >> kSectorBytes != 0)
      pieces[static_cast<size_t>(count++)] = {(at >> kSectorShift) + 1,
                                              static_cast<uint32_t>(bits >> kSectorBytes)};
  });
  std::sort(pieces.begin(), pieces.begin() + count,
            [](const Piece& a, const Piece& b) { return a.sector < b.sector; });
  StoredSectors sectors;
  uintptr_t last = ~uintptr_t{0};  // line that was written in part
  for (int begin = 0, end = 0; begin < count; begin = end) {
    uint32_t written = 0;
    const uintptr_t sector = pieces[static_cast<size_t>(begin)].sector;
    for (; end < count && pieces[static_cast<size_t>(end)].sector == sector; ++end)
      written |= pieces[static_cast<size_t>(end)].bits;
    const uintptr_t line = sector >> (kLineShift - kSectorShift);
    ++sectors.sectors;
    if (written == ~uint32_t{0} || line == last) continue;
    ++sectors.partial_lines;
    last = line;
  }
  return sectors;
}

int global_update_passes(const std::byte* const* host, Mask lanes) {
  constexpr uintptr_t kNone = ~uintptr_t{0};
  uintptr_t sector = kNone;
  int passes = 0, most = 0;
  Words(host, lanes).for_each([&](uintptr_t word, int same) {
    const uintptr_t own = word >> (kSectorShift - kWordShift);
    if (own != sector) {
      passes += most;
      most = 0;
      sector = own;
    }
    most = std::max(most, same);
  });
  return passes + most;
}

// M: up to four stores of words or less, right after each other, that fill at most four lines. Of eight that do so each takes its time, as
// do stores of 8 bytes a lane and those that fill half of the lines (docs/measurements/2026-11-25-pipes.md).
void gather_stores(Recording& recording, size_t warp, int32_t first) {
  constexpr size_t kMostStores = 4;
  constexpr int32_t kMostLines = 4;
  if (recording.works[static_cast<size_t>(first)].line_count > kMostLines) return;
  std::vector<int32_t> others;
  const std::vector<RecordedStep>& steps = recording.warps[warp];
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].kind != RecordedStep::Kind::kSubmit) continue;
    if (steps[i].id == first) break;
    others.push_back(steps[i].id);
  }
  if (others.size() >= kMostStores) return;
  for (int32_t other : others) {
    WorkDemand& demand = recording.works[static_cast<size_t>(other)].demand;
    demand.sectors = demand.partial_lines = 0;
  }
}

}  // namespace imbrex::vgpu
