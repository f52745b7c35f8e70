// SPDX-License-Identifier: Apache-2.0
// Global memory that is read before anybody has written it: what counts as written, and what is said of the rest.
#include <fmt/format.h>

#include <random>

#include "imbrex/vgpu/bent_rule.h"
#include "vgpu/memory/memory.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// %in and %out are advanced by 4 bytes a thread, %base is the start of `in`.
std::string kernel(const std::string& body) {
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.file 1 "scratch.cu"
.shared .align 128 .b8 tile[256];
.visible .entry k(.param .u64 in, .param .u64 out)
{{
  .reg .pred %p, %q;
  .reg .b32 %t, %x, %y, %s;
  .reg .b64 %in, %out, %A, %base;
  ld.param.u64 %base, [in];
  ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %A, %t, 4;
  add.u64 %in, %base, %A;
  add.u64 %out, %out, %A;
  mov.u32 %s, tile;
  mad.lo.u32 %s, %t, 4, %s;
  .loc 1 7 0
{}
  ret;
}}
)",
                     body);
}

constexpr int64_t kBytes = 128;  // of each buffer, a word a thread

Report run(VirtualGpu& gpu, const std::string& body, DeviceAddress in, DeviceAddress out) {
  const Function k = gpu.load_module(kernel(body), "scratch.ptx").function("k");
  void* arguments[] = {&in, &out};
  return gpu.launch(k, {.block = {32}, .arguments = arguments});
}

/// With nothing in `in`.
Report run(const std::string& body, Options options = {}) {
  options.target = "sm_90a";
  VirtualGpu gpu(options);
  const DeviceAddress in = gpu.allocate(kBytes), out = gpu.allocate(kBytes);
  return run(gpu, body, in, out);
}

const char* const kLoadAndStore = "  ld.global.u32 %x, [%in];\n  st.global.u32 [%out], %x;";

TEST(Unwritten, IsFoundWhereWhatWasLoadedIsUsed) {
  const Report report = run(kLoadAndStore);
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.kind, FindingKind::kUninitializedRead);
  EXPECT_EQ(f.place.line, 7);
  EXPECT_EQ(f.place.ptx, "ld.global.u32 %x, [%in];");
  EXPECT_NE(f.message.find("reads 4 bytes of global memory at 0x"), std::string::npos) << f.message;
  EXPECT_EQ(f.rule, BentRule::kNone) << "nothing of it has been written";
  ASSERT_EQ(f.facts.size(), 1u);
  EXPECT_NE(f.facts[0].find("st.global.u32 [%out], %x;"), std::string::npos) << f.facts[0];
  for (const char* body : {
           "  ld.global.u32 %x, [%in];\n  setp.eq.u32 %p, %x, 0;\n  @%p st.global.u32 [%out], 1;",
           "  ld.global.u32 %x, [%in];\n  st.shared.u32 [%s], %x;\n  bar.sync 0;\n  ld.shared.u32 %y, [%s];\n"
           "  st.global.u32 [%out], %y;",
           "  atom.global.add.u32 %x, [%in], 1;",
           "  red.global.add.u32 [%in], 1;",
           "  ld.acquire.gpu.global.u32 %x, [%in];",
           "  cp.async.ca.shared.global [%s], [%in], 4;\n  cp.async.wait_all;",
       }) {
    const Report found = run(body);
    ASSERT_FALSE(found.findings.empty()) << body;
    EXPECT_EQ(found.findings[0].kind, FindingKind::kUninitializedRead) << found.format();
  }
}

TEST(Unwritten, IsNothingWhereItIsNotUsed) {
  for (const char* body :
       {"  ld.global.u32 %x, [%in];", "  ld.global.u32 %x, [%in];\n  mul.lo.u32 %x, %x, 3;",
        "  ld.global.u32 %x, [%in];\n  st.shared.u32 [%s], %x;",
        "  st.global.u32 [%in], %t;\n  ld.global.u32 %x, [%in];\n  st.global.u32 [%out], %x;",
        "  st.global.u16 [%in], %t;\n  ld.global.u32 %x, [%in];\n  st.global.u16 [%out], %x;"}) {
    const Report report = run(body);
    EXPECT_TRUE(report.clean()) << body << report.format();
  }
}

TEST(Unwritten, HostCopiesAndFillsWrite) {
  using Prepare = void (*)(VirtualGpu&, DeviceAddress);
  const Prepare ways[] = {
      [](VirtualGpu& gpu, DeviceAddress at) { gpu.fill(at, 0, kBytes); },
      [](VirtualGpu& gpu, DeviceAddress at) { gpu.fill16(at, 0, kBytes / 2); },
      [](VirtualGpu& gpu, DeviceAddress at) { gpu.fill32(at, 0, kBytes / 4); },
      [](VirtualGpu& gpu, DeviceAddress at) {
        gpu.copy_to_device(at, std::string(kBytes, 'x').data(), kBytes);
      },
      [](VirtualGpu& gpu, DeviceAddress at) {
        const DeviceAddress other = gpu.allocate(kBytes);
        gpu.fill(other, 1, kBytes);
        gpu.copy_on_device(at, other, kBytes);
      },
  };
  for (const Prepare& prepare : ways) {
    VirtualGpu gpu({.target = "sm_90a"});
    const DeviceAddress in = gpu.allocate(kBytes), out = gpu.allocate(kBytes);
    prepare(gpu, in);
    const Report report = run(gpu, kLoadAndStore, in, out);
    EXPECT_TRUE(report.clean()) << report.format();
  }
}

TEST(Unwritten, ComesBackWithTheMemory) {
  VirtualGpu gpu({.target = "sm_90a", .memory_bytes = 4096});
  const DeviceAddress out = gpu.allocate(kBytes);
  DeviceAddress in = gpu.allocate(2048);
  gpu.fill(in, 0, 2048);
  EXPECT_TRUE(run(gpu, kLoadAndStore, in, out).clean());
  gpu.free(in);
  const DeviceAddress again = gpu.allocate(2048);
  EXPECT_EQ(again, in) << "the only place that is left";
  EXPECT_FALSE(run(gpu, kLoadAndStore, again, out).clean());
  gpu.fill(again, 0, 2048);
  gpu.discard(again, 2048);
  EXPECT_FALSE(run(gpu, kLoadAndStore, again, out).clean());
}

TEST(Unwritten, ACopyOnTheDeviceCopiesIt) {
  VirtualGpu gpu({.target = "sm_90a"});
  const DeviceAddress in = gpu.allocate(kBytes), other = gpu.allocate(kBytes), out = gpu.allocate(kBytes);
  gpu.fill(in, 0, kBytes);
  gpu.fill(other, 0, kBytes / 2);
  gpu.copy_on_device(in, other, kBytes);
  const Report half = run(gpu,
                          "  setp.lt.u32 %p, %t, 16;\n  @%p ld.global.u32 %x, [%in];\n"
                          "  @%p st.global.u32 [%out], %x;",
                          in, out);
  EXPECT_TRUE(half.clean()) << half.format();
  const Report all = run(gpu, kLoadAndStore, in, out);
  ASSERT_EQ(all.findings.size(), 1u) << all.format();
  EXPECT_EQ(all.findings[0].actor.lane, 16);
}

TEST(Unwritten, PaddingIsANoteInPractice) {
  const auto run_with = [](const std::string& body, Strictness strictness) {
    VirtualGpu gpu({.target = "sm_90a", .strictness = strictness});
    const DeviceAddress in = gpu.allocate(kBytes), out = gpu.allocate(kBytes);
    gpu.fill(in, 0, 100);
    return run(gpu, body, in, out);
  };
  for (const std::string& body :
       {std::string(kLoadAndStore),
        std::string("  ld.global.u32 %x, [%in];\n  st.shared.u32 [%s], %x;\n  bar.sync 0;\n"
                    "  ld.shared.u32 %y, [%s];\n  st.global.u32 [%out], %y;")}) {
    const Report strict = run_with(body, Strictness::kStrict);
    ASSERT_EQ(strict.findings.size(), 1u) << strict.format();
    EXPECT_EQ(strict.findings[0].rule, BentRule::kUnwrittenPadding);
    const Report practical = run_with(body, Strictness::kPractical);
    EXPECT_TRUE(practical.clean()) << practical.format();
    ASSERT_EQ(practical.notes.size(), 1u) << practical.format();
    EXPECT_EQ(practical.notes[0].rule, BentRule::kUnwrittenPadding);
  }
  // Copies of tiles take padding along.
  const Report copied =
      run_with("  cp.async.ca.shared.global [%s], [%in], 4;\n  cp.async.wait_all;", Strictness::kStrict);
  EXPECT_TRUE(copied.clean()) << copied.format();
  // Nobody updates padding, nor waits for it.
  for (const char* body : {"  atom.global.add.u32 %x, [%in], 1;", "  ld.acquire.gpu.global.u32 %x, [%in];"}) {
    const Report practical = run_with(body, Strictness::kPractical);
    ASSERT_FALSE(practical.clean()) << body;
    EXPECT_EQ(practical.findings[0].kind, FindingKind::kUninitializedRead);
  }
}

TEST(Unwritten, IsNotJudgedAfterAKernelThatNobodyWatched) {
  VirtualGpu gpu({.target = "sm_90a", .checks = CheckSet::none()});
  const DeviceAddress in = gpu.allocate(kBytes), out = gpu.allocate(kBytes);
  run(gpu, "  st.global.u32 [%in], %t;", in, out);
  Options options = gpu.options();
  options.checks = {};
  gpu.set_options(options);
  const Report report = run(gpu, kLoadAndStore, in, out);
  EXPECT_TRUE(report.clean()) << report.format();
  EXPECT_FALSE(run(gpu, kLoadAndStore, gpu.allocate(kBytes), out).clean());
}

TEST(Unwritten, IsNotJudgedUnlessAsked) {
  Options options;
  options.checks.uninitialized_global = false;
  EXPECT_TRUE(run(kLoadAndStore, options).clean());
}

// ---- the map

TEST(WrittenMap, AsABytePerByte) {
  constexpr uint64_t kSize = 40000;
  WrittenMap map(kSize);
  std::vector<bool> bytes(kSize);
  std::mt19937 random(3);
  const auto draw = [&](uint64_t below) { return random() % below; };
  for (int round = 0; round < 4000; ++round) {
    const uint64_t most = draw(4) == 0 ? 20000 : 300;
    const uint64_t at = draw(kSize - 1), count = std::min(kSize - at, 1 + draw(most));
    const uint64_t what = draw(6);
    const auto pattern = static_cast<uint16_t>(draw(2) == 0 ? 0xFFFF : random());
    const auto has = [&](uint64_t i) { return (pattern >> (i % 16) & 1) != 0; };
    if (what < 2) {
      map.mark(at, count, pattern);
      for (uint64_t i = at; i < at + count; ++i) bytes[i] = bytes[i] || has(i);
    } else if (what == 2) {
      map.forget(at, count);
      for (uint64_t i = at; i < at + count; ++i) bytes[i] = false;
    } else if (what == 3) {
      const uint64_t from = draw(kSize - count);
      const std::vector<bool> copied(bytes.begin() + static_cast<int64_t>(from),
                                     bytes.begin() + static_cast<int64_t>(from + count));
      map.copy(at, from, count);
      std::copy(copied.begin(), copied.end(), bytes.begin() + static_cast<int64_t>(at));
    }
    bool all = true, any = false;
    for (uint64_t i = at; i < at + count; ++i) {
      all = all && (bytes[i] || !has(i));
      any = any || bytes[i];
    }
    ASSERT_EQ(map.all(at, count, pattern), all) << round;
    ASSERT_EQ(map.any(at, count), any) << round;
  }
}

TEST(WrittenMap, ForgetsWhatIsLarge) {
  constexpr uint64_t kSize = uint64_t{64} << 20;
  WrittenMap map(kSize);
  map.mark(5, kSize - 10);
  for (uint64_t at = 0; at < kSize; at += 4096) map.mark(at + 8, 4000);  // bits, too
  map.forget(1000, kSize - 3000);
  EXPECT_TRUE(map.all(5, 995));
  EXPECT_FALSE(map.any(1000, kSize - 3000));
  EXPECT_TRUE(map.all(kSize - 2000, 1995));
}

}  // namespace
}  // namespace imbrex::vgpu
