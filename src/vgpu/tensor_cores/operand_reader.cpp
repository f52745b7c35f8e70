// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/operand_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vgpu/checks/operand_layout.h"
#include "vgpu/machine/touch_many.h"

namespace imbrex::vgpu {
namespace {

constexpr uint32_t kMaxChunks = 64;  // 256 elements of 32 bits

// What is read, whole stretches at once: the chunks of a line mostly fill one, in some order, and the next line goes
// on where it ends. `used_bytes`: of every chunk.
void add_line(UnitTouches& touches, const uint32_t* chunks, uint32_t count, uint32_t used_bytes) {
  uint32_t low = chunks[0], high = low;
  for (uint32_t c = 1; c < count; ++c) low = std::min(low, chunks[c]), high = std::max(high, chunks[c]);
  if (used_bytes == 16 && high - low + 16 == count * 16)
    touches.add(low, count * 16);
  else
    for (uint32_t c = 0; c < count; ++c) touches.add(chunks[c], used_bytes);
}

}  // namespace

bool read_operand(Cluster& cluster, const Who& who, Cta& cta, const OperandAddresses& of_operand,
                  uint32_t lines, uint32_t chunks, const char* what, uint8_t* out, uint32_t used_bytes,
                  OperandBoxes* boxes) {
  const OperandAddresses addresses = of_operand;  // here, so that what is written to `out` cannot change it
  uint32_t chunk_offsets[kMaxChunks];
  uint32_t last_chunk = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    chunk_offsets[c] = addresses.chunk_offset(c);
    last_chunk = std::max(last_chunk, chunk_offsets[c]);
  }
  uint32_t last_line = 0;
  for (uint32_t line = 0; line < lines; ++line) last_line = std::max(last_line, addresses.line_offset(line));

  // Swizzles move bytes inside 128-byte lines only, so whole lines inside the memory need no closer look.
  SharedMemory& memory = cta.shared();
  const uint32_t begin = addresses.start() & ~127u;
  const uint32_t end = (addresses.start() + last_line + last_chunk + 16 + 127) & ~127u;
  const bool all_inside = memory.contains(begin, end - begin);
  const bool checked = cluster.checks().any();

  UnitTouches touches(who, cta, Space::kSharedCta, AccessKind::kRead);
  OperandLayout layout(cta.tiles(), who, addresses.swizzle(), what, boxes);
  const bool check_layout = cluster.checks().layouts;
  uint32_t at[kMaxChunks];
  for (uint32_t line = 0; line < lines; ++line) {
    const uint32_t base = addresses.start() + addresses.line_offset(line);
    for (uint32_t c = 0; c < chunks; ++c) {
      const uint32_t from = addresses.swizzled(base + chunk_offsets[c]);
      if (!all_inside && !memory.contains(from, 16)) {
        cluster.report_fatal(
            FindingKind::kOutOfBounds, who, from,
            fmt::format("operand {}: line {}, bytes {} to {} at shared {:#x} lie outside the CTA's shared "
                        "memory [{:#x}, {:#x})",
                        what, line, c * 16, c * 16 + 15, from, memory.user_base(), memory.end()),
            "compare the descriptor's start and strides with the tile");
        touches.flush();
        return false;
      }
      std::memcpy(out, memory.at(from), 16);
      out += 16;
      at[c] = from;
    }
    if (checked) add_line(touches, at, chunks, used_bytes);
    if (check_layout) layout.line(at, chunks);
  }
  touches.flush();
  return true;
}

}  // namespace imbrex::vgpu
