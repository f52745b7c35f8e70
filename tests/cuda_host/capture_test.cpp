// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <thread>

#include "driver_testing.h"

namespace imbrex::cuda {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

// What these tests expect is what an H200 with driver 580 answered.

// Calls that need not conflict with a capture, and are forbidden by its mode and that of the calling thread.
TEST_F(Driver, UnsafeCallsEndACaptureByItsMode) {
  constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;
  struct Row {
    int capture;
    bool is_own_thread;
    int thread;
    bool is_forbidden;
  };
  constexpr Row kRows[] = {
      {kGlobal, true, kGlobal, true},         {kGlobal, true, kThreadLocal, true},
      {kGlobal, true, kRelaxed, false},       {kGlobal, false, kGlobal, true},
      {kGlobal, false, kThreadLocal, false},  {kGlobal, false, kRelaxed, false},
      {kThreadLocal, true, kGlobal, true},    {kThreadLocal, true, kThreadLocal, true},
      {kThreadLocal, true, kRelaxed, false},  {kThreadLocal, false, kGlobal, false},
      {kThreadLocal, false, kRelaxed, false}, {kRelaxed, true, kGlobal, false},
      {kRelaxed, true, kThreadLocal, false},  {kRelaxed, false, kGlobal, false},
  };
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  CUcontext context = nullptr;
  ASSERT_OK(cuCtxGetCurrent(&context));
  ASSERT_OK(cuStreamCreateWithPriority(&stream, 1, 0));
  ASSERT_OK(cuEventCreate(&event, 0));
  ASSERT_OK(cuEventRecordWithFlags(event, nullptr, 0));
  ASSERT_OK(cuStreamCreateWithPriority(&other, 0, 0));
  CUmemoryPool pool = nullptr, made = nullptr;
  ASSERT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  const CUmemPoolProps properties{};
  CUgraph empty = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuGraphCreate(&empty, 0));
  alignas(4096) static char page[4096];
  CUdeviceptr x = 0;
  [[maybe_unused]] void* pinned = nullptr;
  [[maybe_unused]] const auto frees = [&](CUresult made, const auto& free) {
    return made == CUDA_SUCCESS ? free() : made;
  };
  const std::vector<std::pair<const char*, std::function<CUresult()>>> calls = {
      {"cuMemAlloc", [&] { return frees(cuMemAlloc_v2(&x, 4), [&] { return cuMemFree_v2(x); }); }},
#ifndef __SANITIZE_ADDRESS__  // which has taken the addresses
      {"cuMemAllocManaged",
       [&] { return frees(cuMemAllocManaged(&x, 4, 1), [&] { return cuMemFree_v2(x); }); }},
      {"cuMemHostAlloc",
       [&] { return frees(cuMemHostAlloc(&pinned, 4, 0), [&] { return cuMemFreeHost(pinned); }); }},
#endif
      {"cuMemFree of nothing", [] { return cuMemFree_v2(0); }},
      {"cuMemHostRegister",
       [&] { return frees(cuMemHostRegister_v2(page, 4096, 0), [] { return cuMemHostUnregister(page); }); }},
      {"cuMemAllocAsync",
       [&] { return frees(cuMemAllocAsync(&x, 4, other), [&] { return cuMemFreeAsync(x, other); }); }},
      {"cuMemPoolCreate",
       [&] { return frees(cuMemPoolCreate(&made, &properties), [&] { return cuMemPoolDestroy(made); }); }},
      {"cuMemPoolTrimTo", [&] { return cuMemPoolTrimTo(pool, 0); }},
      {"cuMemAdvise", [&] { return cuMemAdvise(x, 4, 1, 0); }},
      {"cuStreamAttachMemAsync", [&] { return cuStreamAttachMemAsync(other, x, 4, 1); }},
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(other); }},
      {"cuStreamQuery", [&] { return cuStreamQuery(other); }},
      {"cuStreamQuery of the legacy stream", [] { return cuStreamQuery(nullptr); }},
      {"cuCtxSetLimit", [] { return cuCtxSetLimit(0, 2048); }},
      {"cuGraphInstantiate",
       [&] {
         return frees(cuGraphInstantiateWithFlags(&exec, empty, 0), [&] { return cuGraphExecDestroy(exec); });
       }},
      {"cuEventQuery", [&] { return cuEventQuery(event); }},
      {"cuEventSynchronize", [&] { return cuEventSynchronize(event); }},
  };
  CaptureStderr();
  for (const auto& [name, call] : calls)
    for (const Row& row : kRows) {
      CUgraph graph = nullptr;
      ASSERT_OK(cuStreamBeginCapture_v2(stream, row.capture));
      CUresult answer = CUDA_SUCCESS;
      const auto make_it = [&] {
        int mode = row.thread;
        cuCtxSetCurrent(context);
        cuThreadExchangeStreamCaptureMode(&mode);
        answer = call();
        cuThreadExchangeStreamCaptureMode(&mode);
      };
      if (row.is_own_thread)
        make_it();
      else
        std::thread(make_it).join();
      const auto said = [&] {
        return fmt::format("{} in mode {}, capture in mode {} of this thread: {}", name, row.thread,
                           row.capture, row.is_own_thread);
      };
      EXPECT_EQ(answer, row.is_forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS) << said();
      EXPECT_EQ(cuStreamEndCapture(stream, &graph),
                row.is_forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS)
          << said();
      if (graph != nullptr) {
        EXPECT_OK(cuGraphDestroy(graph));
      }
    }
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("allocate by cudaMallocAsync"));
  // What an allocation on a stream does is kept in the graph.
  ASSERT_OK(cuStreamBeginCapture_v2(stream, kGlobal));
  CUgraph graph = nullptr;
  EXPECT_OK(cuMemAllocAsync(&x, 4, stream));
  EXPECT_OK(cuMemFreeAsync(x, stream));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  EXPECT_OK(cuGraphDestroy(graph));
  CaptureStderr();
  EXPECT_EQ(cuStreamBeginCapture_v2(stream, 7), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("capture mode 7"));
  EXPECT_OK(cuGraphDestroy(empty));
  EXPECT_OK(cuEventDestroy_v2(event));
  EXPECT_OK(cuStreamDestroy_v2(other));
  EXPECT_OK(cuStreamDestroy_v2(stream));
}

// Calls that conflict with a capture, whatever its mode.
TEST_F(Driver, CallsThatConflictWithACapture) {
  constexpr int kRelaxed = 2;
  CUstream stream = nullptr;
  CUevent outside = nullptr, inside = nullptr, timed = nullptr;
  CUgraph empty = nullptr;
  CUgraphExec exec = nullptr;
  for (CUevent* event : {&outside, &inside, &timed}) ASSERT_OK(cuEventCreate(event, 0));
  ASSERT_OK(cuEventRecordWithFlags(outside, nullptr, 0));
  ASSERT_OK(cuGraphCreate(&empty, 0));
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, empty, 0));
  const CUdeviceptr x = upload(std::vector<float>(64, 1.0f));
  float milliseconds = 0;
  struct Row {
    const char* name;
    std::function<CUresult()> call;
    CUresult answer,
        answer_beside_legacy;  // where the stream is none that the legacy stream waits for, and where it is
    bool ends, ends_beside_legacy;
  };
  constexpr CUresult kOk = CUDA_SUCCESS, kNo = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                     kImplicit = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, kOfCapture = CUDA_ERROR_CAPTURED_EVENT;
  const auto capture_of = [](CUstream of) { return cuStreamBeginCapture_v2(of, 0); };
  const std::vector<Row> rows = {
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(stream); }, kNo, kNo, true, true},
      {"cuStreamSynchronize of the legacy stream", [] { return cuStreamSynchronize(nullptr); }, kOk,
       kImplicit, false, true},
      {"cuStreamQuery of the legacy stream", [] { return cuStreamQuery(nullptr); }, kOk, kImplicit, false,
       true},
      {"cuMemAllocAsync on the legacy stream",
       [] {
         CUdeviceptr y = 0;
         return cuMemAllocAsync(&y, 4, nullptr);
       },
       kOk, kImplicit, false, true},
      {"cuMemFreeAsync of nothing", [&] { return cuMemFreeAsync(0, stream); }, kOk, kOk, false, false},
      {"cuMemFreeAsync of other memory", [&] { return cuMemFreeAsync(x, stream); }, CUDA_ERROR_INVALID_VALUE,
       CUDA_ERROR_INVALID_VALUE, false, false},
      {"cuMemPrefetchAsync", [&] { return cuMemPrefetchAsync(x, 4, 0, stream); }, kNo, kNo, true, true},
      {"cuStreamAttachMemAsync", [&] { return cuStreamAttachMemAsync(stream, x, 4, 1); }, kNo, kNo, true,
       true},
      {"cuGraphLaunch", [&] { return cuGraphLaunch(exec, stream); }, kNo, kNo, true, true},
      {"cuGraphUpload", [&] { return cuGraphUpload(exec, stream); }, kNo, kNo, true, true},
      {"cuStreamWaitEvent of an event outside", [&] { return cuStreamWaitEvent(stream, outside, 0); },
       CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, true, true},
      {"cuStreamWaitEvent of one that is external", [&] { return cuStreamWaitEvent(stream, outside, 1); },
       kOk, kOk, false, false},
      {"cuStreamWaitEvent of one that nobody recorded", [&] { return cuStreamWaitEvent(stream, timed, 0); },
       kOk, kOk, false, false},
      {"cuStreamWaitEvent by the legacy stream", [&] { return cuStreamWaitEvent(nullptr, inside, 0); },
       kImplicit, kImplicit, true, true},
      {"cuStreamBeginCapture of the legacy stream", [&] { return capture_of(nullptr); }, kNo, kImplicit,
       false, true},
      {"cuEventQuery", [&] { return cuEventQuery(inside); }, kOfCapture, kOfCapture, true, true},
      {"cuEventSynchronize", [&] { return cuEventSynchronize(inside); }, kOfCapture, kOfCapture, true, true},
      {"cuEventElapsedTime", [&] { return cuEventElapsedTime(&milliseconds, outside, inside); }, kOfCapture,
       kOfCapture, false, false},
      // The default stream of the thread, which is ordered with the legacy stream as every other is.
      {"a launch on the thread's default stream",
       [&] { return scale(x, 1, 64, reinterpret_cast<CUstream>(2)); }, kOk, kOk, false, false},
  };
  CaptureStderr();
  for (const bool beside_legacy : {false, true})
    for (const Row& row : rows) {
      CUgraph graph = nullptr;
      ASSERT_OK(cuStreamCreateWithPriority(&stream, beside_legacy ? 0 : 1, 0));
      ASSERT_OK(cuStreamBeginCapture_v2(stream, kRelaxed));
      ASSERT_OK(cuEventRecordWithFlags(inside, stream, 0));
      EXPECT_EQ(row.call(), beside_legacy ? row.answer_beside_legacy : row.answer)
          << row.name << " " << beside_legacy;
      const bool ends = beside_legacy ? row.ends_beside_legacy : row.ends;
      EXPECT_EQ(cuStreamEndCapture(stream, &graph), ends ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : kOk)
          << row.name << " " << beside_legacy;
      if (graph != nullptr) {
        EXPECT_OK(cuGraphDestroy(graph));
      }
      EXPECT_OK(cuStreamDestroy_v2(stream));
    }
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("wait by cudaEventWaitExternal"));
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(empty));
  for (CUevent event : {outside, inside, timed}) EXPECT_OK(cuEventDestroy_v2(event));
}

// Events of cudaEventRecordExternal are nodes of the graph, and points in time outside of it.
TEST_F(Driver, ExternalEventsOfACaptureAreRecordedWhenTheGraphRuns) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_OK(cuStreamCreateWithPriority(&stream, 1, 0));
  ASSERT_OK(cuEventCreate(&event, 0));
  ASSERT_OK(cuStreamBeginCapture_v2(stream, 0));
  EXPECT_OK(cuEventRecordWithFlags(event, stream, 1));
  EXPECT_OK(cuStreamWaitEvent(stream, event, 1));
  ASSERT_OK(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  EXPECT_OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  float milliseconds = 0;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, event, event), CUDA_ERROR_INVALID_HANDLE);  // not yet
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_OK(cuGraphLaunch(exec, stream));
  EXPECT_OK(cuEventSynchronize(event));
  EXPECT_OK(cuEventElapsedTime(&milliseconds, event, event));
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph));
  EXPECT_OK(cuEventDestroy_v2(event));
  EXPECT_OK(cuStreamDestroy_v2(stream));
}

}  // namespace
}  // namespace imbrex::cuda
