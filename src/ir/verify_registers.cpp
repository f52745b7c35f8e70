// SPDX-License-Identifier: Apache-2.0
// Ops that make or rearrange register tensors.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "ir/findings.h"

namespace imbrex::ir {
namespace {

using Shape = std::vector<int64_t>;

void expect_result(const Op& op, DataType dtype, const Shape& shape, Findings& out) {
  const Type& actual = op.result()->type;
  if (actual.dtype != dtype || actual.shape != shape)
    out.add(op, fmt::format("gives {}, declared as {}",
                            Type::tensor(TypeKind::kRegister, dtype, shape).to_string(), actual.to_string()));
}

bool is_positive(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n > 0; });
}

/// A layout that the author wants for `tensor`.
void verify_layout(const Op& op, const Type& tensor, Findings& out) {
  using layout::Axis;
  const layout::Layout& layout = std::get<layout::Layout>(*op.attr("layout"));
  if (layout.shape() != tensor.shape)
    return out.add(op, fmt::format("the tensor is {}, the layout {}", shape_text(tensor.shape),
                                   shape_text(layout.shape())));
  const auto uses = [&](std::initializer_list<Axis> axes) {
    return std::any_of(axes.begin(), axes.end(), [&](Axis axis) { return layout.uses(axis); });
  };
  const bool is_of_registers = uses({Axis::kThread, Axis::kRegister}), is_of_memory = uses({Axis::kAddress}),
             is_of_tensor_memory = uses({Axis::kLane, Axis::kColumn, Axis::kCta});
  if (tensor.kind == TypeKind::kRegister && (is_of_memory || is_of_tensor_memory))
    return out.add(op,
                   fmt::format("{} is a layout of memory, the tensor is in registers", layout.to_string()),
                   "make one of spatial() and local()");
  if (tensor.kind == TypeKind::kShared && (is_of_registers || is_of_tensor_memory))
    return out.add(
        op, fmt::format("{} is no layout of addresses, the tensor is in shared memory", layout.to_string()),
        "make one by row_major(), or with a swizzle");
  if (tensor.kind == TypeKind::kTensorMemory && (is_of_registers || is_of_memory))
    return out.add(op, fmt::format("{} is no layout of lanes and columns, the tensor is in tensor memory",
                                   layout.to_string()));
  if (tensor.kind == TypeKind::kShared && layout.element_bits() != 0 &&
      layout.element_bits() != tensor.dtype.bits())
    out.add(op, fmt::format("the layout is of elements of {} bits, those of {} have {}",
                            layout.element_bits(), tensor.dtype.name(), tensor.dtype.bits()));
}

void verify_tabulate(const Op& op, Findings& out) {
  const Shape& shape = op.ints_attr("shape");
  const DataType dtype = op.dtype_attr("dtype");
  if (!is_positive(shape)) return out.add(op, "shape " + shape_text(shape) + " has an extent below 1");
  const Block& body = op.body();
  if (body.args.size() != shape.size())
    return out.add(op, fmt::format("{} indices for shape {}", body.args.size(), shape_text(shape)));
  for (const Value* index : body.args)
    if (index->type != Type::scalar(int32))
      return out.add(op,
                     fmt::format("index {} is a {}, not an int32", print(*index), index->type.to_string()));
  const Op* last = body.ops.empty() ? nullptr : body.ops.back();
  if (!last || last->code != Opcode::kYield || last->operands.size() != 1)
    return out.add(op, "its region does not end with a yield");
  if (last->operands[0] && last->operands[0]->type.dtype != dtype)
    return out.add(op, fmt::format("yields {}, the tensor holds {}", last->operands[0]->type.dtype.name(),
                                   dtype.name()));
  walk(body, [&](const Op& inner) {
    if (inner.info().effect != Effect::kPure && inner.info().effect != Effect::kReads &&
        inner.code != Opcode::kYield)
      out.add(inner, "cannot be inside a tabulate, whose elements are computed in no order");
  });
  expect_result(op, dtype, shape, out);
}

void verify_reduce(const Op& op, Findings& out) {
  static const std::vector<std::string> kKinds = {"sum", "max", "min", "any", "all"};
  const Type& from = op.operands[0]->type;
  const std::string& kind = op.string_attr("kind");
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
    const std::string near = nearest_word(kind, kKinds);
    return out.add(op, "unknown kind '" + kind + "'",
                   near.empty() ? "kinds are sum, max, min, any, all" : "did you mean '" + near + "'?");
  }
  const int64_t axis = op.int_attr("axis");
  if (axis < 0 || axis >= from.rank())
    return out.add(op, fmt::format("axis {} is outside 0 ... {}", axis, from.rank() - 1));
  const bool wants_bool = kind == "any" || kind == "all";
  if (wants_bool != from.dtype.is_bool())
    return out.add(
        op, fmt::format("{} combines {}, not {}", kind, wants_bool ? "bool" : "numbers", from.dtype.name()));
  Shape shape = from.shape;
  if (op.bool_attr("keep", false))
    shape[axis] = 1;
  else
    shape.erase(shape.begin() + axis);
  expect_result(op, from.dtype, shape, out);
}

int64_t checked_axis(const Op& op, Findings& out) {
  const int64_t axis = op.int_attr("axis"), rank = op.operands[0]->type.rank();
  if (axis >= 0 && axis < rank) return axis;
  out.add(op, fmt::format("axis {} is outside 0 ... {}", axis, rank - 1));
  return -1;
}

void verify_scan(const Op& op, Findings& out) {
  static const std::vector<std::string> kKinds = {"sum", "product", "min", "max", "and", "or", "xor"};
  const Type& from = op.operands[0]->type;
  const std::string& kind = op.string_attr("kind");
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end())
    return out.add(op, fmt::format("unknown kind '{}'", kind),
                   fmt::format("kind is one of {}", fmt::join(kKinds, ", ")));
  if (checked_axis(op, out) < 0) return;
  const bool is_bitwise = kind == "and" || kind == "or" || kind == "xor";
  if (from.dtype.is_bool() || from.dtype.bits() < 8 || (is_bitwise && !from.dtype.is_integer()) ||
      (from.dtype.is_float() && from.dtype.bits() < 16))
    return out.add(op, fmt::format("{} does not combine {}", kind, from.dtype.name()), "cast first");
  expect_result(op, from.dtype, from.shape, out);
}

void verify_exchange(const Op& op, Findings& out) {
  const Type& from = op.operands[0]->type;
  const int64_t axis = checked_axis(op, out), mask = op.int_attr("mask");
  if (axis < 0) return;
  const int64_t extent = from.shape[static_cast<size_t>(axis)];
  const auto is_power = [](int64_t n) { return n > 0 && (n & (n - 1)) == 0; };
  if (!is_power(extent) || !is_power(mask) || mask >= extent)
    return out.add(
        op, fmt::format("element i takes i xor {} of {}: both must be powers of two, the first the smaller",
                        mask, extent));
  expect_result(op, from.dtype, from.shape, out);
}

void verify_dot(const Op& op, Findings& out) {
  const Type &a = op.operands[0]->type, &b = op.operands[1]->type, &c = op.operands[2]->type;
  if (!verify_product(op, "c", out)) return;
  for (const Type* type : {&a, &b, &c})
    if (type->dtype.is_bool() || type->dtype.bits() < 8)
      return out.add(op, fmt::format("does not multiply {}", type->dtype.name()), "cast first");
  if (c.dtype.bits() < 32)
    return out.add(op, fmt::format("sums are in 32 or 64 bits, c holds {}", c.dtype.name()));
  if (c.dtype.is_integer() && (a.dtype.is_float() || b.dtype.is_float()))
    return out.add(op, fmt::format("{} x {} is summed in {}", a.dtype.name(), b.dtype.name(), c.dtype.name()),
                   "use an accumulator of floats");
  expect_result(op, c.dtype, c.shape, out);
}

void verify_view(const Op& op, Findings& out) {
  const Type& from = op.operands[0]->type;
  const DataType dtype = op.dtype_attr("dtype");
  const Shape& shape = op.ints_attr("shape");
  const Type to = Type::tensor(TypeKind::kRegister, dtype, shape);
  if (!is_positive(shape)) return out.add(op, "shape " + shape_text(shape) + " has an extent below 1");
  if (from.dtype.is_bool() || dtype.is_bool())
    return out.add(op, "a bool has no bits of its own in registers", "convert with .to(uint8) first");
  if (from.elements() * from.dtype.bits() != to.elements() * dtype.bits())
    return out.add(
        op, fmt::format("{} has {} bits, {} has {}", from.to_string(), from.elements() * from.dtype.bits(),
                        to.to_string(), to.elements() * dtype.bits()));
  const bool same = from.rank() == to.rank() && from.rank() > 0 &&
                    std::equal(from.shape.begin(), from.shape.end() - 1, to.shape.begin());
  if (op.bool_attr("rows", false) ? from.rank() != 2 : !same)
    return out.add(
        op, fmt::format("{} gives no {}", from.to_string(), shape_text(shape)),
        "view the last dimension alone as more or fewer elements, or a matrix with a row for each thread");
  expect_result(op, dtype, shape, out);
}

}  // namespace

void verify_registers(const Op& op, Findings& out) {
  switch (op.code) {
    case Opcode::kTabulate:
      return verify_tabulate(op, out);
    case Opcode::kReduce:
      return verify_reduce(op, out);
    case Opcode::kScan:
      return verify_scan(op, out);
    case Opcode::kExchange:
      return verify_exchange(op, out);
    case Opcode::kDot:
      return verify_dot(op, out);
    case Opcode::kItem:
      verify_item_index(op, op.operands[0]->type.shape, out);
      if (op.result()->type.dtype != op.operands[0]->type.dtype)
        out.add(op, fmt::format("gives {}, declared as {}", op.operands[0]->type.dtype.name(),
                                op.result()->type.dtype.name()));
      return;
    case Opcode::kView:
      return verify_view(op, out);
    case Opcode::kRelayout: {
      const Type& from = op.operands[0]->type;
      if (op.attr("layout")) verify_layout(op, op.result()->type, out);
      return expect_result(op, from.dtype, from.shape, out);
    }
    case Opcode::kBroadcast: {
      const Type& from = op.operands[0]->type;
      const Shape& shape = op.ints_attr("shape");
      const size_t extra = shape.size() - std::min(shape.size(), from.shape.size());
      bool fits = is_positive(shape) && from.shape.size() <= shape.size();
      for (size_t i = 0; fits && i < from.shape.size(); ++i)
        fits = from.shape[i] == 1 || from.shape[i] == shape[extra + i];
      if (!fits)
        return out.add(op,
                       fmt::format("{} does not broadcast to {}", shape_text(from.shape), shape_text(shape)));
      return expect_result(op, from.dtype, shape, out);
    }
    case Opcode::kUninitialized:
      if (const Shape& shape = op.ints_attr("shape"); !is_positive(shape))
        return out.add(op, "shape " + shape_text(shape) + " has an extent below 1");
      return expect_result(op, op.dtype_attr("dtype"), op.ints_attr("shape"), out);
    case Opcode::kAnnotateLayout:
      return verify_layout(op, op.operands[0]->type, out);
    default:
      return;
  }
}

}  // namespace imbrex::ir
