// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/lane_moves.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "vgpu/insns/lane_moves.h"
#include "vgpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
bool are_apart(const T* lanes, T step) {
  const hn::CappedTag<T, kWarpSize / 2> d;
  const int count = static_cast<int>(hn::Lanes(d)), last = kWarpSize - 1 - count;
  const auto expected = hn::Set(d, step);
  auto differs = hn::Zero(d);
  const auto look = [&](int i) HWY_ATTR {
    const auto apart = hn::Sub(hn::LoadU(d, lanes + i + 1), hn::LoadU(d, lanes + i));
    differs = hn::Or(differs, hn::Xor(apart, expected));
  };
  for (int i = 0; i < last; i += count) look(i);
  look(last);
  return hn::AllTrue(d, hn::Eq(differs, hn::Zero(d)));
}

using Words = hn::CappedTag<uint32_t, kWarpSize>;

void to_lanes(uint32_t count, const uint32_t* words, uint32_t* const* lanes) {
  const Words d;
  hn::Vec<Words> a, b, c, e;
  for (size_t i = 0; i < kWarpSize; i += hn::Lanes(d)) {
    if (count == 2) {
      hn::LoadInterleaved2(d, words + 2 * i, a, b);
    } else {
      hn::LoadInterleaved4(d, words + 4 * i, a, b, c, e);
      hn::StoreU(c, d, lanes[2] + i);
      hn::StoreU(e, d, lanes[3] + i);
    }
    hn::StoreU(a, d, lanes[0] + i);
    hn::StoreU(b, d, lanes[1] + i);
  }
}

void from_lanes(uint32_t count, uint32_t* words, const uint32_t* const* lanes) {
  const Words d;
  for (size_t i = 0; i < kWarpSize; i += hn::Lanes(d)) {
    const auto a = hn::LoadU(d, lanes[0] + i), b = hn::LoadU(d, lanes[1] + i);
    if (count == 2)
      hn::StoreInterleaved2(a, b, d, words + 2 * i);
    else
      hn::StoreInterleaved4(a, b, hn::LoadU(d, lanes[2] + i), hn::LoadU(d, lanes[3] + i), d, words + 4 * i);
  }
}

LaneMoves best_lane_moves() { return {are_apart<uint64_t>, are_apart<uint32_t>, to_lanes, from_lanes}; }

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(best_lane_moves);

const LaneMoves lane_moves = HWY_DYNAMIC_DISPATCH(best_lane_moves)();

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
