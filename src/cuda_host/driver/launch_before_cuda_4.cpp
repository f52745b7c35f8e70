// SPDX-License-Identifier: Apache-2.0
// How kernels were launched before CUDA 4, and PyCUDA still does it: block, shared memory and parameters are set on the
// function, one after the other, and then a grid is launched.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

namespace {

/// Where a parameter buffer ends that a program may ask for; kernels have at most 4 KiB of parameters, later ones 32.
constexpr size_t kMostParameterBytes = 32 << 10;

CUresult set_parameter(const char* name, CUfunction function, int offset, const void* value, size_t bytes) {
  return answer(name, [&] {
    PreparedLaunch& prepared = Host::get().function(function).prepared;
    if (offset < 0 || bytes > kMostParameterBytes ||
        static_cast<size_t>(offset) > kMostParameterBytes - bytes)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("{} bytes of parameters at offset {}, there are {} at most", bytes, offset,
                         kMostParameterBytes));
    const size_t end = static_cast<size_t>(offset) + bytes;
    prepared.parameters.resize(std::max(prepared.parameters.size(), end));
    std::memcpy(prepared.parameters.data() + offset, value, bytes);
  });
}

CUresult launch(const char* name, CUfunction function, int width, int height, CUstream stream) {
  return answer(name, [&] {
    FunctionObject& of = Host::get().function(function);
    if (width < 1 || height < 1)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("a grid of {} x {}", width, height));
    constexpr uintptr_t kEnd = 0, kBuffer = 1, kSize = 2;
    // As programs pass one buffer of parameters since CUDA 4. Those behind the last that was set are zeros.
    const size_t wanted = static_cast<size_t>(of.function.attributes().parameter_bytes);
    of.prepared.parameters.resize(std::max(of.prepared.parameters.size(), wanted));
    size_t bytes = of.prepared.parameters.size();
    void* extra[] = {reinterpret_cast<void*>(kBuffer), of.prepared.parameters.data(),
                     reinterpret_cast<void*>(kSize), &bytes, reinterpret_cast<void*>(kEnd)};
    CUlaunchConfig config{};
    config.grid_x = static_cast<unsigned>(width);
    config.grid_y = static_cast<unsigned>(height);
    config.grid_z = 1;
    config.block_x = of.prepared.block[0];
    config.block_y = of.prepared.block[1];
    config.block_z = of.prepared.block[2];
    config.shared_bytes = of.prepared.shared_bytes;
    config.stream = stream;
    submit(Host::get().stream(stream), launch_work(config, function, nullptr, extra));
  });
}

}  // namespace

CUDA_API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  return answer("cuFuncSetBlockShape", [&] {
    if (x < 1 || y < 1 || z < 1)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("a block of {} x {} x {}", x, y, z));
    Host::get().function(function).prepared.block = {static_cast<unsigned>(x), static_cast<unsigned>(y),
                                                     static_cast<unsigned>(z)};
  });
}
CUDA_API cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
  return answer("cuFuncSetSharedSize", [&] { Host::get().function(function).prepared.shared_bytes = bytes; });
}
CUDA_API cuParamSetSize(CUfunction function, unsigned bytes) {
  return answer("cuParamSetSize", [&] {
    if (bytes > kMostParameterBytes)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("{} bytes of parameters, there are {} at most", bytes, kMostParameterBytes));
    Host::get().function(function).prepared.parameters.resize(bytes);
  });
}
CUDA_API cuParamSeti(CUfunction function, int offset, unsigned value) {
  return set_parameter("cuParamSeti", function, offset, &value, sizeof value);
}
CUDA_API cuParamSetf(CUfunction function, int offset, float value) {
  return set_parameter("cuParamSetf", function, offset, &value, sizeof value);
}
CUDA_API cuParamSetv(CUfunction function, int offset, void* value, unsigned bytes) {
  return set_parameter("cuParamSetv", function, offset, value, value == nullptr ? 0 : bytes);
}
CUDA_API cuLaunch(CUfunction function) { return launch("cuLaunch", function, 1, 1, nullptr); }
CUDA_API cuLaunchGrid(CUfunction function, int width, int height) {
  return launch("cuLaunchGrid", function, width, height, nullptr);
}
CUDA_API cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return launch("cuLaunchGridAsync", function, width, height, stream);
}
