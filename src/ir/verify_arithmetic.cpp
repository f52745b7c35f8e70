// SPDX-License-Identifier: Apache-2.0
// Arithmetic: element types, broadcasting, result types.
#include <fmt/format.h>

#include <algorithm>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

/// The shape two operands broadcast to, aligned at the last dimension; nothing when they do not.
std::optional<std::vector<int64_t>> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

bool computes(DataType type) {
  return type.is_integer() || type == float16 || type == bfloat16 || type == float32 || type == float64;
}

/// What the op requires of its elements, or "" when `type` meets it.
std::string_view wanted(Opcode code, DataType type) {
  const bool integers = has(code, Fact::kIntegers), bools = has(code, Fact::kBools),
             floats = has(code, Fact::kFloats);
  if (has(code, Fact::kAnyType) || (integers && type.is_integer()) || (bools && type.is_bool()) ||
      (floats && type.is_float() && computes(type)))
    return "";
  if (integers && floats) return "types that compute";
  if (floats) return "float16, bfloat16, float32 or float64";
  return bools ? "integers or bool" : "integers";
}

}  // namespace

void verify_arithmetic(const Op& op, Findings& out) {
  const size_t first = op.code == Opcode::kSelect ? 1 : 0;  // the condition has a type of its own
  const Type& a = op.operands[first]->type;
  if (first == 1 && !op.operands[0]->type.dtype.is_bool())
    return out.add(op, fmt::format("the condition is {}, not bool", op.operands[0]->type.dtype.name()));

  bool is_tensor = false;
  std::vector<int64_t> shape;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Type& type = op.operands[i]->type;
    if (i >= first && type.dtype != a.dtype)
      return out.add(op, fmt::format("operands differ in type, {} and {}", a.dtype.name(), type.dtype.name()),
                     "cast one of them");
    is_tensor |= !type.is_scalar();
    auto common = broadcast(shape, type.shape);
    if (!common)
      return out.add(
          op, fmt::format("shapes {} and {} do not broadcast", shape_text(shape), shape_text(type.shape)));
    shape = *common;
  }
  const std::string_view want = wanted(op.code, a.dtype);
  if (!want.empty())
    return out.add(op, fmt::format("works on {}, not {}", want, a.dtype.name()),
                   a.dtype.is_bool() || computes(a.dtype) ? "" : "cast to float16 or float32 first");

  Type expected = is_tensor ? Type::tensor(TypeKind::kRegister, a.dtype, shape) : Type::scalar(a.dtype);
  if (is_comparison(op.code)) expected.dtype = boolean;
  if (op.code == Opcode::kCast) expected.dtype = op.dtype_attr("dtype");
  Type actual = op.result()->type;
  actual.layout.reset();
  if (actual != expected)
    out.add(op, fmt::format("gives {}, declared as {}", expected.to_string(), actual.to_string()));
}

}  // namespace imbrex::ir
