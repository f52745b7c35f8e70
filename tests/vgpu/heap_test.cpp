// SPDX-License-Identifier: Apache-2.0
// What kernels allocate themselves, and the functions of libcudadevrt that they call.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

using testing::HasSubstr;

/// A kernel `k(out, n)`: %t counts the threads of the grid, %out is the address of out[%t], of 8 bytes. `malloc(n)` in the
/// body gives %p, `free(%x)` frees.
std::string kernel(std::string body) {
  const auto replace = [&](std::string_view what, const char* with) {
    for (size_t at; (at = body.find(what)) != std::string::npos;) body.replace(at, what.size(), with);
  };
  replace("malloc(n)",
          "{ st.param.b64 [size], %n; call.uni (made), malloc, (size); ld.param.b64 %p, [made]; }");
  replace("free(%p)", "{ st.param.b64 [size], %p; call.uni free, (size); }");
  replace("free(%out)", "{ st.param.b64 [size], %out; call.uni free, (size); }");
  replace("free(%x)", "{ st.param.b64 [size], %x; call.uni free, (size); }");
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.extern .func (.param .b64 result) malloc(.param .b64 bytes);
.extern .func free(.param .b64 pointer);
.extern .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 result) cudaCGGetSize(.param .b64 threads, .param .b64 grids, .param .b64 handle);
.extern .func (.param .b32 result) cudaCGGetRank(.param .b64 thread, .param .b64 grid, .param .b64 handle);
.extern .func (.param .b32 result) cudaMalloc(.param .b64 pointer, .param .b64 bytes);
.extern .func (.param .b32 result) cudaFree(.param .b64 pointer);
.extern .func (.param .b32 result) __cudaCDP2LaunchDevice_ptsz(.param .b64 function);
.file 1 "heap.cu"
.visible .entry k(.param .u64 out, .param .u64 n)
{{
  .reg .pred %q;
  .reg .b32 %t, %y, %z, %cta, %size;
  .reg .b64 %p, %x, %base, %n, %out, %h;
  .param .b64 size, made;
  .param .b64 a, b;
  .param .b32 scope, flags, status;
  .local .align 8 .b64 cell;
  ld.param.u64 %base, [out];
  ld.param.u64 %n, [n];
  mov.u32 %t, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mad.lo.u32 %t, %cta, %size, %t;
  mad.wide.u32 %out, %t, 8, %base;
{}
  ret;
}}
)",
                     body);
}

struct Heap {
  explicit Heap(Options options = {}) : gpu((options.target = "sm_90a", options)) {}
  /// `words` words of 8 bytes, zeros at the start.
  Report run(const std::string& body, int64_t grid, int64_t block, uint64_t n, bool cooperative = false) {
    module = gpu.load_module(kernel(body), "heap.ptx");
    const auto words = static_cast<size_t>(grid * block);
    DeviceAddress address = to_device(gpu, std::vector<uint64_t>(words));
    void* arguments[] = {&address, &n};
    const Report report =
        gpu.launch(module.function("k"),
                   {.grid = {grid}, .block = {block}, .cooperative = cooperative, .arguments = arguments});
    out = from_device<uint64_t>(gpu, address, words);
    return report;
  }
  VirtualGpu gpu;
  Module module;
  std::vector<uint64_t> out;
};

void expect_found(const Report& report, FindingKind kind, const std::string& text, const std::string& fact) {
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, kind) << report.format();
  EXPECT_THAT(report.findings[0].message, HasSubstr(text));
  EXPECT_THAT(report.format(), HasSubstr(fact));
}

constexpr const char* kKeepsItsNumber = R"(
  malloc(n)
  st.u32 [%p+4], %t;
  ld.u32 %y, [%p+4];
  cvt.u64.u32 %x, %y;
  st.global.u64 [%out], %x;
  free(%p))";

TEST(KernelHeap, EveryThreadHasABlockOfItsOwn) {
  for (const int threads : {1, 4})
    for (const uint64_t bytes : {8, 100}) {
      Heap heap({.host_threads = threads});
      const Report report = heap.run(kKeepsItsNumber, 6, 80, bytes);
      EXPECT_TRUE(report.clean()) << report.format();
      for (size_t i = 0; i < heap.out.size(); ++i) EXPECT_EQ(heap.out[i], i);
    }
}

TEST(KernelHeap, AddressesDoNotDependOnTheHostsThreads) {
  const auto addresses = [](int threads) {
    Heap heap({.host_threads = threads, .seed = 7});
    EXPECT_TRUE(heap.run("  malloc(n)\n  st.global.u64 [%out], %p;", 8, 64, 48).clean());
    return heap.out;
  };
  EXPECT_EQ(addresses(1), addresses(4));
}

TEST(KernelHeap, WhatIsFreedServesAgain) {
  // More in all than there are addresses for, and never more at once than the heap has.
  Heap heap({.host_threads = 4});
  heap.gpu.set_heap_bytes(64 * 128);
  const Report report = heap.run(R"(
  mov.u32 %z, 0;
AGAIN:
  malloc(n)
  st.u32 [%p], %z;
  ld.u32 %y, [%p];
  setp.ne.u32 %q, %y, %z;
  @%q trap;
  free(%p)
  add.u32 %z, %z, 1;
  setp.lt.u32 %q, %z, 40;
  @%q bra AGAIN;)",
                                 2, 32, 128);
  EXPECT_TRUE(report.clean()) << report.format();
}

TEST(KernelHeap, AFullHeapGivesNull) {
  Heap heap;
  EXPECT_EQ(heap.gpu.heap_bytes(), 8 << 20);
  heap.gpu.set_heap_bytes(16 * 64);
  EXPECT_TRUE(heap.run("  malloc(n)\n  st.global.u64 [%out], %p;", 1, 20, 64).clean());
  EXPECT_EQ(std::count(heap.out.begin(), heap.out.end(), 0u), 4);
  expect_found(heap.run(kKeepsItsNumber, 1, 1, 64), FindingKind::kOutOfBounds, "at 0x4",
               "malloc has returned null 5 times, with a heap of 1024 bytes");
}

TEST(KernelHeap, FaultsAreNamed) {
  Heap heap;
  expect_found(heap.run("  .loc 1 3 0\n  malloc(n)\n  .loc 1 4 0\n  free(%p)\n  st.u32 [%p], %t;", 1, 1, 64),
               FindingKind::kUseAfterFree, "in 64 bytes of malloc, which have been freed",
               "allocated at heap.cu:3");
  expect_found(heap.run("  malloc(n)\n  free(%p)\n  .loc 1 9 0\n  free(%p)", 1, 1, 64),
               FindingKind::kUseAfterFree, "frees the 64 bytes at", "freed at");
  expect_found(heap.run("  malloc(n)\n  add.u64 %x, %p, 4;\n  free(%x)", 1, 1, 64),
               FindingKind::kIllegalInstruction, "which malloc did not return", "it is byte 4 of 64 bytes");
  expect_found(heap.run("  free(%out)", 1, 1, 64), FindingKind::kIllegalInstruction,
               "which malloc did not return", "the host frees what cudaMalloc gave it");
  expect_found(heap.run("  malloc(n)\n  st.u32 [%p+64], %t;", 1, 1, 64), FindingKind::kOutOfBounds,
               "writes 4 bytes of global memory", "0 bytes past the end of 64 bytes allocated at");
  expect_found(heap.run("  malloc(n)\n  ld.u64 %x, [%p+60];", 1, 1, 64), FindingKind::kMisaligned, "", "");
}

TEST(KernelHeap, NullIsFreedSilently) {
  EXPECT_TRUE(Heap().run("  mov.u64 %p, 0;\n  free(%p)", 1, 32, 0).clean());
}

TEST(KernelHeap, AnotherThreadMayFreeBehindABarrier) {
  const std::string body = R"(
  .shared .align 8 .b64 shared;
  setp.ne.u32 %q, %t, 0;
  @%q bra BEHIND;
  malloc(n)
  st.shared.u64 [shared], %p;
BEHIND:
  bar.sync 0;
  ld.shared.u64 %p, [shared];
  add.u64 %x, %p, 4;
  mad.wide.u32 %x, %t, 4, %p;
  st.u32 [%x], %t;
{}
  setp.ne.u32 %q, %t, 33;
  @%q bra END;
  free(%p)
END:)";
  Heap heap;
  const Report ordered = heap.run(fmt::format(fmt::runtime(body), "  bar.sync 0;"), 1, 64, 256);
  EXPECT_TRUE(ordered.clean()) << ordered.format();
  EXPECT_FALSE(heap.run(fmt::format(fmt::runtime(body), ""), 1, 64, 256).clean());
}

TEST(KernelHeap, LaterLaunchesUseItUntilItIsDropped) {
  Heap heap;
  EXPECT_TRUE(heap.run("  malloc(n)\n  st.u32 [%p], 5;\n  st.global.u64 [%out], %p;", 1, 1, 64).clean());
  const uint64_t block = heap.out[0];
  EXPECT_THROW(heap.gpu.set_heap_bytes(1 << 20), LaunchError);
  EXPECT_TRUE(heap.run("  ld.u32 %x, [%n];\n  st.global.u64 [%out], %x;", 1, 1, block).clean());
  EXPECT_EQ(heap.out[0], 5u);
  heap.gpu.drop_heap();
  heap.gpu.set_heap_bytes(1 << 20);
  expect_found(heap.run("  ld.u64 %x, [%n];", 1, 1, block), FindingKind::kUseAfterFree, "the heap of malloc",
               "");
}

TEST(KernelHeap, WhatWasNeverWrittenIsFoundWhereAskedFor) {
  Options options;
  options.checks = CheckSet::all();
  Heap heap(options);
  EXPECT_FALSE(heap.run("  malloc(n)\n  ld.u64 %x, [%p];\n  st.global.u64 [%out], %x;", 1, 1, 64).clean());
}

// ---- libcudadevrt

constexpr const char* kGridSync = R"(
  st.param.b32 [scope], 1;
  call.uni (made), cudaCGGetIntrinsicHandle, (scope);
  ld.param.b64 %h, [made];
  st.param.b64 [a], %h;
  st.param.b32 [flags], 0;
  call.uni (status), cudaCGSynchronize, (a, flags);
)";

TEST(DeviceRuntime, AGridOfACooperativeLaunchMeets) {
  for (const uint64_t seed : {0, 1, 5}) {
    Heap heap({.host_threads = 2, .seed = seed});
    // Each thread reads what the grid's last but %t wrote, twice, so that the barrier turns over.
    const Report report = heap.run(R"(
  cvt.u64.u32 %x, %t;
  st.global.u64 [%out], %x;
)" + std::string(kGridSync) + R"(
  sub.u32 %y, 239, %t;
  mad.wide.u32 %p, %y, 8, %base;
  ld.global.u64 %x, [%p];
)" + std::string(kGridSync) + R"(
  st.global.u64 [%out], %x;)",
                                   5, 48, 0, true);
    EXPECT_TRUE(report.clean()) << report.format();
    for (size_t i = 0; i < heap.out.size(); ++i) EXPECT_EQ(heap.out[i], 239 - i);
  }
}

TEST(DeviceRuntime, AnOrdinaryLaunchCannotMeet) {
  expect_found(Heap().run(kGridSync, 2, 32, 0), FindingKind::kIllegalInstruction,
               "synchronises its grid, but the launch is not cooperative", "cudaLaunchCooperativeKernel");
}

TEST(DeviceRuntime, TellsThreadsTheirNumberInTheGrid) {
  Heap heap;
  const Report report = heap.run(R"(
  mov.u64 %x, cell;
  cvta.local.u64 %x, %x;
  st.param.b64 [a], %x;
  st.param.b64 [b], 0;
  st.param.b64 [size], 0;
  call.uni (status), cudaCGGetRank, (a, b, size);
  ld.local.u32 %y, [cell];
  call.uni (status), cudaCGGetSize, (a, b, size);
  ld.local.u32 %z, [cell];
  mad.lo.u32 %z, %z, 1000, %y;
  cvt.u64.u32 %x, %z;
  st.global.u64 [%out], %x;)",
                                 3, 32, 0);
  EXPECT_TRUE(report.clean()) << report.format();
  for (size_t i = 0; i < heap.out.size(); ++i) EXPECT_EQ(heap.out[i], 96000 + i);
}

TEST(DeviceRuntime, AllocatesAsMallocDoes) {
  Heap heap;
  heap.gpu.set_heap_bytes(4096);
  const std::string allocate = R"(
  mov.u64 %x, cell;
  cvta.local.u64 %x, %x;
  st.param.b64 [a], %x;
  st.param.b64 [size], %n;
  call.uni (status), cudaMalloc, (a, size);
  ld.param.b32 %y, [status];
)";
  const Report report = heap.run(allocate + R"(
  ld.local.u64 %p, [cell];
  st.u32 [%p], %t;
  st.param.b64 [a], %p;
  call.uni (status), cudaFree, (a);
  ld.param.b32 %z, [status];
  add.u32 %y, %y, %z;
  cvt.u64.u32 %x, %y;
  st.global.u64 [%out], %x;)",
                                 1, 32, 64);
  EXPECT_TRUE(report.clean()) << report.format();
  EXPECT_EQ(heap.out, std::vector<uint64_t>(32));
  EXPECT_TRUE(
      heap.run(allocate + "  cvt.u64.u32 %x, %y;\n  st.global.u64 [%out], %x;", 1, 1, 1 << 20).clean());
  EXPECT_EQ(heap.out[0], 2u);  // cudaErrorMemoryAllocation
}

TEST(DeviceRuntime, LaunchesFromKernelsAreRefusedByName) {
  Heap heap;
  try {
    heap.run("  st.param.b64 [a], 0;\n  call.uni (status), __cudaCDP2LaunchDevice_ptsz, (a);", 1, 1, 0);
    FAIL() << "launched";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("launches kernels from a kernel (__cudaCDP2LaunchDevice_ptsz)"));
  }
}

}  // namespace
}  // namespace imbrex::vgpu
