// SPDX-License-Identifier: Apache-2.0
// The 16-byte chunks in which elements of 4 and 6 bits lie in shared memory for the tensor cores.
#pragma once

#include <cstdint>

namespace imbrex::vgpu {

enum class ChunkPadding : uint8_t {
  kNone,
  kPadded4,  // b4x16_p64: 16 four-bit elements in the first 8 bytes
  kPadded6,  // b6x16_p32: 16 six-bit elements in the first 12 bytes
};

/// Element i of a padded chunk, in the low bits.
inline uint8_t chunk_element(ChunkPadding padding, const uint8_t* chunk, uint32_t i) {
  if (padding == ChunkPadding::kPadded4) return chunk[i / 2] >> i % 2 * 4 & 0xF;
  const uint32_t bit = i * 6;
  const uint32_t pair = chunk[bit / 8] | static_cast<uint32_t>(chunk[bit / 8 + 1]) << 8;
  return static_cast<uint8_t>(pair >> bit % 8 & 0x3F);
}

/// A padded chunk to 16 containers of a byte each: six bits in 5:0, four bits in 5:2.
inline void expand_chunk(ChunkPadding padding, const uint8_t* chunk, uint8_t* out) {
  for (uint32_t i = 0; i < 16; ++i) {
    const uint8_t element = chunk_element(padding, chunk, i);
    out[i] = padding == ChunkPadding::kPadded4 ? static_cast<uint8_t>(element << 2) : element;
  }
}

}  // namespace imbrex::vgpu
