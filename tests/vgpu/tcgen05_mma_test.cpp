// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma: every kind, layout of D and place of A, element by element from the closed formulas; products
// are small numbers whose sums are exact.
#include <bit>
#include <functional>

#include "core/float_formats.h"
#include "tcgen05_kernel.h"

namespace imbrex::vgpu {
namespace {

using Image = Tcgen05Kernel::TensorImage;

enum class Mode { kNone, k32B, k64B, k128B, k128BAtom32B };

struct Operand {
  std::string type = "f16";
  bool mn_major = false;
  Mode mode = Mode::k128B;
  bool negate = false;
};

struct Case {
  std::string kind = "f16";
  std::string d = "f32";
  Operand a, b;
  int m = 128, n = 64, k = 16;
  int cta_group = 1;
  bool ws = false;
  bool a_in_tensor = false;
  bool accumulate = true;
  std::string disabled;  // words of the disable mask, e.g. "{5, 0, 0, 0}" prepared in registers r40...
  std::vector<uint32_t> disabled_words;
  int scale_input_d = 0;
  int lane = 0;  // of D's address: 0 or 16
};

int bits_of(const std::string& type) {
  if (type == "tf32") return 32;
  if (type == "f16" || type == "bf16") return 16;
  if (type == "e2m3" || type == "e3m2") return 6;
  if (type == "e2m1") return 4;
  return 8;
}

uint32_t encode(const std::string& type, double value) {
  if (type == "f16") return arith::f32_to_f16(static_cast<float>(value));
  if (type == "bf16") return arith::f32_to_bf16(static_cast<float>(value));
  if (type == "tf32" || type == "f32") return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == "s8" || type == "u8" || type == "s32") return static_cast<uint32_t>(static_cast<int>(value));
  const arith::FloatFormat& f = type == "e4m3"   ? arith::kE4M3
                                : type == "e5m2" ? arith::kE5M2
                                : type == "e2m3" ? arith::kE2M3
                                : type == "e3m2" ? arith::kE3M2
                                                 : arith::kE2M1;
  return static_cast<uint32_t>(arith::encode(f, value));
}

double decode_d(const std::string& type, uint32_t bits) {
  if (type == "f16") return arith::f16_to_f32(static_cast<uint16_t>(bits));
  if (type == "s32") return static_cast<int>(bits);
  return std::bit_cast<float>(bits);
}

uint32_t type_code(const std::string& kind, const std::string& type) {
  if (kind == "f16") return type == "bf16" ? 1 : 0;
  if (kind == "tf32") return 2;
  if (kind == "i8") return type == "s8" ? 1 : 0;
  return type == "e4m3" ? 0 : type == "e5m2" ? 1 : type == "e2m3" ? 3 : type == "e3m2" ? 4 : 5;
}

uint32_t instruction_descriptor(const Case& c) {
  const uint32_t d = c.d == "f16" ? 0 : c.d == "f32" ? 1 : 2;
  return d << 4 | type_code(c.kind, c.a.type) << 7 | type_code(c.kind, c.b.type) << 10 |
         uint32_t{c.a.negate} << 13 | uint32_t{c.b.negate} << 14 | uint32_t{c.a.mn_major} << 15 |
         uint32_t{c.b.mn_major} << 16 | static_cast<uint32_t>(c.n / 8) << 17 |
         static_cast<uint32_t>(c.m / 16) << 24;
}

// Where element (mn, k) begins, in bits from the tile's start, and the descriptor's fields, for a dense tile.
struct Layout {
  Operand operand;
  int extent;  // lines of mn in one CTA

  int container() const {
    return bits_of(operand.type) < 8 ? 8 : bits_of(operand.type);
  }  // bits an element takes
  int w() const { return operand.mode == Mode::k32B ? 32 : operand.mode == Mode::k64B ? 64 : 128; }
  int lbo() const {
    if (operand.mode == Mode::kNone)
      return operand.mn_major ? extent * container() / 8 / 16 * 128 : extent / 8 * 128;
    if (!operand.mn_major) return 16;
    return operand.mode == Mode::k128BAtom32B ? 4 * w() * 2 : 8 * w() * 4;
  }
  int sbo() const {
    if (operand.mode == Mode::kNone) return 128;
    return operand.mode == Mode::k128BAtom32B && operand.mn_major ? 4 * w() : 8 * w();
  }
  int offset(int mn, int k) const {  // bytes; whole containers
    const int es = container() / 8;
    if (operand.mode == Mode::kNone)
      return operand.mn_major ? mn * es / 16 * sbo() + mn * es % 16 + k % 8 * 16 + k / 8 * lbo()
                              : mn / 8 * sbo() + mn % 8 * 16 + k * es / 16 * lbo() + k * es % 16;
    if (!operand.mn_major) return mn / 8 * sbo() + mn % 8 * w() + k * es;
    const int group = operand.mode == Mode::k128BAtom32B ? 4 : 8;
    return mn * es / w() * lbo() + mn * es % w() + k % group * w() + k / group * sbo();
  }
  uint32_t swizzled(uint32_t a) const {
    switch (operand.mode) {
      case Mode::k32B:
        return a ^ (a >> 7 & 1) << 4;
      case Mode::k64B:
        return a ^ (a >> 7 & 3) << 4;
      case Mode::k128B:
        return a ^ (a >> 7 & 7) << 4;
      case Mode::k128BAtom32B:
        return a ^ (a >> 7 & 3) << 5;
      default:
        return a;
    }
  }
  uint64_t descriptor() const {
    const uint64_t mode = operand.mode == Mode::kNone          ? 0
                          : operand.mode == Mode::k128BAtom32B ? 1
                          : operand.mode == Mode::k128B        ? 2
                          : operand.mode == Mode::k64B         ? 4
                                                               : 6;
    return static_cast<uint64_t>(lbo() / 16) << 16 | static_cast<uint64_t>(sbo() / 16) << 32 |
           uint64_t{1} << 46 | mode << 61;
  }
  void store(std::vector<uint8_t>& tile, uint32_t start, int mn, int k, uint32_t bits) const {
    const int width = bits_of(operand.type);
    const auto at = static_cast<uint32_t>(offset(mn, k));
    if (width >= 8) {
      for (int b = 0; b < width / 8; ++b)
        tile[swizzled(start + at) + static_cast<uint32_t>(b)] = static_cast<uint8_t>(bits >> 8 * b);
      return;
    }
    // 16 elements share a chunk of 16 bytes: packed from its first bit on, the rest is padding.
    const uint32_t chunk = swizzled(start + at / 16 * 16);
    for (int b = 0; b < width; ++b) {
      const uint32_t bit = at % 16 * static_cast<uint32_t>(width) + static_cast<uint32_t>(b);
      uint8_t& byte = tile[chunk + bit / 8];
      byte = static_cast<uint8_t>((byte & ~(1u << bit % 8)) | (bits >> b & 1) << bit % 8);
    }
  }
};

struct Cell {
  int cta, lane, column;
};
// Layouts D, F, A, B, E, G of the accumulator.
Cell cell_of(const Case& c, int i, int j) {
  const int n = c.n;
  if (c.cta_group == 2)
    return c.m == 256 ? Cell{i / 128, i % 128, j} : Cell{i / 64, i % 64 + 64 * (j / (n / 2)), j % (n / 2)};
  if (c.m == 128) return {0, i, j};
  if (!c.ws) return {0, 32 * (i / 16) + i % 16 + c.lane, j};
  return c.m == 64 ? Cell{0, i + 64 * (j / (n / 2)), j % (n / 2)}
                   : Cell{0, i + 32 * (j / (n / 4)), j % (n / 4)};
}

std::string text_of(const Case& c) {
  return fmt::format("kind {} {}x{}->{} m{} n{} group {}{}{} A {} B {} modes {} {}", c.kind, c.a.type,
                     c.b.type, c.d, c.m, c.n, c.cta_group, c.ws ? " ws" : "",
                     c.a_in_tensor ? " A in tensor memory" : "", c.a.mn_major ? "mn" : "k",
                     c.b.mn_major ? "mn" : "k", static_cast<int>(c.a.mode), static_cast<int>(c.b.mode));
}

constexpr int kDColumn = 0, kAColumn = 96;  // the image has 128 columns

double value_of(TestRandom& random, const std::string& type) {
  if (type == "u8") return random.below(5);
  if (type == "s8") return random.below(9) - 4;
  return (random.below(5) - 2) * 0.5;  // exact in every float format
}

void check(const Case& c, TensorMath math = TensorMath::kExact, int seed = 0) {
  SCOPED_TRACE(text_of(c));
  TestRandom random(static_cast<uint32_t>(c.m + c.n));
  const auto index = [](int row, int width, int column) { return static_cast<size_t>(row * width + column); };
  std::vector<double> a(static_cast<size_t>(c.m * c.k)), b(static_cast<size_t>(c.n * c.k)),
      d(static_cast<size_t>(c.m * c.n));
  for (double& v : a) v = value_of(random, c.a.type);
  for (double& v : b) v = value_of(random, c.b.type);
  for (double& v : d) v = random.below(17) - 8;

  const int ctas = c.cta_group;
  std::vector<std::vector<uint8_t>> shared(static_cast<size_t>(ctas),
                                           std::vector<uint8_t>(Tcgen05Kernel::kSharedBytes, 0xEE));
  std::vector<Image> tensor(static_cast<size_t>(ctas));
  const Layout a_layout{c.a, c.m / ctas}, b_layout{c.b, c.n / ctas};
  constexpr uint32_t kBStart = 32768;
  for (int k = 0; k < c.k; ++k) {
    for (int i = 0; i < c.m; ++i) {
      const uint32_t bits = encode(c.a.type, a[index(i, c.k, k)]);
      const int cta = i / (c.m / ctas), row = i % (c.m / ctas);
      if (!c.a_in_tensor) {
        a_layout.store(shared[static_cast<size_t>(cta)], 0, row, k, bits);
        continue;
      }
      const int width = bits_of(c.a.type) < 8 ? 8 : bits_of(c.a.type), per = 32 / width;
      const uint32_t container = bits_of(c.a.type) == 4 ? bits << 2 : bits;
      // M = 64 uses the lanes of layout F; a pair with 64 rows each has every row twice.
      for (int lane : ctas == 1 && c.m == 64    ? std::vector<int>{32 * (row / 16) + row % 16 + c.lane}
                      : ctas == 2 && c.m == 128 ? std::vector<int>{row, row + 64}
                                                : std::vector<int>{row}) {
        uint32_t& cell = tensor[static_cast<size_t>(cta)].at(lane, kAColumn + k / per);
        if (k % per == 0) cell = 0;
        cell |= (width == 32 ? container : container & ((1u << width) - 1)) << k % per * width;
      }
    }
    for (int j = 0; j < c.n; ++j)
      b_layout.store(shared[static_cast<size_t>(j / (c.n / ctas))], kBStart, j % (c.n / ctas), k,
                     encode(c.b.type, b[index(j, c.k, k)]));
  }
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j) {
      const Cell at = cell_of(c, i, j);
      tensor[static_cast<size_t>(at.cta)].at(at.lane, kDColumn + at.column) =
          encode(c.d, d[index(i, c.n, j)]);
    }

  Tcgen05Kernel kernel;
  kernel.cta_group = c.cta_group;
  kernel.math = math;
  kernel.seed = seed;
  const auto descriptor = [](const char* reg, uint32_t start, const Layout& layout) {
    return fmt::format("  add.u32 %r20, %r10, {};\n  cvt.u64.u32 {}, %r20;\n  or.b64 {}, {}, {};\n",
                       start / 16, reg, reg, reg, layout.descriptor());
  };
  kernel.body = descriptor("%rd10", 0, a_layout) + descriptor("%rd11", kBStart, b_layout);
  kernel.body += fmt::format(
      "  add.u32 %r21, %r11, {};\n  add.u32 %r22, %r11, {};\n  mov.u32 %r23, {};\n  setp.ne.u32 %p5, {}, "
      "0;\n",
      kAColumn + (c.lane << 16), kDColumn + (c.lane << 16), instruction_descriptor(c), c.accumulate ? 1 : 0);
  std::string mask;
  for (size_t i = 0; i < c.disabled_words.size(); ++i) {
    kernel.body += fmt::format("  mov.b32 %r{}, {};\n", 40 + i, c.disabled_words[i]);
    mask += fmt::format("{}%r{}", i == 0 ? ", {" : ", ", 40 + i);
  }
  if (!mask.empty()) mask += "}";
  kernel.body += fmt::format("  tcgen05.mma{}.cta_group::{}.kind::{} [%r22], {}, %rd11, %r23{}, %p5{};\n",
                             c.ws ? ".ws" : "", c.cta_group, c.kind, c.a_in_tensor ? "[%r21]" : "%rd10", mask,
                             c.scale_input_d != 0 ? fmt::format(", {}", c.scale_input_d) : "");
  const Tcgen05Kernel::Result result = kernel.run(shared, tensor);
  ASSERT_TRUE(result.report.clean()) << result.report.format();

  std::vector<Image> expected = tensor;
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j) {
      const Cell at = cell_of(c, i, j);
      const size_t word = static_cast<size_t>(at.cta * 4 + at.lane / 32);
      if (word < c.disabled_words.size() && (c.disabled_words[word] >> at.lane % 32 & 1) != 0) continue;
      double sum = c.accumulate ? d[index(i, c.n, j)] / (1 << c.scale_input_d) : 0;
      for (int k = 0; k < c.k; ++k)
        sum += (c.a.negate != c.b.negate ? -1 : 1) * a[index(i, c.k, k)] * b[index(j, c.k, k)];
      uint32_t bits = encode(c.d, sum);
      if (sum == 0) bits = 0;
      expected[static_cast<size_t>(at.cta)].at(at.lane, kDColumn + at.column) = bits;
    }
  for (size_t cta = 0; cta < expected.size(); ++cta)
    for (int lane = 0; lane < 128; ++lane)
      for (int column = 0; column < Tcgen05Kernel::kTensorColumns; ++column) {
        uint32_t got = const_cast<Tcgen05Kernel::Result&>(result).tensor[cta].at(lane, column),
                 want = expected[cta].at(lane, column);
        if (decode_d(c.d, got) == 0 && decode_d(c.d, want) == 0)
          continue;  // the sign of zero is arithmetic's matter
        ASSERT_EQ(got, want) << "CTA " << cta << " lane " << lane << " column " << column;
      }
}

const Operand kF16{"f16"}, kBF16{"bf16"}, kTF32{"tf32"};

TEST(Tcgen05Mma, Kinds) {
  for (TensorMath math : {TensorMath::kExact, TensorMath::kFast}) {
    check({.kind = "f16", .a = kF16, .b = kF16}, math);
    check({.kind = "f16", .a = kBF16, .b = kBF16}, math);
    check({.kind = "f16", .d = "f16", .a = kF16, .b = kF16}, math);
    check({.kind = "tf32", .a = kTF32, .b = kTF32, .k = 8}, math);
    for (const char* a : {"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"})
      for (const char* b : {"e4m3", "e2m3", "e2m1"})
        check({.kind = "f8f6f4", .a = {a}, .b = {b}, .k = 32}, math);
    check({.kind = "f8f6f4", .d = "f16", .a = {"e4m3"}, .b = {"e5m2"}, .k = 32}, math);
    check({.kind = "i8", .d = "s32", .a = {"s8"}, .b = {"u8"}, .k = 32}, math);
    check({.kind = "i8", .d = "s32", .a = {"u8"}, .b = {"s8"}, .k = 32}, math);
  }
}

TEST(Tcgen05Mma, LayoutsOfD) {
  for (int n : {8, 40, 96}) check({.a = kF16, .b = kF16, .m = 128, .n = n});
  for (int lane : {0, 16}) check({.a = kF16, .b = kF16, .m = 64, .n = 24, .lane = lane});
  for (int n : {16, 96}) check({.a = kF16, .b = kF16, .m = 256, .n = n, .cta_group = 2});
  for (int n : {32, 96}) check({.a = kF16, .b = kF16, .m = 128, .n = n, .cta_group = 2});
  for (int m : {32, 64, 128}) check({.a = kF16, .b = kF16, .m = m, .n = 64, .ws = true});
}

TEST(Tcgen05Mma, EveryModeAndMajor) {
  for (Mode mode : {Mode::kNone, Mode::k32B, Mode::k64B, Mode::k128B})
    for (bool a_mn : {false, true})
      for (bool b_mn : {false, true})
        for (int group : {1, 2})
          check({.a = {"f16", a_mn, mode},
                 .b = {"f16", b_mn, mode},
                 .m = 128 * group,
                 .n = 64,
                 .cta_group = group});
  for (bool a_mn : {false, true})
    check({.kind = "tf32",
           .a = {"tf32", a_mn, a_mn ? Mode::k128BAtom32B : Mode::k128B},
           .b = {"tf32", true, Mode::k128BAtom32B},
           .k = 8});
  check({.kind = "f8f6f4", .a = {"e4m3", true, Mode::k128B}, .b = {"e5m2", true, Mode::k64B}, .k = 32});
}

TEST(Tcgen05Mma, AInTensorMemory) {
  check({.a = kF16, .b = kF16, .a_in_tensor = true});
  check({.a = kF16, .b = kF16, .m = 64, .a_in_tensor = true, .lane = 16});
  check({.kind = "tf32", .a = kTF32, .b = kTF32, .k = 8, .a_in_tensor = true});
  for (const char* type : {"e4m3", "e2m3", "e2m1"})
    check({.kind = "f8f6f4", .a = {type}, .b = {"e4m3"}, .k = 32, .a_in_tensor = true});
  check({.a = kF16, .b = kF16, .m = 256, .cta_group = 2, .a_in_tensor = true});
  check({.a = kF16, .b = kF16, .m = 128, .cta_group = 2, .a_in_tensor = true});
}

TEST(Tcgen05Mma, ModifiersOfTheSum) {
  check({.a = kF16, .b = kF16, .accumulate = false});
  check({.a = {"f16", false, Mode::k128B, true}, .b = kF16});
  check({.a = {"bf16", false, Mode::k64B, true}, .b = {"bf16", false, Mode::k64B, true}});
  for (TensorMath math : {TensorMath::kExact, TensorMath::kFast})
    check({.a = kF16, .b = kF16, .scale_input_d = 3}, math);
  check({.a = kF16, .b = kF16, .disabled_words = {0x80000001, 0, 0xFFFFFFFF, 0x00FF0000}});
  check({.a = kF16,
         .b = kF16,
         .m = 256,
         .cta_group = 2,
         .disabled_words = {1, 0, 0, 0x80000000, 2, 0xFFFFFFFF, 0, 0}});
}

TEST(Tcgen05Mma, SeedsChangeNothing) {
  for (int seed : {1, 2, 3}) {
    check({.a = kF16, .b = kF16}, TensorMath::kExact, seed);
    check({.a = kF16, .b = kF16, .m = 256, .cta_group = 2}, TensorMath::kExact, seed);
  }
}

// ---- block scaling
// ------------------------------------------------------------------------------------------------

struct ScaledCase {
  std::string kind, qualifier, type;  // of a and b
  int k, per_row;
  bool ue4m3 = false;
  int id = 0;  // byte of the first factor
  int m = 128, cta_group = 1;
};

void check_scaled(const ScaledCase& c, TensorMath math) {
  SCOPED_TRACE(fmt::format("kind {} {} {} id {} m {}", c.kind, c.qualifier, c.type, c.id, c.m));
  constexpr int kN = 64, kAScales = 100, kBScales = 110;
  const int ctas = c.cta_group, rows = c.m / ctas;
  TestRandom random(77);
  const auto index = [](int row, int width, int column) { return static_cast<size_t>(row * width + column); };
  std::vector<double> a(static_cast<size_t>(c.m * c.k)), b(static_cast<size_t>(kN * c.k));
  for (double& v : a) v = (random.below(5) - 2) * 0.5;
  for (double& v : b) v = (random.below(5) - 2) * 0.5;
  std::vector<int> sa(static_cast<size_t>(c.m * c.per_row)),
      sb(static_cast<size_t>(kN * c.per_row));  // exponents
  for (int& v : sa) v = random.below(5) - 2;
  for (int& v : sb) v = random.below(5) - 2;
  const auto factor = [&](int exponent) {
    return static_cast<uint32_t>(c.ue4m3 ? (exponent + 7) << 3 : exponent + 127);
  };

  std::vector<std::vector<uint8_t>> shared(static_cast<size_t>(ctas),
                                           std::vector<uint8_t>(Tcgen05Kernel::kSharedBytes, 0));
  std::vector<Image> tensor(static_cast<size_t>(ctas));
  for (Image& image : tensor)
    for (uint32_t& cell : image.cells) cell = 0;
  const bool packed = c.kind != "mxf8f6f4";
  const auto store = [&](uint32_t start, int cta, int row, int k, double value, const Layout& layout) {
    std::vector<uint8_t>& tile = shared[static_cast<size_t>(cta)];
    if (!packed) {
      layout.store(tile, start, row, k, encode(c.type, value));
      return;
    }
    // Two elements a byte, K-major, 128-byte swizzle.
    const auto linear = start + static_cast<uint32_t>(row / 8 * 1024 + row % 8 * 128 + k / 2);
    tile[linear ^ (linear >> 7 & 7) << 4] |= static_cast<uint8_t>(encode("e2m1", value) << k % 2 * 4);
  };
  const Layout a_layout{{c.type}, rows}, b_layout{{c.type}, kN / ctas};
  for (int k = 0; k < c.k; ++k) {
    for (int i = 0; i < c.m; ++i) store(0, i / rows, i % rows, k, a[index(i, c.k, k)], a_layout);
    for (int j = 0; j < kN; ++j)
      store(32768, j / (kN / ctas), j % (kN / ctas), k, b[index(j, c.k, k)], b_layout);
  }
  // Four copies of every factor, 32 lanes apart.
  for (int s = 0; s < c.per_row; ++s)
    for (int copy = 0; copy < 4; ++copy) {
      for (int i = 0; i < c.m; ++i)
        tensor[static_cast<size_t>(i / rows)].at(i % rows % 32 + 32 * copy, kAScales + i % rows / 32) |=
            factor(sa[index(i, c.per_row, s)]) << 8 * (c.id + s);
      for (int j = 0; j < kN; ++j)
        for (Image& image : tensor)
          image.at(j % 32 + 32 * copy, kBScales + j / 32) |= factor(sb[index(j, c.per_row, s)])
                                                             << 8 * (c.id + s);
    }

  const uint32_t type = packed ? 1 : type_code("f8f6f4", c.type);
  const uint32_t idesc = static_cast<uint32_t>(c.id) << 4 | type << 7 | type << 10 |
                         static_cast<uint32_t>(kN / 8) << 17 | uint32_t{!c.ue4m3} << 23 |
                         static_cast<uint32_t>(c.m / 128) << 27 | static_cast<uint32_t>(c.id) << 29;
  Tcgen05Kernel kernel;
  kernel.cta_group = ctas;
  kernel.math = math;
  kernel.body = fmt::format(
      "  cvt.u64.u32 %rd10, %r10;\n  or.b64 %rd10, %rd10, {0};\n  add.u32 %r20, %r10, 2048;\n  cvt.u64.u32 "
      "%rd11, %r20;\n"
      "  or.b64 %rd11, %rd11, {0};\n  add.u32 %r21, %r11, {1};\n  add.u32 %r22, %r11, {2};\n  mov.u32 %r23, "
      "{3};\n",
      a_layout.descriptor(), kAScales, kBScales, idesc);
  kernel.body += fmt::format(
      "  tcgen05.mma.cta_group::{}.kind::{}.block_scale{} [%r11], %rd10, %rd11, %r23, [%r21], [%r22], 0;\n",
      ctas, c.kind, c.qualifier);
  Tcgen05Kernel::Result result = kernel.run(shared, tensor);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < kN; ++j) {
      double sum = 0;
      for (int k = 0; k < c.k; ++k) {
        const int s = k / (c.k / c.per_row);
        sum += std::ldexp(a[index(i, c.k, k)] * b[index(j, c.k, k)],
                          sa[index(i, c.per_row, s)] + sb[index(j, c.per_row, s)]);
      }
      ASSERT_EQ(std::bit_cast<float>(result.tensor[static_cast<size_t>(i / rows)].at(i % rows, j)), sum)
          << i << ", " << j;
    }
}

TEST(Tcgen05Mma, BlockScaledKinds) {
  for (TensorMath math : {TensorMath::kExact, TensorMath::kFast}) {
    for (int id = 0; id < 4; ++id)
      check_scaled({"mxf8f6f4", ".scale_vec::1X", "e4m3", 32, 1, false, id}, math);
    check_scaled({"mxf8f6f4", "", "e2m3", 32, 1}, math);
    check_scaled({"mxf8f6f4", ".block32", "e2m1", 32, 1}, math);
    check_scaled({"mxf4", ".scale_vec::2X", "e2m1", 64, 2, false, 2}, math);
    check_scaled({"mxf4nvf4", ".scale_vec::2X", "e2m1", 64, 2}, math);
    check_scaled({"mxf4nvf4", ".scale_vec::4X", "e2m1", 64, 4, true}, math);
    check_scaled({"mxf4nvf4", ".block16", "e2m1", 64, 4}, math);
    check_scaled({"mxf4nvf4", ".block16", "e2m1", 64, 4, true, 0, 256, 2}, math);
  }
}

// ---- cp and shift
// ---------------------------------------------------------------------------------------------------

TEST(Tcgen05Copy, Shapes) {
  struct Shape {
    std::string word;
    int rows, columns;
    std::vector<int> (*lanes)(int row);
  };
  const Shape shapes[] = {
      {"128x256b", 128, 8, [](int r) { return std::vector<int>{r}; }},
      {"128x128b", 128, 4, [](int r) { return std::vector<int>{r}; }},
      {"64x128b.warpx2::02_13", 64, 4,
       [](int r) {
         return std::vector<int>{r, r + 64};
       }},
      {"64x128b.warpx2::01_23", 64, 4,
       [](int r) {
         return std::vector<int>{r % 32 + 64 * (r / 32), r % 32 + 64 * (r / 32) + 32};
       }},
      {"32x128b.warpx4", 32, 4,
       [](int r) {
         return std::vector<int>{r, r + 32, r + 64, r + 96};
       }},
      {"4x256b", 4, 8, [](int r) { return std::vector<int>{32 * r + 31}; }},
  };
  for (const Shape& s : shapes)
    for (const char* expand : {"", ".b8x16.b4x16_p64", ".b8x16.b6x16_p32"})
      for (int group : {1, 2}) {
        SCOPED_TRACE(s.word + expand);
        std::vector<std::vector<uint8_t>> shared(static_cast<size_t>(group),
                                                 std::vector<uint8_t>(Tcgen05Kernel::kSharedBytes));
        TestRandom random(9);
        for (auto& image : shared)
          for (uint8_t& b : image) b = static_cast<uint8_t>(random.next() >> 8);
        // No swizzle: 8-row groups 128 bytes apart, the second 16 bytes of a row 4096 bytes on.
        const uint64_t descriptor = uint64_t{4096 / 16} << 16 | uint64_t{128 / 16} << 32 | uint64_t{1} << 46;
        Tcgen05Kernel kernel;
        kernel.cta_group = group;
        kernel.body = fmt::format(
            "  cvt.u64.u32 %rd10, %r10;\n  or.b64 %rd10, %rd10, {};\n  add.u32 %r20, %r11, 16;\n"
            "  tcgen05.cp.cta_group::{}.{}{} [%r20], %rd10;\n",
            descriptor, group, s.word, expand);
        const std::vector<Image> tensor(static_cast<size_t>(group));
        Tcgen05Kernel::Result result = kernel.run(shared, tensor);
        ASSERT_TRUE(result.report.clean()) << result.report.format();
        std::vector<Image> expected = tensor;
        for (int cta = 0; cta < group; ++cta)
          for (int row = 0; row < s.rows; ++row)
            for (int column = 0; column < s.columns; ++column)
              for (int lane : s.lanes(row)) {
                uint32_t word = 0;
                for (int b = 0; b < 4; ++b) {
                  const int byte = 4 * column + b, element = byte % 16;
                  const uint8_t* chunk = shared[static_cast<size_t>(cta)].data() + row / 8 * 128 +
                                         row % 8 * 16 + byte / 16 * 4096;
                  uint32_t value = chunk[element];
                  if (std::string(expand).find("b4") != std::string::npos)
                    value = (chunk[element / 2] >> element % 2 * 4 & 0xFu) << 2;
                  if (std::string(expand).find("b6") != std::string::npos) {
                    value = 0;
                    for (int bit = 0; bit < 6; ++bit)
                      value |= (chunk[(6 * element + bit) / 8] >> (6 * element + bit) % 8 & 1u) << bit;
                  }
                  word |= value << 8 * b;
                }
                expected[static_cast<size_t>(cta)].at(lane, 16 + column) = word;
              }
        for (int cta = 0; cta < group; ++cta)
          ASSERT_EQ(result.tensor[static_cast<size_t>(cta)].cells, expected[static_cast<size_t>(cta)].cells);
      }
}

TEST(Tcgen05Copy, ShiftMovesEightColumnsByALane) {
  Tcgen05Kernel kernel;
  kernel.body = "  add.u32 %r20, %r11, 32;\n  tcgen05.shift.cta_group::1.down [%r20];\n";
  Image image;
  for (int lane = 0; lane < 128; ++lane)
    for (int column = 0; column < 128; ++column)
      image.at(lane, column) = static_cast<uint32_t>(lane * 1000 + column);
  Tcgen05Kernel::Result result = kernel.run({{}}, {image});
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int lane = 0; lane < 128; ++lane)
    for (int column = 0; column < 128; ++column) {
      const bool moved = column >= 32 && column < 40 && lane % 32 != 31;
      ASSERT_EQ(result.tensor[0].at(lane, column),
                static_cast<uint32_t>((lane + (moved ? 1 : 0)) * 1000 + column));
    }
}

}  // namespace
}  // namespace imbrex::vgpu
