// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"
#include "layout/swizzle.h"

namespace imbrex::ir {
namespace {

constexpr int64_t kMaxRank = 5;
constexpr int64_t kMaxBox = 256;

void verify_map(const Op& op, Findings& out) {
  const std::vector<int64_t>& box = op.ints_attr("box");
  const auto rank = static_cast<int64_t>(box.size());
  const int64_t sizes = static_cast<int64_t>(op.operands.size()) - 1;
  if (rank < 1 || rank > kMaxRank)
    return out.add(op, fmt::format("box {} has {} dimensions, a tensor map 1 to 5", shape_text(box), rank));
  if (sizes != 2 * rank - 1)
    return out.add(op, fmt::format("{} dimensions have {} extents and strides, there are {}", rank,
                                   2 * rank - 1, sizes));
  if (std::any_of(box.begin(), box.end(), [](int64_t n) { return n < 1 || n > kMaxBox; }))
    return out.add(op, fmt::format("box {}; extents lie in 1 ... {}", shape_text(box), kMaxBox));
  const auto swizzle = layout::Swizzle::from_name(op.string_attr("swizzle"));
  if (!swizzle) return out.add(op, "unknown swizzle '" + op.string_attr("swizzle") + "'");
  const int64_t row = box[0] * (op.bool_attr("padded", false) ? 8 : op.dtype_attr("dtype").bits());
  if (row % 128 != 0 || (*swizzle && row > swizzle->span_bytes() * 8))
    out.add(op,
            fmt::format("rows of {} bits must be multiples of 16 bytes{}", row,
                        *swizzle ? fmt::format(" up to the {} of the swizzle", swizzle->span_bytes()) : ""));
}

/// A copy of four rows has a matrix on both sides, and five offsets.
bool verify_four_rows(const Op& op, const Type& memory, const Type& tile, size_t offsets, Findings& out) {
  if (memory.rank() != 2 || tile.rank() != 2 || tile.shape[0] != 4)
    out.add(op,
            fmt::format(
                "copies four rows of a matrix: the tensor in shared memory is {}, that in global memory {}",
                shape_text(tile.shape), shape_text(memory.shape)),
            "give [4, columns] and [rows, columns]");
  else if (offsets != 5)
    out.add(op, fmt::format("four rows and a column are 5 offsets, there are {}", offsets));
  else
    return true;
  return false;
}

/// What loads and stores share; `global` and `shared` are operand positions.
bool verify_copy(const Op& op, size_t global, size_t shared, size_t first_offset, Findings& out) {
  const Type& memory = op.operands[global]->type;
  const Type& tile = op.operands[shared]->type;
  verify_cache_hints(op, out);
  if (memory.kind == TypeKind::kTensorMap) return true;  // made from what was verified
  if (memory.rank() > kMaxRank) {
    out.add(op, fmt::format("the global tensor has {} dimensions, a tensor map has at most {}", memory.rank(),
                            kMaxRank));
    return false;
  }
  size_t offsets = op.operands.size() - first_offset;
  if (op.bool_attr("masked", false)) {
    if (offsets == 0 || op.attr("multicast_mask")) {
      out.add(op, "a mask is the last operand or an attribute: there is none, or there are both");
      return false;
    }
    --offsets;
  }
  if (op.bool_attr("four_rows", false)) {
    if (!verify_four_rows(op, memory, tile, offsets, out)) return false;
    offsets = 2;
  }
  if (!verify_tile(op, memory, tile.shape, offsets, out)) return false;
  expect_same_dtype(op, memory, op.info().operands[global].name, tile, op.info().operands[shared].name, out);
  return true;
}

void verify_reduction(const Op& op, Findings& out) {
  const std::string& word = op.string_attr("reduce");
  const DataType type = op.operands[0]->type.dtype;
  const bool is_small_float = type == float16 || type == bfloat16;
  const bool is_wide_integer = type.is_integer() && type.bits() >= 32;
  bool known = false;
  if (word == "add")
    known = is_small_float || type == float32 || (is_wide_integer && type != int64);
  else if (word == "min" || word == "max")
    known = is_small_float || is_wide_integer;
  else if (word == "and" || word == "or" || word == "xor")
    known = is_wide_integer;
  else
    return out.add(op, "unknown reduction '" + word + "'", "reductions are add, min, max, and, or and xor");
  if (!known) out.add(op, fmt::format("there is no reduction by {} for {}", word, type.name()));
}

}  // namespace

void verify_tma(const Op& op, Findings& out) {
  switch (op.code) {
    case Opcode::kTensorMap:
      return verify_map(op, out);
    case Opcode::kTmaGlobalToShared: {
      const int64_t group = op.int_attr("cta_group", 1), mask = op.int_attr("multicast_mask", 1);
      if (group != 1 && group != 2) out.add(op, fmt::format("cta_group is 1 or 2, not {}", group));
      if (mask < 1 || mask > 0xffff)
        out.add(op, fmt::format("multicast_mask is {}; it has one bit for each of 16 CTAs", mask));
      if (op.operands[2]->type.rank() != 0)
        out.add(op, fmt::format("works on one barrier, not an array of {}", op.operands[2]->type.shape[0]),
                "index it");
      verify_copy(op, 0, 1, 3, out);
      return;
    }
    case Opcode::kTmaSharedToGlobal:
      if (verify_copy(op, 1, 0, 2, out) && op.attr("reduce")) verify_reduction(op, out);
      return;
    case Opcode::kTmaWaitGroup:
      if (op.int_attr("pending") < 0)
        out.add(op, fmt::format("pending is {}, it must be at least 0", op.int_attr("pending")));
      return;
    default:
      return;
  }
}

}  // namespace imbrex::ir
