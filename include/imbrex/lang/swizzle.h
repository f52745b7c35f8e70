// SPDX-License-Identifier: Apache-2.0
// Shared-memory swizzles: XORs of some address bits into others that TMA, wgmma and tcgen05 agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace imbrex::layout {

/// One of the swizzles of the hardware. It acts on absolute shared-memory byte addresses and is its own
/// inverse.
///
/// A swizzle permutes the atoms (16, 32 or 64 bytes) inside a row of span_bytes() bytes, by the row number
/// taken from higher address bits; the pattern repeats every period_bytes().
struct Swizzle {
  enum Mode : uint8_t {
    kNone,
    k32B,
    k64B,
    k128B,
    k128BAtom32B,        ///< 128-byte rows, 32-byte atoms
    k128BAtom32BFlip8B,  ///< the same, and the 8-byte halves of 16 bytes swapped on odd 128-byte lines
    k128BAtom64B,        ///< 128-byte rows, 64-byte atoms
    kCount,
  };
  Mode mode = kNone;

  friend constexpr bool operator==(Swizzle, Swizzle) = default;
  constexpr explicit operator bool() const { return mode != kNone; }

  /// The physical byte address of linear byte address `address` (and the other way round).
  int64_t apply(int64_t address) const;
  /// Bytes of one row, inside which atoms are permuted (32, 64, 128); 16 for kNone, the unit of unswizzled
  /// matrix operands.
  int64_t span_bytes() const;
  /// Bytes that always stay together, in order (8, 16, 32 or 64); for kNone "unlimited" (1 << 30).
  int64_t atom_bytes() const;
  /// Bytes after which the pattern repeats; tiles are aligned to it. 16 for kNone.
  int64_t period_bytes() const;
  /// "none", "32B", "64B", "128B", "128B/32B", "128B/32B+8B", "128B/64B".
  std::string_view name() const;
  static std::optional<Swizzle> from_name(std::string_view name);
  /// The 16-byte-atom swizzle with the widest span that divides rows of `row_bytes` bytes; kNone when 32 does
  /// not.
  static Swizzle widest_for(int64_t row_bytes);
};

}  // namespace imbrex::layout
