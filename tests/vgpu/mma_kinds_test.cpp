// SPDX-License-Identifier: Apache-2.0
// mma.sync with a .kind (sm_120a): every pair of element types, every place a scale can have. Fragments and scales are
// laid out by the closed formulas of the manual's tables; what is not to be read holds NaN.
#include <bit>

#include "../ptxas.h"
#include "core/float_formats.h"
#include "imbrex/core/error.h"
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

struct ElementType {
  const char* name;
  arith::FloatFormat format;
  int bits, shift;  // of the element in a byte of its own
};
const ElementType kE4M3{"e4m3", arith::kE4M3, 8, 0}, kE5M2{"e5m2", arith::kE5M2, 8, 0},
    kE2M3{"e2m3", arith::kE2M3, 6, 0}, kE3M2{"e3m2", arith::kE3M2, 6, 0}, kE2M1{"e2m1", arith::kE2M1, 4, 2};

struct KindCase {
  std::string kind;
  ElementType a = kE4M3, b = kE4M3;
  int per_row = 0;  // scales; 0: none
  const char* scale = "ue8m0";
  int byte_a = 0, thread_a = 0, byte_b = 0, thread_b = 0;
  bool half = false;
  bool selectors_in_registers = false;
  bool is_packed() const { return kind.starts_with("mxf4"); }
  int k() const { return is_packed() ? 64 : 32; }
};

/// A finite element: small enough that sums are exact.
int random_code(TestRandom& random, const ElementType& type) {
  if (type.bits == 8) {
    const double value = (random.below(17) - 8) * 0.5;
    return static_cast<int>(arith::encode(type.format, value));
  }
  return random.below(1 << type.bits);
}
int random_scale(TestRandom& random, const KindCase& c) {
  const bool is_e8m0 = std::string_view(c.scale) == "ue8m0";
  return is_e8m0 ? 125 + random.below(5)
                 : static_cast<int>(arith::encode(arith::kUE4M3, 0.25 * (1 + random.below(12))));
}

std::string instruction(const KindCase& c) {
  std::string text = fmt::format("mma.sync.aligned.kind::{}", c.kind);
  if (c.per_row > 0) text += fmt::format(".block_scale.scale_vec::{}X", c.per_row);
  const char* d = c.half ? "f16" : "f32";
  text += fmt::format(".m16n8k{}.row.col.{}.{}.{}.{}", c.k(), d, c.a.name, c.b.name, d);
  if (c.per_row > 0) text += fmt::format(".{}", c.scale);
  return text;
}

struct Outcome {
  RegisterKernel::Result result;
  std::vector<double> expected;  // [16][8]
};

Outcome run(const KindCase& c, TensorMath math, uint32_t seed) {
  const int k = c.k(), d_regs = c.half ? 2 : 4;
  TestRandom random(seed * 977 + static_cast<uint32_t>(k));
  std::vector<int> a(16 * k), b(8 * k), sa(16 * 4), sb(8 * 4);
  std::vector<double> sums(16 * 8);
  for (int& x : a) x = random_code(random, c.a);
  for (int& x : b) x = random_code(random, c.b);
  for (int& x : sa) x = random_scale(random, c);
  for (int& x : sb) x = random_scale(random, c);
  for (double& x : sums) x = random.below(33) - 16;

  // Inputs: A 0-3, B 4-5, C 6-9, scales 10 and 11, selectors 12-15.
  std::vector<uint32_t> in(16 * 32, 0);
  const auto put = [&](int reg, int lane, int bit, uint32_t value) { in[reg * 32 + lane] |= value << bit; };
  const int element_bits = c.is_packed() ? 4 : 8, per_word = 32 / element_bits;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < per_word; ++e)
        put(r, lane, e * element_bits,
            static_cast<uint32_t>(a[(g + 8 * (r % 2)) * k + per_word * q + e + 4 * per_word * (r / 2)])
                << (c.is_packed() ? 0 : c.a.shift));
    for (int r = 0; r < 2; ++r)
      for (int e = 0; e < per_word; ++e)
        put(4 + r, lane, e * element_bits,
            static_cast<uint32_t>(b[g * k + per_word * q + e + 4 * per_word * r])
                << (c.is_packed() ? 0 : c.b.shift));
    for (int i = 0; i < 4; ++i) {
      const double value = sums[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2];
      if (c.half)
        put(6 + i / 2, lane, 16 * (i % 2), arith::f32_to_f16(static_cast<float>(value)));
      else
        put(6 + i, lane, 0, std::bit_cast<uint32_t>(static_cast<float>(value)));
    }
    in[10 * 32 + lane] = in[11 * 32 + lane] = 0xFFFFFFFF;
    in[12 * 32 + lane] = c.byte_a, in[13 * 32 + lane] = c.thread_a;
    in[14 * 32 + lane] = c.byte_b, in[15 * 32 + lane] = c.thread_b;
  }
  const auto set_scale = [&](int reg, int lane, int byte, int value) {
    uint32_t& word = in[reg * 32 + lane];
    word = (word & ~(0xFFu << 8 * byte)) | static_cast<uint32_t>(value) << 8 * byte;
  };
  for (int s = 0; s < c.per_row; ++s) {
    for (int row = 0; row < 16; ++row)
      set_scale(10, 4 * (row % 8) + 2 * c.thread_a + row / 8, c.byte_a + s, sa[row * 4 + s]);
    for (int column = 0; column < 8; ++column)
      set_scale(11, 4 * column + c.thread_b, c.byte_b + s, sb[column * 4 + s]);
  }

  const arith::FloatFormat& scale = std::string_view(c.scale) == "ue8m0" ? arith::kUE8M0 : arith::kUE4M3;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int i = 0; i < k; ++i) {
        double product =
            arith::decode(c.a.format, a[row * k + i]) * arith::decode(c.b.format, b[column * k + i]);
        if (c.per_row > 0) {
          const int s = i / (k / c.per_row);
          product *= arith::decode(scale, sa[row * 4 + s]) * arith::decode(scale, sb[column * 4 + s]);
        }
        sums[row * 8 + column] += product;
      }

  RegisterKernel kernel;
  kernel.target = "sm_120a";
  kernel.inputs = 16;
  kernel.outputs = d_regs;
  kernel.math = math;
  std::string where_a = fmt::format("{{{}, {}}}", c.byte_a, c.thread_a);
  std::string where_b = fmt::format("{{{}, {}}}", c.byte_b, c.thread_b);
  if (c.selectors_in_registers) {
    kernel.declarations = "  .reg .b16 %h<4>;\n";
    for (int i = 0; i < 4; ++i) kernel.body += fmt::format("  cvt.u16.u32 %h{}, %in{};\n", i, 12 + i);
    where_a = "{%h0, %h1}", where_b = "{%h2, %h3}";
  }
  const std::string tail = c.per_row == 0 ? "" : fmt::format(", {{%in10}}, {}, %in11, {}", where_a, where_b);
  kernel.body +=
      fmt::format("  {} {}, {}, {}, {}{};\n", instruction(c), register_list("out", 0, d_regs),
                  register_list("in", 0, 4), register_list("in", 4, 2), register_list("in", 6, d_regs), tail);
  return {kernel.run(in), std::move(sums)};
}

void check(const KindCase& c) {
  SCOPED_TRACE(instruction(c) +
               fmt::format(" {{{}, {}}} {{{}, {}}}", c.byte_a, c.thread_a, c.byte_b, c.thread_b));
  for (TensorMath math : {TensorMath::kExact, TensorMath::kFast}) {
    const Outcome r = run(c, math, 5);
    ASSERT_TRUE(r.result.report.clean()) << r.result.report.format();
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        const uint32_t word = r.result.registers[static_cast<size_t>((c.half ? i / 2 : i) * 32 + lane)];
        const double got = c.half ? arith::f16_to_f32(static_cast<uint16_t>(word >> 16 * (i % 2)))
                                  : std::bit_cast<float>(word);
        const double want =
            c.half ? arith::f16_to_f32(arith::f32_to_f16(static_cast<float>(r.expected[row * 8 + column])))
                   : r.expected[row * 8 + column];
        ASSERT_EQ(got, want) << "row " << row << " column " << column;
      }
    EXPECT_EQ(r.result.report.statistics.tensor_flops, int64_t{2} * 16 * 8 * c.k());
  }
}

TEST(MmaKinds, NarrowFloatsOfEveryPairOfTypes) {
  for (const ElementType& a : {kE4M3, kE5M2, kE2M3, kE3M2, kE2M1})
    for (const ElementType& b : {kE4M3, kE5M2, kE2M3, kE3M2, kE2M1}) {
      check({.kind = "f8f6f4", .a = a, .b = b});
      check({.kind = "mxf8f6f4", .a = a, .b = b, .per_row = 1});
    }
  check({.kind = "f8f6f4", .a = kE2M1, .b = kE3M2, .half = true});
}

TEST(MmaKinds, ScalesWhereverTheSelectorsSay) {
  for (int thread_a : {0, 1})
    for (int thread_b : {0, 1, 2, 3})
      for (bool in_registers : {false, true}) {
        const int byte = (thread_a + thread_b) % 4;
        check({.kind = "mxf8f6f4",
               .per_row = 1,
               .byte_a = byte,
               .thread_a = thread_a,
               .byte_b = 3 - byte,
               .thread_b = thread_b,
               .selectors_in_registers = in_registers});
        for (const char* kind : {"mxf4", "mxf4nvf4"})
          check({.kind = kind,
                 .a = kE2M1,
                 .b = kE2M1,
                 .per_row = 2,
                 .byte_a = byte / 2 * 2,
                 .thread_a = thread_a,
                 .byte_b = 2 - byte / 2 * 2,
                 .thread_b = thread_b,
                 .selectors_in_registers = in_registers});
        check({.kind = "mxf4nvf4",
               .a = kE2M1,
               .b = kE2M1,
               .per_row = 4,
               .scale = "ue4m3",
               .thread_a = thread_a,
               .thread_b = thread_b,
               .selectors_in_registers = in_registers});
      }
}

TEST(MmaKinds, SelectorsOutOfRangeEndTheKernel) {
  for (const KindCase& c :
       {KindCase{.kind = "mxf8f6f4", .per_row = 1, .byte_a = 4, .selectors_in_registers = true},
        KindCase{.kind = "mxf8f6f4", .per_row = 1, .thread_a = 2, .selectors_in_registers = true},
        KindCase{.kind = "mxf4",
        .a = kE2M1,
        .b = kE2M1,
        .per_row = 2,
        .byte_b = 1,
        .selectors_in_registers = true}}) {
    const Outcome r = run(c, TensorMath::kExact, 1);
    ASSERT_EQ(r.result.report.findings.size(), 1u) << r.result.report.format();
    EXPECT_EQ(r.result.report.findings[0].kind, FindingKind::kIllegalInstruction);
    EXPECT_NE(r.result.report.format().find("-id-"), std::string::npos) << r.result.report.format();
  }
}

TEST(MmaKinds, ArePartOfSm120AndOfNothingBefore) {
  KindCase c{.kind = "mxf8f6f4", .per_row = 1};
  RegisterKernel kernel;
  kernel.inputs = 12;
  kernel.outputs = 4;
  kernel.body = fmt::format("  {} {}, {}, {}, {}, %in10, {{0, 0}}, %in11, {{0, 0}};\n", instruction(c),
                            register_list("out", 0, 4), register_list("in", 0, 4), register_list("in", 4, 2),
                            register_list("in", 6, 4));
  for (const char* target : {"sm_90a", "sm_100a", "sm_120"}) {
    kernel.target = target;
    EXPECT_THROW(kernel.run(std::vector<uint32_t>(12 * 32)), Error) << target;
  }
  for (const char* target : {"sm_120a", "sm_120f", "sm_121a"}) {
    kernel.target = target;
    EXPECT_TRUE(kernel.run(std::vector<uint32_t>(12 * 32)).report.clean()) << target;
  }
}

TEST(MmaKinds, AssembleForSm120a) {
  IMBREX_NEEDS_PTXAS();
  std::string body =
      ".version 9.0\n.target sm_120a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
      "  .reg .b32 %out<4>, %in<12>;\n";
  const auto add = [&](const KindCase& c) {
    body += fmt::format("  {} {}, {}, {}, {}", instruction(c), register_list("out", 0, c.half ? 2 : 4),
                        register_list("in", 0, 4), register_list("in", 4, 2),
                        register_list("in", 6, c.half ? 2 : 4));
    body += c.per_row == 0 ? ";\n"
                           : fmt::format(", {{%in10}}, {{{}, 1}}, {{%in11}}, {{{}, 3}};\n",
                                         c.per_row == 1 ? 3 : 0, c.per_row == 2 ? 2 : 0);
  };
  for (const ElementType& type : {kE4M3, kE5M2, kE2M3, kE3M2, kE2M1}) {
    add({.kind = "f8f6f4", .a = type, .half = true});
    add({.kind = "mxf8f6f4", .a = type, .b = kE2M1, .per_row = 1});
  }
  add({.kind = "mxf4", .a = kE2M1, .b = kE2M1, .per_row = 2});
  add({.kind = "mxf4nvf4", .a = kE2M1, .b = kE2M1, .per_row = 2});
  add({.kind = "mxf4nvf4", .a = kE2M1, .b = kE2M1, .per_row = 4, .scale = "ue4m3"});
  EXPECT_EQ(ptxas_says(body + "  ret;\n}\n", "-arch=sm_120a"), "");
}

// fp8 without a kind: since sm_89, whose sums keep 13 bits; small integers are exact all the same.
TEST(MmaKinds, Float8RunsOnAdaAndOnBlackwellForGraphics) {
  for (const char* target : {"sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    RegisterKernel kernel;
    kernel.target = target;
    kernel.inputs = 6;
    kernel.outputs = 4;
    kernel.start_outputs = true;
    kernel.body = fmt::format("  mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {}, {}, {}, {};\n",
                              register_list("out", 0, 4), register_list("in", 0, 4),
                              register_list("in", 4, 2), register_list("out", 0, 4));
    std::vector<uint32_t> in(10 * 32, 0x38383838);                                  // 1 in e4m3
    for (int i = 4 * 32; i < 6 * 32; ++i) in[static_cast<size_t>(i)] = 0x40404040;  // 2 in e5m2
    for (int i = 6 * 32; i < 10 * 32; ++i) in[static_cast<size_t>(i)] = std::bit_cast<uint32_t>(3.0f);
    const RegisterKernel::Result result = kernel.run(in);
    ASSERT_TRUE(result.report.clean()) << result.report.format();
    for (uint32_t word : result.registers) ASSERT_EQ(std::bit_cast<float>(word), 3 + 64) << target;
  }
  RegisterKernel kernel;
  kernel.target = "sm_86";
  kernel.inputs = 10;
  kernel.outputs = 4;
  kernel.body = fmt::format("  mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {}, {}, {}, {};\n",
                            register_list("out", 0, 4), register_list("in", 0, 4), register_list("in", 4, 2),
                            register_list("in", 6, 4));
  EXPECT_THROW(kernel.run(std::vector<uint32_t>(10 * 32)), Error);
}

}  // namespace
}  // namespace imbrex::vgpu
