// SPDX-License-Identifier: Apache-2.0
// A program for the driver API, as any other but for its compiler: it shows `imbrex run` where there is no nvcc.
//   ptx_program LAUNCHES [past|far|bend|touch|mark|spin|count|compute|late]: lets the last launch write past the end, or where there is nothing at all;
//   launches a kernel that bends a rule of PTX besides; follows a device address in host code; counts the CTAs of a grid
//   that ran; or launches one that waits for what never comes, that counts for ever, or that computes for 75 million instructions before it stores; or leaves memory
//   to the destructor of a static object
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_host/abi/driver_functions.h"

extern "C" {
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra);
}

namespace {

const char* const kDouble = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry double_them(.param .u64 x)
{
  .reg .b32 %r<3>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3]; add.u32 %r2, %r2, %r2; st.global.u32 [%rd3], %r2;
  ret;
}
.visible .entry bend()
{
  .reg .pred %p; .reg .b32 %r<6>; .shared .align 4 .b8 same[128];
  mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 32; and.b32 %r2, %r1, 31;
  mov.u32 %r3, same; mad.lo.u32 %r4, %r2, 4, %r3;
  @%p st.shared.u32 [%r4], %r2;
  @!%p st.shared.u32 [%r4], %r2;
  ret;
}
)";

const char* const kGrids = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry mark(.param .u64 x)
{
  .reg .b32 %r<3>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x];
  mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
  mov.u32 %r2, 7; st.global.u32 [%rd3], %r2;
  ret;
}
.visible .entry spin(.param .u64 x)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x];
AGAIN:
  ld.volatile.global.u32 %r1, [%rd1]; setp.ne.u32 %p, %r1, 12345;
  @%p bra AGAIN;
  ret;
}
.visible .entry count(.param .u64 x)
{
  .reg .pred %p; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x]; mov.u64 %rd2, 0;
AGAIN:
  add.u64 %rd2, %rd2, 1; st.global.u64 [%rd1], %rd2; setp.ne.u64 %p, %rd2, 0;
  @%p bra AGAIN;
  ret;
}
.visible .entry compute(.param .u64 x)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x]; mov.u32 %r1, 0;
AGAIN:
  add.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 25000000;
  @%p bra AGAIN;
  mov.u32 %r2, 7; st.global.u32 [%rd1], %r2;
  ret;
}
)";

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "";
  cuGetErrorName(result, &name);
  std::printf("%s: %s\n", what, name);
  std::exit(3);
}

/// Is destroyed when the program's threads have ended, and needs the context that main() has set.
struct StaticMemory {
  CUdeviceptr memory = 0;
  ~StaticMemory() {
    if (memory != 0) std::printf("freed late: %d\n", cuMemFree_v2(memory));
  }
} g_memory;

}  // namespace

int main(int argc, char** argv) {
  const int launches = argc > 1 ? std::atoi(argv[1]) : 1;
  const auto is = [&](const char* word) { return argc > 2 && std::strcmp(argv[2], word) == 0; };
  const bool past = is("past"), far = is("far");
  CUcontext context;
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr x = 0;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "context");
  check(cuCtxSetCurrent(context), "context");
  check(cuModuleLoadData(&module, kDouble), "module");
  check(cuModuleGetFunction(&kernel, module, "double_them"), "kernel");
  check(cuMemAlloc_v2(&x, 64 * 4), "memory");
  std::vector<unsigned> host(64, 1);
  check(cuMemcpyHtoD_v2(x, host.data(), 64 * 4), "copy");
  if (is("late")) check(cuMemAlloc_v2(&g_memory.memory, 64), "memory");
  if (is("touch")) std::printf("%u\n", *reinterpret_cast<volatile unsigned*>(x + 40));
  if (is("bend")) {
    check(cuModuleGetFunction(&kernel, module, "bend"), "kernel");
    check(cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr), "launch");
    return 0;
  }
  void* parameters[] = {&x};
  for (const char* name : {"mark", "spin", "count", "compute"})
    if (is(name)) {
      check(cuModuleLoadData(&module, kGrids), "module");
      check(cuModuleGetFunction(&kernel, module, name), "kernel");
      check(cuLaunchKernel(kernel, is("mark") ? 64 : 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr),
            "launch");
      check(cuCtxSynchronize(), "synchronisation");
      check(cuMemcpyDtoH_v2(host.data(), x, 64 * 4), "copy");
      int ran = 0;
      for (const unsigned word : host) ran += word == 7 ? 1 : 0;
      std::printf("%d CTAs ran\n", ran);
      return 0;
    }
  for (int i = 0; i < launches; ++i) {
    const unsigned threads = past && i + 1 == launches ? 65 : 64;
    CUdeviceptr to = far && i + 1 == launches ? x + (CUdeviceptr{1} << 33) : x;
    parameters[0] = &to;
    check(cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr), "launch");
  }
  check(cuCtxSynchronize(), "synchronisation");
  check(cuMemcpyDtoH_v2(host.data(), x, 64 * 4), "copy");
  std::printf("%u\n", host[63]);
  return host[63] == 1u << launches ? 0 : 1;
}
