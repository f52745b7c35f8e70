// SPDX-License-Identifier: Apache-2.0
// wgmma on the virtual Hopper: every element of A and B at the address its descriptor formula says, every
// element of D in the register its fragment formula says; small integers, so that sums are exact in every
// type.
#include <fmt/format.h>

#include <bit>

#include "core/float_formats.h"
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

enum class Mode { kNone, k32B, k64B, k128B };

struct Case {
  std::string types;  // d.a.b as written
  std::string a, d;
  int bits, n, k;
  bool a_in_registers = false;
  bool a_mn = false, b_mn = false;  // MN-major
  Mode mode = Mode::k128B;
  bool negate_a = false, negate_b = false;
  bool accumulate = true;
  int base_shift = 0;  // start of the tiles off the pattern's period, in 128-byte lines
};

int span_of(Mode mode) {
  return mode == Mode::k128B ? 128 : mode == Mode::k64B ? 64 : mode == Mode::k32B ? 32 : 16;
}
uint64_t code_of(Mode mode) {
  return mode == Mode::k128B ? 1 : mode == Mode::k64B ? 2 : mode == Mode::k32B ? 3 : 0;
}

uint32_t swizzled(Mode mode, uint32_t address) {
  const uint32_t mask = mode == Mode::k128B ? 7 : mode == Mode::k64B ? 3 : mode == Mode::k32B ? 1 : 0;
  return address ^ (address >> 7 & mask) << 4;
}

// Dense tiles: byte offsets and the descriptor's strides for an operand of `extent` x K.
struct Layout {
  Mode mode;
  bool mn_major;
  int extent, es;  // rows, element bytes

  int w() const { return span_of(mode); }
  int lbo() const {
    if (mode == Mode::kNone) return mn_major ? extent * es / 16 * 128 : extent / 8 * 128;
    return mn_major ? 8 * w() * 2 : 16;  // two groups of 8 k lie between two groups of W bytes
  }
  int sbo() const {
    if (mode == Mode::kNone) return 128;
    return 8 * w();
  }
  int offset(int mn, int k) const {
    if (mode == Mode::kNone)
      return mn_major ? mn * es / 16 * sbo() + mn * es % 16 + k % 8 * 16 + k / 8 * lbo()
                      : mn / 8 * sbo() + mn % 8 * 16 + k * es / 16 * lbo() + k * es % 16;
    return mn_major ? mn * es / w() * lbo() + mn * es % w() + k % 8 * w() + k / 8 * sbo()
                    : mn / 8 * sbo() + mn % 8 * w() + k * es;
  }
  uint64_t descriptor() const {
    return static_cast<uint64_t>(lbo() / 16) << 16 | static_cast<uint64_t>(sbo() / 16) << 32 |
           code_of(mode) << 62;
  }
};

uint32_t encode(const std::string& type, int value) {
  if (type == "f16") return arith::f32_to_f16(static_cast<float>(value));
  if (type == "bf16") return arith::f32_to_bf16(static_cast<float>(value));
  if (type == "tf32" || type == "f32") return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == "e4m3") return static_cast<uint32_t>(arith::encode(arith::kE4M3, value));
  if (type == "e5m2") return static_cast<uint32_t>(arith::encode(arith::kE5M2, value));
  return static_cast<uint32_t>(value);
}

std::string text_of(const Case& c) {
  return fmt::format("{} n{} {}{}{} mode {} shift {}", c.types, c.n,
                     c.a_in_registers ? "A in registers " : "", c.a_mn ? "A mn " : "", c.b_mn ? "B mn " : "",
                     span_of(c.mode), c.base_shift);
}

void check(const Case& c, uint64_t seed = 0) {
  SCOPED_TRACE(text_of(c));
  constexpr int kM = 64, kThreads = 128;
  const int es = c.bits / 8;
  const Layout a_layout{c.mode, c.a_mn, kM, es}, b_layout{c.mode, c.b_mn, c.n, es};
  constexpr uint32_t kTileBytes = 32768;  // each; generous
  const uint32_t a_at = static_cast<uint32_t>(128 * c.base_shift), b_at = kTileBytes + a_at;
  TestRandom random(static_cast<uint32_t>(c.n + c.k));
  const bool is_unsigned = c.a == "u8";
  std::vector<int> a(static_cast<size_t>(kM * c.k)), b(static_cast<size_t>(c.n * c.k)),
      d(static_cast<size_t>(kM * c.n));
  for (int& v : a) v = random.below(7) - (is_unsigned ? 0 : 3);
  for (int& v : b) v = random.below(7) - (is_unsigned ? 0 : 3);
  for (int& v : d) v = random.below(41) - 20;

  std::vector<uint8_t> tile(2 * kTileBytes, 0xEE);
  // The tile begins at shared 0x400 or later, a multiple of 1024: offsets in it swizzle like addresses.
  const auto store = [&](uint32_t start, const Layout& layout, int mn, int k, uint32_t bits) {
    const uint32_t at = swizzled(layout.mode, start + static_cast<uint32_t>(layout.offset(mn, k)));
    for (int byte = 0; byte < es; ++byte)
      tile[at + static_cast<uint32_t>(byte)] = static_cast<uint8_t>(bits >> 8 * byte);
  };
  for (int k = 0; k < c.k; ++k) {
    for (int m = 0; m < kM; ++m)
      store(a_at, a_layout, m, k, encode(c.a, a[static_cast<size_t>(m * c.k + k)]));
    for (int n = 0; n < c.n; ++n)
      store(b_at, b_layout, n, k, encode(c.a, b[static_cast<size_t>(n * c.k + k)]));
  }

  const bool half = c.d == "f16";
  const int d_regs = half ? c.n / 4 : c.n / 2, a_regs = c.a_in_registers ? 4 : 0;
  std::vector<uint32_t> registers(static_cast<size_t>((a_regs + d_regs) * kThreads));
  const auto word = [&](int reg, int thread) -> uint32_t& {
    return registers[static_cast<size_t>(reg * kThreads + thread)];
  };
  const auto d_row = [](int t, int i) { return 16 * (t / 32) + t % 32 / 4 + 8 * (i >> 1 & 1); };
  const auto d_column = [](int t, int i) { return 8 * (i >> 2) + 2 * (t % 4) + (i & 1); };
  for (int t = 0; t < kThreads; ++t) {
    const int per = 32 / c.bits;
    for (int i = 0; c.a_in_registers && i < 4 * per; ++i) {
      const int g = 16 * (t / 32) + t % 32 / 4, q = t % 4;
      int row = 0, k = 0;
      if (c.bits == 16) row = g + 8 * (i >> 1 & 1), k = 2 * q + (i & 1) + 8 * (i >> 2);
      if (c.bits == 32) row = g + 8 * (i & 1), k = q + 4 * (i >> 1);
      if (c.bits == 8) row = g + 8 * (i >> 2 & 1), k = 4 * q + (i & 3) + 16 * (i >> 3);
      const uint32_t mask = c.bits == 32 ? ~0u : (1u << c.bits) - 1;
      word(i / per, t) |= (encode(c.a, a[static_cast<size_t>(row * c.k + k)]) & mask) << i % per * c.bits;
    }
    for (int i = 0; i < c.n / 2; ++i) {
      const uint32_t bits = encode(c.d, d[static_cast<size_t>(d_row(t, i) * c.n + d_column(t, i))]);
      if (half)
        word(a_regs + i / 2, t) |= bits << 16 * (i % 2);
      else
        word(a_regs + i, t) = bits;
    }
  }

  RegisterKernel kernel;
  kernel.threads = kThreads;
  kernel.inputs = a_regs;
  kernel.outputs = d_regs;
  kernel.start_outputs = true;
  kernel.shared_bytes = static_cast<int>(tile.size());
  kernel.seed = seed;
  const bool integer = c.d == "s32";
  kernel.body = "  fence.proxy.async;\n  bar.sync 0;\n  mov.u32 %r2, tile;\n";
  const auto descriptor = [&](const char* reg, uint32_t at, const Layout& layout) {
    return fmt::format(
        "  add.u32 %r3, %r2, {};\n  and.b32 %r3, %r3, 0x3FFFF;\n  shr.u32 %r3, %r3, 4;\n  cvt.u64.u32 {}, "
        "%r3;\n"
        "  or.b64 {}, {}, {};\n",
        at, reg, reg, reg, layout.descriptor());
  };
  kernel.body += descriptor("%rd10", a_at, a_layout) + descriptor("%rd11", b_at, b_layout);
  kernel.body +=
      fmt::format("  setp.ne.u32 %p1, {}, 0;\n  wgmma.fence.sync.aligned;\n", c.accumulate ? 1 : 0);
  std::string tail = ", %p1";
  if (!integer) tail += fmt::format(", {}, {}", c.negate_a ? -1 : 1, c.negate_b ? -1 : 1);
  if (c.bits == 16)
    tail += fmt::format("{}, {}", c.a_in_registers ? "" : fmt::format(", {}", int{c.a_mn}), int{c.b_mn});
  kernel.body += fmt::format("  wgmma.mma_async.sync.aligned.m64n{}k{}.{} {}, {}, %rd11{};\n", c.n, c.k,
                             c.types, register_list("out", 0, d_regs),
                             c.a_in_registers ? register_list("in", 0, 4) : "%rd10", tail);
  kernel.body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n";
  const RegisterKernel::Result result = kernel.run(registers, tile);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i < c.n / 2; ++i) {
      const int row = d_row(t, i), column = d_column(t, i);
      int expected = c.accumulate ? d[static_cast<size_t>(row * c.n + column)] : 0;
      const int sign = c.negate_a != c.negate_b ? -1 : 1;
      for (int k = 0; k < c.k; ++k)
        expected += sign * a[static_cast<size_t>(row * c.k + k)] * b[static_cast<size_t>(column * c.k + k)];
      const uint32_t bits = result.registers[static_cast<size_t>((half ? i / 2 : i) * kThreads + t)];
      const int value = half
                            ? static_cast<int>(arith::f16_to_f32(static_cast<uint16_t>(bits >> 16 * (i % 2))))
                        : integer ? static_cast<int>(bits)
                                  : static_cast<int>(std::bit_cast<float>(bits));
      ASSERT_EQ(value, expected) << "row " << row << " column " << column;
    }
}

TEST(Wgmma, TypesAndWidths) {
  for (int n : {8, 24, 64, 96, 256}) {
    check({"f32.f16.f16", "f16", "f32", 16, n, 16});
    check({"f32.bf16.bf16", "bf16", "f32", 16, n, 16});
    check({"f16.f16.f16", "f16", "f16", 16, n, 16});
    check({"f32.tf32.tf32", "tf32", "f32", 32, n, 8});
    check({"f32.e4m3.e4m3", "e4m3", "f32", 8, n, 32});
    check({"f16.e5m2.e5m2", "e5m2", "f16", 8, n, 32});
    check({"s32.s8.s8", "s8", "s32", 8, n, 32});
    check({"s32.u8.u8.satfinite", "u8", "s32", 8, n, 32});
  }
}

TEST(Wgmma, AFromRegisters) {
  for (int n : {8, 64}) {
    check({"f32.f16.f16", "f16", "f32", 16, n, 16, true});
    check({"f16.f16.f16", "f16", "f16", 16, n, 16, true});
    check({"f32.tf32.tf32", "tf32", "f32", 32, n, 8, true});
    check({"f32.e4m3.e4m3", "e4m3", "f32", 8, n, 32, true});
    check({"s32.u8.u8", "u8", "s32", 8, n, 32, true});
  }
}

TEST(Wgmma, EveryModeAndMajor) {
  for (Mode mode : {Mode::kNone, Mode::k32B, Mode::k64B, Mode::k128B})
    for (bool a_mn : {false, true})
      for (bool b_mn : {false, true})
        for (int shift : {0, 3})
          check({"f32.bf16.bf16", "bf16", "f32", 16, 64, 16, false, a_mn, b_mn, mode, false, false, true,
                 shift});
}

TEST(Wgmma, NegationAndScaleD) {
  for (bool negate_a : {false, true})
    for (bool negate_b : {false, true})
      for (bool accumulate : {false, true})
        check({"f32.f16.f16", "f16", "f32", 16, 32, 16, false, false, false, Mode::k64B, negate_a, negate_b,
               accumulate});
}

TEST(Wgmma, SeedsChangeNothing) {
  for (uint64_t seed : {1, 2, 3, 4}) check({"f32.f16.f16", "f16", "f32", 16, 64, 16}, seed);
}

// Chains of products into the same registers, and two accumulators in turns.
TEST(Wgmma, ChainsAccumulate) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    RegisterKernel kernel;
    kernel.threads = 128;
    kernel.outputs = 8;
    kernel.start_outputs = true;
    kernel.shared_bytes = 65536 / 2;
    kernel.seed = seed;
    const auto product = [](int first, const char* b, int add) {
      return fmt::format(
          "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {}, %rd10, {}, {}, 1, 1, 0, 0;\n",
          register_list("out", first, 4), b, add);
    };
    kernel.body =
        "  fence.proxy.async;\n  bar.sync 0;\n  mov.u32 %r2, tile;\n  shr.u32 %r2, %r2, 4;\n  cvt.u64.u32 "
        "%rd10, %r2;\n"
        "  or.b64 %rd10, %rd10, 0x4000004000010000;\n  add.u64 %rd11, %rd10, 1024;\n  "
        "wgmma.fence.sync.aligned;\n";
    // Accumulator 0: 1 + 3 products by B; accumulator 1: its start is dropped, then 2 products by B', then
    // one by B.
    kernel.body += product(0, "%rd11", 1) + product(0, "%rd11", 1) + product(4, "%rd10", 0) +
                   product(0, "%rd11", 1) + product(4, "%rd10", 1) + product(4, "%rd11", 1);
    kernel.body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n";
    // A and B' are all ones, B is all twos.
    std::vector<uint8_t> tile(32768);
    for (size_t i = 0; i < tile.size(); i += 2) tile[i + 1] = i < 16384 ? 0x3C : 0x40;
    std::vector<uint32_t> start(8 * 128, std::bit_cast<uint32_t>(1.0f));
    const RegisterKernel::Result r = kernel.run(start, tile);
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (size_t i = 0; i < 8 * 128; ++i)
      ASSERT_EQ(std::bit_cast<float>(r.registers[i]), i < 4 * 128 ? 1 + 3 * 32 : 16 + 16 + 32) << i;
  }
}

// ---- misuse
// -----------------------------------------------------------------------------------------------------

RegisterKernel small_kernel(const std::string& middle) {
  RegisterKernel kernel;
  kernel.threads = 128;
  kernel.outputs = 4;
  kernel.start_outputs = true;
  kernel.shared_bytes = 4096;
  kernel.body =
      "  fence.proxy.async;\n  bar.sync 0;\n  mov.u32 %r2, tile;\n  shr.u32 %r2, %r2, 4;\n  cvt.u64.u32 "
      "%rd10, %r2;\n"
      "  or.b64 %rd10, %rd10, 0x4000001000010000;\n" +
      middle;
  return kernel;
}
constexpr const char* kProduct =
    "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%out0, %out1, %out2, %out3}, %rd10, %rd10, 1, 1, "
    "1, 0, 0;\n";

Report run_small(const std::string& middle) {
  return small_kernel(middle).run(std::vector<uint32_t>(4 * 128), std::vector<uint8_t>(4096)).report;
}

// The assembler makes such a read wait, so its value is right; the PTX is wrong all the same.
TEST(Wgmma, AResultReadBeforeTheWaitIsRightAndFound) {
  const std::string commit = "  wgmma.commit_group.sync.aligned;\n";
  const std::string wait = "  wgmma.wait_group.sync.aligned ";
  const std::string twice = "  add.f32 %out0, %out0, %out0;\n";
  struct Case {
    std::string after_product;
    bool found;
  };
  const Case cases[] = {
      {commit + twice + wait + "0;\n", true},
      {twice + commit + wait + "0;\n", true},
      {commit + wait + "1;\n" + twice + wait + "0;\n", true},
      // Only one warp reads: the others may be issuing the next product by then.
      {commit + "  setp.ge.u32 %p2, %r1, 32;\n  @%p2 bra others;\n" + twice + "others:\n  @!%p2 bra end;\n" +
           twice + "end:\n" + wait + "0;\n",
       true},
      {commit + wait + "0;\n" + twice, false},
  };
  std::vector<uint8_t> ones(4096);
  for (size_t i = 1; i < ones.size(); i += 2) ones[i] = 0x3C;
  for (const Case& c : cases)
    for (uint64_t seed : {0, 1, 2, 3}) {
      RegisterKernel kernel =
          small_kernel(std::string("  wgmma.fence.sync.aligned;\n") + kProduct + c.after_product);
      kernel.seed = seed;
      const RegisterKernel::Result r = kernel.run(std::vector<uint32_t>(4 * 128), ones);
      EXPECT_EQ(r.report.clean(), !c.found) << c.after_product << r.report.format();
      for (const Finding& f : r.report.findings) {
        EXPECT_EQ(f.kind, FindingKind::kAsyncInFlight) << r.report.format();
        EXPECT_EQ(f.message, "reads a register of a wgmma that has not been waited for");
      }
      for (size_t i = 0; i < 128; ++i)
        ASSERT_EQ(std::bit_cast<float>(r.registers[i]), 32) << c.after_product << "thread " << i;
    }
}

TEST(Wgmma, ARegisterWrittenBetweenTwoProductsThatReadItIsFound) {
  const auto run = [](const std::string& between) {
    const std::string product =
        "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%out0, %out1, %out2, %out3}, "
        "{%a0, %a0, %a0, %a0}, %rd10, 1, 1, 1, 0;\n";
    return run_small("  .reg .b32 %a<1>;\n  mov.b32 %a0, 0;\n  wgmma.fence.sync.aligned;\n" + product +
                     between + product +
                     "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n");
  };
  EXPECT_TRUE(run("").clean()) << run("").format();
  const Report report = run("  mov.b32 %a0, 0x3C003C00;\n");
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].message,
            "a register of a wgmma under way was written before it was waited for");
}

TEST(Wgmma, MissingFenceIsFound) {
  const Report report = run_small(std::string(kProduct) +
                                  "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n");
  ASSERT_FALSE(report.findings.empty());
  EXPECT_NE(report.findings[0].message.find("without a wgmma.fence"), std::string::npos) << report.format();
}

TEST(Wgmma, AFenceStandsBetweenAWriteAndTheNextProduct) {
  const std::string wait = "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n",
                    fence = "  wgmma.fence.sync.aligned;\n";
  const auto run = [&](const std::string& between) {
    return run_small(fence + std::string(kProduct) + wait + between + std::string(kProduct) + wait);
  };
  EXPECT_TRUE(run("").clean()) << run("").format();  // of one shape: in order by themselves
  EXPECT_TRUE(run("  mov.b32 %out0, 0x3F800000;\n" + fence).clean());
  const Report report = run("  mov.b32 %out0, 0x3F800000;\n");
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].message, "a register of this wgmma was written after the last wgmma.fence");
}

TEST(Wgmma, AFenceStandsBetweenAWriteAndTheFirstProduct) {
  const std::string wait = "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n",
                    fence = "  wgmma.fence.sync.aligned;\n", write = "  mov.b32 %out0, 0x3F800000;\n";
  EXPECT_TRUE(run_small(write + fence + std::string(kProduct) + wait).clean());
  const Report report = run_small(fence + write + std::string(kProduct) + wait);
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].message, "a register of this wgmma was written after the last wgmma.fence");
}

TEST(Wgmma, AMissingWarpIsADeadlockThatNamesTheProduct) {
  const Report report =
      run_small(std::string("  setp.lt.u32 %p2, %r1, 32;\n  @%p2 bra skip;\n  wgmma.fence.sync.aligned;\n") +
                kProduct + "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\nskip:\n");
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kDeadlock);
  EXPECT_NE(report.format().find("wgmma m64n8k16 (issued by 3 of 4 warps)"), std::string::npos)
      << report.format();
}

TEST(Wgmma, OperandsOutsideSharedMemoryAreFound) {
  RegisterKernel kernel =
      small_kernel(std::string("  add.u64 %rd10, %rd10, 0x3000;\n  wgmma.fence.sync.aligned;\n") + kProduct +
                   "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n");
  const Report report = kernel.run(std::vector<uint32_t>(4 * 128), std::vector<uint8_t>(4096)).report;
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, FindingKind::kOutOfBounds) << report.format();
}

TEST(Wgmma, TheLastWarpgroupMayNotBeWhole) {
  constexpr const char* kText = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
{
  .reg .pred %whole;
  .reg .b32 %d<4>, %t;
  .reg .b64 %desc;
  mov.u32 %t, %tid.x;
  setp.lt.u32 %whole, %t, 128;
  @%whole ret;
  mov.b64 %desc, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %desc, %desc, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_90a"});
  const Report report = gpu.launch(gpu.load_module(kText, "five.ptx").function("k"), {.block = {160}});
  bool found = false;
  for (const Finding& f : report.findings) found |= f.message.find("needs four warps") != std::string::npos;
  EXPECT_TRUE(found) << report.format();
}

/// Two warp groups: the first gives registers back, somehow, the second takes more.
Report run_budgets(const std::string& limit, const std::string& gives, int takes,
                   const std::string& meets = "bar.sync 1, 256;") {
  const std::string text = fmt::format(R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
.maxntid 256, 1, 1
{}
{{
  .reg .pred %p;
  .reg .b32 %t;
  mov.u32 %t, %tid.x;
  setp.lt.u32 %p, %t, 128;
  @%p bra PRODUCER;
  setmaxnreg.inc.sync.aligned.u32 {};
  {}
  ret;
PRODUCER:
  {}
  ret;
}}
)",
                                       limit, takes, meets, gives);
  VirtualGpu gpu({.target = "sm_90a"});
  return gpu.launch(gpu.load_module(text, "budget.ptx").function("k"), {.block = {256}});
}

TEST(Setmaxnreg, WaitsForRegistersThatOthersGiveBack) {
  const auto dec = [](int to) { return fmt::format("setmaxnreg.dec.sync.aligned.u32 {};", to); };
  const std::string meet = "\n  bar.sync 1, 256;";
  for (const char* limit : {".minnctapersm 1", ".maxnreg 128", ".minnctapersm 2"})
    for (const int takes : {128, 232}) {
      // 256 at the start with one CTA, 128 with two, or so limited.
      SCOPED_TRACE(fmt::format("{} {}", limit, takes));
      const Report enough = run_budgets(limit, dec(24) + meet, takes),
                   late = run_budgets(limit, "bar.sync 1, 256;\n  " + dec(24), takes);
      EXPECT_TRUE(enough.clean()) << enough.format();
      const bool waits = takes == 232 && std::string(limit) != ".minnctapersm 1";
      EXPECT_EQ(late.clean(), !waits) << late.format();
      if (!waits) continue;
      EXPECT_EQ(late.findings[0].kind, FindingKind::kDeadlock) << late.format();
      EXPECT_NE(late.format().find(
                    "for 232 registers in each thread, 104 more than it has: the CTA began with 128 in "
                    "each of 8 warps, of which 0 for one warp are free"),
                std::string::npos)
          << late.format();
    }
  // 232 - 128 = 104 that the others must give back, and not by exiting: an H200 waited in vain in each of these.
  EXPECT_TRUE(run_budgets(".maxnreg 128", dec(24), 232, "").clean());
  EXPECT_FALSE(run_budgets(".maxnreg 128", dec(32), 232, "").clean());
  EXPECT_FALSE(run_budgets(".maxnreg 128", "", 232, "").clean());
  // ptxas ignores the instruction where it does not know what a CTA begins with.
  EXPECT_TRUE(run_budgets("", dec(32), 232, "").clean());
}

TEST(Setmaxnreg, IsExecutedByWholeWarpgroups) {
  const auto run = [](int first) {
    const std::string text = fmt::format(R"(.version 8.0
.target sm_90a
.address_size 64
.file 1 "budget.cu"
.visible .entry k()
.maxntid 256, 1, 1
{{
  .reg .pred %p;
  .reg .b32 %t;
  mov.u32 %t, %tid.x;
  sub.u32 %t, %t, {};
  setp.lt.u32 %p, %t, 128;
  @%p bra PRODUCER;
  .loc 1 8 0
  setmaxnreg.inc.sync.aligned.u32 240;
  ret;
PRODUCER:
  .loc 1 9 0
  setmaxnreg.dec.sync.aligned.u32 24;
  ret;
}}
)",
                                         first);
    VirtualGpu gpu({.target = "sm_90a"});
    return gpu.launch(gpu.load_module(text, "budget.ptx").function("k"), {.block = {256}});
  };
  EXPECT_TRUE(run(0).clean()) << run(0).format();
  EXPECT_TRUE(run(128).clean());
  const Report bad = run(32);
  ASSERT_FALSE(bad.clean());
  EXPECT_EQ(bad.findings[0].kind, FindingKind::kDivergentCollective) << bad.format();
  EXPECT_NE(bad.findings[0].message.find("of the same warpgroup"), std::string::npos);
  EXPECT_GE(bad.findings[0].place.line, 8);
}

}  // namespace
}  // namespace imbrex::vgpu
