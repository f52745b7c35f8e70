// SPDX-License-Identifier: Apache-2.0
#include "codegen/values/combine.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "codegen/tile.h"

namespace imbrex::codegen {

using ir::Opcode;

DataType working_type(DataType type) {
  if (type == float16 || type == bfloat16) return float32;
  return type.is_bool() ? uint32 : type;
}

Opcode combining_op(const std::string& kind) {
  if (kind == "sum") return Opcode::kAdd;
  if (kind == "product") return Opcode::kMul;
  if (kind == "max") return Opcode::kMax;
  if (kind == "min") return Opcode::kMin;
  if (kind == "xor") return Opcode::kXor;
  return kind == "any" || kind == "or" ? Opcode::kOr : Opcode::kAnd;
}

Operand identity(Opcode code, DataType type) {
  const bool is_max = code == Opcode::kMax;
  if (type == float32 || type == tfloat32) {
    const float infinity = std::numeric_limits<float>::infinity();
    if (code == Opcode::kMul) return 1.0f;
    return code == Opcode::kAdd ? 0.0f : is_max ? -infinity : infinity;
  }
  if (type == float64) {
    const double infinity = std::numeric_limits<double>::infinity();
    if (code == Opcode::kMul) return 1.0;
    return code == Opcode::kAdd ? 0.0 : is_max ? -infinity : infinity;
  }
  if (code == Opcode::kMul) return 1;
  if (code == Opcode::kAnd) return -1;
  if (code != Opcode::kMax && code != Opcode::kMin) return 0;
  const Range range = Range::of_type(type);
  if (type == uint64) return is_max ? int64_t{0} : int64_t{-1};
  return is_max ? range.lo : range.hi;
}

LaneSplit split_by_lanes(Digit d, const Group& group) {
  LaneSplit out;
  const bool is_dense = d.modulus == 0 || d.modulus == d.extent;
  const bool in_lanes = d.divisor < 32 && group.begin % 32 == 0 && is_dense &&
                        std::has_single_bit(static_cast<uint64_t>(d.divisor)) &&
                        d.divisor * d.extent <= std::max<int64_t>(group.threads, 32);
  if (in_lanes) {
    const int64_t room = 32 / d.divisor;
    const int64_t lanes = std::min(power_of_two_divisor(d.extent), room);
    // An odd remainder inside the warp would shuffle between unequal partners.
    if (lanes > 1 && (lanes == d.extent || lanes == room)) {
      out.lanes = d;
      out.lanes->extent = out.lanes->modulus = lanes;
      d.divisor *= lanes;
      d.weight *= lanes;
      d.extent /= lanes;
      if (d.modulus) d.modulus /= lanes;
    }
  }
  if (d.extent > 1) out.across = d;
  return out;
}

}  // namespace imbrex::codegen
