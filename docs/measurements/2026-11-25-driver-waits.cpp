// SPDX-License-Identifier: Apache-2.0
// Which calls of the CUDA driver return while a kernel spins, and whether another thread can end the kernel while one does not.
//   driver_waits CALL [full]   the call, while a kernel of few CTAs spins, or one that fills the GPU
//   driver_waits CALL BY       the call on one thread; another then sets the flag BY: copy, fill, stream (a new one and a copy), or
//                              peer (a copy by the context of GPU 1)
// The process ends itself after 7 seconds. CALL: see calls() below.
#include <cuda.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

const char* const kSpin = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 p) .maxntid 1024, 1, 1 {
  .reg .u64 %a; .reg .u32 %v; .reg .pred %q;
  ld.param.u64 %a, [p];
  cvta.to.global.u64 %a, %a;
L: ld.acquire.sys.global.u32 %v, [%a];
  setp.eq.u32 %q, %v, 0;
  @%q bra L;
  ret;
})";
const char* const kOther = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry other() { ret; })";

struct Gpu {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CUstream stream = nullptr, beside = nullptr;
  CUdeviceptr flag = 0, spare = 0;
  std::vector<unsigned char> ones = std::vector<unsigned char>(4 << 20, 0x7F);

  void launch(unsigned ctas, unsigned threads) {
    void* arguments[] = {&flag};
    cuLaunchKernel(spin, ctas, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  }
  bool has_ended() const {
    for (int i = 0; i < 2000; ++i, usleep(1000))
      if (cuStreamQuery(stream) == CUDA_SUCCESS) return true;
    return false;
  }
};

std::map<std::string, std::function<void(Gpu&)>> calls() {
  return {
      {"nothing", [](Gpu&) {}},
      {"stream", [](Gpu&) { CUstream made; cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); cuStreamDestroy(made); }},
      {"alloc", [](Gpu&) { CUdeviceptr made; cuMemAlloc(&made, 64 << 20); }},
      {"free", [](Gpu& gpu) { cuMemFree(gpu.spare); }},
      {"load", [](Gpu&) { CUmodule made; cuModuleLoadData(&made, kOther); }},
      {"unload", [](Gpu& gpu) { cuModuleUnload(gpu.module); }},
      {"launches", [](Gpu& gpu) { for (int i = 0; i < 3000; ++i) gpu.launch(1, 32); }},
      {"copy", [](Gpu& gpu) { cuMemcpyHtoDAsync(gpu.flag, gpu.ones.data(), 64, gpu.beside); }},
      {"copy4m", [](Gpu& gpu) { cuMemcpyHtoDAsync(gpu.flag, gpu.ones.data(), 4 << 20, gpu.beside); }},
      {"fill", [](Gpu& gpu) { cuMemsetD8Async(gpu.flag, 0x7F, 64, gpu.beside); }},
      {"fill4m", [](Gpu& gpu) { cuMemsetD8Async(gpu.flag, 0x7F, 4 << 20, gpu.beside); }},
      {"synchronize", [](Gpu& gpu) { cuStreamSynchronize(gpu.stream); }},
      {"to_host", [](Gpu& gpu) { cuMemcpyDtoHAsync(gpu.ones.data(), gpu.spare, 64, gpu.stream); }},
  };
}

int main(int argc, char** argv) {
  const std::string call = argc > 1 ? argv[1] : "nothing", how = argc > 2 ? argv[2] : "";
  alarm(7);
  cuInit(0);
  Gpu gpu;
  int gpus = 0, multiprocessors = 0;
  cuDeviceGetCount(&gpus);
  cuDevicePrimaryCtxRetain(&gpu.context, 0);
  cuCtxSetCurrent(gpu.context);
  cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
  cuModuleLoadData(&gpu.module, kSpin);
  cuModuleGetFunction(&gpu.spin, gpu.module, "spin");
  cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&gpu.beside, CU_STREAM_NON_BLOCKING);
  cuMemAlloc(&gpu.spare, 1 << 20);
  // As symmetric memory is: mapped for both GPUs.
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr size_t kBytes = 8 << 20;
  CUmemGenericAllocationHandle handle;
  cuMemAddressReserve(&gpu.flag, kBytes, 0, 0, 0);
  cuMemCreate(&handle, kBytes, &properties, 0);
  cuMemMap(gpu.flag, kBytes, 0, handle, 0);
  const CUmemAccessDesc access[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  cuMemSetAccess(gpu.flag, kBytes, access, gpus > 1 ? 2 : 1);
  cuMemsetD8(gpu.flag, 0, kBytes);
  CUcontext peer = nullptr;
  CUstream of_peer = nullptr;
  if (how == "peer") {
    cuDevicePrimaryCtxRetain(&peer, 1);
    cuCtxSetCurrent(peer);
    cuStreamCreate(&of_peer, CU_STREAM_NON_BLOCKING);
    cuCtxSetCurrent(gpu.context);
  }
  cuCtxSynchronize();
  if (how == "full")
    gpu.launch(static_cast<unsigned>(2 * multiprocessors), 1024);
  else
    gpu.launch(4, 128);
  usleep(200000);

  const auto begin = std::chrono::steady_clock::now();
  std::thread caller([&] {
    cuCtxSetCurrent(gpu.context);
    calls().at(call)(gpu);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s has returned after %.2f ms\n", call.c_str(), took.count());
    std::fflush(stdout);
  });
  if (how.empty() || how == "full") {
    caller.join();
  } else {
    usleep(500000);
    if (how == "peer") {
      cuCtxSetCurrent(peer);
      cuMemcpyHtoDAsync(gpu.flag, gpu.ones.data(), 64, of_peer);
      cuCtxSetCurrent(gpu.context);
    } else {
      if (how == "stream") cuStreamCreate(&gpu.beside, CU_STREAM_NON_BLOCKING);
      if (how == "fill")
        cuMemsetD8Async(gpu.flag, 0x7F, 64, gpu.beside);
      else
        cuMemcpyHtoDAsync(gpu.flag, gpu.ones.data(), 64, gpu.beside);
    }
    caller.join();
  }
  std::printf("the kernel %s\n", gpu.has_ended() ? "has ended" : "spins");
  std::fflush(stdout);
  _exit(0);
}
