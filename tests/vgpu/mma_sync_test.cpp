// SPDX-License-Identifier: Apache-2.0
// Every shape of mma.sync, and ldmatrix, stmatrix, movmatrix: fragments are built and taken apart with the
// closed formulas of their tables, one element at a time; products are small integers, exact in every type.
#include <bit>
#include <cmath>
#include <functional>

#include "core/float_formats.h"
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

struct Place {
  int row, column;
};

// One shape: where element i of lane l's fragment lies (lane as g = l / 4, q = l % 4).
struct ShapeCase {
  std::string instruction;
  std::string type;  // of a and b
  int bits;          // of an element of a and b
  int m, k;
  std::function<Place(int g, int q, int i)> a;  // row, k
  std::function<int(int q, int i)> b_k;         // k; the column is g
  std::string d = "f32";
};

using Values = std::vector<int>;  // small integers

uint32_t encode(const std::string& type, int value) {
  if (type == "f16") return arith::f32_to_f16(static_cast<float>(value));
  if (type == "bf16") return arith::f32_to_bf16(static_cast<float>(value));
  if (type == "tf32" || type == "f32") return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == "e4m3") return static_cast<uint32_t>(arith::encode(arith::kE4M3, value));
  if (type == "e5m2") return static_cast<uint32_t>(arith::encode(arith::kE5M2, value));
  return static_cast<uint32_t>(value);  // integers; cut by the caller
}

int decode_d(const std::string& type, uint32_t bits) {
  if (type == "f16") return static_cast<int>(arith::f16_to_f32(static_cast<uint16_t>(bits)));
  if (type == "f32") return static_cast<int>(std::bit_cast<float>(bits));
  return static_cast<int>(bits);
}

int random_value(TestRandom& random, const std::string& type) {
  if (type == "b1") return random.below(2);
  if (type == "u8" || type == "u4") return random.below(8);
  return random.below(9) - 4;
}

// Sets element i of a lane's fragment: registers pack elements in increasing i from bit 0.
void put(std::vector<uint32_t>& registers, int first, int lane, int i, int bits, uint32_t value) {
  const int per = 32 / bits;
  const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
  registers[static_cast<size_t>((first + i / per) * 32 + lane)] |= (value & mask) << i % per * bits;
}
uint32_t get(const std::vector<uint32_t>& registers, int lane, int i, int bits) {
  const int per = 32 / bits;
  const uint32_t word = registers[static_cast<size_t>(i / per * 32 + lane)];
  return bits == 32 ? word : word >> i % per * bits & ((1u << bits) - 1);
}

void check(const ShapeCase& s, TensorMath math) {
  SCOPED_TRACE(s.instruction);
  const int n = 8;
  const int a_elements = s.m * s.k / 32, b_elements = n * s.k / 32, d_elements = s.m * n / 32;
  const int a_regs = a_elements * s.bits / 32, b_regs = b_elements * s.bits / 32;
  const int d_bits = s.d == "f16" ? 16 : 32;
  const int d_regs = d_elements * d_bits / 32;
  TestRandom random(static_cast<uint32_t>(s.k * 31 + s.bits));
  Values a(static_cast<size_t>(s.m * s.k)), b(static_cast<size_t>(n * s.k)), c(static_cast<size_t>(s.m * n));
  for (int& v : a) v = random_value(random, s.type);
  for (int& v : b) v = random_value(random, s.type);
  for (int& v : c) v = random.below(41) - 20;

  std::vector<uint32_t> registers(static_cast<size_t>((a_regs + b_regs + d_regs) * 32), 0);
  const auto d_place = [&](int l, int i) {
    return Place{l / 4 + (s.m == 16 ? 8 * (i >> 1) : 0), 2 * (l % 4) + (i & 1)};
  };
  for (int l = 0; l < 32; ++l) {
    for (int i = 0; i < a_elements; ++i) {
      const Place p = s.a(l / 4, l % 4, i);
      put(registers, 0, l, i, s.bits, encode(s.type, a[static_cast<size_t>(p.row * s.k + p.column)]));
    }
    for (int i = 0; i < b_elements; ++i)
      put(registers, a_regs, l, i, s.bits,
          encode(s.type, b[static_cast<size_t>(l / 4 * s.k + s.b_k(l % 4, i))]));
    for (int i = 0; i < d_elements; ++i) {
      const Place p = d_place(l, i);
      put(registers, a_regs + b_regs, l, i, d_bits,
          encode(s.d, c[static_cast<size_t>(p.row * n + p.column)]));
    }
  }
  RegisterKernel kernel;
  kernel.inputs = a_regs + b_regs + d_regs;
  kernel.outputs = d_regs;
  kernel.math = math;
  kernel.body = fmt::format("  {} {}, {}, {}, {};\n", s.instruction, register_list("out", 0, d_regs),
                            register_list("in", 0, a_regs), register_list("in", a_regs, b_regs),
                            register_list("in", a_regs + b_regs, d_regs));
  const RegisterKernel::Result result = kernel.run(registers);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < d_elements; ++i) {
      const Place p = d_place(l, i);
      int expected = c[static_cast<size_t>(p.row * n + p.column)];
      for (int x = 0; x < s.k; ++x) {
        const int av = a[static_cast<size_t>(p.row * s.k + x)],
                  bv = b[static_cast<size_t>(p.column * s.k + x)];
        const bool is_xor = s.instruction.find("xor") != std::string::npos;
        expected += is_xor ? av ^ bv : av * bv;
      }
      ASSERT_EQ(decode_d(s.d, get(result.registers, l, i, d_bits)), expected)
          << "row " << p.row << " column " << p.column;
    }
  EXPECT_EQ(result.report.statistics.tensor_flops, int64_t{2} * s.m * n * s.k);
}

std::string mma(const std::string& shape, const std::string& d, const std::string& ab,
                const std::string& extra = "", const std::string& tail = "") {
  return fmt::format("mma.sync.aligned.{}.row.col{}.{}.{}.{}.{}{}", shape, extra, d, ab, ab, d, tail);
}

std::vector<ShapeCase> shapes() {
  std::vector<ShapeCase> list;
  for (const char* type : {"f16", "bf16"}) {
    list.push_back({mma("m16n8k16", "f32", type), type, 16, 16, 16,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 1 & 1), 2 * q + (i & 1) + 8 * (i >> 2)};
                    },
                    [](int q, int i) { return 2 * q + (i & 1) + 8 * (i >> 1); }});
    list.push_back({mma("m16n8k8", "f32", type), type, 16, 16, 8,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 1), 2 * q + (i & 1)};
                    },
                    [](int q, int i) { return 2 * q + (i & 1); }});
  }
  for (size_t i : {size_t{0}, size_t{1}}) {  // f16 results
    ShapeCase half = list[i];
    half.instruction = mma(half.k == 16 ? "m16n8k16" : "m16n8k8", "f16", "f16");
    half.d = "f16";
    list.push_back(half);
  }
  list.push_back({mma("m16n8k8", "f32", "tf32"), "tf32", 32, 16, 8,
                  [](int g, int q, int i) {
                    return Place{g + 8 * (i & 1), q + 4 * (i >> 1)};
                  },
                  [](int q, int i) { return q + 4 * i; }});
  list.push_back({mma("m16n8k4", "f32", "tf32"), "tf32", 32, 16, 4,
                  [](int g, int q, int i) {
                    return Place{g + 8 * i, q};
                  },
                  [](int q, int) { return q; }});
  for (const char* type : {"s8", "u8", "e4m3", "e5m2"}) {
    const bool integer = type[1] == '8';
    const std::string d = integer ? "s32" : "f32";
    for (const char* extra : {"", ".satfinite"}) {
      if (!integer && *extra != 0) continue;
      list.push_back({mma("m16n8k32", d, type, extra), type, 8, 16, 32,
                      [](int g, int q, int i) {
                        return Place{g + 8 * (i >> 2 & 1), 4 * q + (i & 3) + 16 * (i >> 3)};
                      },
                      [](int q, int i) { return 4 * q + (i & 3) + 16 * (i >> 2); }, d});
    }
    list.push_back({mma("m16n8k16", d, type), type, 8, 16, 16,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 2), 4 * q + (i & 3)};
                    },
                    [](int q, int i) { return 4 * q + (i & 3); }, d});
  }
  for (const char* type : {"s4", "u4"}) {
    list.push_back({mma("m16n8k64", "s32", type), type, 4, 16, 64,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 3 & 1), 8 * q + (i & 7) + 32 * (i >> 4)};
                    },
                    [](int q, int i) { return 8 * q + (i & 7) + 32 * (i >> 3); }, "s32"});
    list.push_back({mma("m16n8k32", "s32", type), type, 4, 16, 32,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 3), 8 * q + (i & 7)};
                    },
                    [](int q, int i) { return 8 * q + (i & 7); }, "s32"});
  }
  for (const char* op : {".xor.popc", ".and.popc"}) {
    list.push_back({mma("m16n8k256", "s32", "b1", "", op), "b1", 1, 16, 256,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 5 & 1), 32 * q + (i & 31) + 128 * (i >> 6)};
                    },
                    [](int q, int i) { return 32 * q + (i & 31) + 128 * (i >> 5); }, "s32"});
    list.push_back({mma("m16n8k128", "s32", "b1", "", op), "b1", 1, 16, 128,
                    [](int g, int q, int i) {
                      return Place{g + 8 * (i >> 5), 32 * q + (i & 31)};
                    },
                    [](int q, int i) { return 32 * q + i; }, "s32"});
  }
  list.push_back({mma("m8n8k16", "s32", "s8"), "s8", 8, 8, 16,
                  [](int g, int q, int i) {
                    return Place{g, 4 * q + i};
                  },
                  [](int q, int i) { return 4 * q + i; }, "s32"});
  return list;
}

TEST(MmaSync, EveryShapeMultipliesExactly) {
  for (const ShapeCase& s : shapes()) check(s, TensorMath::kExact);
}

TEST(MmaSync, TheFastModeAgreesOnExactProducts) {
  for (const ShapeCase& s : shapes()) check(s, TensorMath::kFast);
}

TEST(MmaSync, MixedSignsOfIntegers) {
  RegisterKernel kernel;
  kernel.inputs = 6;
  kernel.outputs = 4;
  kernel.start_outputs = true;
  kernel.body =
      "  mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%out0, %out1, %out2, %out3}, {%in0, "
      "%in1, %in2, %in3}, "
      "{%in4, %in5}, {%out0, %out1, %out2, %out3};\n";
  // a = -1 everywhere, b = 255 everywhere: 32 * -255 each; one accumulator near the lower end clamps.
  std::vector<uint32_t> registers(10 * 32, 0xFFFFFFFF);
  for (size_t i = 6 * 32; i < registers.size(); ++i) registers[i] = 0;
  registers[6 * 32] = 0x80000010;  // C[0][0]
  const RegisterKernel::Result result = kernel.run(registers);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  EXPECT_EQ(result.registers[0], 0x80000000u);
  for (size_t i = 1; i < result.registers.size(); ++i)
    ASSERT_EQ(static_cast<int>(result.registers[i]), -32 * 255) << i;
}

// f64: two words a register; element i of A at (row, k), B at (k, g), C at (row, 2q + i % 2).
TEST(MmaSync, DoublePrecision) {
  struct Case {
    int m, k;
  };
  for (const Case& s : {Case{8, 4}, Case{16, 4}, Case{16, 8}, Case{16, 16}}) {
    const int a_regs = s.m * s.k / 32, b_regs = 8 * s.k / 32, c_regs = s.m * 8 / 32;
    std::vector<double> a(static_cast<size_t>(s.m * s.k)), b(static_cast<size_t>(8 * s.k)),
        c(static_cast<size_t>(s.m * 8));
    TestRandom random(7);
    for (auto* list : {&a, &b, &c})
      for (double& v : *list) v = random.below(2001) / 7.0 - 140;
    std::vector<uint32_t> words(static_cast<size_t>((a_regs + b_regs + c_regs) * 64));
    const auto store = [&](int reg, int lane, double value) {
      const auto bits = std::bit_cast<uint64_t>(value);
      words[static_cast<size_t>(2 * reg * 32 + lane)] = static_cast<uint32_t>(bits);
      words[static_cast<size_t>((2 * reg + 1) * 32 + lane)] = static_cast<uint32_t>(bits >> 32);
    };
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, q = l % 4;
      for (int i = 0; i < a_regs; ++i) {
        const int row = s.m == 8 ? g : s.k == 4 ? g + 8 * i : g + 8 * (i & 1);
        const int k = s.m == 8 || s.k == 4 ? q : q + 4 * (i >> 1);
        store(i, l, a[static_cast<size_t>(row * s.k + k)]);
      }
      for (int i = 0; i < b_regs; ++i) store(a_regs + i, l, b[static_cast<size_t>(g * s.k + q + 4 * i)]);
      for (int i = 0; i < c_regs; ++i)
        store(a_regs + b_regs + i, l,
              c[static_cast<size_t>((g + (s.m == 8 ? 0 : 8 * (i >> 1))) * 8 + 2 * q + (i & 1))]);
    }
    RegisterKernel kernel;
    kernel.inputs = 2 * (a_regs + b_regs + c_regs);
    kernel.outputs = 2 * c_regs;
    kernel.declarations = "  .reg .f64 %fd<32>;\n";
    const auto list = [](int first, int count) {
      std::string text = "{";
      for (int i = 0; i < count; ++i) text += fmt::format("{}%fd{}", i == 0 ? "" : ", ", first + i);
      return text + "}";
    };
    for (int i = 0; i < a_regs + b_regs + c_regs; ++i)
      kernel.body += fmt::format("  mov.b64 %fd{}, {{%in{}, %in{}}};\n", i, 2 * i, 2 * i + 1);
    kernel.body += fmt::format("  mma.sync.aligned.m{}n8k{}.row.col.f64.f64.f64.f64 {}, {}, {}, {};\n", s.m,
                               s.k, list(a_regs + b_regs, c_regs), list(0, a_regs), list(a_regs, b_regs),
                               list(a_regs + b_regs, c_regs));
    for (int i = 0; i < c_regs; ++i)
      kernel.body +=
          fmt::format("  mov.b64 {{%out{}, %out{}}}, %fd{};\n", 2 * i, 2 * i + 1, a_regs + b_regs + i);
    const RegisterKernel::Result result = kernel.run(words);
    ASSERT_TRUE(result.report.clean()) << result.report.format();
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < c_regs; ++i) {
        const int row = l / 4 + (s.m == 8 ? 0 : 8 * (i >> 1)), column = 2 * (l % 4) + (i & 1);
        double expected = c[static_cast<size_t>(row * 8 + column)];
        for (int x = 0; x < s.k; ++x)
          expected = std::fma(a[static_cast<size_t>(row * s.k + x)], b[static_cast<size_t>(column * s.k + x)],
                              expected);
        const uint64_t bits =
            result.registers[static_cast<size_t>(2 * i * 32 + l)] |
            static_cast<uint64_t>(result.registers[static_cast<size_t>((2 * i + 1) * 32 + l)]) << 32;
        ASSERT_EQ(std::bit_cast<double>(bits), expected) << "m " << s.m << " k " << s.k;
      }
  }
}

// ---- ldmatrix, stmatrix, movmatrix
// ----------------------------------------------------------------------------

TEST(MatrixMoves, LdmatrixPlainAndTransposed) {
  for (int count : {1, 2, 4})
    for (bool trans : {false, true}) {
      RegisterKernel kernel;
      kernel.outputs = count;
      kernel.shared_bytes = 32 * 32;
      // Rows are scattered: the row of lane l lies at 16 * ((l * 7) % 64), so that every address is looked
      // at.
      kernel.body =
          "  mul.lo.u32 %r2, %r1, 7;\n  and.b32 %r2, %r2, 63;\n  shl.b32 %r2, %r2, 4;\n  mov.u32 %r3, tile;\n"
          "  add.u32 %r2, %r2, %r3;\n";
      kernel.body += fmt::format("  ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {}, [%r2];\n", count,
                                 trans ? ".trans" : "", register_list("out", 0, count));
      std::vector<uint8_t> tile(1024);
      for (size_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<uint8_t>(i * 37 + i / 256);
      const RegisterKernel::Result result = kernel.run({}, tile);
      ASSERT_TRUE(result.report.clean()) << result.report.format();
      const auto element = [&](int matrix, int row, int column) {
        const auto at = static_cast<size_t>(16 * ((8 * matrix + row) * 7 % 64) + 2 * column);
        return static_cast<uint32_t>(tile[at] | tile[at + 1] << 8);
      };
      for (int j = 0; j < count; ++j)
        for (int l = 0; l < 32; ++l) {
          const int g = l / 4, q = l % 4;
          const uint32_t expected = trans ? element(j, 2 * q, g) | element(j, 2 * q + 1, g) << 16
                                          : element(j, g, 2 * q) | element(j, g, 2 * q + 1) << 16;
          ASSERT_EQ(result.registers[static_cast<size_t>(j * 32 + l)], expected)
              << "x" << count << " lane " << l;
        }
    }
}

TEST(MatrixMoves, StmatrixIsTheInverse) {
  for (int count : {1, 2, 4})
    for (bool trans : {false, true}) {
      RegisterKernel kernel;
      kernel.inputs = count;
      kernel.shared_bytes = 512;
      kernel.body = "  shl.b32 %r2, %r1, 4;\n  mov.u32 %r3, tile;\n  add.u32 %r2, %r2, %r3;\n";
      kernel.body += fmt::format("  stmatrix.sync.aligned.m8n8.x{}{}.shared.b16 [%r2], {};\n", count,
                                 trans ? ".trans" : "", register_list("in", 0, count));
      std::vector<uint32_t> registers(static_cast<size_t>(count * 32));
      TestRandom random(3);
      for (uint32_t& r : registers) r = random.next();
      const RegisterKernel::Result result = kernel.run(registers, std::vector<uint8_t>(512, 0xEE));
      ASSERT_TRUE(result.report.clean()) << result.report.format();
      for (int j = 0; j < 4; ++j)
        for (int row = 0; row < 8; ++row)
          for (int column = 0; column < 8; ++column) {
            const int l = trans ? column * 4 + row / 2 : row * 4 + column / 2;
            const int h = trans ? row % 2 : column % 2;
            const uint32_t expected =
                j < count ? registers[static_cast<size_t>(j * 32 + l)] >> 16 * h & 0xFFFF : 0xEEEEu;
            const auto at = static_cast<size_t>(j * 128 + row * 16 + column * 2);
            ASSERT_EQ(static_cast<uint32_t>(result.tile[at] | result.tile[at + 1] << 8), expected);
          }
    }
}

TEST(MatrixMoves, MovmatrixTransposes) {
  RegisterKernel kernel;
  kernel.inputs = kernel.outputs = 1;
  kernel.body = "  movmatrix.sync.aligned.m8n8.trans.b16 %out0, %in0;\n";
  std::vector<uint32_t> registers(32);
  for (uint32_t l = 0; l < 32; ++l)
    registers[l] = (l / 4 * 8 + 2 * (l % 4)) | (l / 4 * 8 + 2 * (l % 4) + 1) << 16;
  const RegisterKernel::Result result = kernel.run(registers);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t row = l / 4, column = 2 * (l % 4);  // of the result: element (r, c) is 8 c + r
    EXPECT_EQ(result.registers[l], (8 * column + row) | (8 * (column + 1) + row) << 16);
  }
}

TEST(MatrixMoves, MisalignedRowsAreFound) {
  RegisterKernel kernel;
  kernel.outputs = 1;
  kernel.shared_bytes = 512;
  kernel.body =
      "  shl.b32 %r2, %r1, 3;\n  mov.u32 %r3, tile;\n  add.u32 %r2, %r2, %r3;\n"
      "  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%out0}, [%r2];\n";
  const RegisterKernel::Result result = kernel.run({}, std::vector<uint8_t>(512, 1));
  ASSERT_FALSE(result.report.findings.empty());
  EXPECT_EQ(result.report.findings[0].kind, FindingKind::kMisaligned);
}

}  // namespace
}  // namespace imbrex::vgpu
