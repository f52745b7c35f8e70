// SPDX-License-Identifier: Apache-2.0
// The runtime's descriptions of copies as the driver's, whose sides find out by themselves where an address lies.
#pragma once

#include "cuda_host/runtime/state.h"

namespace imbrex::cudart {

inline CudaCopySide3D pitched(const void* pointer, size_t pitch, size_t height = 0) {
  CudaCopySide3D side{};
  side.memory_type = cuda::kMemoryTypeUnified;
  side.device = address_of(pointer);
  side.pitch = pitch;
  side.height = height;
  return side;
}
inline CUDA_MEMCPY3D rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                          size_t height) {
  return {pitched(from, from_pitch), pitched(to, to_pitch), width, height, 1};
}
inline CUDA_MEMCPY3D slices(const cudaMemcpy3DParms& p) {
  CUDA_MEMCPY3D copy{pitched(p.source.pointer, p.source.pitch, p.source.height),
                     pitched(p.target.pointer, p.target.pitch, p.target.height), p.extent.width,
                     p.extent.height, p.extent.depth};
  const auto place = [](CudaCopySide3D& side, const cudaPos& at, void* array) {
    side.x_bytes = at.x;
    side.y = at.y;
    side.z = at.z;
    if (array != nullptr) side.memory_type = cuda::kMemoryTypeArray;
  };
  place(copy.source, p.source_at, p.source_array);
  place(copy.destination, p.target_at, p.target_array);
  return copy;
}

inline CUDA_MEMCPY3D line(void* to, const void* from, size_t bytes) {
  return {pitched(from, 0), pitched(to, 0), bytes, 1, 1};
}

}  // namespace imbrex::cudart
