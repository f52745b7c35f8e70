// SPDX-License-Identifier: Apache-2.0
// mbarrier and cp.async as instructions: what they return, when threads wait, and what misuse is called.
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

// %r10: the barrier's shared address.
RegisterKernel barrier_kernel(const std::string& body, int outputs = 0, int threads = 32) {
  RegisterKernel kernel;
  kernel.threads = threads;
  kernel.outputs = outputs;
  kernel.declarations = "  .reg .b64 %st<4>;\n  .reg .pred %q<8>;\n";
  kernel.body = "  mov.u32 %r10, barrier;\n  setp.ne.u32 %p1, %r1, 0;\n" + body;
  for (int i = 0; i < outputs; ++i) kernel.body = fmt::format("  mov.u32 %out{}, 77;\n", i) + kernel.body;
  return kernel;
}

std::string first(const Report& report) {
  return report.findings.empty()
             ? "clean"
             : std::string(name(report.findings[0].kind)) + ": " + report.findings[0].message;
}

const std::string kInit = "  @!%p1 mbarrier.init.shared::cta.b64 [%r10], {};\n  bar.warp.sync 0xFFFFFFFF;\n";
std::string init(int count) { return fmt::format(fmt::runtime(kInit), count); }

// Predicates %q0 ... as 0 or 1.
std::string outputs_of_predicates(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("  selp.u32 %out{0}, 1, 0, %q{0};\n", i);
  return text;
}

TEST(MbarrierInstructions, StatesParitiesAndCounts) {
  const RegisterKernel::Result r =
      barrier_kernel(
          init(3) +
              "  @%p1 bra end;\n"
              "  mbarrier.test_wait.parity.shared::cta.b64 %q0, [%r10], 0;\n"
              "  mbarrier.test_wait.parity.shared::cta.b64 %q1, [%r10], 1;\n"
              "  mbarrier.arrive.shared::cta.b64 %st0, [%r10];\n"
              "  mbarrier.arrive.noComplete.shared::cta.b64 %st1, [%r10], 1;\n"
              "  mbarrier.test_wait.shared::cta.b64 %q2, [%r10], %st0;\n"
              "  mbarrier.arrive.shared::cta.b64 _, [%r10], 1;\n"
              "  mbarrier.test_wait.shared::cta.b64 %q3, [%r10], %st0;\n"
              "  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %q4, [%r10], 0;\n"
              "  mbarrier.try_wait.parity.shared::cta.b64 %q5, [%r10], 1, 1000;\n" +
              outputs_of_predicates(6) +
              "  mbarrier.pending_count.b64 %out6, %st0;\n  mbarrier.pending_count.b64 %out7, %st1;\nend:\n",
          8)
          .run({});
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  const uint32_t expected[] = {0, 1, 0, 1, 1, 0, 3, 2};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(r.registers[i * 32], expected[i]) << i;
}

TEST(MbarrierInstructions, TransactionsAndDrops) {
  const RegisterKernel::Result r =
      barrier_kernel(
          init(2) +
              "  @%p1 bra end;\n"
              "  mbarrier.arrive.expect_tx.shared::cta.b64 %st0, [%r10], 64;\n"
              "  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 16;\n"
              "  mbarrier.arrive_drop.shared::cta.b64 _, [%r10];\n"
              "  mbarrier.test_wait.shared::cta.b64 %q0, [%r10], %st0;\n"
              "  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], 48;\n"
              "  mbarrier.test_wait.shared::cta.b64 %q1, [%r10], %st0;\n"
              "  mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [%r10], 32;\n"
              "  mbarrier.test_wait.shared::cta.b64 %q2, [%r10], %st0;\n"
              "  mbarrier.arrive.release.cta.shared::cta.b64 %st1, [%r10];\n"  // one arrival is enough now
              "  mbarrier.test_wait.shared::cta.b64 %q3, [%r10], %st1;\n" +
              outputs_of_predicates(4) + "end:\n",
          4)
          .run({});
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  const uint32_t expected[] = {0, 0, 1, 1};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(r.registers[i * 32], expected[i]) << i;
}

TEST(MbarrierInstructions, AWarpWaitsForTheOthers) {
  // 4 warps; warps 1 to 3 write a word each and arrive, warp 0 waits and adds them up.
  for (uint64_t seed : {0, 1, 2, 3}) {
    RegisterKernel kernel = barrier_kernel(
        "  @!%p1 mbarrier.init.shared::cta.b64 [%r10], 96;\n  bar.sync 0;\n  setp.lt.u32 %p2, %r1, 32;\n  "
        "mov.u32 %r11, tile;\n"
        "  shl.b32 %r12, %r1, 2;\n  add.u32 %r12, %r12, %r11;\n  @%p2 bra wait;\n  st.shared.u32 [%r12], "
        "%r1;\n"
        "  mbarrier.arrive.shared::cta.b64 _, [%r10];\n  bra end;\nwait:\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 %q0, [%r10], 0;\n  @!%q0 bra wait;\n"
        "  ld.shared.u32 %r13, [%r12+128];\n  ld.shared.u32 %r14, [%r12+256];\n  ld.shared.u32 %r15, "
        "[%r12+384];\n"
        "  add.u32 %out0, %r13, %r14;\n  add.u32 %out0, %out0, %r15;\nend:\n",
        1, 128);
    kernel.shared_bytes = 512;
    kernel.seed = seed;
    const RegisterKernel::Result r = kernel.run({}, std::vector<uint8_t>(512, 0));
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(r.registers[t], 3 * t + 192);
  }
}

TEST(MbarrierInstructions, MisuseIsNamed) {
  const auto run = [](const std::string& body) { return first(barrier_kernel(body).run({}).report); };
  const std::string only_one = "  @%p1 bra end;\n";
  EXPECT_EQ(run(only_one + "  mbarrier.arrive.shared::cta.b64 _, [%r10];\nend:\n"),
            "invalid-barrier: no mbarrier was initialised at shared 0x400");
  EXPECT_NE(run(init(1) + only_one + "  mbarrier.arrive.shared::cta.b64 _, [%r10], 2;\nend:\n")
                .find("more arrivals than the phase has left: pending 1 of 1 arrivals, phase 0"),
            std::string::npos);
  EXPECT_NE(run(init(1) + only_one + "  mbarrier.init.shared::cta.b64 [%r10], 1;\nend:\n")
                .find("a live mbarrier is at shared"),
            std::string::npos);
  EXPECT_NE(run(init(1) + only_one + "  mbarrier.arrive.noComplete.shared::cta.b64 %st0, [%r10], 1;\nend:\n")
                .find("a .noComplete arrive would complete the phase"),
            std::string::npos);
  EXPECT_NE(
      run(init(1) + only_one + "  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 1048576;\nend:\n")
          .find("a phase can track at most 1048575 bytes"),
      std::string::npos);
  EXPECT_NE(run(only_one + "  mbarrier.init.shared::cta.b64 [%r10], 0;\nend:\n")
                .find("a count must lie in 1 ... 1048575"),
            std::string::npos);
  EXPECT_NE(run(only_one + "  mbarrier.init.shared::cta.b64 [%r10+4], 1;\nend:\n").find("misaligned"),
            std::string::npos);
  EXPECT_EQ(
      run(init(1) + only_one +
          "  mbarrier.inval.shared::cta.b64 [%r10];\n  mbarrier.init.shared::cta.b64 [%r10], 1;\nend:\n"),
      "clean");
}

TEST(MbarrierInstructions, EveryPhaseMustBeSeenToEndBeforeAnArrivalForTheNext) {
  const std::string arrive = "  @!%p1 mbarrier.arrive.shared::cta.b64 _, [%r10];\n";
  const std::string wait = "  mbarrier.test_wait.parity.shared::cta.b64 %q0, [%r10], 0;\n";
  EXPECT_NE(first(barrier_kernel(init(1) + arrive + arrive).run({}).report)
                .find("for phase 1 before any wait has seen the end of phase 0"),
            std::string::npos);
  EXPECT_EQ(first(barrier_kernel(init(1) + arrive + wait + arrive).run({}).report), "clean");
}

TEST(MbarrierInstructions, BytesThatNobodyWaitedForAreFoundAtExit) {
  // The copy has long landed when the CTA exits, in this schedule.
  const std::string copy =
      "  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 128;\n  mov.u32 %r11, landing;\n"
      "  @!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd3], 128, "
      "[%r10];\n"
      "  mov.u32 %r12, 0;\nloop:\n  add.u32 %r12, %r12, 1;\n  setp.lt.u32 %p2, %r12, 1000;\n  @%p2 bra "
      "loop;\n";
  for (bool waits : {false, true}) {
    RegisterKernel kernel = barrier_kernel(
        init(1) + "  bar.sync 0;\n  fence.proxy.async;\n  bar.sync 0;\n" + copy +
        (waits ? "wait:\n  mbarrier.try_wait.parity.shared::cta.b64 %q0, [%r10], 0;\n  @!%q0 bra wait;\n"
               : ""));
    kernel.declarations += "  .shared .align 128 .b8 landing[128];\n";
    kernel.shared_bytes = 128;
    const RegisterKernel::Result r = kernel.run({}, std::vector<uint8_t>(128, 1));
    if (waits)
      EXPECT_EQ(first(r.report), "clean") << r.report.format();
    else
      EXPECT_NE(first(r.report).find("without having waited for 128 bytes"), std::string::npos)
          << r.report.format();
  }
}

TEST(MbarrierInstructions, AWaitThatNeverEndsIsADeadlockWithItsCounts) {
  const Report report =
      barrier_kernel(init(2) +
                     "  @!%p1 mbarrier.arrive.shared::cta.b64 _, [%r10];\nwait:\n"
                     "  mbarrier.try_wait.parity.shared::cta.b64 %q0, [%r10], 0;\n  @!%q0 bra wait;\n")
          .run({})
          .report;
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kDeadlock);
  EXPECT_NE(
      report.format().find("waits for parity 0 of the barrier at shared 0x400 (pending 1 of 2 arrivals)"),
      std::string::npos)
      << report.format();
}

// ---- cp.async
// -------------------------------------------------------------------------------------------------------

// Copies from the input registers' memory (%rd1 + 4 tid is lane 0's word) into `tile`.
RegisterKernel copy_kernel(const std::string& body) {
  RegisterKernel kernel;
  kernel.target = "sm_80";
  kernel.outputs = 4;
  kernel.shared_bytes = 1024;
  kernel.declarations = "  .reg .b64 %st<4>;\n";
  // %r10: 16 bytes of the tile per lane; %rd10: 16 bytes of tile_in (offset 1024) per lane.
  kernel.body =
      "  mov.u32 %r10, tile;\n  shl.b32 %r11, %r1, 4;\n  add.u32 %r10, %r10, %r11;\n  cvt.u64.u32 %rd10, "
      "%r11;\n"
      "  add.u64 %rd10, %rd10, %rd3;\n" +
      body + "  bar.warp.sync 0xFFFFFFFF;\n";
  for (int i = 0; i < 4; ++i)
    kernel.body += fmt::format("  ld.shared.u32 %out{}, [%r10+{}];\n", i, 512 + 4 * i);
  return kernel;
}

std::vector<uint8_t> ramp(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 7 + i / 256 + 1);
  return data;
}

uint32_t word_at(const std::vector<uint8_t>& data, size_t at, size_t valid) {
  uint32_t word = 0;
  for (size_t b = 0; b < 4; ++b)
    if (at % 16 + b < valid) word |= static_cast<uint32_t>(data[at + b]) << 8 * b;
  return word;
}

TEST(CpAsync, SizesAndSourceSizes) {
  struct Case {
    std::string text;
    int copied, valid;  // bytes written, bytes taken from memory
  };
  const std::string to = " [%r10+512], [%rd10], ";
  const Case cases[] = {
      {"cp.async.ca.shared.global" + to + "4", 4, 4},
      {"cp.async.ca.shared.global" + to + "8", 8, 8},
      {"cp.async.ca.shared.global" + to + "16", 16, 16},
      {"cp.async.cg.shared.global" + to + "16", 16, 16},
      {"cp.async.cg.shared.global" + to + "16, %r15", 16, 6},
      {"cp.async.cg.shared.global" + to + "16, 0", 16, 0},
      {"cp.async.ca.shared::cta.global.L2::128B" + to + "16, %r15", 16, 6},
      {"cp.async.ca.shared.global" + to + "4, %p2", 4, 0},
      {"cp.async.ca.shared.global" + to + "4, !%p2", 4, 4},
      {"cp.async.cg.shared.global.L2::cache_hint" + to + "16, %rd12", 16, 16},
  };
  const std::vector<uint8_t> data = ramp(1024);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    for (uint64_t seed : {0, 3}) {
      RegisterKernel kernel =
          copy_kernel("  mov.u32 %r15, 6;\n  mov.u64 %rd12, 0;\n  setp.eq.u32 %p2, %r1, %r1;\n  " + c.text +
                      ";\n  cp.async.wait_all;\n");
      kernel.seed = seed;
      const RegisterKernel::Result r = kernel.run({}, data);
      ASSERT_TRUE(r.report.clean()) << r.report.format();
      for (size_t lane = 0; lane < 32; ++lane)
        for (size_t i = 0; i < 4; ++i) {
          const size_t at = 16 * lane + 4 * i;
          const uint32_t expected = static_cast<int>(4 * i) < c.copied
                                        ? word_at(data, at, static_cast<size_t>(c.valid))
                                        : word_at(data, 512 + at, 16);
          ASSERT_EQ(r.registers[i * 32 + lane], expected) << "lane " << lane << " word " << i;
        }
      EXPECT_EQ(r.report.statistics.cp_async_bytes, 32 * c.valid);
    }
  }
}

TEST(CpAsync, GroupsFinishByAge) {
  // Two groups; with one allowed to be pending, the older one is there.
  for (uint64_t seed = 0; seed < 8; ++seed) {
    RegisterKernel kernel = copy_kernel(
        "  cp.async.cg.shared.global [%r10+512], [%rd10], 16;\n  cp.async.commit_group;\n"
        "  cp.async.cg.shared.global [%r10], [%rd10], 16;\n  cp.async.commit_group;\n"
        "  cp.async.wait_group 1;\n");
    kernel.body += "  cp.async.wait_group 0;\n";
    kernel.seed = seed;
    const std::vector<uint8_t> data = ramp(1024);
    const RegisterKernel::Result r = kernel.run({}, data);
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (size_t lane = 0; lane < 32; ++lane) ASSERT_EQ(r.registers[lane], word_at(data, 16 * lane, 16));
  }
}

TEST(CpAsync, ArrivesAtAnMbarrierWhenItsCopiesAreThere) {
  for (const char* form : {"", ".noinc"})
    for (uint64_t seed : {0, 1, 2, 3}) {
      const bool noinc = *form != 0;
      RegisterKernel kernel = copy_kernel(
          fmt::format("  mov.u32 %r20, barrier;\n  setp.ne.u32 %p1, %r1, 0;\n  @!%p1 "
                      "mbarrier.init.shared::cta.b64 [%r20], 32;\n  bar.warp.sync 0xFFFFFFFF;\n"
                      "  cp.async.cg.shared.global [%r10+512], [%rd10], 16;\n  "
                      "cp.async.mbarrier.arrive{}.shared::cta.b64 [%r20];\n{}wait:\n"
                      "  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r20], 0;\n  @!%p3 bra wait;\n",
                      form, noinc ? "" : "  mbarrier.arrive.shared::cta.b64 %st0, [%r20];\n"));
      kernel.seed = seed;
      const std::vector<uint8_t> data = ramp(1024);
      const RegisterKernel::Result r = kernel.run({}, data);
      ASSERT_TRUE(r.report.clean()) << r.report.format();
      for (size_t lane = 0; lane < 32; ++lane) ASSERT_EQ(r.registers[lane], word_at(data, 16 * lane, 16));
    }
}

TEST(CpAsync, CopiesInFlightAtExitAreFound) {
  const std::string text = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 from)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  .shared .align 16 .b8 tile[16];
  ld.param.u64 %rd1, [from];
  mov.u32 %r1, tile;
  cp.async.cg.shared.global [%r1], [%rd1], 16;
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_80"});
  DeviceAddress from = to_device(gpu, ramp(16));
  void* arguments[] = {&from};
  const Report report =
      gpu.launch(gpu.load_module(text).function("k"), {.block = {1}, .arguments = arguments});
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kAsyncInFlight);
  EXPECT_NE(report.findings[0].message.find("cp.async of 16 bytes in each of 1 lanes"), std::string::npos)
      << report.format();
}

TEST(CpAsync, WrongSizesAndAddresses) {
  const auto kind = [](const std::string& copy) {
    const RegisterKernel::Result r =
        copy_kernel("  mov.u32 %r15, 17;\n  " + copy + ";\n  cp.async.wait_all;\n").run({}, ramp(1024));
    return r.report.findings.empty() ? FindingKind::kTrap : r.report.findings[0].kind;
  };
  EXPECT_EQ(kind("cp.async.cg.shared.global [%r10+8], [%rd10], 16"), FindingKind::kMisaligned);
  EXPECT_EQ(kind("cp.async.cg.shared.global [%r10], [%rd10+4], 16"), FindingKind::kMisaligned);
  EXPECT_EQ(kind("cp.async.cg.shared.global [%r10], [%rd10+1024], 16"), FindingKind::kOutOfBounds);
  EXPECT_EQ(kind("cp.async.cg.shared.global [%r10], [%rd10], 16, %r15"), FindingKind::kIllegalInstruction);
}

}  // namespace
}  // namespace imbrex::vgpu
