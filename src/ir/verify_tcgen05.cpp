// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

/// Element types of A and B that one kind takes, and the accumulators it fills.
struct MmaKind {
  std::string_view name;
  std::vector<DataType> inputs;
  std::vector<DataType> accumulators;
};

const std::vector<MmaKind>& mma_kinds() {
  static const std::vector<MmaKind> kinds = {
      {"f16", {float16, bfloat16}, {float32, float16}},
      {"tf32", {tfloat32, float32}, {float32}},
      {"f8f6f4", {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2, float4_e2m1}, {float32, float16}},
      {"i8", {int8, uint8}, {int32}},
  };
  return kinds;
}

bool contains(const std::vector<DataType>& list, DataType type) {
  return std::find(list.begin(), list.end(), type) != list.end();
}

/// Extents that the tensor core has instructions for (k in steps, which are repeated).
void verify_mma_extents(const Op& op, std::string_view kind, int64_t group, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& d = op.operands[2]->type;
  const int64_t m = a.shape[0], k = a.shape[1], n = d.shape[1];
  const int64_t n_step = group == 1 ? 8 : kind == "i8" ? 32 : 16;
  const int64_t k_step = 256 / std::max(a.dtype.bits(), 8);
  if (m != 64 && m != 128)
    out.add(op,
            fmt::format("m is {}, an instruction has 64 or 128 rows{}", m, group == 2 ? " in each CTA" : ""));
  if (n < n_step || n > 256 || n % n_step != 0)
    out.add(op, fmt::format("n is {}, it must be a multiple of {} up to 256", n, n_step));
  if (k % k_step != 0)
    return out.add(op, fmt::format("k is {}, it must be a multiple of {} for {}", k, k_step, a.dtype.name()));
}

void verify_mma(const Op& op, Findings& out) {
  const Type& a = op.operands[0]->type;
  const Type& b = op.operands[1]->type;
  const Type& d = op.operands[2]->type;
  if (a.kind == TypeKind::kGlobal || b.kind != TypeKind::kShared)
    return out.add(op, "a is in shared or tensor memory, b in shared memory");
  if (a.rank() != 2 || b.rank() != 2 || d.rank() != 2)
    return out.add(op, fmt::format("works on matrices, not on {}, {} and {}", shape_text(a.shape),
                                   shape_text(b.shape), shape_text(d.shape)));
  if (a.shape[1] != b.shape[0])
    return out.add(op,
                   fmt::format("inner sizes differ, a has k = {} and b has k = {}", a.shape[1], b.shape[0]),
                   a.shape[1] == b.shape[1] ? "transpose b: it is [k, n]" : "");
  // A pair computes rows of both CTAs against columns from both: each CTA holds half of b, and of d its rows.
  const int64_t group = op.int_attr("cta_group", 1);
  const int64_t n = b.shape[1] * group;
  if (a.shape[0] != d.shape[0] || n != d.shape[1])
    return out.add(op,
                   fmt::format("d is {}, a x b gives {}", shape_text(d.shape), shape_text({a.shape[0], n})));
  const MmaKind* kind = nullptr;
  for (const MmaKind& candidate : mma_kinds())
    if (op.attr("kind") ? candidate.name == op.string_attr("kind") : contains(candidate.inputs, a.dtype))
      kind = &candidate;
  if (!kind)
    return out.add(op,
                   op.attr("kind") ? "unknown kind '" + op.string_attr("kind") + "'"
                                   : fmt::format("does not multiply {}", a.dtype.name()),
                   "kinds are f16, tf32, f8f6f4 and i8");
  if (!contains(kind->inputs, a.dtype) || !contains(kind->inputs, b.dtype))
    return out.add(
        op, fmt::format("kind {} does not multiply {} and {}", kind->name, a.dtype.name(), b.dtype.name()));
  if (kind->name == "f16" && a.dtype != b.dtype)
    return out.add(op, fmt::format("a holds {}, b holds {}", a.dtype.name(), b.dtype.name()));
  if (!contains(kind->accumulators, d.dtype))
    return out.add(op, fmt::format("{} inputs do not accumulate in {}", a.dtype.name(), d.dtype.name()));
  verify_mma_extents(op, kind->name, group, out);
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
    case Opcode::kTcgen05Dealloc:
      if (!defined_by(op.operands[0], Opcode::kTcgen05Alloc))
        out.add(op, "frees a whole allocation, not a view of one", "pass what tcgen05_alloc returned");
      return;
    case Opcode::kTcgen05Mma:
      return verify_mma(op, out);
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
