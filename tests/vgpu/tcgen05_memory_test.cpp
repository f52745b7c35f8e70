// SPDX-License-Identifier: Apache-2.0
// Tensor memory as kernels see it: ld and st in every shape, allocation, and what goes wrong with them.
#include "tcgen05_kernel.h"

namespace imbrex::vgpu {
namespace {

using Image = Tcgen05Kernel::TensorImage;

struct ShapeCase {
  std::string word;
  int registers_per_repeat;
  int lanes;  // 32 or 16
};

struct Cell {
  int lane, column;
};

// Thread t, register r of shape.xN, relative to the address.
Cell cell_of(const std::string& shape, int t, int r, int half) {
  if (shape == "32x32b") return {t, r};
  if (shape == "16x64b") return {8 * (t & 1) + (t >> 2), ((t >> 1) & 1) + 2 * r};
  if (shape == "16x128b") return {(t >> 2) + 8 * (r & 1), (t & 3) + 4 * (r >> 1)};
  if (shape == "16x256b") return {(t >> 2) + 8 * ((r >> 1) & 1), 2 * (t & 3) + (r & 1) + 8 * (r >> 2)};
  return {t % 16, t < 16 ? r : r + half};  // 16x32bx2
}

const ShapeCase kShapes[] = {
    {"32x32b", 1, 32}, {"16x64b", 1, 16}, {"16x128b", 2, 16}, {"16x256b", 4, 16}, {"16x32bx2", 1, 16}};
constexpr int kColumn = 8;
constexpr int kHalf = 24;  // columns, whether a register holds one or two

// A store of thread- and register-dependent values, then the dump that the kernel makes of all of tensor
// memory.
TEST(Tcgen05Memory, StoresGoWhereTheirShapeSays) {
  for (const ShapeCase& s : kShapes)
    for (int repeat : {1, 2, 8})
      for (bool unpack : {false, true})
        for (int lane : {0, 16}) {
          if (lane == 16 && s.lanes == 32) continue;
          if (s.word == "16x256b" && repeat == 8 && unpack) continue;  // wider than the image
          SCOPED_TRACE(fmt::format("{}.x{} unpack {} lane {}", s.word, repeat, unpack, lane));
          const int registers = s.registers_per_repeat * repeat;
          const bool split = s.word == "16x32bx2";
          Tcgen05Kernel kernel;
          kernel.warps = "  mul.lo.u32 %r30, %r1, 100;\n";
          std::string list;
          for (int r = 0; r < registers; ++r) {
            kernel.warps +=
                fmt::format("  .reg .b32 %v{0};\n  add.u32 %v{0}, %r30, {1};\n", r, r + (r + 1) * 65536 * 3);
            list += fmt::format("{}%v{}", r == 0 ? "" : ", ", r);
          }
          kernel.warps += fmt::format(
              "  add.u32 %r31, %r12, {};\n  tcgen05.st.sync.aligned.{}.x{}{}.b32 [%r31]{}, {{{}}};\n"
              "  tcgen05.wait::st.sync.aligned;\n",
              kColumn + (lane << 16), s.word, repeat, unpack ? ".unpack::16b" : "",
              split ? fmt::format(", {}", kHalf) : "", list);
          const Image image;
          Tcgen05Kernel::Result result = kernel.run({{}}, {image});
          ASSERT_TRUE(result.report.clean()) << result.report.format();
          Image expected = image;
          for (int thread = 0; thread < 128; ++thread)
            for (int r = 0; r < registers; ++r) {
              const Cell c = cell_of(s.word, thread % 32, r, unpack ? kHalf / 2 : kHalf);
              const auto value = static_cast<uint32_t>(thread * 100 + r + (r + 1) * 65536 * 3);
              const int at = thread / 32 * 32 + lane + c.lane;
              if (!unpack) {
                expected.at(at, kColumn + c.column) = value;
              } else {
                expected.at(at, kColumn + 2 * c.column) = value & 0xFFFF;
                expected.at(at, kColumn + 2 * c.column + 1) = value >> 16;
              }
            }
          ASSERT_EQ(result.tensor[0].cells, expected.cells);
        }
}

// A load of a shape, written back with 32x32b stores to other columns, so that the dump shows the registers.
TEST(Tcgen05Memory, LoadsComeFromWhereTheirShapeSays) {
  constexpr int kBack = 100;
  for (const ShapeCase& s : kShapes)
    for (int repeat : {1, 2, 4})
      for (bool pack : {false, true}) {
        SCOPED_TRACE(fmt::format("{}.x{} pack {}", s.word, repeat, pack));
        const int registers = s.registers_per_repeat * repeat;
        const bool split = s.word == "16x32bx2";
        Tcgen05Kernel kernel;
        std::string list;
        for (int r = 0; r < registers; ++r) {
          kernel.warps += fmt::format("  .reg .b32 %v{};\n", r);
          list += fmt::format("{}%v{}", r == 0 ? "" : ", ", r);
        }
        kernel.warps += fmt::format(
            "  add.u32 %r31, %r12, {};\n  tcgen05.ld.sync.aligned.{}.x{}{}.b32 {{{}}}, [%r31]{};\n"
            "  tcgen05.wait::ld.sync.aligned;\n",
            kColumn, s.word, repeat, pack ? ".pack::16b" : "", list, split ? fmt::format(", {}", kHalf) : "");
        for (int r = 0; r < registers; ++r)
          kernel.warps += fmt::format(
              "  add.u32 %r31, %r12, {};\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r31], {{%v{}}};\n",
              kBack + r, r);
        kernel.warps += "  tcgen05.wait::st.sync.aligned;\n";
        Image image;
        for (int lane = 0; lane < 128; ++lane)
          for (int column = 0; column < 128; ++column)
            image.at(lane, column) = static_cast<uint32_t>(lane << 16 | column) * 3;
        Tcgen05Kernel::Result result = kernel.run({{}}, {image});
        ASSERT_TRUE(result.report.clean()) << result.report.format();
        for (int thread = 0; thread < 128; ++thread)
          for (int r = 0; r < registers; ++r) {
            const Cell c = cell_of(s.word, thread % 32, r, pack ? kHalf / 2 : kHalf);
            const int lane = thread / 32 * 32 + c.lane;
            const uint32_t expected = pack ? (image.at(lane, kColumn + 2 * c.column) & 0xFFFF) |
                                                 image.at(lane, kColumn + 2 * c.column + 1) << 16
                                           : image.at(lane, kColumn + c.column);
            ASSERT_EQ(result.tensor[0].at(thread, kBack + r), expected)
                << "thread " << thread << " register " << r;
          }
      }
}

// ---- misuse
// -------------------------------------------------------------------------------------------------------

Report run(const std::string& body, const std::string& warps = "") {
  Tcgen05Kernel kernel;
  kernel.body = body;
  kernel.warps = warps;
  return kernel.run({{}}, {Image{}}).report;
}

// The first finding's kind and message, "clean" when there is none.
std::string first(const Report& report) {
  return report.findings.empty()
             ? "clean"
             : std::string(name(report.findings[0].kind)) + ": " + report.findings[0].message;
}

TEST(Tcgen05Memory, WarpsReachTheirOwnQuarterOnly) {
  const Report report = run("",
                            "  .reg .b32 %v;\n  add.u32 %r30, %r11, 0x400000;\n  "
                            "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v}, [%r30];\n"
                            "  tcgen05.wait::ld.sync.aligned;\n");
  EXPECT_EQ(first(report).find("tensor-memory: lane 64 of the address: warp "), 0u) << first(report);
}

TEST(Tcgen05Memory, LaneZeroIsEveryWarpsOwnQuarter) {
  Tcgen05Kernel kernel;
  kernel.warps =
      "  .reg .b32 %v;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v}, [%r11];\n  "
      "tcgen05.wait::ld.sync.aligned;\n"
      "  add.u32 %r31, %r11, 100;\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r31], {%v};\n"
      "  tcgen05.wait::st.sync.aligned;\n";
  Image image;
  for (int lane = 0; lane < 128; ++lane) image.at(lane, 0) = static_cast<uint32_t>(lane * 7);
  Tcgen05Kernel::Result result = kernel.run({{}}, {image});
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int lane = 0; lane < 128; ++lane)
    ASSERT_EQ(result.tensor[0].at(lane, 100), static_cast<uint32_t>(lane * 7));
}

// The assembler makes such a read wait (remark C7517), so its value is right; the PTX is wrong all the same.
TEST(Tcgen05Memory, RegistersReadBeforeTheWaitAreRightAndFound) {
  const std::string load = "  .reg .b32 %v;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v}, [%r12];\n";
  const std::string wait = "  tcgen05.wait::ld.sync.aligned;\n";
  const std::string keep =
      "  add.u32 %r31, %r12, 100;\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r31], {%v};\n"
      "  tcgen05.wait::st.sync.aligned;\n";
  const std::string read = "async-in-flight: reads a register of a tcgen05.ld that has not been waited for";
  struct Case {
    std::string after_load, finding;
    bool loads = true;  // %v keeps what was loaded, plus 1
  };
  const Case cases[] = {
      {"  add.u32 %v, %v, 1;\n" + wait, read},
      {"  @%p3 add.u32 %v, %v, 1;\n  @!%p3 add.u32 %v, %v, 1;\n" + wait, read},
      // Three warps wait, the other one does not.
      {"  @!%p2 bra unwaited;\n" + wait + "unwaited:\n  add.u32 %v, %v, 1;\n", read},
      {"  mov.b32 %v, 5;\n" + wait,
       "async-in-flight: a register of a tcgen05.ld was written before it was waited for", false},
      {wait + "  add.u32 %v, %v, 1;\n", "clean"},
  };
  Image image;
  for (int lane = 0; lane < 128; ++lane) image.at(lane, 0) = static_cast<uint32_t>(lane * 7);
  for (const Case& c : cases)
    for (int seed : {0, 1, 2, 3}) {
      Tcgen05Kernel kernel;
      kernel.warps = load + c.after_load + keep;
      kernel.seed = seed;
      Tcgen05Kernel::Result result = kernel.run({{}}, {image});
      EXPECT_EQ(first(result.report), c.finding) << c.after_load;
      EXPECT_LE(result.report.findings.size(), 1u) << result.report.format();
      for (int lane = 0; lane < 128; ++lane)
        ASSERT_EQ(result.tensor[0].at(lane, 100), c.loads ? static_cast<uint32_t>(lane * 7 + 1) : 5u)
            << c.after_load << "lane " << lane << " seed " << seed;
    }
}

TEST(Tcgen05Memory, OtherColumnsAreNotTheCtas) {
  EXPECT_NE(
      first(run("",
                "  .reg .b32 %v;\n  add.u32 %r31, %r12, 512;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v}, "
                "[%r31];\n"
                "  tcgen05.wait::ld.sync.aligned;\n"))
          .find("tensor memory columns 512 to 512 are not inside an allocation of the CTA (it has [0, 512))"),
      std::string::npos);
}

TEST(Tcgen05Memory, AccumulatingIntoUnwrittenColumnsIsFound) {
  const std::string mma =
      "  add.u32 %r22, %r11, 256;\n  mov.u64 %rd10, 0x4000404000010000;\n  cvt.u64.u32 %rd11, %r10;\n  "
      "or.b64 %rd10, %rd10, %rd11;\n"
      "  tcgen05.mma.cta_group::1.kind::f16 [%r22], %rd10, %rd10, 0x8100010, 1;\n";
  EXPECT_EQ(first(run(mma)),
            "uninitialized-read: accumulator: tensor memory lane 0, column 256 has not been written");
}

TEST(Tcgen05Memory, ScaleFactorsOfSixteenColumnsAreSixteenLanes) {
  const auto product_of = [](int n) {
    return run("", fmt::format(R"(
  @%p2 bra SCALED;
  mov.u32 %r40, 0x7F7F7F7F;
  add.u32 %r41, %r11, 200;
  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r41], {{%r40, %r40, %r40, %r40}};
  add.u32 %r41, %r11, 204;
  tcgen05.st.sync.aligned.16x64b.x1.b32 [%r41], {{%r40}};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
SCALED:
  bar.sync 0;
  @%p3 bra MULTIPLIED;
  tcgen05.fence::after_thread_sync;
  add.u32 %r42, %r11, 256;
  add.u32 %r43, %r11, 200;
  add.u32 %r44, %r11, 204;
  and.b32 %r45, %r3, 0x3FFFF;
  shr.u32 %r45, %r45, 4;
  cvt.u64.u32 %rd10, %r45;
  or.b64 %rd10, %rd10, 0x0000401000080000;
  mov.b32 %r46, 0x{:x};
  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r42], %rd10, %rd10, %r46, [%r43], [%r44], 0;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4];
MULTIPLIED:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4], 1;
  @!%p4 bra MULTIPLIED;
  bar.warp.sync -1;
  tcgen05.fence::after_thread_sync;
)",
                               0x8800000 | n / 8 << 17));
  };
  EXPECT_EQ(first(product_of(16)), "clean");
  EXPECT_EQ(first(product_of(32)),
            "uninitialized-read: scale factors of B: tensor memory lane 16, column 204 has not been written");
}

TEST(Tcgen05Memory, UnwrittenColumnsMayBeLoadedInVain) {
  const std::string load =
      "  .reg .b32 %v<2>;\n  add.u32 %r31, %r12, 127;\n"
      "  tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v0, %v1}, [%r31];\n  tcgen05.wait::ld.sync.aligned;\n";
  EXPECT_EQ(first(run("", load + "  st.global.b32 [%rd3], %v0;\n")), "clean");
  const Report report = run("", load + "  st.global.b32 [%rd3], %v1;\n");
  EXPECT_EQ(first(report).find("uninitialized-read: reads 4 bytes of tensor memory at 0x"), 0u)
      << report.format();
  EXPECT_NE(report.format().find("tcgen05.ld.sync.aligned.32x32b.x2"), std::string::npos) << report.format();
}

TEST(Tcgen05Memory, DescriptorsAreChecked) {
  const std::string begin =
      "  mov.u64 %rd10, 0x4000404000010000;\n  cvt.u64.u32 %rd11, %r10;\n  or.b64 %rd10, %rd10, %rd11;\n";
  EXPECT_NE(first(run(begin + "  tcgen05.mma.cta_group::1.kind::f16 [%r11], %rd10, %rd10, 0x8100050, 0;\n"))
                .find("bit 6 must be 0"),
            std::string::npos);
  EXPECT_NE(first(run(begin + "  tcgen05.mma.cta_group::1.kind::f16 [%r11], %rd10, %rd10, 0x6100010, 0;\n"))
                .find("shape 96x64 does not exist for this kind with cta_group::1"),
            std::string::npos);
  EXPECT_NE(first(run("  mov.u64 %rd10, 0;\n  tcgen05.mma.cta_group::1.kind::f16 [%r11], %rd10, %rd10, "
                      "0x8100010, 0;\n"))
                .find("bits 48:46 must be 0b001"),
            std::string::npos);
  EXPECT_NE(first(run(begin + "  add.u64 %rd10, %rd10, 0x1000;\n  tcgen05.mma.cta_group::1.kind::f16 [%r11], "
                              "%rd10, %rd10, 0x8100010, 0;\n"))
                .find("out-of-bounds: operand A: line"),
            std::string::npos);
}

// ---- allocation
// -----------------------------------------------------------------------------------------------------

Report run_alloc(const std::string& body, uint64_t seed = 0) {
  const std::string text = R"(
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{
  .reg .b32 %r<16>;
  .shared .align 4 .b32 where;
  mov.u32 %r1, where;
)" + body + "  ret;\n}\n";
  VirtualGpu gpu({.target = "sm_100a", .seed = seed});
  return gpu.launch(gpu.load_module(text).function("k"), {.block = {32}});
}
const std::string kAlloc = "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};\n";
std::string alloc(int columns) { return fmt::format(fmt::runtime(kAlloc), columns); }
std::string dealloc(const char* reg, int columns) {
  return fmt::format("  tcgen05.dealloc.cta_group::1.sync.aligned.b32 {}, {};\n", reg, columns);
}

TEST(Tcgen05Alloc, LegalUseIsClean) {
  for (uint64_t seed : {0, 1, 2})
    EXPECT_EQ(first(run_alloc(alloc(128) + "  bar.warp.sync 0xFFFFFFFF;\n  ld.shared.u32 %r2, [%r1];\n" +
                                  alloc(64) +
                                  "  ld.shared.u32 %r3, [%r1];\n  "
                                  "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" +
                                  dealloc("%r2", 128) + dealloc("%r3", 64),
                              seed)),
              "clean");
}

// ThunderKittens gives .shared::cta a generic address.
TEST(Tcgen05Alloc, TakesAGenericAddressOfSharedMemory) {
  EXPECT_EQ(first(run_alloc("  .reg .b64 %rd<3>;\n  cvt.u64.u32 %rd1, %r1;\n  cvta.shared.u64 %rd2, %rd1;\n"
                            "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%rd2], 64;\n"
                            "  bar.warp.sync 0xFFFFFFFF;\n  ld.shared.u32 %r2, [%rd2];\n" +
                            dealloc("%r2", 64))),
            "clean");
}

// DeepGEMM stops when its only allocation is not at column 0.
TEST(Tcgen05Alloc, AnEmptySmGivesColumnZero) {
  for (uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7})
    EXPECT_EQ(first(run_alloc(alloc(128) + "  bar.warp.sync 0xFFFFFFFF;\n  ld.shared.u32 %r2, [%r1];\n" +
                                  "  .reg .pred %p;\n  setp.ne.u32 %p, %r2, 0;\n  @%p trap;\n" +
                                  dealloc("%r2", 128),
                              seed)),
              "clean");
}

TEST(Tcgen05Alloc, MisuseIsNamed) {
  EXPECT_EQ(first(run_alloc(alloc(64) + "  ld.shared.u32 %r2, [%r1];\n" + alloc(128))),
            "tensor-memory: tcgen05.alloc: 128 columns asked for after an alloc of 64: later allocs may not "
            "ask for more");
  EXPECT_EQ(first(run_alloc(alloc(48))),
            "tensor-memory: tcgen05.alloc: 48 columns asked for, must be a power of two from 32 to 512");
  EXPECT_EQ(
      first(run_alloc("  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + alloc(32))),
      "tensor-memory: tcgen05.alloc: the CTA has given up its right to allocate (relinquish_alloc_permit)");
  EXPECT_EQ(first(run_alloc(alloc(64) + "  ld.shared.u32 %r2, [%r1];\n" + dealloc("%r2", 32))),
            "tensor-memory: tcgen05.dealloc of 32 columns at column 0: no allocation of this place and size");
  EXPECT_EQ(first(run_alloc(alloc(64))),
            "resource-leak: the CTA exits with 64 columns of tensor memory at column 0 not deallocated");
}

TEST(Tcgen05Alloc, AskingForMoreThanThereIsNeverReturns) {
  const Report report = run_alloc(alloc(512) + alloc(32));
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kDeadlock);
  EXPECT_NE(report.format().find("for 32 free columns of tensor memory (taken: [0, 512))"), std::string::npos)
      << report.format();
}

// Triton gives the shared address, widened to 64 bits, where the manual asks for a generic one.
TEST(Tcgen05Commit, TakesEveryAddressOfABarrier) {
  for (const std::string operand : {".shared::cluster.b64 [%r1]", ".b64 [%rd2]", ".b64 [%rd1]"}) {
    VirtualGpu gpu({.target = "sm_100a"});
    const std::string text = fmt::format(R"(.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{{
  .reg .pred %p<3>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .shared .align 8 .b64 barrier;
  mov.u32 %r1, barrier;
  cvt.u64.u32 %rd1, %r1;
  cvta.shared.u64 %rd2, %rd1;
  mov.u32 %r2, %tid.x;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
  bar.sync 0;
  @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one{};
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
  @!%p2 bra wait;
  ret;
}}
)",
                                         operand);
    const Report report = gpu.launch(gpu.load_module(text).function("k"), {.block = {32}});
    EXPECT_TRUE(report.clean()) << operand << report.format();
  }
}

}  // namespace
}  // namespace imbrex::vgpu
