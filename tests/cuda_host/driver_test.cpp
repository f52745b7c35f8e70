// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstring>

#include "../skip.h"
#include "driver_testing.h"
#include "imbrex/inspect/gpu_model.h"

namespace imbrex::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

const GpuModel& gpu() { return gpu_model(std::getenv("IMBREX_GPU")); }

std::vector<float> ramp(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 3;
  return values;
}

TEST_F(Driver, LaunchesAKernelByPointersAndByBuffer) {
  const std::vector<float> before = ramp(1001);
  const CUdeviceptr x = upload(before);
  ASSERT_OK(scale(x, 3, 1001));
  struct {
    CUdeviceptr x;
    float factor;
    unsigned n;
  } packed{x, 5, 1001};
  size_t bytes = sizeof packed;
  void* extra[] = {reinterpret_cast<void*>(1), &packed, reinterpret_cast<void*>(2), &bytes, nullptr};
  ASSERT_OK(cuLaunchKernel(scale_, 16, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra));
  const std::vector<float> after = read(x, 1001);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], 15 * before[i]) << i;
  EXPECT_OK(cuMemFree_v2(x));
}

TEST_F(Driver, LaunchesAsBeforeCuda4) {
  const std::vector<float> before = ramp(100);
  const CUdeviceptr x = upload(before);
  CUdeviceptr address = x;
  ASSERT_OK(cuFuncSetBlockShape(scale_, 32, 1, 1));
  ASSERT_OK(cuParamSetv(scale_, 0, &address, 8));
  ASSERT_OK(cuParamSetf(scale_, 8, 4));
  ASSERT_OK(cuParamSeti(scale_, 12, 100));
  ASSERT_OK(cuParamSetSize(scale_, 16));
  ASSERT_OK(cuLaunchGrid(scale_, 4, 1));
  const std::vector<float> after = read(x, 100);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], 4 * before[i]) << i;
  CaptureStderr();
  EXPECT_EQ(cuParamSetSize(scale_, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuParamSeti(scale_, -4, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuParamSetv(scale_, 32 << 10, &address, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetBlockShape(scale_, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchGrid(scale_, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("a grid of 0 x 1"));
  EXPECT_OK(cuMemFree_v2(x));
}

TEST_F(Driver, ACaptureIsAsStrictAsCudas) {
  CUstream blocking = nullptr, free = nullptr;
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamCreateWithPriority(&blocking, 0, 0));
  ASSERT_OK(cuStreamCreateWithPriority(&free, 1, 0));
  const CUdeviceptr x = upload(ramp(64));
  CaptureStderr();
  EXPECT_EQ(cuStreamBeginCapture_v2(nullptr, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  // The legacy stream, during a capture of a stream that is ordered with it.
  ASSERT_OK(cuStreamBeginCapture_v2(blocking, 0));
  EXPECT_EQ(scale(x, 2, 64), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(scale(x, 2, 64, blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
  // A wait, for the stream and for everything.
  ASSERT_OK(cuStreamBeginCapture_v2(blocking, 0));
  EXPECT_EQ(cuStreamSynchronize(blocking), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_OK(cuStreamBeginCapture_v2(free, 0));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(free, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // The end of a capture that another stream began.
  ASSERT_OK(cuStreamBeginCapture_v2(blocking, 0));
  CUevent event = nullptr;
  ASSERT_OK(cuEventCreate(&event, 0));
  ASSERT_OK(cuEventRecordWithFlags(event, blocking, 0));
  ASSERT_OK(cuStreamWaitEvent(free, event, 0));
  EXPECT_EQ(cuStreamEndCapture(free, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_OK(cuEventDestroy_v2(event));
  // Whether the legacy stream is captured cannot be asked meanwhile, which ends nothing.
  int status = 0;
  ASSERT_OK(cuStreamBeginCapture_v2(blocking, 0));
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_OK(cuStreamEndCapture(blocking, &graph));
  EXPECT_OK(cuGraphDestroy(graph));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("make the captured one with cudaStreamNonBlocking"));
  // A stream that is not ordered with the legacy one takes no notice of it, and a failed capture is over.
  ASSERT_OK(cuStreamBeginCapture_v2(free, 0));
  EXPECT_OK(scale(x, 2, 64));
  EXPECT_OK(scale(x, 2, 64, free));
  EXPECT_OK(cuStreamEndCapture(free, &graph));
  EXPECT_OK(cuGraphDestroy(graph));
  EXPECT_OK(cuStreamDestroy_v2(blocking));
  EXPECT_OK(cuStreamDestroy_v2(free));
}

TEST_F(Driver, BranchesOfAGraphThatNothingOrdersRaceAndItsLaunchesDoNot) {
  const CUdeviceptr x = upload(ramp(64)), y = upload(ramp(64));
  float factor = 2;
  unsigned n = 64;
  for (const bool share : {false, true}) {
    CUdeviceptr first = x, second = share ? x : y;
    void *one[] = {&first, &factor, &n}, *other[] = {&second, &factor, &n};
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    CUgraphNode a = nullptr, b = nullptr;
    CUDA_KERNEL_NODE_PARAMS node{};
    node.function = scale_;
    node.grid_x = node.grid_y = node.grid_z = node.block_y = node.block_z = 1;
    node.block_x = 64;
    node.parameters = one;
    ASSERT_OK(cuGraphAddKernelNode_v2(&a, graph, nullptr, 0, &node));
    node.parameters = other;
    ASSERT_OK(cuGraphAddKernelNode_v2(&b, graph, nullptr, 0, &node));
    CUgraphExec exec = nullptr;
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CUstream stream = nullptr, behind = nullptr;
    ASSERT_OK(cuStreamCreateWithPriority(&stream, 1, 0));
    ASSERT_OK(cuStreamCreateWithPriority(&behind, 1, 0));
    CaptureStderr();
    ASSERT_OK(cuGraphLaunch(exec, stream));
    ASSERT_OK(cuGraphLaunch(exec, behind));  // of one graph: behind its earlier launch, whatever the stream
    const std::string told = GetCapturedStderr();
    if (share)
      EXPECT_THAT(told, HasSubstr("branch 2 of a graph"));
    else
      EXPECT_EQ(told, "");
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuStreamSynchronize(behind));
    EXPECT_OK(cuGraphExecDestroy(exec));
    EXPECT_OK(cuGraphDestroy(graph));
    EXPECT_OK(cuStreamDestroy_v2(stream));
    EXPECT_OK(cuStreamDestroy_v2(behind));
  }
}

const char* const kPointerCaller = R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) twice(.param .b32 x);
.func (.param .b32 r) thrice(.param .b32 x) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x]; mul.lo.s32 %r2, %r1, 3; st.param.b32 [r], %r2;
  ret;
}
.global .u64 table[2] = {twice, thrice};
.visible .entry by_pointer(.param .u64 out, .param .u32 first, .param .u32 wrong)
{
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [first]; ld.param.u32 %r7, [wrong];
  mov.u32 %r2, %tid.x; add.u32 %r3, %r2, %r1; and.b32 %r3, %r3, 1;
  mul.wide.u32 %rd2, %r3, 8; mov.u64 %rd3, table; add.u64 %rd3, %rd3, %rd2; ld.global.u64 %rd4, [%rd3];
  cvt.u64.u32 %rd6, %r7; add.u64 %rd4, %rd4, %rd6;
  setp.lt.u32 %p, %r2, 20;
  mov.u32 %r5, 1000;
  { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2;
    @%p call (r), %rd4, (a), kind;
    @%p ld.param.b32 %r5, [r]; }
  kind: .callprototype (.param .b32 _) _ (.param .b32 _);
  mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r5;
  ret;
}
)";
const char* const kTwice = R"(.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 r) twice(.param .b32 x) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2;
  ret;
}
)";

TEST_F(Driver, TheDeviceRuntimeLibraryIsLinkedByHabit) {
  constexpr int kLibrary = 4;
  CUlinkState link = nullptr;
  char archive[] = "!<arch>";
  ASSERT_OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  EXPECT_OK(cuLinkAddData_v2(link, kLibrary, archive, sizeof archive, "libcudadevrt.a", 0, nullptr, nullptr));
  CaptureStderr();
  EXPECT_EQ(cuLinkAddData_v2(link, kLibrary, archive, sizeof archive, "libother.a", 0, nullptr, nullptr),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("'libother.a' is an object or a library"));
  EXPECT_OK(cuLinkDestroy(link));
}

TEST_F(Driver, LinksModulesAndCallsThroughPointers) {
  CUlinkState link = nullptr;
  ASSERT_OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  for (const char* text : {kPointerCaller, kTwice})
    ASSERT_OK(
        cuLinkAddData_v2(link, 1, const_cast<char*>(text), std::strlen(text) + 1, "", 0, nullptr, nullptr));
  void* image = nullptr;
  size_t bytes = 0;
  ASSERT_OK(cuLinkComplete(link, &image, &bytes));
  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, image));
  ASSERT_OK(cuLinkDestroy(link));
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleGetFunction(&function, module, "by_pointer"));
  CUdeviceptr out = upload(std::vector<float>(32, 0));
  for (unsigned first : {0u, 1u}) {
    unsigned wrong = 0;
    void* parameters[] = {&out, &first, &wrong};
    ASSERT_OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
    std::vector<unsigned> got(32);
    ASSERT_OK(cuMemcpyDtoH_v2(got.data(), out, 128));
    for (unsigned i = 0; i < 32; ++i)
      ASSERT_EQ(got[i], i >= 20 ? 1000 : (i + first) % 2 == 0 ? 2 * i : 3 * i) << i;
  }
  unsigned first = 0, wrong = 4;
  void* parameters[] = {&out, &first, &wrong};
  CaptureStderr();
  cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("where no function of this kind is"));
}

TEST_F(Driver, ModulesOneBehindTheOtherAreLinkedWhenLoaded) {
  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, (std::string(kTwice) + kPointerCaller).c_str()));
  CUfunction function = nullptr;
  EXPECT_OK(cuModuleGetFunction(&function, module, "by_pointer"));
  CaptureStderr();
  EXPECT_NE(cuModuleLoadData(&module, (std::string(kTwice) + kTwice).c_str()), CUDA_SUCCESS);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("'twice' is defined in module 1 and in module 2"));
}

TEST_F(Driver, AFunctionMayReturnNothingWhereItsCallerDeclaresAResult) {
  // As Numba calls void functions of C.
  const std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n";
  const std::string callee = head + R"(
.visible .func put(.param .b64 to)
{
  .reg .b64 %rd;
  ld.param.b64 %rd, [to];
  st.u32 [%rd], 5;
  ret;
}
)";
  const std::string caller = head + R"(
.extern .func (.param .b32 result) put(.param .b64 to);
.visible .entry calls(.param .u64 out)
{
  .reg .b64 %rd; .reg .b32 %r;
  ld.param.u64 %rd, [out];
  {
    .param .b64 to; .param .b32 result;
    st.param.b64 [to], %rd;
    call.uni (result), put, (to);
    ld.param.b32 %r, [result];
  }
  ret;
}
)";
  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, (callee + caller).c_str()));
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleGetFunction(&function, module, "calls"));
  CUdeviceptr out = upload(std::vector<float>(1, 0));
  void* parameters[] = {&out};
  ASSERT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  unsigned got = 0;
  ASSERT_OK(cuMemcpyDtoH_v2(&got, out, 4));
  EXPECT_EQ(got, 5u);
}

TEST_F(Driver, AnUnloadedModulesHandlesAreRefused) {
  ASSERT_OK(cuModuleUnload(module_));
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module_, "scale"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(scale(0, 1, 1), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Driver, VariablesOfModulesAreFound) {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  ASSERT_OK(cuModuleGetGlobal_v2(&address, &bytes, module_, "total"));
  EXPECT_EQ(bytes, 4u);
  unsigned by = 5, total = 0;
  void* parameters[] = {&by};
  ASSERT_OK(cuLaunchKernel(count_, 3, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  ASSERT_OK(cuMemcpyDtoH_v2(&total, address, 4));
  EXPECT_EQ(total, 7u + 5 * 96);
  CaptureStderr();
  EXPECT_EQ(cuModuleGetGlobal_v2(&address, &bytes, module_, "totl"), CUDA_ERROR_NOT_FOUND);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("no variable 'totl'"));
}

TEST_F(Driver, ManagedAndPinnedMemoryIsOneForHostAndKernels) {
#ifdef __SANITIZE_ADDRESS__
  IMBREX_SKIP(device_addresses);
#endif
  for (const bool managed : {true, false}) {
    CUdeviceptr x = 0;
    if (managed)
      ASSERT_OK(cuMemAllocManaged(&x, 5000 * 4, 1));
    else
      ASSERT_OK(cuMemHostAlloc(reinterpret_cast<void**>(&x), 5000 * 4, 0));
    auto* host = reinterpret_cast<float*>(x);
    for (int i = 0; i < 5000; ++i) host[i] = static_cast<float>(i);
    ASSERT_OK(scale(x, 2, 5000));
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(host[i], 2.0f * static_cast<float>(i));
    int is_managed = -1;
    unsigned type = 0;
    ASSERT_OK(cuPointerGetAttribute(&is_managed, kPointerIsManaged, x + 16));
    ASSERT_OK(cuPointerGetAttribute(&type, kPointerMemoryType, x + 16));
    EXPECT_EQ(is_managed, managed ? 1 : 0);
    EXPECT_EQ(type, managed ? kMemoryTypeDevice : kMemoryTypeHost);
    CaptureStderr();
    EXPECT_EQ(managed ? cuMemFreeHost(host) : cuMemFree_v2(x), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(GetCapturedStderr(), HasSubstr("is released by"));
    EXPECT_OK(managed ? cuMemFree_v2(x) : cuMemFreeHost(host));
  }
}

TEST_F(Driver, CopiesRowsBetweenPitches) {
  CUdeviceptr x = 0;
  size_t pitch = 0;
  ASSERT_OK(cuMemAllocPitch_v2(&x, &pitch, 40, 7, 4));
  EXPECT_EQ(pitch % 512, 0u);
  ASSERT_OK(cuMemsetD32_v2(x, 0xFFFFFFFF, pitch * 7 / 4));
  std::vector<uint8_t> from(40 * 7), to(60 * 7, 9);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i);
  CUDA_MEMCPY2D up{{0, 0, kMemoryTypeHost, from.data(), 0, nullptr, 40},
                   {0, 0, kMemoryTypeDevice, nullptr, x, nullptr, pitch},
                   40,
                   7};
  ASSERT_OK(cuMemcpy2D_v2(&up));
  // Columns 3 to 22 of rows 2 to 6, to column 1 of rows 0 to 4.
  CUDA_MEMCPY2D down{{3, 2, kMemoryTypeDevice, nullptr, x, nullptr, pitch},
                     {1, 0, kMemoryTypeHost, to.data(), 0, nullptr, 60},
                     20,
                     5};
  ASSERT_OK(cuMemcpy2D_v2(&down));
  for (size_t y = 0; y < 7; ++y)
    for (size_t c = 0; c < 60; ++c)
      ASSERT_EQ(to[y * 60 + c], y < 5 && c >= 1 && c < 21 ? from[(y + 2) * 40 + c + 2] : 9) << y << ' ' << c;
  up.source.pitch = 10;
  EXPECT_EQ(cuMemcpy2D_v2(&up), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFree_v2(x));
}

TEST_F(Driver, WrongFreesSayWhatIsWrong) {
  CUdeviceptr x = 0;
  ASSERT_OK(cuMemAlloc_v2(&x, 1000));
  CaptureStderr();
  EXPECT_EQ(cuMemFree_v2(x + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFree_v2(x));
  EXPECT_EQ(cuMemFree_v2(x), CUDA_ERROR_INVALID_VALUE);
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("is byte 8 of an allocation of 1000"));
  EXPECT_THAT(said, HasSubstr("was freed before (1000 bytes): a double free"));
}

TEST_F(Driver, MemoryRunsOutAsOnTheGpu) {
  size_t free = 0, total = 0, after = 0;
  ASSERT_OK(cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(total, static_cast<size_t>(gpu().hbm_bytes));
  CUdeviceptr x = 0, y = 0;
  ASSERT_OK(cuMemAlloc_v2(&x, free - 1000));
  EXPECT_EQ(cuMemAlloc_v2(&y, 2000), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemFree_v2(x));
  ASSERT_OK(cuMemGetInfo_v2(&after, nullptr));
  EXPECT_EQ(after, free);
}

TEST_F(Driver, PoolsTellWhatIsInUse) {
  constexpr int kUsed = 7, kUsedHigh = 8;
  CUmemoryPool pool = nullptr;
  ASSERT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  const auto tell = [&](int attribute) {
    uint64_t bytes = 1;
    EXPECT_OK(cuMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
  };
  const uint64_t before = tell(kUsed);
  CUdeviceptr other = 0, x = 0;
  ASSERT_OK(cuMemAlloc_v2(&other, 1 << 20));  // of no pool
  EXPECT_EQ(tell(kUsed), before);
  ASSERT_OK(cuMemAllocAsync(&x, 1000, nullptr));
  EXPECT_EQ(tell(kUsed), before + 1000);
  EXPECT_OK(cuMemFreeAsync(x, nullptr));
  EXPECT_EQ(tell(kUsed), before);
  EXPECT_GE(tell(kUsedHigh), before + 1000);
  EXPECT_OK(cuMemFree_v2(other));
}

TEST_F(Driver, AFaultIsAnsweredByLaterCallsAndNamedOnStderr) {
  CUdeviceptr x = 0;
  ASSERT_OK(cuMemAlloc_v2(&x, 400));
  std::vector<float> host(100, 1);
  ASSERT_OK(cuMemcpyHtoD_v2(x, host.data(), 400));
  CaptureStderr();
  EXPECT_OK(scale(x, 1, 101));  // past the end, but in the same page: told, and the program goes on
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(scale(x + (CUdeviceptr{1} << 33), 1, 100));  // as on a GPU: the launch itself succeeds
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("out-of-bounds"));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemcpyDtoH_v2(host.data(), x, 400), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
  ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_OK(cuCtxSetCurrent(context_));
  EXPECT_OK(cuCtxSynchronize());
}

TEST_F(Driver, LaunchesThatCannotBeAreRefused) {
  EXPECT_EQ(cuLaunchKernel(scale_, 0, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr x = 0;
  float factor = 1;
  unsigned n = 0;
  void* parameters[] = {&x, &factor, &n};
  EXPECT_EQ(cuLaunchKernel(scale_, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(scale_, 1, 1, 1, 32, 1, 1, 100 << 10, nullptr, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuFuncSetAttribute(scale_, kFuncMaxDynamicShared, 100 << 10));
  EXPECT_OK(cuLaunchKernel(scale_, 1, 1, 1, 32, 1, 1, 100 << 10, nullptr, parameters, nullptr));
}

TEST_F(Driver, CapturedStreamsForkJoinAndReplay) {
  CUstream a = nullptr, b = nullptr;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_OK(cuStreamCreateWithPriority(&a, 0, 0));
  ASSERT_OK(cuStreamCreateWithPriority(&b, 1, 0));
  ASSERT_OK(cuEventCreate(&fork, 0));
  ASSERT_OK(cuEventCreate(&join, 0));
  const CUdeviceptr x = upload({1, 2, 3, 4}), y = upload({5, 6, 7, 8});
  ASSERT_OK(cuStreamBeginCapture_v2(a, 0));
  ASSERT_OK(scale(x, 2, 4, a));
  ASSERT_OK(cuEventRecordWithFlags(fork, a, 0));
  ASSERT_OK(cuStreamWaitEvent(b, fork, 0));
  ASSERT_OK(scale(y, 3, 4, b));
  ASSERT_OK(cuEventRecordWithFlags(join, b, 0));
  ASSERT_OK(cuStreamWaitEvent(a, join, 0));
  ASSERT_OK(cuMemcpyDtoDAsync_v2(x, y, 8, a));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(a, &graph));
  EXPECT_EQ(read(x, 4), (std::vector<float>{1, 2, 3, 4})) << "capturing carries nothing out";
  size_t nodes = 0;
  ASSERT_OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 3u);
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_OK(cuGraphDestroy(graph));
  ASSERT_OK(cuGraphLaunch(exec, a));
  ASSERT_OK(cuGraphLaunch(exec, b));
  EXPECT_EQ(read(y, 4), (std::vector<float>{45, 54, 63, 72}));
  EXPECT_EQ(read(x, 4), (std::vector<float>{45, 54, 12, 16}));
  ASSERT_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(cuGraphLaunch(exec, a), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Driver, ACaptureThatIsNotJoinedIsRefused) {
  CUstream a = nullptr, b = nullptr;
  CUevent fork = nullptr;
  ASSERT_OK(cuStreamCreateWithPriority(&a, 0, 0));
  ASSERT_OK(cuStreamCreateWithPriority(&b, 0, 0));
  ASSERT_OK(cuEventCreate(&fork, 0));
  const CUdeviceptr x = upload({1, 2, 3, 4});
  ASSERT_OK(cuStreamBeginCapture_v2(a, 0));
  ASSERT_OK(cuEventRecordWithFlags(fork, a, 0));
  ASSERT_OK(cuStreamWaitEvent(b, fork, 0));
  ASSERT_OK(scale(x, 2, 4, b));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_OK(cuStreamSynchronize(b));
}

TEST_F(Driver, DevicesAnswerAsTheChip) {
  int value = 0, count = 0;
  ASSERT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  char name[64];
  ASSERT_OK(cuDeviceGetName(name, sizeof name, 1));
  EXPECT_EQ(name, gpu().title);
  ASSERT_OK(cuDeviceGetAttribute(&value, 16, 0));
  EXPECT_EQ(value, gpu().sms);
  ASSERT_OK(cuDeviceGetAttribute(&value, 75, 0));
  EXPECT_EQ(value, 9);
  ASSERT_OK(cuDeviceGetAttribute(&value, 97, 0));
  EXPECT_EQ(value, 227 << 10);
  EXPECT_EQ(cuDeviceGetAttribute(&value, 1000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetName(name, sizeof name, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Driver, EachDeviceHasModulesOfItsOwn) {
  CUlibrary library = nullptr;
  ASSERT_OK(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr first = 0, second = 0;
  ASSERT_OK(cuLibraryGetGlobal(&first, nullptr, library, "total"));
  CUcontext other = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  ASSERT_OK(cuCtxSetCurrent(other));
  ASSERT_OK(cuLibraryGetGlobal(&second, nullptr, library, "total"));
  EXPECT_NE(first, second);
  EXPECT_OK(cuLibraryUnload(library));
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(1));
  ASSERT_OK(cuCtxSetCurrent(context_));
}

TEST_F(Driver, WhatIsNotThereSaysSo) {
  CaptureStderr();
  EXPECT_EQ(cuTexObjectCreate(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuTexObjectCreate(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(GetCapturedStderr(),
            "imbrex: cuTexObjectCreate: the virtual GPU does not have this: textures, surfaces and arrays "
            "(CUDA_ERROR_NOT_SUPPORTED)\n");
}

TEST_F(Driver, BadModulesAreRefusedByWhatIsWrongWithThem) {
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n.entry k() { frobnicate; }"),
            CUDA_ERROR_INVALID_PTX);
  CaptureStderr();
  EXPECT_EQ(cuModuleLoadData(&module, ".version 19.0\n.target sm_80\n.address_size 64\n"),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("an older CUDA toolkit"));
  EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoadData(&module,
                             "\x7f"
                             "ELF"),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
}

}  // namespace
}  // namespace imbrex::cuda
