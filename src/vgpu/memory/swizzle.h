// SPDX-License-Identifier: Apache-2.0
// The shared-memory swizzles: what a tensor copy writes through, and a matrix descriptor reads through. Each
// is an XOR of some address bits into lower ones, so it is its own inverse and never leaves its 128-byte
// line.
#pragma once

#include <cstdint>

namespace imbrex::vgpu {

enum class Swizzle : uint8_t {
  kNone,
  k32B,
  k64B,
  k128B,
  k128BAtom32B,
  k128BAtom32BFlip8B,
  k128BAtom64B,
  k96B,
};

/// What one mode does: bits [7, 7 + popcount(mask)) of the address are XORed in at bit `to`.
struct SwizzleFacts {
  const char* name;
  uint8_t mask;     // of the 128-byte line number
  uint8_t to;       // lowest address bit changed
  uint8_t flip8;    // odd lines swap their 8-byte halves as well
  uint16_t span;    // widest inner row in bytes, 0 = any
  uint16_t atom;    // bytes that stay together
  uint16_t period;  // bytes after which the pattern repeats
};

inline constexpr SwizzleFacts kSwizzleFacts[] = {
    {"none", 0, 4, 0, 0, 16, 16},
    {"32B", 1, 4, 0, 32, 16, 256},
    {"64B", 3, 4, 0, 64, 16, 512},
    {"128B", 7, 4, 0, 128, 16, 1024},
    {"128B with 32B atom", 3, 5, 0, 128, 32, 512},
    {"128B with 32B atom and 8B flip", 3, 5, 1, 128, 32, 512},
    {"128B with 64B atom", 1, 6, 0, 128, 64, 256},
    {"96B", 1, 4, 0, 96, 16, 256},
};

constexpr const SwizzleFacts& facts(Swizzle mode) { return kSwizzleFacts[static_cast<int>(mode)]; }

/// Where the byte at linear `address` really lies.
constexpr uint32_t swizzle_address(Swizzle mode, uint32_t address) {
  const SwizzleFacts& f = facts(mode);
  const uint32_t line = address >> 7;
  return address ^ ((line & f.mask) << f.to) ^ ((line & f.flip8) << 3);
}

}  // namespace imbrex::vgpu
