// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/update_passes.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace imbrex::vgpu {

namespace {

constexpr int kBanks = 32, kWordShift = 2, kSectorShift = 5;
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

}  // namespace imbrex::vgpu
