// SPDX-License-Identifier: Apache-2.0
// nanosleep, pmevent, discard.
#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;
using ptx::ScalarType;

Step exec_nanosleep(Warp&, const Instruction&, Mask) { return Step::kYield; }
Step exec_nothing(Warp&, const Instruction&, Mask) { return Step::kNext; }

}  // namespace

bool decode_misc(Decoder& d, Instruction& out) {
  switch (d.op()) {
    case Op::nanosleep:
      out.a = d.source(0, ScalarType::u32);
      set_body(out, exec_nanosleep);
      return true;
    case Op::pmevent:
    case Op::discard:
      set_body(out, exec_nothing);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
