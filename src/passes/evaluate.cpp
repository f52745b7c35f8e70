// SPDX-License-Identifier: Apache-2.0
#include "passes/evaluate.h"

#include <bit>
#include <cmath>

#include "core/float_formats.h"
#include "core/scalar_arith.h"

namespace imbrex::passes {
namespace {

using ir::Opcode;

/// The low bits of `value`, extended as the type says.
int64_t wrap(DataType dtype, int64_t value) {
  if (dtype.is_bool()) return value & 1;
  const int shift = 64 - dtype.bits();
  const uint64_t bits = static_cast<uint64_t>(value) << shift;
  return dtype.is_signed() ? static_cast<int64_t>(bits) >> shift : static_cast<int64_t>(bits >> shift);
}

double round_to(DataType dtype, double value) {
  const arith::FloatFormat& format = arith::float_format(dtype);
  // As cvt does: narrow formats saturate, powers of two are cut to the one below.
  const arith::EncodeOptions options{
      .rounding = format.mantissa_bits == 0 ? arith::Rounding::kTowardZero : arith::Rounding::kNearestEven,
      .satfinite = format.bits <= 8};
  return arith::decode(format, arith::encode(format, value, options));
}

template <class T>
bool compare(Opcode code, T a, T b) {
  switch (code) {
    case Opcode::kEq:
      return a == b;
    case Opcode::kNe:
      return a != b;
    case Opcode::kLt:
      return a < b;
    case Opcode::kLe:
      return a <= b;
    case Opcode::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

// --- integers ---

/// Division, order and right shifts, which look at the sign; T is int64_t or uint64_t.
template <class T>
std::optional<T> signed_sensitive(Opcode code, T a, T b, int bits) {
  switch (code) {
    case Opcode::kMin:
      return a < b ? a : b;
    case Opcode::kMax:
      return a > b ? a : b;
    case Opcode::kShr: {
      const bool all = static_cast<uint64_t>(b) >= static_cast<uint64_t>(bits);
      if (all) return a < T{0} ? T(-1) : T(0);
      return a >> b;
    }
    default:
      break;
  }
  if (b == 0 || (std::is_signed_v<T> && b == T(-1) && a == std::numeric_limits<T>::min()))
    return std::nullopt;
  switch (code) {
    case Opcode::kDiv:
      return a / b;
    case Opcode::kRem:
      return a % b;
    case Opcode::kCeilDiv:
      if (std::is_signed_v<T> && (a < T{0} || b < T{0})) return std::nullopt;  // outside the op's domain
      return a / b + (a % b != 0);
    default:
      return std::nullopt;
  }
}

// --- floating point ---

/// T is float or double: the functions of core/scalar_float.h.
template <class T>
std::optional<double> float_op(Opcode code, std::span<const Constant> x) {
  const T a = static_cast<T>(x[0].f), b = x.size() > 1 ? static_cast<T>(x[1].f) : T{0};
  switch (code) {
    case Opcode::kAdd:
      return arith::add(a, b);
    case Opcode::kSub:
      return arith::sub(a, b);
    case Opcode::kMul:
      return arith::mul(a, b);
    case Opcode::kDiv:
      return arith::div(a, b);
    case Opcode::kMin:
      return arith::min(a, b);
    case Opcode::kMax:
      return arith::max(a, b);
    case Opcode::kFma:
      return arith::fma(a, b, static_cast<T>(x[2].f));
    case Opcode::kNeg:
      return arith::neg(a);
    case Opcode::kAbs:
      return arith::abs(a);
    case Opcode::kSqrt:
      return arith::sqrt(a);
    default:
      return std::nullopt;
  }
}

std::optional<uint16_t> f16_op(Opcode code, uint16_t a, uint16_t b, uint16_t c) {
  switch (code) {
    case Opcode::kAdd:
      return arith::add_f16(a, b);
    case Opcode::kSub:
      return arith::sub_f16(a, b);
    case Opcode::kMul:
      return arith::mul_f16(a, b);
    case Opcode::kMin:
      return arith::min_f16(a, b);
    case Opcode::kMax:
      return arith::max_f16(a, b);
    case Opcode::kFma:
      return arith::fma_f16(a, b, c);
    case Opcode::kNeg:
      return arith::neg_f16(a);
    case Opcode::kAbs:
      return arith::abs_f16(a);
    default:
      return std::nullopt;
  }
}

std::optional<uint16_t> bf16_op(Opcode code, uint16_t a, uint16_t b, uint16_t c) {
  switch (code) {
    case Opcode::kAdd:
      return arith::add_bf16(a, b);
    case Opcode::kSub:
      return arith::sub_bf16(a, b);
    case Opcode::kMul:
      return arith::mul_bf16(a, b);
    case Opcode::kMin:
      return arith::min_bf16(a, b);
    case Opcode::kMax:
      return arith::max_bf16(a, b);
    case Opcode::kFma:
      return arith::fma_bf16(a, b, c);
    case Opcode::kNeg:
      return arith::neg_bf16(a);
    case Opcode::kAbs:
      return arith::abs_bf16(a);
    default:
      return std::nullopt;
  }
}

std::optional<Constant> float_arithmetic(Opcode code, std::span<const Constant> x) {
  const DataType dtype = x[0].dtype;
  if (ir::is_comparison(code)) {
    if (std::isnan(x[0].f) || std::isnan(x[1].f)) return std::nullopt;
    return Constant::boolean(compare(code, x[0].f, x[1].f));
  }
  std::optional<double> value;
  if (dtype == float32) {
    value = float_op<float>(code, x);
  } else if (dtype == float64) {
    value = float_op<double>(code, x);
  } else if (dtype == float16 || dtype == bfloat16) {
    const arith::FloatFormat& format = arith::float_format(dtype);
    uint16_t bits[3] = {};
    for (size_t i = 0; i < x.size(); ++i) bits[i] = static_cast<uint16_t>(arith::encode(format, x[i].f));
    const auto half = (dtype == float16 ? f16_op : bf16_op)(code, bits[0], bits[1], bits[2]);
    if (half) value = arith::decode(format, *half);
  }
  if (!value || std::isnan(*value)) return std::nullopt;  // a NaN's bits are left to the chip
  return Constant{dtype, 0, *value};
}

// --- conversions ---

std::optional<Constant> cast(const Constant& a, DataType to) {
  if (a.dtype.is_float()) {
    if (std::isnan(a.f)) return std::nullopt;
    if (to.is_float()) return Constant::floating(to, a.f);
    const double whole = std::trunc(a.f);
    if (to.is_bool() || std::abs(whole) >= 0x1p53) return std::nullopt;
    const Constant result = Constant::integer(to, static_cast<int64_t>(whole));
    return static_cast<double>(result.i) == whole ? std::optional(result)
                                                  : std::nullopt;  // else it saturates
  }
  if (to.is_bool()) return Constant::boolean(a.i != 0);
  if (!to.is_float()) return Constant::integer(to, a.i);
  if (std::abs(static_cast<double>(a.i)) > 0x1p53 || (a.dtype == uint64 && a.i < 0)) return std::nullopt;
  return Constant::floating(to, static_cast<double>(a.i));
}

}  // namespace

Constant Constant::integer(DataType dtype, int64_t value) {
  if (dtype.is_float()) return floating(dtype, static_cast<double>(value));
  return {dtype, wrap(dtype, value), 0};
}
Constant Constant::floating(DataType dtype, double value) { return {dtype, 0, round_to(dtype, value)}; }

bool operator==(const Constant& a, const Constant& b) {
  return a.dtype == b.dtype && a.i == b.i && std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f);
}

std::optional<Constant> constant_of(const ir::Value* value) {
  if (!ir::defined_by(value, Opcode::kConst)) return std::nullopt;
  if (auto i = ir::constant_int(value)) return Constant::integer(value->type.dtype, *i);
  if (auto f = ir::constant_float(value)) return Constant::floating(value->type.dtype, *f);
  return std::nullopt;
}

ir::Value* materialize(ir::Builder& builder, const Constant& constant) {
  return constant.dtype.is_float() ? builder.constant(constant.dtype, constant.f)
                                   : builder.constant(constant.dtype, constant.i);
}

std::optional<Constant> evaluate_integer(Opcode code, const Constant& a) {
  switch (code) {
    case Opcode::kNeg:
      return Constant::integer(a.dtype, static_cast<int64_t>(0 - static_cast<uint64_t>(a.i)));
    case Opcode::kNot:
      return Constant::integer(a.dtype, ~a.i);
    case Opcode::kAbs:
      return a.i < 0 && a.dtype.is_signed() ? evaluate_integer(Opcode::kNeg, a) : std::optional(a);
    default:
      return std::nullopt;
  }
}

std::optional<Constant> evaluate_integer(Opcode code, const Constant& a, const Constant& b) {
  const DataType dtype = a.dtype;
  const uint64_t x = static_cast<uint64_t>(a.i), y = static_cast<uint64_t>(b.i);
  const auto result = [&](uint64_t value) { return Constant::integer(dtype, static_cast<int64_t>(value)); };
  if (ir::is_comparison(code))
    return Constant::boolean(dtype.is_signed() ? compare(code, a.i, b.i) : compare(code, x, y));
  switch (code) {
    case Opcode::kAdd:
      return result(x + y);
    case Opcode::kSub:
      return result(x - y);
    case Opcode::kMul:
      return result(x * y);
    case Opcode::kAnd:
      return result(x & y);
    case Opcode::kOr:
      return result(x | y);
    case Opcode::kXor:
      return result(x ^ y);
    case Opcode::kShl:
      return result(y < static_cast<uint64_t>(dtype.bits()) ? x << y : 0);
    default:
      break;
  }
  if (dtype.is_signed()) {
    if (auto value = signed_sensitive<int64_t>(code, a.i, b.i, dtype.bits()))
      return Constant::integer(dtype, *value);
  } else if (auto value = signed_sensitive<uint64_t>(code, x, y, dtype.bits())) {
    return result(*value);
  }
  return std::nullopt;
}

std::optional<Constant> evaluate(const ir::Op& op, std::span<const Constant> x) {
  if (op.results.size() != 1 || !op.result()->type.is_scalar() || x.empty()) return std::nullopt;
  if (op.code == Opcode::kCast) return cast(x[0], op.dtype_attr("dtype"));
  if (op.code == Opcode::kSelect) return x[0].i ? x[1] : x[2];
  if (!ir::is_elementwise(op.code)) return std::nullopt;
  if (x[0].dtype.is_float()) return float_arithmetic(op.code, x);
  if (x.size() == 1) return evaluate_integer(op.code, x[0]);
  if (x.size() == 2) return evaluate_integer(op.code, x[0], x[1]);
  return std::nullopt;
}

}  // namespace imbrex::passes
