// SPDX-License-Identifier: Apache-2.0
// Conversions between element types.
#include <fmt/format.h>

#include <numeric>

#include "codegen/generator.h"
#include "codegen/values/convert_small.h"
#include "codegen/values/scalar.h"
#include "codegen/values/words.h"
#include "core/target.h"
#include "imbrex/core/error.h"
#include "layout/queries.h"

namespace imbrex::codegen {

namespace {

bool is_f32(DataType type) { return type == float32 || type == tfloat32; }

/// A float of at most 8 bits, which conversions take in pairs.
struct NarrowFloat {
  DataType dtype;
  ScalarType pair;
  std::string_view targets;  // that convert it, as meets() reads it
  ScalarType word;           // the register of a pair
  ScalarType wider;          // what a pair widens to: pairs of these
};
/// The instruction for this type; null where the target has none.
const NarrowFloat* narrow_float(const Generator& g, DataType type) {
  using enum ScalarType;
  static constexpr NarrowFloat kFloats[] = {
      {float8_e4m3, e4m3x2, "90", b16, f16x2},    {float8_e5m2, e5m2x2, "90", b16, f16x2},
      {float6_e2m3, e2m3x2, "100a+", b16, f16x2}, {float6_e3m2, e3m2x2, "100a+", b16, f16x2},
      {float4_e2m1, e2m1x2, "100a+", b8, f16x2},  {float8_e8m0, ue8m0x2, "100a+", b16, bf16x2},
      {float8_ue4m3, e4m3x2, "90", b16, f16x2},  // an e4m3 whose sign is clear
  };
  const TargetName target = TargetName::parse(g.function().target).value();
  for (const NarrowFloat& f : kFloats)
    if (f.dtype == type && meets(target, f.targets)) return &f;
  return nullptr;
}

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

/// A pair of narrow floats out of a pair of f32 (low, high). Powers of two are cut to the one below, what is
/// negative becomes +0 where there is no sign.
Reg narrow_pair(Generator& g, Operand low, Operand high, const NarrowFloat& to) {
  Emitter& e = g.e();
  using enum ScalarType;
  if (to.dtype == float8_ue4m3)
    for (Operand* x : {&low, &high})
      *x = e.make(f32, Op::max, {Mod::NaN, f32}, {e.to_register(f32, *x), 0.0f});
  const Mod rounding = to.dtype == float8_e8m0 ? Mod::rz : Mod::rn;
  return e.make(to.word, Op::cvt, {rounding, Mod::satfinite, to.pair, f32}, {high, low});
}

/// Words of narrow floats, of a byte each, as twice as many words of pairs of the wider type.
std::vector<Operand> widen_pairs(Generator& g, std::span<const Operand> words, const NarrowFloat& from) {
  Emitter& e = g.e();
  using enum ScalarType;
  std::vector<Operand> out;
  for (const Operand& word : words) {
    const Reg low = e.reg(b16), high = e.reg(b16);
    e.emit(Op::mov, {b32}, {e.builder().vec({low, high}), e.to_register(b32, word)});
    for (const Reg& pair : {low, high})
      out.push_back(e.make(b32, Op::cvt, {Mod::rn, from.wider, from.pair}, {pair}));
  }
  return out;
}

/// The first element of a 32-bit register of narrow floats, and what is behind it, as f32.
Operand narrow_to_float32(Generator& g, const Operand& value, const NarrowFloat& from) {
  Emitter& e = g.e();
  using enum ScalarType;
  const Reg word = e.to_register(b32, value);
  Reg low = e.reg(from.word);
  if (from.word == b8) {
    e.emit(Op::mov, {b32}, {e.builder().vec({low, e.reg(b8), e.reg(b8), e.reg(b8)}), word});
  } else {
    low = e.make(b16, Op::cvt, {u16, u32}, {word});
  }
  const Reg pair = e.make(b32, Op::cvt, {Mod::rn, from.wider, from.pair}, {low});
  if (from.wider == bf16x2) return e.make(f32, Op::shl, {b32}, {pair, 16});  // a bf16 is the upper half
  const Reg half = e.reg(b16), unused = e.reg(b16);
  e.emit(Op::mov, {b32}, {e.builder().vec({half, unused}), pair});
  return e.make(f32, Op::cvt, {f32, f16}, {half});
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
  if (const NarrowFloat* narrow = narrow_float(g, from)) return narrow_to_float32(g, value, *narrow);
  if (from.bits() <= 8) return small_float_to_float32(g, value, from);
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
    default:
      if (const NarrowFloat* narrow = narrow_float(g, to)) {
        // The other half of the pair is cleared: one is the smallest e8m0.
        const Reg pair = narrow_pair(g, value, 0.0f, *narrow);
        if (narrow->word == b16) return e.make(b32, Op::cvt, {u32, u16}, {pair});
        const Reg none = e.reg(b8), word = e.reg(b32);
        const Reg zero = e.to_register(b16, Operand(0));
        e.emit(Op::mov, {b16}, {e.builder().vec({none, e.reg(b8)}), zero});
        e.emit(Op::mov, {b32}, {word, e.builder().vec({pair, none, none, none})});
        return word;
      }
      if (to.bits() <= 8) return small_float_from_float32(g, value, to);
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
    if (to.bits() < 8) {  // saturates, as cvt does to the integers that it knows
      const ScalarType word = to.is_signed() ? ScalarType::s32 : ScalarType::u32;
      const Operand whole =
          e.make(ScalarType::b32, Op::cvt, {Mod::rzi, word, arithmetic_type(from)}, {value});
      const int64_t end = int64_t{1} << (to.bits() - (to.is_signed() ? 1 : 0));
      const Operand below = e.make(ScalarType::b32, Op::min, {word}, {whole, end - 1});
      return to.is_signed() ? Operand(e.make(ScalarType::b32, Op::max, {word}, {below, -end})) : below;
    }
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
  const NarrowFloat* from_narrow = narrow_float(g, from);
  if (from_narrow && from_narrow->word == ScalarType::b16 && from != to) {  // by a type that holds them
    const DataType wider = from_narrow->wider == ScalarType::f16x2 ? float16 : bfloat16;
    std::vector<Operand> wide = widen_pairs(g, words, *from_narrow);
    wide.resize(static_cast<size_t>((count + 1) / 2), Operand(0));
    return to == wider ? wide : convert_words(g, op, wide, count, wider, to);
  }
  if (!from_narrow) {
    std::vector<int64_t> in_order(static_cast<size_t>(count));
    std::iota(in_order.begin(), in_order.end(), 0);
    if (auto packed = convert_packed(g, words, in_order, from, to)) return *packed;
  }
  Emitter& e = g.e();
  std::vector<Operand> elements = unpack(g, from, words, count);
  std::vector<Operand> out;
  using enum ScalarType;
  const NarrowFloat* narrow = narrow_float(g, to);
  if (to == float16 || to == bfloat16 || narrow) {
    // Pairs of f32 are converted together.
    for (Operand& x : elements) x = before_rounding(g, op, x, from);
    const int64_t padded =
        (count + elements_per_word(to) - 1) / elements_per_word(to) * elements_per_word(to);
    elements.resize(padded, Operand(0.0f));
    for (int64_t i = 0; i < padded; i += elements_per_word(to)) {
      if (narrow) {
        std::vector<Operand> pairs;
        for (int64_t j = i; j < i + elements_per_word(to); j += 2)
          pairs.push_back(narrow_pair(g, elements[j], elements[j + 1], *narrow));
        const Reg word = e.reg(b32);
        e.emit(Op::mov, {b32}, {word, e.builder().vec(pairs)});
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

std::vector<Operand> convert_tensor(Generator& g, const ir::Op& op, const RegisterTensor& tensor,
                                    const layout::Layout& layout, DataType to) {
  const DataType from = tensor.dtype;
  if (from.bits() <= 8 && tensor.layout != layout && !narrow_float(g, from))
    if (const auto map = layout::register_map(tensor.layout, layout))
      if (auto packed = convert_packed(g, tensor.words, *map, from, to)) return *packed;
  return convert_words(g, op, words_in_layout(g, op, tensor, layout), layout.registers(), from, to);
}

}  // namespace imbrex::codegen
