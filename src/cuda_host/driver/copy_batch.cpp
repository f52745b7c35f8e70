// SPDX-License-Identifier: Apache-2.0
// Batches of copies. They are carried out one after the other, which is one of the orders that a batch leaves open. What is
// refused is what an H100 with driver 580 refuses.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda_host/driver/answer.h"
#include "cuda_host/host/copies.h"

using namespace imbrex::cuda;

namespace {

constexpr unsigned kKnownFlags = 1;  // prefer that it overlaps with kernels

Stream& stream_of_batch(CUstream handle) {
  Stream& stream = Host::get().stream(handle);
  if (stream.order == imbrex::vgpu::StreamOrder::kLegacyStream)
    refuse(CUDA_ERROR_INVALID_VALUE, "batches of copies are not for the legacy default stream");
  // Unlike other calls it leaves the capture as it is.
  if (stream.is_capturing())
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "batches of copies cannot be captured");
  return stream;
}

void expect_order(int order, unsigned flags) {
  if (order < kSourceInOrder || order > kSourceAnyTime)
    refuse(
        CUDA_ERROR_INVALID_VALUE,
        fmt::format("order {} of accesses to the source: 1 (of the stream), 2 (during the call) and 3 (any) "
                    "are there",
                    order));
  if ((flags & ~kKnownFlags) != 0) refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("copy flags {:#x}", flags));
}

/// A copy whose source may be gone when the call returns waits for no host function.
void submit_copy(int order, Stream& stream, CopyWork work) {
  if (order == kSourceDuringCall) host_waits_for_backlog();
  submit(stream, std::move(work));
}

CudaCopySide3D side(const CudaCopyOperand3D& operand, const CUDA_MEMCPY3D_BATCH_OP& of) {
  CudaCopySide3D side{};
  if (operand.type == kOperandArray) {
    side.memory_type = kMemoryTypeArray;
  } else if (operand.type == kOperandPointer) {
    side.memory_type = kMemoryTypeUnified;
    side.device = operand.pointer.address;
    side.pitch = operand.pointer.row_length == 0 ? of.extent.width : operand.pointer.row_length;
    side.height = operand.pointer.layer_height == 0 ? of.extent.height : operand.pointer.layer_height;
  } else {
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("operand type {}: 1 (pointer) is there", operand.type));
  }
  if (side.pitch < of.extent.width || side.height < of.extent.height)
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("layers of {} rows of {} bytes, {} of {} are to be copied",
                                                 side.height, side.pitch, of.extent.height, of.extent.width));
  return side;
}

}  // namespace

CUDA_API cuMemcpyBatchAsync_v2(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
                               size_t count, const CUmemcpyAttributes* attributes, const size_t* first_of,
                               size_t kinds, CUstream stream) {
  return answer("cuMemcpyBatchAsync", [&] {
    Stream& on = stream_of_batch(stream);
    not_null(to, "the destinations"), not_null(from, "the sources"), not_null(bytes, "the sizes");
    not_null(attributes, "the attributes"), not_null(first_of, "the indices of the attributes");
    if (count == 0 || kinds == 0 || kinds > count)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} copies with {} sets of attributes", count, kinds));
    for (size_t k = 0; k < kinds; ++k) {
      expect_order(attributes[k].source_order, attributes[k].flags);
      if (k == 0 ? first_of[0] != 0 : first_of[k] <= first_of[k - 1] || first_of[k] >= count)
        refuse(CUDA_ERROR_INVALID_VALUE,
               fmt::format("attributes {} are for the copies from {} on, of {}: they begin with copy 0 and "
                           "ascend",
                           k, first_of[k], count));
    }
    for (size_t i = 0; i < count; ++i)
      if (to[i] == 0 || from[i] == 0 || bytes[i] == 0)
        refuse(CUDA_ERROR_INVALID_VALUE,
               fmt::format("copy {}: {} bytes from 0x{:x} to 0x{:x}", i, bytes[i], from[i], to[i]));
    for (size_t i = 0; i < count; ++i) {
      const auto kind = static_cast<size_t>(std::upper_bound(first_of, first_of + kinds, i) - first_of - 1);
      submit_copy(attributes[kind].source_order, on,
                  CopyWork{{to[i]}, {from[i]}, static_cast<int64_t>(bytes[i])});
    }
  });
}
CUDA_API cuMemcpyBatchAsync(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes, size_t count,
                            const CUmemcpyAttributes* attributes, const size_t* first_of, size_t kinds,
                            size_t* failed, CUstream stream) {
  const CUresult error = cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, first_of, kinds, stream);
  if (error != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;  // it is not about one of the copies
  return error;
}

CUDA_API cuMemcpy3DBatchAsync_v2(size_t count, const CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags,
                                 CUstream stream) {
  return answer("cuMemcpy3DBatchAsync", [&] {
    Stream& on = stream_of_batch(stream);
    not_null(copies, "the copies");
    if (count == 0 || flags != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} copies with flags {:#x}", count, flags));
    std::vector<CopyWork> works;
    for (const CUDA_MEMCPY3D_BATCH_OP& copy : std::span(copies, count)) {
      expect_order(copy.source_order, copy.flags);
      if (copy.extent.width * copy.extent.height * copy.extent.depth == 0)
        refuse(CUDA_ERROR_INVALID_VALUE, "a copy of nothing: no extent may be 0");
      works.push_back(copy_work(CUDA_MEMCPY3D{side(copy.source, copy), side(copy.destination, copy),
                                              copy.extent.width, copy.extent.height, copy.extent.depth}));
    }
    for (size_t i = 0; i < count; ++i) submit_copy(copies[i].source_order, on, std::move(works[i]));
  });
}
CUDA_API cuMemcpy3DBatchAsync(size_t count, const CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                              unsigned long long flags, CUstream stream) {
  const CUresult error = cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
  if (error != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;
  return error;
}
