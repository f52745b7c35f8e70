// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"
#include "ir/tcgen05_kinds.h"

namespace imbrex::ir {
namespace {

/// Extents that the tensor core has instructions for; larger tiles are several instructions.
void verify_mma_extents(const Op& op, const MmaKindFacts& kind, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& d = op.operands[2]->type;
  const int64_t group = op.int_attr("cta_group", 1);
  const int64_t m = a.shape[0], k = a.shape[1], n = d.shape[1];
  const MmaTile tile = mma_tile(op, kind);
  if (tile.m == 0)
    out.add(op,
            fmt::format("m is {}, kind {} has instructions of {}128 rows{}", m, kind.name,
                        kind.is_block_scaled() ? "" : "64 or ", group == 2 ? " in each CTA" : ""),
            "make it 64 or a multiple of 128");
  if (tile.n == 0) {
    const int64_t step = mma_n_step(op, kind);
    const std::string limit = group == 2 ? " up to 256" : "";
    out.add(op, fmt::format("n is {}, it must be a multiple of {}{}", n, step, limit));
  }
  if (k % kind.k != 0)
    out.add(op, fmt::format("k is {}, it must be a multiple of {} for kind {}", k, kind.k, kind.name));
}

/// The factors of one operand: `rows` of it and k / block of each row.
void verify_scales(const Op& op, size_t operand, int64_t rows, bool may_have_more, Findings& out) {
  const Type& scale = op.operands[operand]->type;
  const std::string_view role = op.info().operands[operand].name;
  const bool fits = scale.shape[0] == rows || (may_have_more && scale.shape[0] > rows);
  if (!fits)
    out.add(op, fmt::format("{} is {}, it must have a row for each of {}{}", role, shape_text(scale.shape),
                            rows, may_have_more ? " columns of d, or more rows" : " rows of a"));
  if (scale.shape[0] % 32 != 0 || scale.shape[1] % 4 != 0)
    out.add(op,
            fmt::format("{} is {}, tensor memory keeps factors of 32 rows and 4 blocks together", role,
                        shape_text(scale.shape)),
            "use tiles of at least 4 blocks of k, and rows in multiples of 32");
}

/// What differs when a and b are scaled by blocks of k.
bool verify_scaled_types(const Op& op, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& scale_a = op.operands[4]->type;
  const Type& scale_b = op.operands[5]->type;
  if (scale_a.rank() != 2 || scale_b.rank() != 2) {
    out.add(op, fmt::format("scale factors are matrices, not {} and {}", shape_text(scale_a.shape),
                            shape_text(scale_b.shape)));
    return false;
  }
  if (scale_a.dtype != scale_b.dtype || scale_a.shape[1] != scale_b.shape[1]) {
    out.add(op, fmt::format("scale_a is {} {} and scale_b {} {}; types and blocks must be the same",
                            scale_a.dtype.name(), shape_text(scale_a.shape), scale_b.dtype.name(),
                            shape_text(scale_b.shape)));
    return false;
  }
  if (!op.attr("kind") && !mma_kind(op)) {
    out.add(
        op,
        fmt::format("no kind multiplies {} and {} with {} blocks of {} in k = {}", a.dtype.name(),
                    op.operands[1]->type.dtype.name(), scale_a.shape[1], scale_a.dtype.name(), a.shape[1]),
        "floats of 8, 6 and 4 bits take a float8_e8m0 for 32 elements; float4_e2m1 also a float8_ue4m3 "
        "or float8_e8m0 for 16");
    return false;
  }
  return true;
}

void verify_mma(const Op& op, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& b = op.operands[1]->type;
  const Type& d = op.operands[2]->type;
  if (a.kind == TypeKind::kGlobal || b.kind != TypeKind::kShared)
    return out.add(op, "a is in shared or tensor memory, b in shared memory");
  // A pair computes rows of both CTAs against columns from both: each CTA holds half of b, and of d its rows.
  if (!verify_product(op, "d", out, op.int_attr("cta_group", 1))) return;
  const bool is_scaled = op.code == Opcode::kTcgen05ScaledMma;
  if (is_scaled && !verify_scaled_types(op, out)) return;
  const MmaKindFacts* kind = mma_kind(op);
  const auto takes = [](const std::vector<DataType>& types, DataType type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  if (!kind) {
    if (op.attr("kind"))
      return out.add(
          op, "unknown kind '" + op.string_attr("kind") + "'",
          is_scaled ? "kinds are mxf8f6f4, mxf4 and mxf4nvf4" : "kinds are f16, tf32, f8f6f4 and i8");
    return out.add(op, fmt::format("does not multiply {} and {}", a.dtype.name(), b.dtype.name()),
                   "kinds are f16, tf32, f8f6f4 and i8");
  }
  if (!takes(kind->inputs, a.dtype) || !takes(kind->inputs, b.dtype))
    return out.add(
        op, fmt::format("kind {} does not multiply {} and {}", kind->name, a.dtype.name(), b.dtype.name()));
  if (kind->kind == MmaKind::kF16 && a.dtype != b.dtype)
    return out.add(op, fmt::format("a holds {}, b holds {}", a.dtype.name(), b.dtype.name()));
  if (!takes(kind->accumulators, d.dtype) || (a.dtype == bfloat16 && d.dtype == float16))
    return out.add(op, fmt::format("{} inputs do not accumulate in {}", a.dtype.name(), d.dtype.name()));
  if (kind->kind == MmaKind::kI8 && (op.bool_attr("negate_a", false) || op.bool_attr("negate_b", false)))
    return out.add(op, "8-bit integers are not negated", "negate the result");
  verify_mma_extents(op, *kind, out);
  if (is_scaled) {
    if (!takes_scales(op, *kind))
      out.add(op, fmt::format("kind {} takes no {} for {} elements", kind->name,
                              op.operands[4]->type.dtype.name(), a.shape[1] / op.operands[4]->type.shape[1]));
    verify_scales(op, 4, a.shape[0], false, out);
    verify_scales(op, 5, d.shape[1], true, out);
  }
}

void verify_copy(const Op& op, Findings& out) {
  const Type& src = op.operands[0]->type;
  const Type& dst = op.operands[1]->type;
  if (src.dtype != dst.dtype || src.shape != dst.shape || src.rank() != 2)
    out.add(op, fmt::format("copies a matrix as it is, not {} {} to {} {}", src.dtype.name(),
                            shape_text(src.shape), dst.dtype.name(), shape_text(dst.shape)));
}

void verify_shift(const Op& op, Findings& out) {
  const Type& t = op.operands[0]->type;
  if (t.rank() != 2 || t.shape[0] != 128 || t.shape[1] * t.dtype.bits() % 256 != 0)
    out.add(op, fmt::format("shifts 128 lanes of whole 32-byte groups of columns, not {} {}", t.dtype.name(),
                            shape_text(t.shape)));
}

void verify_tcgen05_view(const Op& op, Findings& out) {
  const Type &from = op.operands[0]->type, &to = op.result()->type;
  const std::vector<int64_t>& shape = op.ints_attr("shape");
  const DataType dtype = op.dtype_attr("dtype");
  if (from.rank() != 2 || shape.size() != 2)
    return out.add(
        op,
        fmt::format("views a matrix as a matrix, not {} as {}", shape_text(from.shape), shape_text(shape)),
        "take a stage first, as in t[i]");
  if (shape[0] != from.shape[0] || shape[1] * dtype.bits() != from.shape[1] * from.dtype.bits())
    return out.add(
        op,
        fmt::format("rows of {} {} have {} bits, those of {} {} {}", from.shape[1], from.dtype.name(),
                    from.shape[1] * from.dtype.bits(), shape[1], dtype.name(), shape[1] * dtype.bits()),
        "the view has as many rows, of as many bits");
  if (to.kind != TypeKind::kTensorMemory || to.dtype != dtype || to.shape != shape)
    out.add(op, fmt::format("gives {}, declared as {}",
                            Type::tensor(TypeKind::kTensorMemory, dtype, shape).to_string(), to.to_string()));
}

}  // namespace

void verify_tcgen05(const Op& op, Findings& out) {
  const int64_t group = op.attr("cta_group") ? op.int_attr("cta_group") : 1;
  if (group != 1 && group != 2) return out.add(op, fmt::format("cta_group is 1 or 2, not {}", group));
  switch (op.code) {
    case Opcode::kTcgen05Alloc: {
      const auto& shape = op.ints_attr("shape");
      const Type& type = op.result()->type;
      if (shape.size() < 2 || std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 1; }))
        return out.add(op, "shape " + shape_text(shape) + " is not [..., lanes, columns]");
      if (type.dtype != op.dtype_attr("dtype") || type.shape != shape)
        out.add(op,
                fmt::format("gives {}, declared as {}",
                            Type::tensor(TypeKind::kTensorMemory, op.dtype_attr("dtype"), shape).to_string(),
                            type.to_string()));
      return;
    }
    case Opcode::kTcgen05View:
      return verify_tcgen05_view(op, out);
    case Opcode::kTcgen05Dealloc:
      if (!defined_by(op.operands[0], Opcode::kTcgen05Alloc))
        out.add(op, "frees a whole allocation, not a view of one", "pass what tcgen05_alloc returned");
      return;
    case Opcode::kTcgen05Mma:
    case Opcode::kTcgen05ScaledMma:
      return verify_mma(op, out);
    case Opcode::kTcgen05Copy:
      return verify_copy(op, out);
    case Opcode::kTcgen05Shift:
      return verify_shift(op, out);
    case Opcode::kTcgen05Commit:
      if (op.operands[0]->type.rank() != 0)
        out.add(op, fmt::format("works on one barrier, not an array of {}", op.operands[0]->type.shape[0]),
                "index it");
      return;
    case Opcode::kTcgen05Load:
    case Opcode::kTcgen05Store: {
      const Type& memory = op.operands[0]->type;
      const Type& registers = op.code == Opcode::kTcgen05Load ? op.result()->type : op.operands[1]->type;
      if (memory.dtype != registers.dtype || memory.shape != registers.shape)
        out.add(op,
                fmt::format("tensor memory holds {} {}, the registers {} {}", memory.dtype.name(),
                            shape_text(memory.shape), registers.dtype.name(), shape_text(registers.shape)));
      return;
    }
    default:
      return;
  }
}

}  // namespace imbrex::ir
