// SPDX-License-Identifier: Apache-2.0
// The ideas. An integer code in the mantissa of a float whose exponent makes the mantissa's bit q worth 1 is 2^e + code:
// a mask and an exponent make two of them at once, one subtraction takes 2^e away. A small float's exponent and fraction
// at the same place of a wider float are its value but for a power of two, subnormals too.
#include "codegen/values/convert_small.h"

#include <map>

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
  PackedConversion(Generator& g, std::span<const Operand> words, DataType from, DataType to)
      : e_(g.e()), g_(g), words_(words), from_(from), to_(to), width_(32 / elements_per_word(from)) {
    if (to_.bits() == 16 && to_.is_float()) format_ = arith::format_of(to);
  }

  /// Whether there is a sequence for these types.
  bool exists() const {
    if (from_.is_integer() && to_.is_integer()) return width_ == 4 && to_.bits() == 8;
    if (to_ != float16 && to_ != bfloat16) return false;
    const DataTypeFacts& f = facts_of(from_);
    if (from_.is_integer())  // 255 takes more bits than the mantissa of a bfloat16 has
      return to_ == float16 || from_.is_signed() || from_.bits() < 8;
    const bool fits = f.exponent_bits < format_.exponent_bits ||
                      (f.exponent_bits == format_.exponent_bits && f.specials == format_.specials);
    return fits && f.mantissa_bits != 0 && !(f.specials == Specials::kInfNan && to_ == bfloat16);
  }

  /// Elements i and j of the words as a pair of float16 or bfloat16.
  Operand pair(int64_t i, int64_t j) {
    if (width_ == 8) return from_.is_float() ? pair_of_byte_floats(i, j) : pair_of_bytes(i, j);
    return from_.is_float() ? pair_of_floats(place(i), place(j)) : pair_of_codes(place(i), place(j));
  }

  /// The two words of bytes that a word of 4-bit integers becomes.
  std::array<Operand, 2> nibbles_to_bytes(const Operand& word) {
    const Operand even = b(Op::and_, {word, int64_t{0x0f0f0f0f}}),
                  odd = b(Op::and_, {right(word, 4), int64_t{0x0f0f0f0f}});
    const auto bytes = [&](int64_t selector) {
      const Operand four = permuted(even, odd, selector);
      if (!from_.is_signed()) return four;  // else the sign bit, 8, becomes 0xf8: 8 + 30 * 8
      const Operand signs = b(Op::and_, {four, int64_t{0x08080808}});
      return Operand(e_.make(b32, Op::mad, {Mod::lo, u32}, {signs, 30, four}));
    };
    return {bytes(0x5140), bytes(0x7362)};
  }

 private:
  /// Where an element is: in which half of which word, and from which bit of the half on.
  struct Place {
    int64_t word, half, bit;
  };
  Place place(int64_t i) const {
    const int64_t at = i * width_;
    return {at / 32, at / 16 % 2, at % 16};
  }

  Operand b(Op op, std::initializer_list<Operand> operands) { return e_.make(b32, op, {b32}, operands); }
  /// (x & y) ^ z and (x & y) | z: one instruction each.
  Operand and_xor(const Operand& x, int64_t y, int64_t z) { return b(Op::lop3, {x, y, z, 0x6a}); }
  Operand and_or(const Operand& x, int64_t y, const Operand& z) { return b(Op::lop3, {x, y, z, 0xea}); }
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
  /// What `make` gives, made once for each key.
  template <class F>
  Operand once(std::array<int64_t, 4> key, const F& make) {
    const auto known = made_.find(key);
    return known != made_.end() ? known->second : made_.emplace(key, make()).first->second;
  }

  /// The word `number`, shifted to the right by some bits (to the left where they are negative).
  Operand moved(int64_t number, int64_t by) {
    return once({-1, number, by, 0}, [&] {
      const Operand& word = words_[static_cast<size_t>(number)];
      return by < 0 ? left(word, -by) : right(word, by);
    });
  }
  /// A word whose low half is the half that `low` is in, the high half that of `high`, moved by `by` bits to the right.
  Operand halves_of(const Place& low, const Place& high, int64_t by) {
    const Operand first = words_[static_cast<size_t>(low.word)];
    if (low.word == high.word && by == 0 && low.half == 0 && high.half == 1) return first;
    return once({low.word * 2 + low.half, high.word * 2 + high.half, by, 1}, [&] {
      const int64_t lower = low.half == 0 ? 0x10 : 0x32, upper = high.half == 0 ? 0x54 : 0x76;
      return permuted(first, moved(high.word, by), upper << 8 | lower);
    });
  }
  /// Codes of less than a byte as numbers. Both halves' are taken from one word where a mantissa holds them.
  Operand pair_of_codes(const Place& low, const Place& high) {
    const int64_t mantissa = format_.mantissa_bits, first = std::min(low.bit, high.bit);
    const bool is_near = std::max(low.bit, high.bit) - first + width_ <= mantissa;
    const Operand word = halves_of(low, high, is_near ? 0 : high.bit - low.bit);
    int64_t low_bit = low.bit, high_bit = is_near ? high.bit : low.bit;
    const int64_t end = std::max(low_bit, high_bit) + width_, start = std::min(low_bit, high_bit);
    if (end <= mantissa) return numbers(word, low_bit, high_bit);
    // The shift that brought another pair of these halves down may do for this one.
    int64_t& by = shifts_[word.id];
    if (by == 0 || by > start || end - by > mantissa) by = start;
    low_bit -= by, high_bit -= by;
    return numbers(once({-2, word.id, by, 0}, [&] { return right(word, by); }), low_bit, high_bit);
  }
  /// Codes at these bits of the halves as numbers. Flipping the sign bit adds 2^(width - 1), modulo 2^width.
  Operand numbers(const Operand& word, int64_t low, int64_t high) {
    const uint64_t code = (1u << width_) - 1, flipped = from_.is_signed() ? 1u << (width_ - 1) : 0;
    const auto exponent = [&](int64_t at) {
      return std::ldexp(1.0, format_.mantissa_bits - static_cast<int>(at));
    };
    const uint64_t mask = code << low | code << (high + 16);
    const uint64_t magic =
        (encoded(exponent(low)) | flipped << low) | (encoded(exponent(high)) | flipped << high) << 16;
    const Operand sums = and_xor(word, static_cast<int64_t>(mask), static_cast<int64_t>(magic));
    const auto offset = static_cast<double>(flipped);
    return half(Opcode::kSub, sums, constant(exponent(low) + offset, exponent(high) + offset));
  }

  /// Two bytes of one word.
  struct Bytes {
    Operand word;
    int64_t low, high;
  };
  /// Elements i and j, of 8 bits or of fewer that are spread over bytes; `words(n)` is word n.
  template <class F>
  Bytes bytes_of(int64_t i, int64_t j, const F& words) {
    if (i / 4 == j / 4) return {words(i / 4), i % 4, j % 4};
    return {permuted(words(i / 4), words(j / 4), (j % 4 + 4) << 4 | i % 4), 0, 1};
  }

  Operand pair_of_bytes(int64_t i, int64_t j) {
    const double flipped = from_.is_signed() && to_ == float16 ? 128 : 0;
    const Bytes codes = bytes_of(i, j, [&](int64_t number) {
      const Operand& word = words_[static_cast<size_t>(number)];
      if (flipped == 0) return word;
      return once({-3, number, 0, 0}, [&] { return b(Op::xor_, {word, int64_t{0x80808080}}); });
    });
    const int64_t selector = 0x4040 | codes.high << 8 | codes.low;
    if (to_ == float16) {
      const Operand sums = permuted(codes.word, int64_t{0x64646464}, selector);
      return half(Opcode::kSub, sums, constant(1024 + flipped, 1024 + flipped));
    }
    const Operand bytes = permuted(codes.word, 0, selector);
    const Operand sums = and_or(bytes, both(0x7f), both(0x4300));  // 128 + the low 7 bits
    // Less 128, or 256 where the sign is set: the sign is the last bit of the exponent.
    return half(Opcode::kSub, sums,
                from_.is_signed() ? and_or(bytes, both(0x80), both(0x4300)) : constant(128, 128));
  }

  Operand pair_of_byte_floats(int64_t i, int64_t j) {
    const Bytes codes = bytes_of(i, j, [&](int64_t number) { return words_[static_cast<size_t>(number)]; });
    const int64_t selector = 0x0404 | codes.high << 12 | codes.low << 4;  // into the halves' upper bytes
    return floats(left(permuted(codes.word, 0, selector), 8 - from_.bits()));
  }
  Operand pair_of_floats(const Place& low, const Place& high) {
    return floats(left(halves_of(low, high, high.bit - low.bit), 16 - from_.bits() - low.bit));
  }
  /// Floats in the highest bits of the halves.
  Operand floats(const Operand& word) {
    const DataTypeFacts& f = facts_of(from_);
    const uint64_t magnitude = ((1u << (f.exponent_bits + f.mantissa_bits)) - 1)
                               << (15 - f.exponent_bits - f.mantissa_bits);
    const int shift = format_.exponent_bits - f.exponent_bits;
    Operand value = b(Op::and_, {right(word, shift), both(magnitude >> shift)});
    if (f.has_sign) value = and_or(word, both(0x8000), value);
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

  Emitter& e_;
  Generator& g_;
  std::span<const Operand> words_;
  DataType from_, to_;
  int width_;  // of an element in a register
  arith::FloatFormat format_;
  std::map<std::array<int64_t, 4>, Operand> made_;
  std::map<int64_t, int64_t> shifts_;  // of words that were shifted: by how much last
};

}  // namespace

std::optional<std::vector<Operand>> convert_packed(Generator& g, std::span<const Operand> words,
                                                   std::span<const int64_t> map, DataType from, DataType to) {
  if (from.bits() > 8 || from.is_bool()) return std::nullopt;
  for (const Operand& word : words)
    if (word.is_immediate()) return std::nullopt;
  PackedConversion conversion(g, words, from, to);
  if (!conversion.exists()) return std::nullopt;
  std::vector<Operand> result;
  if (to.bits() == 8) {
    for (size_t i = 0; i < map.size(); ++i)
      if (map[i] != static_cast<int64_t>(i)) return std::nullopt;
    for (const Operand& word : words) {
      const std::array<Operand, 2> bytes = conversion.nibbles_to_bytes(word);
      result.insert(result.end(), bytes.begin(), bytes.end());
    }
    result.resize((map.size() + 3) / 4);
    return result;
  }
  // A place that holds nothing takes what is convenient.
  const auto element = [&](size_t i, size_t neighbour) {
    const int64_t known = i < map.size() && map[i] >= 0 ? map[i] : -1;
    if (known >= 0) return known;
    const int64_t other = neighbour < map.size() ? std::max<int64_t>(map[neighbour], 0) : 0;
    return other ^ 1;
  };
  const auto held = static_cast<int64_t>(words.size()) * elements_per_word(from);
  for (size_t i = 0; i < map.size(); i += 2)
    result.push_back(conversion.pair(element(i, i + 1) % held, element(i + 1, i) % held));
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
