// SPDX-License-Identifier: Apache-2.0
// Fences: membar, fence, fence.proxy, fence.mbarrier_init. The machine's memory is always coherent, so a
// fence only orders; what happens without one is for the checkers to find.
#include "vgpu/cluster.h"
#include "vgpu/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;

Step exec_fence(Warp&, const Instruction&, Mask) { return Step::kNext; }

}  // namespace

bool decode_fences(Decoder& d, Instruction& out) {
  for (size_t i = 0; i < d.operand_count(); ++i)
    if (d.operand(i).kind == ptx::OperandKind::address) out.a = d.address(i).base;
  set_body(out, exec_fence);
  return true;
}

}  // namespace imbrex::vgpu
