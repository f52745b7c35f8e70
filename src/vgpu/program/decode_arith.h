// SPDX-License-Identifier: Apache-2.0
// The operand shapes that arithmetic families share.
#pragma once

#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

/// d, a[, b[, c[, list[0]]]]: destination of type `to` and `count` sources of types `from`, in operand order.
inline void take_operands(Decoder& d, Instruction& out, ptx::ScalarType to,
                          std::initializer_list<ptx::ScalarType> from) {
  out.d = d.destination(0, to);
  Slot* slots[] = {&out.a, &out.b, &out.c};
  size_t i = 0;
  for (ptx::ScalarType type : from) {
    const Slot slot = d.source(i + 1, type);
    if (i < 3)
      *slots[i] = slot;
    else
      out.list = d.keep_list({slot});
    ++i;
  }
}

}  // namespace imbrex::vgpu
