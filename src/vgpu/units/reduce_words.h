// SPDX-License-Identifier: Apache-2.0
// The words of reductions in PTX: which operation, which element type.
#pragma once

#include "vgpu/memory/element_reduction.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

inline ReduceOp reduce_op_of(const Decoder& decoder) {
  using ptx::Mod;
  switch (decoder.insn().one_of({Mod::add, Mod::min, Mod::max, Mod::inc, Mod::dec, Mod::and_, Mod::or_},
                                Mod::xor_)) {
    case Mod::add:
      return ReduceOp::kAdd;
    case Mod::min:
      return ReduceOp::kMin;
    case Mod::max:
      return ReduceOp::kMax;
    case Mod::inc:
      return ReduceOp::kInc;
    case Mod::dec:
      return ReduceOp::kDec;
    case Mod::and_:
      return ReduceOp::kAnd;
    case Mod::or_:
      return ReduceOp::kOr;
    default:
      return ReduceOp::kXor;
  }
}

inline ReduceType reduce_type_of(const Decoder& decoder) {
  using ptx::ScalarType;
  switch (decoder.type()) {
    case ScalarType::u32:
    case ScalarType::b32:
      return ReduceType::kU32;
    case ScalarType::s32:
      return ReduceType::kS32;
    case ScalarType::u64:
    case ScalarType::b64:
      return ReduceType::kU64;
    case ScalarType::s64:
      return ReduceType::kS64;
    case ScalarType::f16:
      return ReduceType::kF16;
    case ScalarType::bf16:
      return ReduceType::kBF16;
    case ScalarType::f32:
      return ReduceType::kF32;
    case ScalarType::f64:
      return ReduceType::kF64;
    default:
      decoder.refuse("no reduction has this element type");
  }
}

}  // namespace imbrex::vgpu
