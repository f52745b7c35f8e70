// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_program.h"

#include <fmt/format.h>

#include <cstring>

#include "codegen/fast_divmod.h"
#include "imbrex/error.h"
#include "ir/ir.h"
#include "runtime/check_tensor_map.h"

namespace imbrex::runtime {
namespace {

using codegen::HostStep;
using ir::Opcode;

/// A 64-bit result cut to its type and extended again, so that host and device integers agree.
int64_t wrap(DataType dtype, int64_t value) {
  switch (dtype.code) {
    case DataType::kBool:
      return value != 0;
    case DataType::kInt8:
      return static_cast<int8_t>(value);
    case DataType::kInt16:
      return static_cast<int16_t>(value);
    case DataType::kInt32:
      return static_cast<int32_t>(value);
    case DataType::kUInt8:
      return static_cast<uint8_t>(value);
    case DataType::kUInt16:
      return static_cast<uint16_t>(value);
    case DataType::kUInt32:
      return static_cast<uint32_t>(value);
    default:
      return value;
  }
}

[[noreturn]] void fail(const HostStep& step, std::string message, std::string help = "") {
  throw LaunchError(Diagnostic{step.where, std::move(message), {}, std::move(help)});
}

int64_t binary(const HostStep& step, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  const bool is_unsigned = !step.dtype.is_signed();
  const auto op = static_cast<Opcode>(step.op);
  if ((op == Opcode::kDiv || op == Opcode::kRem || op == Opcode::kCeilDiv) && b == 0)
    fail(step, fmt::format("{}: division of {} by zero while computing the launch", ir::info(op).mnemonic, a),
         "check the sizes passed to the kernel");
  switch (op) {
    case Opcode::kAdd:
      return static_cast<int64_t>(x + y);
    case Opcode::kSub:
      return static_cast<int64_t>(x - y);
    case Opcode::kMul:
      return static_cast<int64_t>(x * y);
    case Opcode::kDiv:
      return is_unsigned ? static_cast<int64_t>(x / y) : b == -1 ? static_cast<int64_t>(-x) : a / b;
    case Opcode::kRem:
      return is_unsigned ? static_cast<int64_t>(x % y) : b == -1 ? 0 : a % b;
    case Opcode::kCeilDiv:
      return is_unsigned ? static_cast<int64_t>((x + y - 1) / y) : (a + b - 1) / b;
    case Opcode::kMin:
      return is_unsigned ? static_cast<int64_t>(std::min(x, y)) : std::min(a, b);
    case Opcode::kMax:
      return is_unsigned ? static_cast<int64_t>(std::max(x, y)) : std::max(a, b);
    case Opcode::kAnd:
      return a & b;
    case Opcode::kOr:
      return a | b;
    case Opcode::kXor:
      return a ^ b;
    case Opcode::kShl:
      return y > 63 ? 0 : static_cast<int64_t>(x << y);
    case Opcode::kShr:
      return is_unsigned ? (y > 63 ? 0 : static_cast<int64_t>(x >> y)) : a >> std::min<uint64_t>(y, 63);
    case Opcode::kEq:
      return a == b;
    case Opcode::kNe:
      return a != b;
    // Operands are extended by their own type, so a signed comparison orders every type below 64 bits.
    case Opcode::kLt:
      return a < b;
    case Opcode::kLe:
      return a <= b;
    case Opcode::kGt:
      return a > b;
    case Opcode::kGe:
      return a >= b;
    default:
      throw InternalError(fmt::format("host step '{}'", ir::info(op).mnemonic));
  }
}

int64_t unary(const HostStep& step, int64_t a) {
  switch (static_cast<Opcode>(step.op)) {
    case Opcode::kNeg:
      return static_cast<int64_t>(-static_cast<uint64_t>(a));
    case Opcode::kNot:
      return step.dtype.is_bool() ? !a : ~a;
    case Opcode::kAbs:
      return a < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a;
    case Opcode::kCast:
      return step.dtype.is_bool() ? a != 0 : a;
    default:
      throw InternalError(fmt::format("host step '{}'", ir::info(static_cast<Opcode>(step.op)).mnemonic));
  }
}

}  // namespace

void evaluate_host(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                   std::span<int64_t> slots) {
  for (size_t i = 0; i < kernel.host.size(); ++i) {
    const HostStep& step = kernel.host[i];
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
    slots[i] = wrap(step.dtype, value);
  }
}

void pack_params(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                 std::span<const int64_t> slots, DeviceBackend& device, std::byte* out) {
  for (const codegen::ParamPlan& param : kernel.params) {
    if (param.kind == codegen::ParamPlan::Kind::kTensorMap) {
      check_tensor_map(kernel.tensor_maps[param.index], slots);
      device.encode_tensor_map(kernel.tensor_maps[param.index], slots, out + param.offset);
    } else {
      int64_t value =
          param.kind == codegen::ParamPlan::Kind::kUser ? arguments[param.index] : slots[param.index];
      std::memcpy(out + param.offset, &value, param.bytes);  // little-endian: the low bytes
    }
  }
}

}  // namespace imbrex::runtime
