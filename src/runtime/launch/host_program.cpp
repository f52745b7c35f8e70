// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/host_program.h"

#include <fmt/format.h>

#include <cstring>

#include "codegen/values/fast_divmod.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"
#include "passes/evaluate.h"
#include "runtime/launch/check_tensor_map.h"

namespace imbrex::runtime {
namespace {

using codegen::HostStep;
using ir::Opcode;
using passes::Constant;

/// A 64-bit result cut to its type and extended again, so that host and device integers agree.
int64_t wrap(DataType dtype, int64_t value) {
  return dtype.is_bool() ? value != 0 : Constant::integer(dtype, value).i;
}

[[noreturn]] void fail(const HostStep& step, std::string message, std::string help = "") {
  throw LaunchError(Diagnostic{step.where, std::move(message), {}, std::move(help)});
}

int64_t binary(const HostStep& step, int64_t a, int64_t b) {
  const Opcode code = step.op;
  // Operands are extended by their own type, so a signed comparison orders every type below 64 bits.
  const DataType dtype = ir::is_comparison(code) ? int64 : step.dtype;
  if (const auto result = passes::evaluate_integer(code, {dtype, a}, {dtype, b})) return result->i;
  if (b == 0)
    fail(step,
         fmt::format("{}: division of {} by zero while computing the launch", ir::info(code).mnemonic, a),
         "check the sizes passed to the kernel");
  switch (code) {
    case Opcode::kDiv:  // by -1, and the quotient wraps
      return a;
    case Opcode::kRem:
      return 0;
    case Opcode::kCeilDiv:  // of a negative number
      return (a + b - 1) / b;
    default:
      throw InternalError(fmt::format("host step '{}'", ir::info(code).mnemonic));
  }
}

int64_t unary(const HostStep& step, int64_t a) {
  const Opcode code = step.op;
  if (code == Opcode::kCast) return a;
  if (const auto result = passes::evaluate_integer(code, {step.dtype, a})) return result->i;
  throw InternalError(fmt::format("host step '{}'", ir::info(code).mnemonic));
}

}  // namespace

int64_t evaluate_step(const HostStep& step, std::span<const int64_t> arguments,
                      std::span<const int64_t> slots) {
  int64_t value = 0;
  switch (step.kind) {
    case HostStep::Kind::kConstant:
      value = step.constant;
      break;
    case HostStep::Kind::kParam:
      value = arguments[step.a];
      break;
    case HostStep::Kind::kBinary:
      value = binary(step, slots[step.a], slots[step.b]);
      break;
    case HostStep::Kind::kUnary:
      value = unary(step, slots[step.a]);
      break;
    case HostStep::Kind::kSelect:
      value = slots[step.a] != 0 ? slots[step.b] : slots[step.c];
      break;
    case HostStep::Kind::kDivmodMagic: {
      int64_t divisor = slots[step.a];
      if (divisor <= 0)
        fail(step, fmt::format("fast_divmod: divisor {} is not positive", divisor),
             "divide by a positive grid constant");
      value = static_cast<int64_t>(codegen::fast_divmod_magic(static_cast<uint32_t>(divisor)));
      break;
    }
  }
  return wrap(step.dtype, value);
}

void evaluate_host(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                   std::span<int64_t> slots) {
  for (size_t i = 0; i < kernel.host.size(); ++i) slots[i] = evaluate_step(kernel.host[i], arguments, slots);
}

void pack_params(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                 std::span<const int64_t> slots, DeviceBackend& device, std::byte* out) {
  for (const codegen::ParamPlan& param : kernel.params) {
    if (param.kind == codegen::ParamPlan::Kind::kTensorMap) {
      check_tensor_map(kernel, kernel.tensor_maps[param.index], slots);
      device.encode_tensor_map(kernel.tensor_maps[param.index], slots, out + param.offset);
    } else {
      int64_t value =
          param.kind == codegen::ParamPlan::Kind::kUser ? arguments[param.index] : slots[param.index];
      std::memcpy(out + param.offset, &value, param.bytes);  // little-endian: the low bytes
    }
  }
}

}  // namespace imbrex::runtime
