// SPDX-License-Identifier: Apache-2.0
// Tensor maps, encoded as the driver encodes them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;
namespace vgpu = imbrex::vgpu;

namespace {

/// What tiled and im2col maps have alike goes into `wanted`, and the encoded map to the program.
template <class Arguments>
void encode(Arguments& wanted, void* map, int type, uint32_t rank, void* address, const uint64_t* dims,
            const uint32_t* element_strides, int interleave, int swizzle, int l2_promotion, int fill) {
  wanted.type = static_cast<imbrex::TensorMapType>(type);
  wanted.address = reinterpret_cast<uint64_t>(address);
  wanted.dims = {&not_null(dims, "globalDim"), rank};
  if (element_strides != nullptr) wanted.element_strides = {element_strides, rank};
  wanted.interleave = static_cast<imbrex::TensorMapInterleave>(interleave);
  wanted.swizzle = static_cast<imbrex::TensorMapSwizzle>(swizzle);
  wanted.l2_promotion = l2_promotion;
  wanted.fill_with_nan = fill != 0;
  const vgpu::TensorMap encoded = vgpu::encode_tensor_map(wanted);
  std::memcpy(&not_null(static_cast<char*>(map), "tensorMap"), &encoded, sizeof encoded);
}

}  // namespace

CUDA_API cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address, const uint64_t* dims,
                                const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                                int interleave, int swizzle, int l2_promotion, int fill) {
  return answer("cuTensorMapEncodeTiled", [&] {
    if (rank < 1 || rank > 5)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("a tensor of rank {}: 1 to 5 are possible", rank));
    vgpu::TensorMapArguments wanted;
    if (rank > 1) wanted.strides_bytes = {&not_null(strides, "globalStrides"), rank - 1};
    wanted.box = {&not_null(box, "boxDim"), rank};
    encode(wanted, map, type, rank, address, dims, element_strides, interleave, swizzle, l2_promotion, fill);
  });
}

CUDA_API cuTensorMapEncodeIm2col(void* map, int type, uint32_t rank, void* address, const uint64_t* dims,
                                 const uint64_t* strides, const int* lower_corner, const int* upper_corner,
                                 uint32_t channels, uint32_t pixels, const uint32_t* element_strides,
                                 int interleave, int swizzle, int l2_promotion, int fill) {
  return answer("cuTensorMapEncodeIm2col", [&] {
    if (rank < 3 || rank > 5)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("an im2col tensor of rank {}: 3 to 5 are possible", rank));
    vgpu::Im2colMapArguments wanted;
    wanted.strides_bytes = {&not_null(strides, "globalStrides"), rank - 1};
    wanted.lower_corner = {&not_null(lower_corner, "pixelBoxLowerCorner"), rank - 2};
    wanted.upper_corner = {&not_null(upper_corner, "pixelBoxUpperCorner"), rank - 2};
    wanted.channels = channels;
    wanted.pixels = pixels;
    encode(wanted, map, type, rank, address, dims, element_strides, interleave, swizzle, l2_promotion, fill);
  });
}

CUDA_API cuTensorMapReplaceAddress(void* map, void* address) {
  return answer("cuTensorMapReplaceAddress", [&] {
    // The address is the map's first word (settled on the chip; tests/vgpu/tensor_map_test.cpp).
    std::memcpy(&not_null(static_cast<char*>(map), "tensorMap"), &address, sizeof address);
  });
}
