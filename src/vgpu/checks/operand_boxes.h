// SPDX-License-Identifier: Apache-2.0
// Which loaded boxes a product's operands are parts of. Two faults show only in what is never read: a box
// that lands elsewhere, so that the product reads the one of the phase before in its place; and a box read
// once with its rows along k and once with them along m or n, into one accumulator. Lawful kernels also leave
// parts of boxes unread (tiles that stick out, copies that were not needed after all) and read boxes both
// ways, so neither alone is reported.
#pragma once

#include <utility>
#include <vector>

#include "vgpu/checks/tile_context.h"

namespace imbrex::vgpu {

/// The boxes of one operand, in the shared memory of both CTAs of a pair.
struct OperandBoxes {
  bool k_major = true;
  std::vector<std::pair<ChunkOrigins*, uint32_t>> boxes;

  void add(ChunkOrigins& origins, uint32_t box) {
    if (box != 0 && (boxes.empty() || boxes.back() != std::pair(&origins, box)))
      boxes.emplace_back(&origins, box);
  }
};

/// A product has read its operands. `accumulator`: equal for products that are added up, 0 if that is not
/// known.
void note_product(const Who& who, const OperandBoxes& a, const OperandBoxes& b, uint64_t accumulator);

/// Reports boxes that are gone from the CTA's shared memory and prove one of the faults.
void report_unread_boxes(const TileContext& tiles);

}  // namespace imbrex::vgpu
