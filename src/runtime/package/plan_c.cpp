// SPDX-License-Identifier: Apache-2.0
#include "runtime/package/plan_c.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "imbrex/core/error.h"
#include "ir/ir.h"
#include "runtime/package/template_text.h"

namespace imbrex::runtime {
namespace {

using codegen::CompiledKernel;
using codegen::HostStep;
using codegen::ParamPlan;

/// `value` cut to an integer type and extended to 64 bits again.
std::string wrapped(DataType dtype, const std::string& value) {
  if (dtype.is_bool()) return fmt::format("(({}) != 0)", value);
  if (dtype.bits() == 64) return value;
  return fmt::format("(int64_t)({}int{}_t)({})", dtype.is_signed() ? "" : "u", dtype.bits(), value);
}

/// The step's value in C, of slots s[...] and arguments a[...]; division by zero is tested before.
std::string expression(const HostStep& step) {
  const std::string a = fmt::format("s[{}]", step.a), b = fmt::format("s[{}]", step.b);
  switch (step.kind) {
    case HostStep::Kind::kConstant:
      return fmt::format("INT64_C({})", step.constant == INT64_MIN ? step.constant + 1 : step.constant) +
             (step.constant == INT64_MIN ? " - 1" : "");
    case HostStep::Kind::kParam:
      return fmt::format("a[{}]", step.a);
    case HostStep::Kind::kSelect:
      return fmt::format("{} ? {} : s[{}]", a, b, step.c);
    case HostStep::Kind::kDivmodMagic:
      return fmt::format("divmod_magic((uint32_t){})", a);
    case HostStep::Kind::kUnary:
    case HostStep::Kind::kBinary:
      break;
  }
  const auto code = static_cast<ir::Opcode>(step.op);
  const char* type = step.dtype.is_signed() ? "int64_t" : "uint64_t";
  auto wrapping = [&](const char* op) {
    return fmt::format("(int64_t)((uint64_t){} {} (uint64_t){})", a, op, b);
  };
  auto typed = [&](const char* op) {
    return fmt::format("(int64_t)(({}){} {} ({}){})", type, a, op, type, b);
  };
  switch (code) {
    case ir::Opcode::kAdd:
      return wrapping("+");
    case ir::Opcode::kSub:
      return wrapping("-");
    case ir::Opcode::kMul:
      return wrapping("*");
    case ir::Opcode::kAnd:
      return wrapping("&");
    case ir::Opcode::kOr:
      return wrapping("|");
    case ir::Opcode::kXor:
      return wrapping("^");
    case ir::Opcode::kShl:
      return fmt::format("(uint64_t){} < {} ? (int64_t)((uint64_t){} << {}) : 0", b, step.dtype.bits(), a, b);
    case ir::Opcode::kShr:
      return fmt::format("(int64_t)(({}){} >> ((uint64_t){} < {} ? {} : 63))", type, a, b, step.dtype.bits(),
                         b);
    case ir::Opcode::kMin:
      return fmt::format("({}){} < ({}){} ? {} : {}", type, a, type, b, a, b);
    case ir::Opcode::kMax:
      return fmt::format("({}){} > ({}){} ? {} : {}", type, a, type, b, a, b);
    case ir::Opcode::kDiv:
      return step.dtype.is_signed()
                 ? fmt::format("{} == -1 ? (int64_t)(0 - (uint64_t){}) : {} / {}", b, a, a, b)
                 : typed("/");
    case ir::Opcode::kRem:
      return step.dtype.is_signed() ? fmt::format("{} == -1 ? 0 : {} % {}", b, a, b) : typed("%");
    case ir::Opcode::kCeilDiv:
      return fmt::format("(int64_t)(({0}){1} / ({0}){2} + (({0}){1} % ({0}){2} != 0))", type, a, b);
    case ir::Opcode::kEq:
      return fmt::format("{} == {}", a, b);
    case ir::Opcode::kNe:
      return fmt::format("{} != {}", a, b);
    case ir::Opcode::kLt:
      return fmt::format("{} < {}", a, b);
    case ir::Opcode::kLe:
      return fmt::format("{} <= {}", a, b);
    case ir::Opcode::kGt:
      return fmt::format("{} > {}", a, b);
    case ir::Opcode::kGe:
      return fmt::format("{} >= {}", a, b);
    case ir::Opcode::kNeg:
      return fmt::format("(int64_t)(0 - (uint64_t){})", a);
    case ir::Opcode::kNot:
      return step.dtype.is_bool() ? fmt::format("!{}", a) : fmt::format("~{}", a);
    case ir::Opcode::kAbs:
      return fmt::format("{} < 0 ? (int64_t)(0 - (uint64_t){}) : {}", a, a, a);
    case ir::Opcode::kCast:
      return a;
    default:
      throw InternalError(fmt::format("packaging: host step '{}'", ir::info(code).mnemonic));
  }
}

bool divides(const HostStep& step) {
  if (step.kind == HostStep::Kind::kDivmodMagic) return true;
  if (step.kind != HostStep::Kind::kBinary) return false;
  const auto code = static_cast<ir::Opcode>(step.op);
  return code == ir::Opcode::kDiv || code == ir::Opcode::kRem || code == ir::Opcode::kCeilDiv;
}

/// The slots' values in C, each followed by `suffix`.
std::string slot_list(const std::vector<int32_t>& slots, const char* suffix = "") {
  std::vector<std::string> words;
  for (int32_t slot : slots) words.push_back(fmt::format("(uint64_t)s[{}]{}", slot, suffix));
  return words.empty() ? "0" : fmt::format("{}", fmt::join(words, ", "));
}

/// Slot `slot` as the grid's extent in dimension `i`.
std::string grid_statement(const CompiledKernel& kernel, int i) {
  const int32_t slot = kernel.grid_slots[i];
  if (slot < 0) return fmt::format("  grid[{}] = 1;\n", i);
  return fmt::format(
      "  if (s[{0}] < 1 || s[{0}] > {1} || s[{0}] % {2} != 0) return fail(\"the grid these sizes give is not "
      "possible\", 0);\n"
      "  grid[{3}] = (unsigned)s[{0}];\n",
      slot, i == 0 ? "INT64_C(2147483647)" : "65535", kernel.cluster[i], i);
}

/// Encodes a tensor map into the parameter buffer. Strides are counted in bits here, in bytes by the driver.
std::string tensor_map_statement(const codegen::TensorMapPlan& map, int32_t offset) {
  std::string text;
  if (map.is_stored)
    text = fmt::format(
        "  if (s[{}] * {} % 128 != 0) return fail(\"a tensor that TMA stores to has rows that are not \"\n"
        "                                     \"multiples of 16 bytes\", 0);\n",
        map.dim_slots.front(), map.dtype.bits());
  const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  return text + filled(templates::tensor_map_c, {{"DIMS", slot_list(map.dim_slots)},
                                                 {"STRIDES", slot_list(map.stride_slots, " / 8")},
                                                 {"BOX", fmt::format("{}", fmt::join(map.box, ", "))},
                                                 {"OFFSET", number(offset)},
                                                 {"TYPE", number(map.driver_type)},
                                                 {"RANK", number(map.rank)},
                                                 {"BASE", number(map.base_slot)},
                                                 {"INTERLEAVE", number(map.interleave)},
                                                 {"SWIZZLE", number(map.swizzle)},
                                                 {"PROMOTION", number(map.l2_promotion)},
                                                 {"FILL", number(map.oob_fill)}});
}

}  // namespace

std::string plan_statements(const CompiledKernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.host.size(); ++i) {
    const HostStep& step = kernel.host[i];
    if (divides(step))
      text +=
          fmt::format("  if (s[{}] {} 0) return fail(\"a size that is divided by is zero or less\", 0);\n",
                      step.kind == HostStep::Kind::kDivmodMagic ? step.a : step.b,
                      step.kind == HostStep::Kind::kDivmodMagic ? "<=" : "==");
    text += fmt::format("  s[{}] = {};\n", i, wrapped(step.dtype, expression(step)));
  }
  for (int i = 0; i < 3; ++i) text += grid_statement(kernel, i);
  for (const ParamPlan& param : kernel.params)
    text += param.kind == ParamPlan::Kind::kTensorMap
                ? tensor_map_statement(kernel.tensor_maps[param.index], param.offset)
                : fmt::format("  memcpy(params + {}, &{}[{}], {});\n", param.offset,
                              param.kind == ParamPlan::Kind::kUser ? "a" : "s", param.index, param.bytes);
  return text;
}

bool needs_divmod_magic(const CompiledKernel& kernel) {
  return std::any_of(kernel.host.begin(), kernel.host.end(),
                     [](const HostStep& step) { return step.kind == HostStep::Kind::kDivmodMagic; });
}

}  // namespace imbrex::runtime
