// SPDX-License-Identifier: Apache-2.0
// cuMemset: fills with elements of 1, 2 or 4 bytes, in rows.
#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

namespace {

CUresult fill(const char* function, CUstream stream, FillWork work) {
  return answer(function, [&] { submit(Host::get().stream(stream), work); });
}
int64_t wide(size_t value) { return static_cast<int64_t>(value); }

}  // namespace

CUDA_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill("cuMemsetD8Async", stream, {to, 0, value, 1, wide(count), 1});
}
CUDA_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill("cuMemsetD16Async", stream, {to, 0, value, 2, wide(count), 1});
}
CUDA_API cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill("cuMemsetD32Async", stream, {to, 0, value, 4, wide(count), 1});
}
CUDA_API cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
  return fill("cuMemsetD2D8Async", stream, {to, wide(pitch), value, 1, wide(width), wide(height)});
}
CUDA_API cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
  return fill("cuMemsetD2D16Async", stream, {to, wide(pitch), value, 2, wide(width), wide(height)});
}
CUDA_API cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                            CUstream stream) {
  return fill("cuMemsetD2D32Async", stream, {to, wide(pitch), value, 4, wide(width), wide(height)});
}
CUDA_API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill("cuMemsetD8", nullptr, {to, 0, value, 1, wide(count), 1});
}
CUDA_API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return fill("cuMemsetD16", nullptr, {to, 0, value, 2, wide(count), 1});
}
CUDA_API cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill("cuMemsetD32", nullptr, {to, 0, value, 4, wide(count), 1});
}
CUDA_API cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return fill("cuMemsetD2D8", nullptr, {to, wide(pitch), value, 1, wide(width), wide(height)});
}
CUDA_API cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return fill("cuMemsetD2D16", nullptr, {to, wide(pitch), value, 2, wide(width), wide(height)});
}
CUDA_API cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return fill("cuMemsetD2D32", nullptr, {to, wide(pitch), value, 4, wide(width), wide(height)});
}
