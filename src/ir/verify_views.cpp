// SPDX-License-Identifier: Apache-2.0
// Views: the shape each one gives.
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"

namespace imbrex::ir {

namespace {

using Shape = std::vector<int64_t>;

/// The result must be of the operand's kind and element type, with this shape.
void expect_view(const Op& op, const Shape& shape, Findings& out) {
  const Type& from = op.operands[0]->type;
  const Type& to = op.result()->type;
  if (to.kind != from.kind || to.dtype != from.dtype || to.shape != shape) {
    Type expected = Type::tensor(from.kind, from.dtype, shape);
    out.add(op, fmt::format("gives {}, declared as {}", expected.to_string(), to.to_string()));
  }
}

void verify_global_view(const Op& op, Findings& out) {
  const int64_t rank = op.int_attr("rank");
  const Type& type = op.result()->type;
  if (rank < 1 || rank > 8) return out.add(op, fmt::format("rank {} is out of range, 1 to 8", rank));
  if (static_cast<int64_t>(op.operands.size()) != 1 + 2 * rank)
    return out.add(op, fmt::format("rank {} takes {} extents and {} strides, there are {} numbers", rank,
                                   rank, rank, op.operands.size() - 1));
  if (type.rank() != rank) return out.add(op, fmt::format("rank {} gives no {}", rank, type.to_string()));
  for (int64_t i = 0; i < rank; ++i) {
    const auto extent = constant_int(op.operands[1 + i]);
    if (type.shape[i] != kDynamic && extent && *extent != type.shape[i])
      out.add(op, fmt::format("extent {} is {}, declared as {}", i, *extent, type.shape[i]));
  }
}

void verify_slice(const Op& op, Findings& out) {
  const Type& from = op.operands[0]->type;
  const Shape& shape = op.ints_attr("shape");
  if (op.operands.size() != 1 + from.shape.size() || shape.size() != from.shape.size())
    return out.add(
        op, fmt::format("{} takes {} offsets and {} extents, there are {} and {}", shape_text(from.shape),
                        from.rank(), from.rank(), op.operands.size() - 1, shape.size()));
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t extent = from.shape[i];
    const int64_t offset = constant_int(op.operands[1 + i]).value_or(0);
    if (shape[i] < 1 || (extent != kDynamic && (offset < 0 || offset + shape[i] > extent)))
      return out.add(op, fmt::format("dimension {}: {} ... {} is outside 0 ... {}", i, offset,
                                     offset + shape[i] - 1, extent - 1));
  }
  expect_view(op, shape, out);
}

void verify_permute(const Op& op, Findings& out) {
  const Type& from = op.operands[0]->type;
  const Shape& dims = op.ints_attr("dims");
  Shape sorted = dims, shape;
  std::sort(sorted.begin(), sorted.end());
  bool is_order = dims.size() == from.shape.size();
  for (size_t i = 0; is_order && i < sorted.size(); ++i) is_order = sorted[i] == static_cast<int64_t>(i);
  if (!is_order)
    return out.add(op,
                   fmt::format("dims {} is not an order of {} dimensions", shape_text(dims), from.rank()));
  for (int64_t dim : dims) shape.push_back(from.shape[dim]);
  expect_view(op, shape, out);
}

}  // namespace

void verify_views(const Op& op, Findings& out) {
  const Type& from = op.operands[0]->type;
  switch (op.code) {
    case Opcode::kGlobalView:
      return verify_global_view(op, out);
    case Opcode::kPointerAt:
      if (from.dtype != int64 && from.dtype != uint64)
        out.add(op, fmt::format("an address has 64 bits, {} has {}", from.dtype.name(), from.dtype.bits()),
                "read it as uint64");
      else if (op.result()->type.dtype != op.dtype_attr("dtype"))
        out.add(op, fmt::format("gives ptr<{}>, declared as {}", op.dtype_attr("dtype").name(),
                                op.result()->type.to_string()));
      return;
    case Opcode::kSlice:
      if (from.kind == TypeKind::kRegister)
        for (size_t i = 1; i < op.operands.size(); ++i)
          if (!constant_int(op.operands[i]))
            return out.add(
                op, fmt::format("offset {} is known only at run time, and registers have no address", i - 1),
                "slice at C++ numbers, in a C++ loop");
      return verify_slice(op, out);
    case Opcode::kPermute:
      return verify_permute(op, out);
    case Opcode::kIndex: {
      if (from.rank() < (from.kind == TypeKind::kTensorMemory ? 2 : 1))
        return out.add(op, fmt::format("{} has no leading dimension to drop", shape_text(from.shape)));
      const auto i = constant_int(op.operands[1]);
      if (i && from.shape[0] != kDynamic && (*i < 0 || *i >= from.shape[0]))
        return out.add(op, fmt::format("index {} is outside 0 ... {}", *i, from.shape[0] - 1));
      return expect_view(op, {from.shape.begin() + 1, from.shape.end()}, out);
    }
    case Opcode::kReshape: {
      const Shape& shape = op.ints_attr("shape");
      const Type to = Type::tensor(from.kind, from.dtype, shape);
      if (std::count(from.shape.begin(), from.shape.end(), kDynamic))
        return out.add(op, "an extent is known only at run time", "make another global_view instead");
      if (to.elements() != from.elements() ||
          std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 1; }))
        return out.add(op, fmt::format("{} has {} elements, {} has {}", shape_text(from.shape),
                                       from.elements(), shape_text(shape), to.elements()));
      return expect_view(op, shape, out);
    }
    default:
      return;
  }
}

}  // namespace imbrex::ir
