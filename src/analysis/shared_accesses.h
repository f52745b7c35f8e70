// SPDX-License-Identifier: Apache-2.0
// The instructions by which a thread group moves a tile between registers and shared memory, and the banks
// they meet: from the layouts alone.
#pragma once

#include <cstdint>

#include "codegen/generator.h"
#include "layout/layout.h"

namespace imbrex::analysis {

/// Accesses of one direction and width.
struct SharedAccesses {
  int bytes = 0;         ///< of a lane
  int64_t accesses = 0;  ///< instructions of warps
  int64_t wavefronts = 0;
  int64_t ideal = 0;
  int degree = 1;
  int64_t lane_bytes = 0;  ///< bytes moved, over all lanes
};

/// The tile in `registers` of the group's threads from (or, when `writes`, to) `memory` at byte `offset` of
/// shared memory, on a target of architecture `arch` (80, 90, 100): ldmatrix and stmatrix where they fit,
/// else vectors as wide as both layouts allow. Of replicated tiles the first copy is written, all are read.
SharedAccesses tile_accesses(const layout::Layout& registers, const layout::Layout& memory, int64_t offset,
                             bool writes, const codegen::Group& group, int arch);

/// Every thread of the group accesses `bytes` at one address.
SharedAccesses broadcast_accesses(int bytes, const codegen::Group& group);

/// The words that a reduction writes and then reads to join warps; nothing moves when it needs none.
struct ReductionAccesses {
  SharedAccesses written, read;
};
ReductionAccesses reduction_accesses(const ir::Op& reduce, const codegen::Group& group);

}  // namespace imbrex::analysis
