// SPDX-License-Identifier: Apache-2.0
// Host threads that use the driver at once, each with objects of its own and all with a module, a context and the memory in
// common. What the sanitizers see of the layer's locks they see here (scripts/test --host-layer).
#include <array>
#include <atomic>
#include <thread>

#include "driver_testing.h"

extern "C" {
CUresult cuStreamCreate(CUstream* stream, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
}

namespace imbrex::cuda {
namespace {

constexpr int kThreads = 4, kRounds = 25, kFloats = 200;

class Threads : public Driver {};

/// Scales its own memory, on its own stream, by kernels that all threads share.
void work(CUcontext context, CUfunction scale, int number, std::atomic<int>& calls, std::atomic<int>& wrong) {
  const auto expect = [&](bool holds) { wrong += holds ? 0 : 1; };
  expect(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  CUstream stream = nullptr;
  expect(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  for (int round = 0; round < kRounds; ++round) {
    std::array<float, kFloats> host;
    for (int i = 0; i < kFloats; ++i) host[static_cast<size_t>(i)] = static_cast<float>(i + number);
    CUdeviceptr x = 0;
    CUevent done = nullptr;
    expect(cuMemAlloc_v2(&x, sizeof host) == CUDA_SUCCESS);
    expect(cuMemcpyHtoDAsync_v2(x, host.data(), sizeof host, stream) == CUDA_SUCCESS);
    float factor = static_cast<float>(round + 2);
    int n = kFloats;
    void* parameters[] = {&x, &factor, &n};
    expect(cuLaunchKernel(scale, 2, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr) == CUDA_SUCCESS);
    expect(cuLaunchHostFunc(
               stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls) ==
           CUDA_SUCCESS);
    expect(cuEventCreate(&done, 0) == CUDA_SUCCESS);
    expect(cuEventRecord(done, stream) == CUDA_SUCCESS);
    expect(cuMemcpyDtoHAsync_v2(host.data(), x, sizeof host, stream) == CUDA_SUCCESS);
    expect(cuEventSynchronize(done) == CUDA_SUCCESS);
    expect(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    for (int i = 0; i < kFloats; ++i)
      expect(host[static_cast<size_t>(i)] == static_cast<float>(i + number) * factor);
    expect(cuEventDestroy_v2(done) == CUDA_SUCCESS);
    expect(cuMemFree_v2(x) == CUDA_SUCCESS);
  }
  expect(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}

TEST_F(Threads, CallAtOnceAndGetTheirOwnResults) {
  std::atomic<int> calls = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { work(context_, scale_, i, calls, wrong); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(calls, kThreads * kRounds);
}

// Contexts and modules that come and go, while another thread asks for what is there.
TEST_F(Threads, MakeAndDestroyContextsAtOnce) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&wrong, i] {
      for (int round = 0; round < kRounds; ++round) {
        CUcontext context = nullptr;
        CUmodule module = nullptr;
        CUdeviceptr total = 0;
        size_t bytes = 0;
        unsigned value = 0;
        const bool good = cuCtxCreate_v2(&context, 0, i % 2) == CUDA_SUCCESS &&
                          cuModuleLoadData(&module, kKernels) == CUDA_SUCCESS &&
                          cuModuleGetGlobal_v2(&total, &bytes, module, "total") == CUDA_SUCCESS &&
                          cuMemcpyDtoH_v2(&value, total, sizeof value) == CUDA_SUCCESS && value == 7 &&
                          cuModuleUnload(module) == CUDA_SUCCESS && cuCtxDestroy_v2(context) == CUDA_SUCCESS;
        wrong += good ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace imbrex::cuda
