// SPDX-License-Identifier: Apache-2.0
// The ideas. An integer code in the mantissa of a float whose exponent makes the mantissa's bit q worth 1 is 2^e + code:
// a mask and an exponent make two of them at once, one subtraction takes 2^e away. A small float's exponent and fraction
// at the same place of a wider float are its value but for a power of two, subnormals too.
#include "codegen/values/convert_small.h"

#include "codegen/values/scalar.h"
#include "codegen/values/words.h"
#include "core/float_formats.h"

namespace imbrex::codegen {

namespace {

using ir::Opcode;
using enum ScalarType;

constexpr int64_t both(uint64_t half) { return static_cast<int64_t>(half | half << 16); }

/// Emits the conversion of one tensor's words to pairs of float16 or bfloat16, or to bytes.
class PackedConversion {
 public:
  PackedConversion(Generator& g, DataType from, DataType to)
      : e_(g.e()), g_(g), from_(from), to_(to), width_(32 / elements_per_word(from)) {
    if (to == float16 || to == bfloat16) format_ = arith::format_of(to);
  }

  /// The words that `word` becomes; empty where there is no such sequence.
  std::vector<Operand> convert(const Operand& word) {
    if (from_.is_integer() && (to_ == float16 || to_ == bfloat16)) return integers(word);
    if (from_.is_float() && (to_ == float16 || to_ == bfloat16)) return floats(word);
    if (from_.is_integer() && width_ == 4 && to_.is_integer() && to_.bits() == 8)
      return nibbles_to_bytes(word);
    return {};
  }

 private:
  Operand b(Op op, std::initializer_list<Operand> operands) { return e_.make(b32, op, {b32}, operands); }
  Operand right(const Operand& word, int64_t by) {
    return by == 0 ? word : Operand(e_.make(b32, Op::shr, {u32}, {word, by}));
  }
  Operand left(const Operand& word, int64_t by) { return by == 0 ? word : b(Op::shl, {word, by}); }
  Operand permuted(const Operand& a, const Operand& c, int64_t selector) {
    return b(Op::prmt, {a, c, selector});
  }
  Operand half(Opcode code, const Operand& x, const Operand& y) {
    const Operand in[] = {x, y};
    return *half_arithmetic(g_, code, to_, true, in);
  }
  uint64_t encoded(double value) const { return arith::encode(format_, value); }
  Operand constant(double low, double high) {
    return e_.make(b32, Op::mov, {b32}, {static_cast<int64_t>(encoded(low) | encoded(high) << 16)});
  }

  std::vector<Operand> integers(const Operand& word) {
    if (width_ == 8) return bytes_to_halves(word);
    // Low halves need elements 0, 2, ... of a 16-bit chunk, high halves 1, 3, ...: from two copies of the chunk where a
    // mantissa holds both, else from a copy that is shifted by one element.
    const int mantissa = format_.mantissa_bits, count = 16 / width_;
    const bool is_shifted = 2 * width_ > mantissa;
    const Operand other = is_shifted ? right(word, width_) : word;
    std::vector<Operand> result;
    for (int chunk = 0; chunk < 2; ++chunk) {
      const Operand copies = is_shifted ? permuted(word, other, chunk == 0 ? 0x5410 : 0x7632)
                                        : permuted(word, word, chunk == 0 ? 0x1010 : 0x3232);
      int shift = 0;
      Operand shifted = copies;
      for (int i = 0; i < count; i += 2) {
        const int low = i * width_, high = is_shifted ? low : low + width_;
        if (high - shift + width_ > mantissa) {
          shift = low;
          shifted = right(copies, shift);
        }
        result.push_back(pair_of_codes(shifted, low - shift, high - shift));
      }
    }
    return result;
  }

  /// Codes at these bits of the halves as numbers. Flipping the sign bit adds 2^(width - 1), modulo 2^width.
  Operand pair_of_codes(const Operand& word, int low, int high) {
    const uint64_t code = (1u << width_) - 1, flipped = from_.is_signed() ? 1u << (width_ - 1) : 0;
    const auto exponent = [&](int at) { return std::ldexp(1.0, format_.mantissa_bits - at); };
    const uint64_t mask = code << low | code << (high + 16);
    const uint64_t magic =
        (encoded(exponent(low)) | flipped << low) | (encoded(exponent(high)) | flipped << high) << 16;
    const Operand codes = b(Op::and_, {word, static_cast<int64_t>(mask)});
    const Operand numbers = b(Op::xor_, {codes, static_cast<int64_t>(magic)});
    const auto offset = static_cast<double>(flipped);
    return half(Opcode::kSub, numbers, constant(exponent(low) + offset, exponent(high) + offset));
  }

  /// Of 8 bits, or fewer that are spread over bytes.
  std::vector<Operand> bytes_to_halves(const Operand& word) {
    std::vector<Operand> result;
    if (to_ == float16) {
      const double flipped = from_.is_signed() ? 128 : 0;
      const Operand codes = from_.is_signed() ? b(Op::xor_, {word, int64_t{0x80808080}}) : word;
      const Operand exponents = e_.make(b32, Op::mov, {b32}, {int64_t{0x64646464}});
      for (const int64_t selector : {0x4140, 0x4342})
        result.push_back(half(Opcode::kSub, permuted(codes, exponents, selector),
                              constant(1024 + flipped, 1024 + flipped)));
      return result;
    }
    if (!from_.is_signed() && from_.bits() == 8) return {};  // 255 takes more bits than a mantissa has
    for (const int64_t selector : {0x4140, 0x4342}) {
      const Operand codes = permuted(word, 0, selector);
      const Operand low =
          b(Op::or_, {b(Op::and_, {codes, both(0x7f)}), both(0x4300)});  // 128 + the low 7 bits
      // Less 128, or 256 where the sign is set: the sign is the last bit of the exponent.
      const Operand high = from_.is_signed() ? b(Op::or_, {b(Op::and_, {codes, both(0x80)}), both(0x4300)})
                                             : constant(128, 128);
      result.push_back(half(Opcode::kSub, low, high));
    }
    return result;
  }

  std::vector<Operand> floats(const Operand& word) {
    const DataTypeFacts& f = facts_of(from_);
    const bool fits = f.exponent_bits < format_.exponent_bits ||
                      (f.exponent_bits == format_.exponent_bits && f.specials == format_.specials);
    if (!fits || f.mantissa_bits == 0 || (f.specials == Specials::kInfNan && to_ == bfloat16)) return {};
    std::vector<Operand> result;
    if (width_ == 8) {
      for (const int64_t selector : {0x1404, 0x3424})
        result.push_back(pair_of_floats(left(permuted(word, 0, selector), 8 - f.bits)));
    } else {
      const Operand other = right(word, width_);
      for (const int64_t selector : {0x5410, 0x7632}) {
        const Operand chunk = permuted(word, other, selector);
        for (int at = 0; at < 16; at += 2 * width_)
          result.push_back(pair_of_floats(left(chunk, 16 - width_ - at)));
      }
    }
    return result;
  }

  /// Floats in the highest bits of the halves.
  Operand pair_of_floats(const Operand& word) {
    const DataTypeFacts& f = facts_of(from_);
    const uint64_t magnitude = ((1u << (f.exponent_bits + f.mantissa_bits)) - 1)
                               << (15 - f.exponent_bits - f.mantissa_bits);
    const int shift = format_.exponent_bits - f.exponent_bits;
    Operand value = b(Op::and_, {right(word, shift), both(magnitude >> shift)});
    if (f.has_sign) value = b(Op::or_, {value, b(Op::and_, {word, both(0x8000)})});
    if (const int power = format_.bias - f.bias; power != 0)
      value = half(Opcode::kMul, value, constant(std::ldexp(1.0, power), std::ldexp(1.0, power)));
    if (f.specials != Specials::kNanOnly) return value;
    // What would be the number behind the largest is a NaN: a product overflows for it alone, and infinity times 0 is one.
    const double largest = arith::decode(arith::format_of(from_), arith::format_of(from_).max_finite());
    const double limit = arith::decode(format_, format_.max_finite()), factor = limit / largest * 0.98;
    const Operand zero =
        half(Opcode::kMul, half(Opcode::kMul, value, constant(factor, factor)), constant(0, 0));
    return half(Opcode::kAdd, value, zero);
  }

  std::vector<Operand> nibbles_to_bytes(const Operand& word) {
    const Operand even = b(Op::and_, {word, int64_t{0x0f0f0f0f}}),
                  odd = b(Op::and_, {right(word, 4), int64_t{0x0f0f0f0f}});
    std::vector<Operand> result;
    for (const int64_t selector : {0x5140, 0x7362}) {
      Operand bytes = permuted(even, odd, selector);
      if (from_.is_signed()) {  // the sign bit, 8, becomes 0xf8: 8 + 30 * 8
        const Operand signs = b(Op::and_, {bytes, int64_t{0x08080808}});
        bytes = e_.make(b32, Op::mad, {Mod::lo, u32}, {signs, 30, bytes});
      }
      result.push_back(bytes);
    }
    return result;
  }

  Emitter& e_;
  Generator& g_;
  DataType from_, to_;
  int width_;  // of an element in a register
  arith::FloatFormat format_;
};

}  // namespace

std::optional<std::vector<Operand>> convert_packed(Generator& g, std::span<const Operand> words,
                                                   int64_t count, DataType from, DataType to) {
  if (from.bits() > 8 || from.is_bool()) return std::nullopt;
  PackedConversion conversion(g, from, to);
  std::vector<Operand> result;
  for (const Operand& word : words) {
    if (word.is_immediate()) return std::nullopt;
    const std::vector<Operand> part = conversion.convert(word);
    if (part.empty()) return std::nullopt;
    result.insert(result.end(), part.begin(), part.end());
  }
  result.resize((count + elements_per_word(to) - 1) / elements_per_word(to));
  return result;
}

Operand small_float_to_float32(Generator& g, const Operand& value, DataType from) {
  Emitter& e = g.e();
  const DataTypeFacts& f = facts_of(from);
  const Operand bits = e.to_register(b32, value);
  const auto select = [&](const Operand& yes, const Operand& no, Mod relation, int64_t pattern,
                          const Operand& x) {
    const Reg holds = e.make(pred, Op::setp, {relation, u32}, {x, pattern});
    return Operand(e.make(b32, Op::selp, {b32}, {yes, no, holds}));
  };
  const auto as_f32 = [&](const Operand& word) { return Operand(e.make(f32, Op::mov, {b32}, {word})); };
  const Operand nan = int64_t{0x7fffffff};
  if (f.mantissa_bits == 0) {  // powers of two: the exponent of an f32, or its least subnormal but one
    Operand word = e.make(b32, Op::shl, {b32}, {bits, 23});
    word = select(int64_t{0x00400000}, word, Mod::eq, 0, bits);
    return as_f32(select(nan, word, Mod::eq, 0xff, bits));
  }
  const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
  const Operand magnitude = e.make(b32, Op::and_, {b32}, {bits, (int64_t{1} << magnitude_bits) - 1});
  const Operand placed = e.make(b32, Op::shl, {b32}, {magnitude, 23 - f.mantissa_bits});
  const auto scale = static_cast<float>(std::ldexp(1.0, 127 - f.bias));
  Operand word = e.make(f32, Op::mul, {Mod::rn, f32}, {as_f32(placed), scale});
  word = e.make(b32, Op::mov, {b32}, {word});
  const int64_t top = ((int64_t{1} << f.exponent_bits) - 1) << f.mantissa_bits;
  if (f.has_sign) {
    const Operand sign =
        e.make(b32, Op::and_, {b32}, {e.make(b32, Op::shl, {b32}, {bits, 32 - f.bits}), int64_t{0x80000000}});
    if (f.specials == Specials::kInfNan) word = select(int64_t{0x7f800000}, word, Mod::eq, top, magnitude);
    word = e.make(b32, Op::or_, {b32}, {word, sign});
  }
  if (f.specials == Specials::kInfNan) word = select(nan, word, Mod::gt, top, magnitude);
  if (f.specials == Specials::kNanOnly)
    word = select(nan, word, Mod::eq, (int64_t{1} << magnitude_bits) - 1, magnitude);
  return as_f32(word);
}

Operand small_float_from_float32(Generator& g, const Operand& value, DataType to) {
  Emitter& e = g.e();
  const arith::FloatFormat format = arith::format_of(to);
  const Operand x = e.to_register(f32, value);
  const Operand bits = e.make(b32, Op::mov, {b32}, {x});
  const Operand magnitude = e.make(b32, Op::and_, {b32}, {bits, int64_t{0x7fffffff}});
  const Operand is_nan = e.make(pred, Op::setp, {Mod::nan, f32}, {x, x});
  if (format.mantissa_bits == 0) {  // the exponent
    const Operand exponent = e.make(b32, Op::shr, {u32}, {magnitude, 23});
    const Operand finite = e.make(b32, Op::min, {u32}, {exponent, 254});
    return e.make(b32, Op::selp, {b32}, {255, finite, is_nan});
  }
  const int mantissa = format.mantissa_bits;
  const auto largest = static_cast<float>(arith::decode(format, format.max_finite()));
  const Operand a = e.make(f32, Op::min, {f32}, {e.make(f32, Op::mov, {b32}, {magnitude}), largest});
  const Operand a_bits = e.make(b32, Op::mov, {b32}, {a});
  // Normal numbers: half of the last kept place is added, less one where that place is even, and the rest is cut.
  const Operand last = e.make(b32, Op::bfe, {u32}, {a_bits, 23 - mantissa, 1});
  const int64_t half = (int64_t{1} << (22 - mantissa)) - 1;
  const int64_t rebased = (int64_t{127} - format.bias) << 23;
  const Operand sum = e.make(b32, Op::add, {u32}, {a_bits, last});
  const Operand rounded = e.make(b32, Op::sub, {u32}, {sum, rebased - half});
  const Operand normal = e.make(b32, Op::shr, {u32}, {rounded, 23 - mantissa});
  // Subnormal ones: added to a number whose last place is theirs, they are its low bits.
  const auto anchor = static_cast<float>(std::ldexp(1.0, 24 - format.bias - mantissa));
  const Operand anchored = e.make(b32, Op::mov, {b32}, {e.make(f32, Op::add, {Mod::rn, f32}, {a, anchor})});
  const Operand subnormal =
      e.make(b32, Op::sub, {u32}, {anchored, static_cast<int64_t>(std::bit_cast<uint32_t>(anchor))});
  const auto least = static_cast<float>(std::ldexp(1.0, 1 - format.bias));
  const Operand is_small = e.make(pred, Op::setp, {Mod::lt, f32}, {a, least});
  Operand result = e.make(b32, Op::selp, {b32}, {subnormal, normal, is_small});
  if (format.has_sign) {
    const Operand sign = e.make(
        b32, Op::and_, {b32},
        {e.make(b32, Op::shr, {u32}, {bits, 32 - format.bits}), static_cast<int64_t>(format.sign_mask())});
    result = e.make(b32, Op::or_, {b32}, {result, sign});
  } else {
    const Operand is_negative = e.make(pred, Op::setp, {Mod::lt, f32}, {x, 0.0f});
    result = e.make(b32, Op::selp, {b32}, {0, result, is_negative});
  }
  const auto nan =
      static_cast<int64_t>(format.specials == Specials::kNone ? format.max_finite() : format.nan);
  return e.make(b32, Op::selp, {b32}, {nan, result, is_nan});
}

}  // namespace imbrex::codegen
