// SPDX-License-Identifier: Apache-2.0
// Matrix descriptors: the 64-bit words through which wgmma and tcgen05 name a tile in shared memory, and the
// address of every element under them.
#pragma once

#include <cstdint>
#include <string>

#include "vgpu/memory/swizzle.h"

namespace imbrex::vgpu {

/// Which dimension of an operand is contiguous: K, or the other one (M of A, N of B).
enum class Major : uint8_t { kK, kMn };

/// A decoded descriptor. Offsets are in bytes, relative to the CTA's shared window (rank bits are not kept).
struct MatrixDescriptor {
  uint32_t start = 0;
  uint32_t leading_offset = 0;  // LBO
  uint32_t stride_offset = 0;   // SBO
  uint8_t base_offset = 0;      // subtracted from the line number before the XOR
  Swizzle swizzle = Swizzle::kNone;
};

/// The two encodings decode into the same fields. On failure `problem` says which bits are wrong.
struct DecodedDescriptor {
  MatrixDescriptor descriptor;
  std::string problem;
};
DecodedDescriptor decode_wgmma_descriptor(uint64_t bits);
DecodedDescriptor decode_tcgen05_descriptor(uint64_t bits);

/// Addresses of one operand. Every mode keeps 16-byte chunks whole, so reads go chunk by chunk: `line` is the
/// index of the strided dimension (mn when K-major, k when MN-major), `chunk` counts 16-byte pieces along the
/// contiguous one. Before the XOR the address is a sum of one term for each.
class OperandAddresses {
 public:
  OperandAddresses(const MatrixDescriptor& descriptor, Major major) : d_(descriptor), major_(major) {}

  /// Shared offset of the 16 bytes at (line, chunk).
  uint32_t chunk(uint32_t line, uint32_t chunk) const {
    return swizzled(d_.start + line_offset(line) + chunk_offset(chunk));
  }
  /// Shared offset of the byte `inner` bytes along the contiguous dimension of `line`.
  uint32_t byte(uint32_t line, uint32_t inner) const { return chunk(line, inner / 16) + inner % 16; }

  uint32_t start() const { return d_.start; }
  Swizzle swizzle() const { return d_.swizzle; }
  uint32_t line_offset(uint32_t line) const;
  uint32_t chunk_offset(uint32_t chunk) const;
  uint32_t swizzled(uint32_t linear) const {
    const SwizzleFacts& f = facts(d_.swizzle);
    return linear ^ ((((linear >> 7) - d_.base_offset) & f.mask) << f.to);
  }

 private:
  MatrixDescriptor d_;
  Major major_;
};

inline uint32_t OperandAddresses::line_offset(uint32_t line) const {
  const uint32_t group_stride =
      d_.swizzle == Swizzle::kNone && major_ == Major::kMn ? d_.leading_offset : d_.stride_offset;
  // The 32-byte-atom mode (tf32, MN-major) groups four k lines, all others eight.
  const uint32_t group = d_.swizzle == Swizzle::k128BAtom32B && major_ == Major::kMn ? 4 : 8;
  const uint32_t pitch = d_.swizzle == Swizzle::kNone ? 16 : facts(d_.swizzle).span;
  return line / group * group_stride + line % group * pitch;
}

inline uint32_t OperandAddresses::chunk_offset(uint32_t chunk) const {
  if (d_.swizzle == Swizzle::kNone)
    return chunk * (major_ == Major::kK ? d_.leading_offset : d_.stride_offset);
  if (major_ == Major::kK) return chunk * 16;
  const uint32_t span = facts(d_.swizzle).span;
  return chunk * 16 / span * d_.leading_offset + chunk * 16 % span;
}

}  // namespace imbrex::vgpu
