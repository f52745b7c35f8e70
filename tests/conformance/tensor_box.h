// SPDX-License-Identifier: Apache-2.0
// Boxes of tensors as the forms of tensor copies describe them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "kernel.h"

namespace imbrex::conformance {

inline constexpr const char* kTensorCopies = "tensor copies";  // the family
/// Bytes of an element, by CUtensorMapDataType; bytes of a row of shared memory that a swizzle covers.
inline constexpr int kTensorElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
inline constexpr int kSwizzleSpans[] = {16, 32, 64, 128};

/// A box of a tensor that is copied. Extents run innermost first.
struct Box {
  int type = 1;
  std::vector<uint64_t> dims;
  std::vector<uint32_t> box;
  std::vector<int> at;
  std::vector<uint32_t> element_strides = {};
  int swizzle = 0;
  bool nan = false;
  int tile_offset = 0;
  int padding = 0;                           // bytes between rows beyond their elements
  std::vector<uint64_t> strides_bytes = {};  // instead of the dense ones
};

inline std::string list(const auto& values) { return fmt::format("{}", fmt::join(values, ",")); }

/// For names of forms.
std::string describe(const Box& b);

/// What a box takes.
struct BoxSizes {
  int64_t tensor = 0;   // bytes of global memory
  int transaction = 0;  // bytes a barrier is told
  int footprint = 0;    // bytes of the tile, from its start on
};
MapSpec map_of(const Box& b, BoxSizes& sizes);

/// Values for a tensor: special floating-point ones where the type has some.
std::vector<uint8_t> tensor_bytes(const Box& b, int64_t bytes, Random& random);

/// Thread 0 (%p0 is false there) makes the first barrier, for one arrival; everybody's writes of shared
/// memory are made visible to the copies. Ends with a barrier of the CTA.
inline constexpr const char* kInitCopyBarrier =
    "  setp.ne.u32 %p0, %thread, 0;\n"
    "  @%p0 bra ready;\n"
    "  mbarrier.init.shared::cta.b64 [%bar], 1;\n"
    "  fence.mbarrier_init.release.cluster;\n"
    "ready:\n"
    "  fence.proxy.async;\n"
    "  bar.sync 0;\n";

}  // namespace imbrex::conformance
