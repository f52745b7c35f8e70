// SPDX-License-Identifier: Apache-2.0
// Integer, bit and logic instructions against expectations written in 128-bit arithmetic.
#include <bit>

#include "snippet.h"

namespace imbrex::vgpu {
namespace {

using I128 = __int128;

/// One integer type: its spelling, and how its values are read and written.
struct Type {
  const char* name;
  int bits;
  bool is_signed;
  I128 value(uint64_t raw) const {
    const uint64_t low = bits == 64 ? raw : raw & ((uint64_t{1} << bits) - 1);
    if (is_signed && (low >> (bits - 1) & 1) != 0)
      return static_cast<I128>(low) - (static_cast<I128>(1) << bits);
    return static_cast<I128>(low);
  }
  uint64_t raw(I128 value) const {
    return static_cast<uint64_t>(value) & (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1);
  }
  I128 min() const { return is_signed ? -(static_cast<I128>(1) << (bits - 1)) : 0; }
  I128 max() const {
    return is_signed ? (static_cast<I128>(1) << (bits - 1)) - 1 : (static_cast<I128>(1) << bits) - 1;
  }
};
constexpr Type kTypes[] = {{"u16", 16, false}, {"s16", 16, true},  {"u32", 32, false},
                           {"s32", 32, true},  {"u64", 64, false}, {"s64", 64, true}};

/// "d, a, b" in registers of a width.
std::string registers(int bits, int sources) {
  const std::vector<std::string> names = bits == 16   ? std::vector<std::string>{"%hd", "%ha", "%hb", "%hc"}
                                         : bits == 32 ? std::vector<std::string>{"%d", "%a", "%b", "%c"}
                                                      : std::vector<std::string>{"%D", "%A", "%B", "%C"};
  std::string out = names[0];
  for (int i = 1; i <= sources; ++i) out += ", " + names[static_cast<size_t>(i)];
  return out;
}
std::string result_of(int bits) { return bits == 16 ? "%hd" : bits == 32 ? "%d" : "%D"; }

void check(const Type& t, const std::string& op, int sources,
           const std::function<I128(I128, I128, I128)>& f) {
  const std::string code = op + "." + t.name + " " + registers(t.bits, sources) + ";";
  expect_snippet(
      code, result_of(t.bits), combinations(edge_integers(t.bits), sources),
      [&](uint64_t a, uint64_t b, uint64_t c) { return t.raw(f(t.value(a), t.value(b), t.value(c))); });
}

TEST(Integer, AddSubMinMax) {
  for (const Type& t : kTypes) {
    check(t, "add", 2, [](I128 a, I128 b, I128) { return a + b; });
    check(t, "sub", 2, [](I128 a, I128 b, I128) { return a - b; });
    check(t, "min", 2, [](I128 a, I128 b, I128) { return a < b ? a : b; });
    check(t, "max", 2, [](I128 a, I128 b, I128) { return a < b ? b : a; });
    check(t, "sad", 3, [](I128 a, I128 b, I128 c) { return c + (a < b ? b - a : a - b); });
    if (!t.is_signed) continue;
    check(t, "neg", 1, [](I128 a, I128, I128) { return -a; });
    check(t, "abs", 1, [](I128 a, I128, I128) { return a < 0 ? -a : a; });
  }
}

TEST(Integer, DivideByAnythingButZero) {
  // Division by zero is unspecified in PTX; that it does not kill the machine is what the loop over zero
  // shows.
  for (const Type& t : kTypes) {
    const auto quotient = [&](I128 a, I128 b, I128) { return b == 0 ? t.value(~uint64_t{0}) : a / b; };
    const auto remainder = [&](I128 a, I128 b, I128) { return b == 0 ? t.value(~uint64_t{0}) : a % b; };
    check(t, "div", 2, quotient);
    check(t, "rem", 2, remainder);
  }
}

TEST(Integer, Multiply) {
  using U128 = unsigned __int128;
  for (const Type& t : kTypes) {
    const auto product = [](I128 a, I128 b) {
      return static_cast<I128>(static_cast<U128>(a) * static_cast<U128>(b));
    };
    const auto high = [&](I128 a, I128 b) {
      return t.is_signed ? product(a, b) >> t.bits
                         : static_cast<I128>((static_cast<U128>(a) * static_cast<U128>(b)) >> t.bits);
    };
    check(t, "mul.lo", 2, [&](I128 a, I128 b, I128) { return product(a, b); });
    check(t, "mul.hi", 2, [&](I128 a, I128 b, I128) { return high(a, b); });
    check(t, "mad.lo", 3, [&](I128 a, I128 b, I128 c) { return product(a, b) + c; });
    check(t, "mad.hi", 3, [&](I128 a, I128 b, I128 c) { return high(a, b) + c; });
  }
}

TEST(Integer, MultiplyWide) {
  for (const Type& t : kTypes) {
    if (t.bits == 64) continue;
    const Type wide{"", 2 * t.bits, t.is_signed};
    const std::string d = result_of(wide.bits), a = t.bits == 16 ? "%ha" : "%a",
                      b = t.bits == 16 ? "%hb" : "%b";
    const std::string c = t.bits == 16 ? "%c" : "%C";
    const std::vector<Row> rows = combinations(edge_integers(t.bits), 3);
    expect_snippet(std::string("mul.wide.") + t.name + " " + d + ", " + a + ", " + b + ";", d, rows,
                   [&](uint64_t x, uint64_t y, uint64_t) { return wide.raw(t.value(x) * t.value(y)); });
    expect_snippet(std::string("mad.wide.") + t.name + " " + d + ", " + a + ", " + b + ", " + c + ";", d,
                   rows, [&](uint64_t x, uint64_t y, uint64_t z) {
                     return wide.raw(t.value(x) * t.value(y) + wide.value(z));
                   });
  }
}

TEST(Integer, Saturating) {
  const Type t{"s32", 32, true};
  const auto clamp = [&](I128 v) { return v < t.min() ? t.min() : v > t.max() ? t.max() : v; };
  check(t, "add.sat", 2, [&](I128 a, I128 b, I128) { return clamp(a + b); });
  check(t, "sub.sat", 2, [&](I128 a, I128 b, I128) { return clamp(a - b); });
  check(t, "mad.hi.sat", 3, [&](I128 a, I128 b, I128 c) { return clamp((a * b >> 32) + c); });
}

TEST(Integer, CarriesTravelThroughChains) {
  const auto rows = combinations(edge_integers(64), 2);
  expect_snippet(
      "{ .reg .b32 %lo, %hi, %x, %y;\n"
      "  mov.b64 {%lo, %hi}, %A; mov.b64 {%x, %y}, %B;\n"
      "  @%active add.cc.u32 %lo, %lo, %x; @%active addc.u32 %hi, %hi, %y; @%active mov.b64 %D, {%lo, %hi}; "
      "}",
      "%D", rows, [](uint64_t a, uint64_t b, uint64_t) { return a + b; });
  expect_snippet(
      "{ .reg .b32 %lo, %hi, %x, %y;\n"
      "  mov.b64 {%lo, %hi}, %A; mov.b64 {%x, %y}, %B;\n"
      "  @%active sub.cc.u32 %lo, %lo, %x; @%active subc.u32 %hi, %hi, %y; @%active mov.b64 %D, {%lo, %hi}; "
      "}",
      "%D", rows, [](uint64_t a, uint64_t b, uint64_t) { return a - b; });
}

TEST(Integer, DotProducts) {
  const auto byte = [](uint64_t x, int i, bool is_signed) {
    const int v = static_cast<int>(x >> (8 * i) & 0xFF);
    return is_signed && v > 127 ? v - 256 : v;
  };
  for (const bool sa : {false, true})
    for (const bool sb : {false, true}) {
      const std::string types = std::string(sa ? ".s32" : ".u32") + (sb ? ".s32" : ".u32");
      expect_snippet("dp4a" + types + " %d, %a, %b, %c;", "%d", combinations(edge_integers(32), 3),
                     [&](uint64_t a, uint64_t b, uint64_t c) {
                       int64_t sum = static_cast<int64_t>(c);
                       for (int i = 0; i < 4; ++i) sum += byte(a, i, sa) * byte(b, i, sb);
                       return static_cast<uint64_t>(sum) & 0xFFFFFFFF;
                     });
    }
}

TEST(Bits, CountAndFind) {
  for (const int bits : {32, 64}) {
    const std::string a = bits == 32 ? "%a" : "%A", type = ".b" + std::to_string(bits);
    const std::vector<Row> rows = combinations(edge_integers(bits), 1);
    expect_snippet("popc" + type + " %d, " + a + ";", "%d", rows,
                   [](uint64_t x, uint64_t, uint64_t) { return static_cast<uint64_t>(std::popcount(x)); });
    expect_snippet("clz" + type + " %d, " + a + ";", "%d", rows, [&](uint64_t x, uint64_t, uint64_t) {
      return static_cast<uint64_t>(std::countl_zero(x) - (64 - bits));
    });
    expect_snippet("bfind.u" + std::to_string(bits) + " %d, " + a + ";", "%d", rows,
                   [](uint64_t x, uint64_t, uint64_t) {
                     return x == 0 ? uint64_t{0xFFFFFFFF} : static_cast<uint64_t>(63 - std::countl_zero(x));
                   });
    expect_snippet("brev" + type + " " + result_of(bits) + ", " + a + ";", result_of(bits), rows,
                   [&](uint64_t x, uint64_t, uint64_t) {
                     uint64_t out = 0;
                     for (int i = 0; i < bits; ++i) out |= (x >> i & 1) << (bits - 1 - i);
                     return out;
                   });
  }
}

TEST(Bits, ExtractAndInsert) {
  for (const Type& t : kTypes) {
    if (t.bits == 16) continue;
    const std::string d = result_of(t.bits), a = t.bits == 32 ? "%a" : "%A", b = t.bits == 32 ? "%b" : "%B";
    expect_snippet(std::string("bfe.") + t.name + " " + d + ", " + a + ", %b, %c;", d,
                   combinations(edge_integers(32), 3), [&](uint64_t x, uint64_t pos, uint64_t len) {
                     if (t.bits == 32) pos &= 0xFF, len &= 0xFF;  // the 64-bit forms look at all bits
                     pos = std::min<uint64_t>(pos, 64), len = std::min<uint64_t>(len, 64);
                     const uint64_t last = static_cast<uint64_t>(t.bits - 1);
                     const uint64_t raw = t.raw(t.value(x));
                     const uint64_t top = std::min(pos + len - 1, last);
                     const uint64_t sign = t.is_signed && len != 0 ? raw >> top & 1 : 0;
                     uint64_t out = 0;
                     for (uint64_t i = 0; i <= last; ++i)
                       out |= (i < len && pos + i <= last ? raw >> (pos + i) & 1 : sign) << i;
                     return out;
                   });
    if (t.is_signed) continue;
    expect_snippet("bfi.b" + std::to_string(t.bits) + " " + d + ", " + a + ", " + b + ", 5, 9;", d,
                   combinations(edge_integers(t.bits), 2), [&](uint64_t x, uint64_t y, uint64_t) {
                     return (y & ~(uint64_t{0x1FF} << 5)) | (x & 0x1FF) << 5;
                   });
  }
}

TEST(Bits, Permute) {
  expect_snippet("prmt.b32 %d, %a, %b, %c;", "%d", combinations(edge_integers(32), 3),
                 [](uint64_t a, uint64_t b, uint64_t c) {
                   const uint64_t both = (b & 0xFFFFFFFF) << 32 | (a & 0xFFFFFFFF);
                   uint64_t out = 0;
                   for (int i = 0; i < 4; ++i) {
                     const uint64_t selector = c >> (4 * i) & 0xF;
                     uint64_t byte = both >> (8 * (selector & 7)) & 0xFF;
                     if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
                     out |= byte << (8 * i);
                   }
                   return out;
                 });
}

TEST(Logic, OfEveryWidth) {
  for (const int bits : {16, 32, 64}) {
    const Type t{"", bits, false};
    const std::string d = result_of(bits), type = ".b" + std::to_string(bits) + " ";
    const auto rows = combinations(edge_integers(bits), 2);
    const std::string two = registers(bits, 2) + ";", one = registers(bits, 1) + ";";
    expect_snippet("and" + type + two, d, rows, [](uint64_t a, uint64_t b, uint64_t) { return a & b; });
    expect_snippet("or" + type + two, d, rows, [](uint64_t a, uint64_t b, uint64_t) { return a | b; });
    expect_snippet("xor" + type + two, d, rows, [](uint64_t a, uint64_t b, uint64_t) { return a ^ b; });
    expect_snippet("not" + type + one, d, rows,
                   [&](uint64_t a, uint64_t, uint64_t) { return t.raw(~static_cast<I128>(a)); });
    expect_snippet("cnot" + type + one, d, rows,
                   [](uint64_t a, uint64_t, uint64_t) { return uint64_t{a == 0}; });
  }
}

TEST(Logic, Lop3OfEveryTable) {
  const std::vector<Row> rows{{0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA}, {0x12345678, 0x9ABCDEF0, 0x0F1E2D3C}};
  for (const int table : {0x00, 0x01, 0x1E, 0x80, 0x96, 0xCA, 0xE8, 0xF8, 0xFF})
    expect_snippet("lop3.b32 %d, %a, %b, %c, " + std::to_string(table) + ";", "%d", rows,
                   [&](uint64_t a, uint64_t b, uint64_t c) {
                     uint64_t out = 0;
                     for (int i = 0; i < 32; ++i) {
                       const uint64_t index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
                       out |= (static_cast<uint64_t>(table) >> index & 1) << i;
                     }
                     return out;
                   });
}

TEST(Shift, AmountsBeyondTheWidth) {
  for (const Type& t : kTypes) {
    const std::string d = result_of(t.bits), a = t.bits == 16 ? "%ha" : t.bits == 32 ? "%a" : "%A";
    std::vector<Row> rows;
    for (uint64_t x : edge_integers(t.bits))
      for (uint64_t amount : {0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255})
        rows.push_back({x, amount, 0});
    rows.push_back({1, 0xFFFFFFFF, 0});
    expect_snippet(std::string("shr.") + t.name + " " + d + ", " + a + ", %b;", d, rows,
                   [&](uint64_t x, uint64_t amount, uint64_t) {
                     return t.raw(t.value(x) >> std::min<uint64_t>(amount, 127));
                   });
    if (t.is_signed) continue;
    expect_snippet("shl.b" + std::to_string(t.bits) + " " + d + ", " + a + ", %b;", d, rows,
                   [&](uint64_t x, uint64_t amount, uint64_t) {
                     return amount >= static_cast<uint64_t>(t.bits) ? 0
                                                                    : t.raw(static_cast<I128>(x) << amount);
                   });
  }
}

TEST(Shift, Funnel) {
  const auto rows = combinations(edge_integers(32), 3);
  const auto both = [](uint64_t low, uint64_t high) { return high << 32 | low; };
  expect_snippet("shf.l.wrap.b32 %d, %a, %b, %c;", "%d", rows,
                 [&](uint64_t a, uint64_t b, uint64_t c) { return (both(a, b) << (c & 31)) >> 32; });
  expect_snippet("shf.r.wrap.b32 %d, %a, %b, %c;", "%d", rows,
                 [&](uint64_t a, uint64_t b, uint64_t c) { return both(a, b) >> (c & 31) & 0xFFFFFFFF; });
  expect_snippet("shf.l.clamp.b32 %d, %a, %b, %c;", "%d", rows,
                 [&](uint64_t a, uint64_t b, uint64_t c) { return c >= 32 ? a : (both(a, b) << c) >> 32; });
  expect_snippet("shf.r.clamp.b32 %d, %a, %b, %c;", "%d", rows, [&](uint64_t a, uint64_t b, uint64_t c) {
    return c >= 32 ? b : both(a, b) >> c & 0xFFFFFFFF;
  });
}

TEST(Compare, IntegersSignedAndUnsigned) {
  const std::pair<const char*, bool (*)(I128, I128)> kOperators[] = {
      {"eq", [](I128 a, I128 b) { return a == b; }}, {"ne", [](I128 a, I128 b) { return a != b; }},
      {"lt", [](I128 a, I128 b) { return a < b; }},  {"le", [](I128 a, I128 b) { return a <= b; }},
      {"gt", [](I128 a, I128 b) { return a > b; }},  {"ge", [](I128 a, I128 b) { return a >= b; }}};
  for (const Type& t : kTypes)
    for (const auto& [name, holds] : kOperators) {
      const std::string operands = registers(t.bits, 2).substr(registers(t.bits, 0).size());
      expect_snippet(std::string("setp.") + name + "." + t.name + " %p" + operands + ";", "%p",
                     combinations(edge_integers(t.bits), 2), [&](uint64_t a, uint64_t b, uint64_t) {
                       return uint64_t{holds(t.value(a), t.value(b))};
                     });
    }
}

TEST(Compare, CombinedWithAPredicate) {
  const auto rows = combinations(edge_integers(32), 3);
  expect_snippet("setp.lt.and.u32 %p, %a, %b, %q;", "%p", rows,
                 [](uint64_t a, uint64_t b, uint64_t c) { return uint64_t{a < b && (c & 1) != 0}; });
  expect_snippet("setp.lt.or.u32 %p, %a, %b, !%q;", "%p", rows,
                 [](uint64_t a, uint64_t b, uint64_t c) { return uint64_t{a < b || (c & 1) == 0}; });
  // The second result is combined from the negated comparison.
  expect_snippet("setp.lt.xor.u32 _|%p, %a, %b, %q;", "%p", rows,
                 [](uint64_t a, uint64_t b, uint64_t c) { return uint64_t{!(a < b) != ((c & 1) != 0)}; });
}

TEST(Select, BySignAndPredicate) {
  const auto rows = combinations(edge_integers(32), 3);
  expect_snippet("selp.b32 %d, %a, %b, %q;", "%d", rows,
                 [](uint64_t a, uint64_t b, uint64_t c) { return (c & 1) != 0 ? a : b; });
  expect_snippet("slct.b32.s32 %d, %a, %b, %c;", "%d", rows,
                 [](uint64_t a, uint64_t b, uint64_t c) { return static_cast<int32_t>(c) >= 0 ? a : b; });
  expect_snippet("set.lt.u32.s32 %d, %a, %b;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t) {
    return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? uint64_t{0xFFFFFFFF} : 0;
  });
  expect_snippet("set.lt.f32.s32 %d, %a, %b;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t) {
    return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? uint64_t{0x3F800000} : 0;
  });
}

TEST(Predicates, Logic) {
  const std::vector<Row> rows{{0, 0, 0}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}};
  const auto with = [](const std::string& op) {
    return "{ .reg .pred %s; setp.ne.u32 %s, %a, 0; @%active " + op + "; }";
  };
  const auto truth = [](uint64_t x) { return (x & 1) != 0; };
  expect_snippet(with("and.pred %p, %s, %q"), "%p", rows,
                 [&](uint64_t a, uint64_t, uint64_t c) { return uint64_t{truth(a) && truth(c)}; });
  expect_snippet(with("or.pred %p, %s, !%q"), "%p", rows,
                 [&](uint64_t a, uint64_t, uint64_t c) { return uint64_t{truth(a) || !truth(c)}; });
  expect_snippet(with("xor.pred %p, %s, %q"), "%p", rows,
                 [&](uint64_t a, uint64_t, uint64_t c) { return uint64_t{truth(a) != truth(c)}; });
  expect_snippet(with("not.pred %p, %s"), "%p", rows,
                 [&](uint64_t a, uint64_t, uint64_t) { return uint64_t{!truth(a)}; });
}

}  // namespace
}  // namespace imbrex::vgpu
