// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/copies.h"

#include <fmt/format.h>

#include "cuda_host/abi/api_error.h"

namespace imbrex::cuda {
namespace {

PitchedSide side(const CudaCopySide3D& of, size_t width, bool has_rows, const char* which) {
  if (of.memory_type == kMemoryTypeArray)
    refuse(CUDA_ERROR_NOT_SUPPORTED,
           fmt::format("the {} is an array: the virtual GPU has no textures or surfaces", which));
  const uint64_t start = of.memory_type == kMemoryTypeHost ? reinterpret_cast<uint64_t>(of.host) : of.device;
  const size_t pitch = of.pitch == 0 ? width + of.x_bytes : of.pitch;
  if (has_rows && pitch < of.x_bytes + width)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("the {} has rows of {} bytes, {} are to be copied from byte {}", which, pitch, width,
                       of.x_bytes));
  const size_t slice = pitch * of.height;
  return {start + of.z * slice + of.y * pitch + of.x_bytes, static_cast<int64_t>(pitch),
          static_cast<int64_t>(slice)};
}

}  // namespace

CopyWork copy_work(const CUDA_MEMCPY3D& copy) {
  const bool has_rows = copy.height > 1 || copy.depth > 1;
  return {side(copy.destination, copy.width_bytes, has_rows, "destination"),
          side(copy.source, copy.width_bytes, has_rows, "source"), static_cast<int64_t>(copy.width_bytes),
          static_cast<int64_t>(copy.height), static_cast<int64_t>(copy.depth)};
}

CopyWork copy_work(const CUDA_MEMCPY2D& copy) {
  const auto in_3d = [](const CudaCopySide2D& s) {
    CudaCopySide3D side{};
    side.x_bytes = s.x_bytes;
    side.y = s.y;
    side.memory_type = s.memory_type;
    side.host = s.host;
    side.device = s.device;
    side.pitch = s.pitch;
    return side;
  };
  return copy_work(
      CUDA_MEMCPY3D{in_3d(copy.source), in_3d(copy.destination), copy.width_bytes, copy.height, 1});
}

}  // namespace imbrex::cuda
