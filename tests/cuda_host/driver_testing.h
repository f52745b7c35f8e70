// SPDX-License-Identifier: Apache-2.0
// Kernels in PTX, and the driver API called directly: the host layer without nvcc and without a CUDA runtime.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cuda_host/abi/driver_functions.h"

extern "C" {
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra);
CUresult cuLinkCreate_v2(unsigned count, int* options, void** values, CUlinkState* state);
CUresult cuLinkAddData_v2(CUlinkState state, int type, void* data, size_t bytes, const char* name,
                          unsigned count, int* options, void** values);
CUresult cuLinkComplete(CUlinkState state, void** image, size_t* bytes);
CUresult cuLinkDestroy(CUlinkState state);
CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z);
CUresult cuParamSetSize(CUfunction function, unsigned bytes);
CUresult cuParamSeti(CUfunction function, int offset, unsigned value);
CUresult cuParamSetf(CUfunction function, int offset, float value);
CUresult cuParamSetv(CUfunction function, int offset, void* value, unsigned bytes);
CUresult cuLaunchGrid(CUfunction function, int width, int height);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address);
CUresult cuGetExportTable(const void** table, const CUuuid* id);
CUresult cuTexObjectCreate();
}

namespace imbrex::cuda {

/// scale: x[i] = factor * x[i] for n floats; and a variable `total` that count adds to.
inline const char* const kKernels = R"(
.version 8.0
.target sm_80
.address_size 64
.global .u32 total = 7;
.visible .entry scale(.param .u64 x, .param .f32 factor, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [x]; ld.param.f32 %f1, [factor]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p bra DONE;
  mul.wide.u32 %rd2, %r5, 4; add.u64 %rd3, %rd1, %rd2;
  ld.global.f32 %f2, [%rd3]; mul.f32 %f2, %f2, %f1; st.global.f32 [%rd3], %f2;
DONE:
  ret;
}
.visible .entry count(.param .u32 by)
{
  .reg .b32 %r<3>; .reg .b64 %rd<2>;
  ld.param.u32 %r1, [by];
  mov.u64 %rd1, total;
  atom.global.add.u32 %r2, [%rd1], %r1;
  ret;
}
)";

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)
#define ASSERT_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

class Driver : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("IMBREX_GPU", "h200", 0);
    setenv("IMBREX_GPUS", "2", 1);
  }
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(cuCtxSetCurrent(context_));
    ASSERT_OK(cuModuleLoadData(&module_, kKernels));
    ASSERT_OK(cuModuleGetFunction(&scale_, module_, "scale"));
    ASSERT_OK(cuModuleGetFunction(&count_, module_, "count"));
  }
  void TearDown() override { EXPECT_OK(cuDevicePrimaryCtxReset_v2(0)); }

  CUresult scale(CUdeviceptr x, float factor, unsigned n, CUstream stream = nullptr) {
    void* parameters[] = {&x, &factor, &n};
    return cuLaunchKernel(scale_, (n + 63) / 64, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr);
  }
  static std::vector<float> read(CUdeviceptr from, size_t n) {
    std::vector<float> host(n, -1e30f);
    EXPECT_OK(cuMemcpyDtoH_v2(host.data(), from, n * 4));
    return host;
  }
  static CUdeviceptr upload(const std::vector<float>& values) {
    CUdeviceptr at = 0;
    EXPECT_OK(cuMemAlloc_v2(&at, values.size() * 4));
    EXPECT_OK(cuMemcpyHtoD_v2(at, values.data(), values.size() * 4));
    return at;
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction scale_ = nullptr, count_ = nullptr;
};

}  // namespace imbrex::cuda
