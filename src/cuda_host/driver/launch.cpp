// SPDX-License-Identifier: Apache-2.0
// Launches of kernels and of host functions.
#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

CUDA_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  return answer("cuLaunchKernel", [&] {
    const CUlaunchConfig& launch = not_null(config, "config");
    Stream& stream = Host::get().stream(launch.stream);
    try {
      submit(stream, launch_work(launch, function, parameters, extra));
    } catch (const ApiError&) {
      if (stream.is_capturing()) stream.capture->is_invalid = true;
      throw;
    }
  });
}

CUDA_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  const CUlaunchConfig config{grid_x,  grid_y,       grid_z, block_x, block_y,
                              block_z, shared_bytes, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, function, parameters, extra);
}

CUDA_API cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void** parameters) {
  CUlaunchAttribute attribute{};
  attribute.id = kLaunchCooperative;
  attribute.value.cooperative = 1;
  const CUlaunchConfig config{grid_x,  grid_y,       grid_z, block_x,    block_y,
                              block_z, shared_bytes, stream, &attribute, 1};
  return cuLaunchKernelEx(&config, function, parameters, nullptr);
}

CUDA_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return answer("cuLaunchHostFunc", [&] {
    if (function == nullptr) refuse(CUDA_ERROR_INVALID_VALUE, "the function is null");
    submit(Host::get().stream(stream), HostWork{function, data});
  });
}
