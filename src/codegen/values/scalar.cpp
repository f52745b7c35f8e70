// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic: one operation on registers or immediates of one type.
#include "codegen/values/scalar.h"

#include <fmt/format.h>

#include <bit>

#include "codegen/values/fast_divmod.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

bool is_half(DataType type) { return type == float16 || type == bfloat16; }
bool is_small_integer(DataType type) { return type.is_integer() && type.bits() < 32; }

Mod comparison_word(Opcode code, DataType type) {
  switch (code) {
    case Opcode::kEq:
      return Mod::eq;
    case Opcode::kNe:
      return type.is_float() ? Mod::neu : Mod::ne;  // NaN differs from everything
    case Opcode::kLt:
      return Mod::lt;
    case Opcode::kLe:
      return Mod::le;
    case Opcode::kGt:
      return Mod::gt;
    default:
      return Mod::ge;
  }
}

class ScalarOperation {
 public:
  ScalarOperation(Generator& g, const ir::Op& op, DataType dtype)
      : g_(g), e_(g.e()), op_(op), dtype_(dtype) {}

  Operand run(Opcode code, std::span<const Operand> in) {
    if (dtype_.is_bool()) return boolean_operation(code, in);
    if (dtype_.is_float()) return float_operation(code, in);
    if (dtype_.is_integer()) return integer_operation(code, in);
    return unsupported();
  }

 private:
  Operand unsupported() {
    g_.fail(op_, fmt::format("not available for {}", dtype_.name()), {}, "cast to float32 first");
  }

  Operand make(Op op, std::initializer_list<Suffix> words, std::initializer_list<Operand> operands) {
    return e_.make(register_type(dtype_), op, words, operands);
  }
  Reg in_register(const Operand& o) { return e_.to_register(register_type(dtype_), o); }

  Operand compare(Opcode code, const Operand& a, const Operand& b) {
    const Reg p = e_.reg(ScalarType::pred);
    // The first operand of setp is a register.
    e_.emit(Op::setp, {comparison_word(code, dtype_), arithmetic_type(dtype_)}, {p, in_register(a), b});
    return p;
  }

  Operand select(const Operand& condition, const Operand& a, const Operand& b) {
    if (condition.is_immediate()) return condition.value ? a : b;
    if (dtype_.is_bool()) {
      const Reg p = in_register(a), q = in_register(b);
      const Reg c = e_.to_register(ScalarType::pred, condition);
      const Reg left = e_.make(ScalarType::pred, Op::and_, {ScalarType::pred}, {p, c});
      const Reg not_c = e_.make(ScalarType::pred, Op::not_, {ScalarType::pred}, {c});
      const Reg right = e_.make(ScalarType::pred, Op::and_, {ScalarType::pred}, {q, not_c});
      return e_.make(ScalarType::pred, Op::or_, {ScalarType::pred}, {left, right});
    }
    const ScalarType r = register_type(dtype_);
    return make(Op::selp, {r}, {a, b, condition});
  }

  Operand boolean_operation(Opcode code, std::span<const Operand> in) {
    auto both = [&](Op op) {
      return Operand(
          e_.make(ScalarType::pred, op, {ScalarType::pred}, {in_register(in[0]), in_register(in[1])}));
    };
    auto negated = [&](const Operand& o) {
      return Operand(e_.make(ScalarType::pred, Op::not_, {ScalarType::pred}, {in_register(o)}));
    };
    switch (code) {
      case Opcode::kAnd:
      case Opcode::kMin:
      case Opcode::kMul:
        return both(Op::and_);
      case Opcode::kOr:
      case Opcode::kMax:
        return both(Op::or_);
      case Opcode::kXor:
      case Opcode::kNe:
        return both(Op::xor_);
      case Opcode::kEq:
        return negated(both(Op::xor_));
      case Opcode::kNot:
        return negated(in[0]);
      case Opcode::kSelect:
        return select(in[0], in[1], in[2]);
      default:
        return unsupported();
    }
  }

  /// 8- and 16-bit results are brought back to their range.
  Operand wrapped(const Operand& value) {
    if (!is_small_integer(dtype_)) return value;
    if (dtype_.is_signed()) return make(Op::bfe, {ScalarType::s32}, {value, 0, dtype_.bits()});
    return make(Op::and_, {ScalarType::b32}, {value, (int64_t{1} << dtype_.bits()) - 1});
  }

  Operand integer_operation(Opcode code, std::span<const Operand> in) {
    const ScalarType type = arithmetic_type(dtype_);
    const ScalarType bits = dtype_.bits() == 64 ? ScalarType::b64 : ScalarType::b32;
    if (ir::is_comparison(code)) return compare(code, in[0], in[1]);
    switch (code) {
      case Opcode::kAdd:
        return wrapped(make(Op::add, {type}, {in[0], in[1]}));
      case Opcode::kSub:
        return wrapped(make(Op::sub, {type}, {in[0], in[1]}));
      case Opcode::kMul:
        return wrapped(make(Op::mul, {Mod::lo, type}, {in[0], in[1]}));
      case Opcode::kDiv:
        return wrapped(divide(Op::div, in[0], in[1]));
      case Opcode::kRem:
        return divide(Op::rem, in[0], in[1]);
      case Opcode::kCeilDiv: {
        const Operand up =
            in[1].is_immediate() ? Operand(in[1].value - 1) : make(Op::sub, {type}, {in[1], 1});
        return divide(Op::div, make(Op::add, {type}, {in[0], up}), in[1]);
      }
      case Opcode::kMin:
        return make(Op::min, {type}, {in[0], in[1]});
      case Opcode::kMax:
        return make(Op::max, {type}, {in[0], in[1]});
      case Opcode::kAnd:
        return make(Op::and_, {bits}, {in[0], in[1]});
      case Opcode::kOr:
        return make(Op::or_, {bits}, {in[0], in[1]});
      case Opcode::kXor:
        return make(Op::xor_, {bits}, {in[0], in[1]});
      case Opcode::kShl:
        return wrapped(make(Op::shl, {bits}, {in[0], shift_amount(in[1])}));
      case Opcode::kShr:
        return make(Op::shr, {type}, {in[0], shift_amount(in[1])});
      case Opcode::kNeg:
        return wrapped(make(Op::neg, {dtype_.bits() == 64 ? ScalarType::s64 : ScalarType::s32}, {in[0]}));
      case Opcode::kNot:
        return wrapped(make(Op::not_, {bits}, {in[0]}));
      case Opcode::kAbs:
        if (!dtype_.is_signed()) return in[0];
        return wrapped(make(Op::abs, {type}, {in[0]}));
      case Opcode::kSelect:
        return select(in[0], in[1], in[2]);
      default:
        return unsupported();
    }
  }

  /// How cvt rounds to an integer of the same type.
  static Mod to_integer(Opcode code) {
    return code == Opcode::kRound ? Mod::rni : code == Opcode::kFloor ? Mod::rmi : Mod::rpi;
  }

  /// Shift amounts are 32 bits wide in PTX.
  Operand shift_amount(const Operand& amount) {
    if (amount.is_immediate() || dtype_.bits() != 64) return amount;
    return e_.make(ScalarType::b32, Op::cvt, {ScalarType::u32, ScalarType::u64}, {amount});
  }

  /// Division; by constant powers of two a shift or mask where the dividend is known not to be negative.
  Operand divide(Op operation, const Operand& a, const Operand& b) {
    const ScalarType type = arithmetic_type(dtype_);
    const bool is_power =
        b.is_immediate() && b.value > 0 && std::has_single_bit(static_cast<uint64_t>(b.value));
    const bool is_natural =
        !dtype_.is_signed() || (!op_.operands.empty() && op_.operands[0]->type.is_scalar() &&
                                g_.ranges().of(op_.operands[0]).lo >= 0);
    if (is_power && is_natural) {
      const ScalarType bits = dtype_.bits() == 64 ? ScalarType::b64 : ScalarType::b32;
      const ScalarType natural = dtype_.bits() == 64 ? ScalarType::u64 : ScalarType::u32;
      if (operation == Op::rem) return make(Op::and_, {bits}, {a, b.value - 1});
      return make(Op::shr, {natural}, {a, std::countr_zero(static_cast<uint64_t>(b.value))});
    }
    return make(operation, {type}, {a, b});
  }

  Operand float_operation(Opcode code, std::span<const Operand> in) {
    if (dtype_ == float64) return double_operation(code, in);
    if (is_half(dtype_)) return half_operation(code, in);
    if (dtype_ != float32 && dtype_ != tfloat32) {
      if (code == Opcode::kSelect) return select(in[0], in[1], in[2]);
      return unsupported();
    }
    using enum ScalarType;
    if (ir::is_comparison(code)) return compare(code, in[0], in[1]);
    // add, sub and mul say .rn: without it ptxas may join a product and a sum into one fma, and results would
    // differ from the virtual GPU's and between versions. Authors who want the join write fma().
    switch (code) {
      case Opcode::kAdd:
        return make(Op::add, {Mod::rn, f32}, {in[0], in[1]});
      case Opcode::kSub:
        return make(Op::sub, {Mod::rn, f32}, {in[0], in[1]});
      case Opcode::kMul:
        return make(Op::mul, {Mod::rn, f32}, {in[0], in[1]});
      case Opcode::kDiv:
        return make(Op::div, {Mod::rn, f32}, {in[0], in[1]});
      case Opcode::kMin:
        return make(Op::min, {f32}, {in[0], in[1]});
      case Opcode::kMax:
        return make(Op::max, {f32}, {in[0], in[1]});
      case Opcode::kFma:
        return make(Op::fma, {Mod::rn, f32}, {in[0], in[1], in[2]});
      case Opcode::kNeg:
        return make(Op::neg, {f32}, {in[0]});
      case Opcode::kAbs:
        return make(Op::abs, {f32}, {in[0]});
      case Opcode::kExp:
        return make(Op::ex2, {Mod::approx, Mod::ftz, f32}, {make(Op::mul, {Mod::rn, f32}, {in[0], kLog2E})});
      case Opcode::kExp2:
        return make(Op::ex2, {Mod::approx, Mod::ftz, f32}, {in[0]});
      case Opcode::kLog:
        return make(Op::mul, {Mod::rn, f32}, {make(Op::lg2, {Mod::approx, f32}, {in[0]}), kLn2});
      case Opcode::kSqrt:
        return make(Op::sqrt, {Mod::rn, f32}, {in[0]});
      case Opcode::kRsqrt:
        // .ftz as for exp: three instructions less, and only subnormal arguments give another result,
        // infinity.
        return make(Op::rsqrt, {Mod::approx, Mod::ftz, f32}, {in[0]});
      case Opcode::kTanh:
        return make(Op::tanh, {Mod::approx, f32}, {in[0]});
      case Opcode::kSin:
        return make(Op::sin, {Mod::approx, f32}, {in[0]});
      case Opcode::kCos:
        return make(Op::cos, {Mod::approx, f32}, {in[0]});
      case Opcode::kRound:
      case Opcode::kFloor:
      case Opcode::kCeil:
        return make(Op::cvt, {to_integer(code), f32, f32}, {in[0]});
      case Opcode::kSelect:
        return select(in[0], in[1], in[2]);
      default:
        return unsupported();
    }
  }

  Operand double_operation(Opcode code, std::span<const Operand> in) {
    using enum ScalarType;
    if (ir::is_comparison(code)) return compare(code, in[0], in[1]);
    switch (code) {
      case Opcode::kAdd:
        return make(Op::add, {Mod::rn, f64}, {in[0], in[1]});
      case Opcode::kSub:
        return make(Op::sub, {Mod::rn, f64}, {in[0], in[1]});
      case Opcode::kMul:
        return make(Op::mul, {Mod::rn, f64}, {in[0], in[1]});
      case Opcode::kDiv:
        return make(Op::div, {Mod::rn, f64}, {in[0], in[1]});
      case Opcode::kMin:
        return make(Op::min, {f64}, {in[0], in[1]});
      case Opcode::kMax:
        return make(Op::max, {f64}, {in[0], in[1]});
      case Opcode::kFma:
        return make(Op::fma, {Mod::rn, f64}, {in[0], in[1], in[2]});
      case Opcode::kNeg:
        return make(Op::neg, {f64}, {in[0]});
      case Opcode::kAbs:
        return make(Op::abs, {f64}, {in[0]});
      case Opcode::kSqrt:
        return make(Op::sqrt, {Mod::rn, f64}, {in[0]});
      case Opcode::kRound:
      case Opcode::kFloor:
      case Opcode::kCeil:
        return make(Op::cvt, {to_integer(code), f64, f64}, {in[0]});
      case Opcode::kSelect:
        return select(in[0], in[1], in[2]);
      default:  // the approximate functions exist for 32 bits
        return unsupported();
    }
  }

  /// f16 and bf16: natively where the target can, otherwise in f32 and rounded. (f32 is wide enough that
  /// quotients and roots rounded twice equal those rounded once.)
  Operand half_operation(Opcode code, std::span<const Operand> in) {
    if (code == Opcode::kSelect) return select(in[0], in[1], in[2]);
    if (const std::optional<Operand> native = half_arithmetic(g_, code, dtype_, false, in)) return *native;
    if (ir::is_comparison(code) && (dtype_ == float16 || g_.arch() >= 90)) return compare(code, in[0], in[1]);
    std::array<Operand, 3> wide;
    for (size_t i = 0; i < in.size(); ++i) wide[i] = convert(g_, op_, in[i], dtype_, float32);
    const Operand result = ScalarOperation(g_, op_, float32).run(code, std::span(wide.data(), in.size()));
    return ir::is_comparison(code) ? result : convert(g_, op_, result, float32, dtype_);
  }

  Generator& g_;
  Emitter& e_;
  const ir::Op& op_;
  DataType dtype_;
};

}  // namespace

/// The quotient and remainder by a number the grid shares (fast_divmod.h).
void emit_FastDivmod(Generator& g, const ir::Op& op) {
  const ir::Value* divisor = op.operands[1];
  if (op.operands[0]->type.dtype.bits() != 32)
    g.fail(op, fmt::format("divides 32-bit integers, not {}", op.operands[0]->type.dtype.name()));
  const Operand a = g.scalar(op.operands[0]);
  Operand multiplier, shift;
  if (const std::optional<int64_t> c = ir::constant_int(divisor)) {
    if (*c <= 0) g.fail(op, fmt::format("divides by {}, it must be positive", *c));
    const uint64_t magic = fast_divmod_magic(static_cast<uint32_t>(*c));
    multiplier = static_cast<int64_t>(magic & 0xffffffff);
    shift = static_cast<int64_t>(magic >> 32);
  } else {
    const Operand magic = g.divmod_magic(divisor);
    const Reg low = g.e().reg(ScalarType::b32), high = g.e().reg(ScalarType::b32);
    g.e().emit(Op::mov, {ScalarType::b64}, {g.e().builder().vec({low, high}), magic});
    multiplier = low;
    shift = high;
  }
  Emitter& e = g.e();
  const Reg twice = e.make(ScalarType::b32, Op::shl, {ScalarType::b32}, {a, 1});
  const Reg product = e.make(ScalarType::b32, Op::mul, {Mod::hi, ScalarType::u32}, {twice, multiplier});
  const Reg quotient = e.make(ScalarType::b32, Op::shr, {ScalarType::u32}, {product, shift});
  const Reg back =
      e.make(ScalarType::b32, Op::mul, {Mod::lo, ScalarType::s32}, {quotient, g.scalar(divisor)});
  g.bind(op.results[0], quotient);
  g.bind(op.results[1], e.make(ScalarType::b32, Op::sub, {ScalarType::s32}, {a, back}));
}

std::optional<Operand> half_arithmetic(Generator& g, Opcode code, DataType dtype, bool packed,
                                       std::span<const Operand> in) {
  using enum ScalarType;
  const ScalarType type = dtype == float16 ? (packed ? f16x2 : f16) : (packed ? bf16x2 : bf16);
  const ScalarType reg = packed ? b32 : b16;
  auto make = [&](Op op, std::initializer_list<Suffix> words, std::initializer_list<Operand> operands) {
    return Operand(g.e().make(reg, op, words, operands));
  };
  // sm_80 has fma for bf16 but not add and mul: a + b = 1 a + b, a b = a b - 0, rounded once all the same.
  const bool only_fma = dtype == bfloat16 && g.arch() < 90;
  auto constant = [&](int64_t bits) { return make(Op::mov, {reg}, {packed ? bits | bits << 16 : bits}); };
  switch (code) {
    case Opcode::kAdd:
      if (only_fma) return make(Op::fma, {Mod::rn, type}, {in[0], constant(0x3f80), in[1]});
      return make(Op::add, {Mod::rn, type}, {in[0], in[1]});
    case Opcode::kSub:
      if (only_fma) return make(Op::fma, {Mod::rn, type}, {in[1], constant(0xbf80), in[0]});
      return make(Op::sub, {Mod::rn, type}, {in[0], in[1]});
    case Opcode::kMul:
      if (only_fma) return make(Op::fma, {Mod::rn, type}, {in[0], in[1], constant(0x8000)});
      return make(Op::mul, {Mod::rn, type}, {in[0], in[1]});
    case Opcode::kFma:
      return make(Op::fma, {Mod::rn, type}, {in[0], in[1], in[2]});
    case Opcode::kMin:
      return make(Op::min, {type}, {in[0], in[1]});
    case Opcode::kMax:
      return make(Op::max, {type}, {in[0], in[1]});
    case Opcode::kNeg:
      return make(Op::neg, {type}, {in[0]});
    case Opcode::kAbs:
      return make(Op::abs, {type}, {in[0]});
    default:
      return std::nullopt;
  }
}

Operand scalar_operation(Generator& g, const ir::Op& op, Opcode code, DataType dtype,
                         std::span<const Operand> operands) {
  return ScalarOperation(g, op, dtype).run(code, operands);
}

}  // namespace imbrex::codegen
