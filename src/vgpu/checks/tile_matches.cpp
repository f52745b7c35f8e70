// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/checks/tile_matches.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "vgpu/checks/tile_matches.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

TileMatches match(const TilePart* parts, size_t count, uint64_t cells, uint64_t who) {
  const hn::CappedTag<uint64_t, kMatchedAtOnce> d;
  const auto wanted = hn::Set(d, cells), same = hn::Set(d, who), zero = hn::Zero(d);
  uint64_t apart = 0, alike = 0;
  const auto bits = [&](auto mask) HWY_ATTR {
    uint8_t byte[8];
    hn::StoreMaskBits(d, mask, byte);
    return uint64_t{byte[0]};
  };
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const TilePart& part = parts[i / kMatchedAtOnce];
    const size_t at = i % kMatchedAtOnce;
    apart |= bits(hn::Eq(hn::And(hn::LoadU(d, part.cells + at), wanted), zero)) << i;
    alike |= bits(hn::Eq(hn::LoadU(d, part.who + at), same)) << i;
  }
  const uint64_t all = count == 0 ? 0 : ~uint64_t{0} >> (64 - count);
  return {~apart & all, alike & all};
}

MatchTile best_match() { return match; }

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(best_match);

const MatchTile match_tile = HWY_DYNAMIC_DISPATCH(best_match)();

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
