// SPDX-License-Identifier: Apache-2.0
// Conversions between element types.
#include <fmt/format.h>

#include "codegen/generator.h"
#include "imbrex/error.h"

namespace imbrex::codegen {

namespace {

bool is_f32(DataType type) { return type == float32 || type == tfloat32; }
bool is_fp8(DataType type) { return type == float8_e4m3 || type == float8_e5m2; }

/// A float64 or integer x as an f32 whose last bit is set when anything of x was cut off. Unlike a rounded
/// f32 it can be rounded again, to a narrower type, and gives what rounding x at once would give.
Reg to_odd_float32(Generator& g, const Operand& x, DataType from) {
  Emitter& e = g.e();
  using enum ScalarType;
  const ScalarType source = arithmetic_type(from);
  const Reg in = e.to_register(register_type(from), x);
  const Reg cut = e.make(f32, Op::cvt, {Mod::rz, f32, source}, {in});
  const Reg back = from == float64 ? e.make(f64, Op::cvt, {f64, f32}, {cut})
                                   : e.make(register_type(from), Op::cvt, {Mod::rzi, source, f32}, {cut});
  const Reg differs = e.make(pred, Op::setp, {Mod::ne, source}, {back, in});
  const Reg sticky = e.make(b32, Op::selp, {b32}, {1, 0, differs});
  return e.make(f32, Op::or_, {b32}, {cut, sticky});
}

/// The value as an f32 that may be rounded again.
Operand before_rounding(Generator& g, const ir::Op& op, const Operand& value, DataType from) {
  const bool is_exact = from.bits() < 32 || is_f32(from);
  return is_exact ? convert(g, op, value, from, float32) : Operand(to_odd_float32(g, value, from));
}

/// Integers and bool, as a value of arithmetic type `arithmetic_type(from)`.
Operand from_integer(Generator& g, const ir::Op& op, Operand value, DataType from, DataType to) {
  Emitter& e = g.e();
  const ScalarType source = arithmetic_type(from);
  if (to.is_bool())
    return e.make(ScalarType::pred, Op::setp, {Mod::ne, source},
                  {e.to_register(register_type(from), value), 0});
  if (to.is_float()) {
    if (to == float64 || to == float32 || to == float16) {
      const ScalarType target = arithmetic_type(to);
      const Operand in = e.to_register(register_type(from), value);
      return e.make(register_type(to), Op::cvt, {Mod::rn, target, source}, {in});
    }
    return convert(g, op, before_rounding(g, op, value, from), float32, to);
  }
  // Integers: cut or extend.
  if (to.bits() == 64) {
    if (from.bits() == 64) return value;
    if (value.is_immediate()) return value;
    const bool sign = from.is_signed();
    return e.make(ScalarType::b64, Op::cvt,
                  {sign ? ScalarType::s64 : ScalarType::u64, sign ? ScalarType::s32 : ScalarType::u32},
                  {value});
  }
  if (from.bits() == 64)
    value = e.make(ScalarType::b32, Op::cvt, {ScalarType::u32, ScalarType::u64},
                   {e.to_register(ScalarType::b64, value)});
  if (to.bits() == 32) return value;
  const bool fits = from.bits() < to.bits() ? !from.is_signed() || to.is_signed()
                                            : from.bits() == to.bits() && from.is_signed() == to.is_signed();
  if (fits) return value;
  if (to.is_signed()) return e.make(ScalarType::b32, Op::bfe, {ScalarType::s32}, {value, 0, to.bits()});
  return e.make(ScalarType::b32, Op::and_, {ScalarType::b32}, {value, (int64_t{1} << to.bits()) - 1});
}

ScalarType integer_word(DataType type) {
  switch (type.code) {
    case DataType::kInt8:
      return ScalarType::s8;
    case DataType::kInt16:
      return ScalarType::s16;
    case DataType::kUInt8:
      return ScalarType::u8;
    case DataType::kUInt16:
      return ScalarType::u16;
    default:
      return arithmetic_type(type);
  }
}

/// A pair of 8-bit floats out of a pair of f32 (low, high), as 16 bits.
Reg fp8_pair(Generator& g, const ir::Op& op, const Operand& low, const Operand& high, DataType to) {
  g.require_arch(op, 90, fmt::format("conversion to {}", to.name()));
  const ScalarType pair = to == float8_e4m3 ? ScalarType::e4m3x2 : ScalarType::e5m2x2;
  return g.e().make(ScalarType::b16, Op::cvt, {Mod::rn, Mod::satfinite, pair, ScalarType::f32}, {high, low});
}

Operand to_float32(Generator& g, const ir::Op& op, const Operand& value, DataType from) {
  Emitter& e = g.e();
  using enum ScalarType;
  if (from == float16) return e.make(f32, Op::cvt, {f32, f16}, {value});
  if (from == bfloat16) {
    // The upper half of an f32 is a bf16.
    const Reg zero = e.to_register(b16, Operand(0));
    const Reg wide = e.reg(f32);
    e.emit(Op::mov, {b32}, {wide, e.builder().vec({zero, e.to_register(b16, value)})});
    return wide;
  }
  if (from == float64) return e.make(f32, Op::cvt, {Mod::rn, f32, f64}, {value});
  if (is_fp8(from)) {
    g.require_arch(op, 90, fmt::format("conversion from {}", from.name()));
    const Reg low = e.make(b16, Op::cvt, {u16, u32}, {e.to_register(b32, value)});
    const Reg pair = e.make(b32, Op::cvt, {Mod::rn, f16x2, from == float8_e4m3 ? e4m3x2 : e5m2x2}, {low});
    const Reg half = e.reg(b16), unused = e.reg(b16);
    e.emit(Op::mov, {b32}, {e.builder().vec({half, unused}), pair});
    return e.make(f32, Op::cvt, {f32, f16}, {half});
  }
  g.fail(op, fmt::format("no conversion from {}", from.name()));
}

Operand from_float32(Generator& g, const ir::Op& op, const Operand& value, DataType to) {
  Emitter& e = g.e();
  using enum ScalarType;
  switch (to.code) {
    case DataType::kFloat16:
      return e.make(b16, Op::cvt, {Mod::rn, f16, f32}, {value});
    case DataType::kBFloat16:
      return e.make(b16, Op::cvt, {Mod::rn, bf16, f32}, {value});
    case DataType::kFloat64:
      return e.make(f64, Op::cvt, {f64, f32}, {value});
    case DataType::kTFloat32: {
      // sm_80 rounds ties away from zero; nearest even came with sm_90. The result counts as bits.
      const Reg bits = e.make(b32, Op::cvt, {g.arch() >= 90 ? Mod::rn : Mod::rna, tf32, f32}, {value});
      return e.make(f32, Op::mov, {b32}, {bits});
    }
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2: {
      const Reg pair = fp8_pair(g, op, value, 0.0f, to);
      return e.make(b32, Op::cvt, {u32, u16}, {pair});
    }
    default:
      g.fail(op, fmt::format("no conversion to {}", to.name()));
  }
}

}  // namespace

Operand convert(Generator& g, const ir::Op& op, Operand value, DataType from, DataType to) {
  if (from == to) return value;
  Emitter& e = g.e();
  if (from.is_bool()) {
    if (is_f32(to)) return e.make(ScalarType::f32, Op::selp, {ScalarType::f32}, {1.0f, 0.0f, value});
    if (to.is_float()) return convert(g, op, convert(g, op, value, from, float32), float32, to);
    if (value.is_immediate()) return value;
    const ScalarType r = register_type(to);
    return e.make(r, Op::selp, {r}, {1, 0, value});
  }
  if (from.is_integer()) return from_integer(g, op, value, from, to);
  // From floats.
  value = e.to_register(register_type(from), value);
  if (to.is_bool()) {
    if (from != float64 && !is_f32(from)) return convert(g, op, to_float32(g, op, value, from), float32, to);
    const Operand zero = from == float64 ? Operand(0.0) : Operand(0.0f);
    return e.make(ScalarType::pred, Op::setp, {Mod::neu, arithmetic_type(from)}, {value, zero});
  }
  if (to.is_integer()) {
    if (from != float64 && !is_f32(from) && from != float16)
      return convert(g, op, to_float32(g, op, value, from), float32, to);
    return e.make(register_type(to), Op::cvt, {Mod::rzi, integer_word(to), arithmetic_type(from)}, {value});
  }
  if (is_f32(from) && to == float32) return value;  // every tf32 is an f32
  if (from == float64 && to == float16)
    return e.make(ScalarType::b16, Op::cvt, {Mod::rn, ScalarType::f16, ScalarType::f64}, {value});
  if (from == float64 && to == bfloat16 && g.arch() >= 90)
    return e.make(ScalarType::b16, Op::cvt, {Mod::rn, ScalarType::bf16, ScalarType::f64}, {value});
  if (from == float64 && to != float32)
    return convert(g, op, before_rounding(g, op, value, from), float32, to);
  if (!is_f32(from)) return convert(g, op, to_float32(g, op, value, from), float32, to);
  return from_float32(g, op, value, to);
}

std::vector<Operand> convert_words(Generator& g, const ir::Op& op, std::span<const Operand> words,
                                   int64_t count, DataType from, DataType to) {
  Emitter& e = g.e();
  std::vector<Operand> elements = unpack(g, from, words, count);
  std::vector<Operand> out;
  using enum ScalarType;
  if (to == float16 || to == bfloat16 || is_fp8(to)) {
    // Pairs of f32 are converted together.
    for (Operand& x : elements) x = before_rounding(g, op, x, from);
    const int64_t padded =
        (count + elements_per_word(to) - 1) / elements_per_word(to) * elements_per_word(to);
    elements.resize(padded, Operand(0.0f));
    for (int64_t i = 0; i < padded; i += elements_per_word(to)) {
      if (is_fp8(to)) {
        const Reg low = fp8_pair(g, op, elements[i], elements[i + 1], to);
        const Reg high = fp8_pair(g, op, elements[i + 2], elements[i + 3], to);
        const Reg word = e.reg(b32);
        e.emit(Op::mov, {b32}, {word, e.builder().vec({low, high})});
        out.push_back(word);
      } else {
        out.push_back(e.make(b32, Op::cvt, {Mod::rn, to == float16 ? f16x2 : bf16x2, f32},
                             {elements[i + 1], elements[i]}));
      }
    }
    return out;
  }
  for (Operand& x : elements) x = convert(g, op, x, from, to);
  const int per_word = elements_per_word(to);
  for (int64_t i = 0; i < count; i += per_word)
    out.push_back(pack(g, to, std::span(elements).subspan(i, std::min<int64_t>(per_word, count - i))));
  return out;
}

}  // namespace imbrex::codegen
