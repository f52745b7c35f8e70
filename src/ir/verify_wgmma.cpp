// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

/// Element types that multiply, and what they are summed in.
struct MmaTypes {
  std::vector<DataType> inputs;
  bool may_mix;
  std::vector<DataType> accumulators;
};

const MmaTypes* mma_types(DataType a) {
  static const std::vector<MmaTypes> rows = {
      {{float16}, false, {float32, float16}}, {{bfloat16}, false, {float32}},
      {{tfloat32, float32}, true, {float32}}, {{float8_e4m3, float8_e5m2}, true, {float32, float16}},
      {{int8, uint8}, true, {int32}},
  };
  for (const MmaTypes& row : rows)
    if (std::find(row.inputs.begin(), row.inputs.end(), a) != row.inputs.end()) return &row;
  return nullptr;
}

bool contains(const std::vector<DataType>& list, DataType type) {
  return std::find(list.begin(), list.end(), type) != list.end();
}

void verify_mma(const Op& op, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& b = op.operands[1]->type;
  const Type& d = op.operands[2]->type;
  if (a.kind != TypeKind::kShared && a.kind != TypeKind::kRegister)
    return out.add(op, "a is in shared memory or in registers");
  if (!verify_product(op, "d", out)) return;
  const MmaTypes* types = mma_types(a.dtype);
  if (!types)
    return out.add(op, fmt::format("does not multiply {}", a.dtype.name()),
                   "operands are float16, bfloat16, tfloat32, float8_e4m3, float8_e5m2, int8 or uint8");
  if (!contains(types->inputs, b.dtype) || (!types->may_mix && a.dtype != b.dtype))
    return out.add(op, fmt::format("does not multiply {} and {}", a.dtype.name(), b.dtype.name()));
  if (!contains(types->accumulators, d.dtype))
    return out.add(op, fmt::format("{} inputs do not accumulate in {}", a.dtype.name(), d.dtype.name()),
                   fmt::format("use {}", types->accumulators.front().name()));
  const bool is_integer = a.dtype.is_integer();
  if (is_integer && (op.bool_attr("negate_a", false) || op.bool_attr("negate_b", false)))
    out.add(op, "integer operands cannot be negated");
  if (!is_integer && op.bool_attr("saturate", false)) out.add(op, "saturate is for int32 sums");
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1], k_step = 256 / a.dtype.bits();
  if (m % 64 != 0) out.add(op, fmt::format("m is {}, it must be a multiple of 64 for each warp group", m));
  if (k % k_step != 0)
    out.add(op, fmt::format("k is {}, it must be a multiple of {} for {}", k, k_step, a.dtype.name()));
  if (n % 8 != 0 || (is_integer && n % 16 != 0 && n != 8 && n != 24))
    out.add(op, is_integer ? fmt::format("n is {}, for integers it must be 8, 24 or a multiple of 16", n)
                           : fmt::format("n is {}, it must be a multiple of 8", n));
}

}  // namespace

void verify_wgmma(const Op& op, Findings& out) {
  switch (op.code) {
    case Opcode::kWgmmaMma:
      return verify_mma(op, out);
    case Opcode::kWgmmaWaitGroup:
      if (const int64_t pending = op.int_attr("pending"); pending < 0 || pending > 7)
        out.add(op, fmt::format("pending is {}, it is 0 to 7", pending));
      return;
    case Opcode::kSetmaxnreg:
      if (const int64_t count = op.int_attr("registers"); count < 24 || count > 256 || count % 8 != 0)
        out.add(op, fmt::format("{} registers per thread; it takes multiples of 8 from 24 to 256", count));
      return;
    default:
      return;
  }
}

}  // namespace imbrex::ir
