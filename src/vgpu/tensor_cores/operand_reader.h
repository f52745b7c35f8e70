// SPDX-License-Identifier: Apache-2.0
// Reading matrix operands out of shared memory on behalf of a tensor core.
#pragma once

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/memory/matrix_descriptor.h"

namespace imbrex::vgpu {

/// Copies `lines` lines of `chunks` 16-byte chunks each, lines one after the other, to `out`. False after a
/// finding when some lie outside the CTA's shared memory. `what` names the operand ("A", "scale factors",
/// ...); `used_bytes` of each chunk matter, the rest is padding that need not have been written. `boxes` (may
/// be null) gets the loaded boxes that it reads.
bool read_operand(Cluster& cluster, const Who& who, Cta& cta, const OperandAddresses& addresses,
                  uint32_t lines, uint32_t chunks, const char* what, uint8_t* out, uint32_t used_bytes = 16,
                  OperandBoxes* boxes = nullptr);

}  // namespace imbrex::vgpu
