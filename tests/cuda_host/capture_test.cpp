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
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUcontext context = nullptr;
  ASSERT_OK(cuCtxGetCurrent(&context));
  ASSERT_OK(cuStreamCreateWithPriority(&stream, 1, 0));
  ASSERT_OK(cuEventCreate(&event, 0));
  ASSERT_OK(cuEventRecordWithFlags(event, nullptr, 0));
  CUdeviceptr x = 0;
  void* pinned = nullptr;
  const auto frees = [&](CUresult made, const auto& free) { return made == CUDA_SUCCESS ? free() : made; };
  const std::vector<std::pair<const char*, std::function<CUresult()>>> calls = {
      {"cuMemAlloc", [&] { return frees(cuMemAlloc_v2(&x, 4), [&] { return cuMemFree_v2(x); }); }},
      {"cuMemAllocManaged",
       [&] { return frees(cuMemAllocManaged(&x, 4, 1), [&] { return cuMemFree_v2(x); }); }},
      {"cuMemHostAlloc",
       [&] { return frees(cuMemHostAlloc(&pinned, 4, 0), [&] { return cuMemFreeHost(pinned); }); }},
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
  EXPECT_OK(cuEventDestroy_v2(event));
  EXPECT_OK(cuStreamDestroy_v2(stream));
}

}  // namespace
}  // namespace imbrex::cuda
