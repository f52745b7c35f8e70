// SPDX-License-Identifier: Apache-2.0
// The enumerations of TMA tensor maps, numbered as the CUDA driver's (CUtensorMap...).
#pragma once

#include <cstdint>

namespace imbrex {

/// Element types of tensor maps, numbered as the driver's CUtensorMapDataType.
enum class TensorMapType : uint8_t {
  kUInt8 = 0,
  kUInt16 = 1,
  kUInt32 = 2,
  kInt32 = 3,
  kUInt64 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
  kFloat32Ftz = 10,
  kTFloat32 = 11,
  kTFloat32Ftz = 12,
  kPacked16U4 = 13,        // 16 four-bit elements in 8 bytes
  kPacked16U4Padded = 14,  // the same, 16 bytes apart in shared memory
  kPacked16U6Padded = 15,  // 16 six-bit elements, 16 bytes apart in shared memory
};

/// Numbered as CUtensorMapInterleave.
enum class TensorMapInterleave : uint8_t { kNone = 0, k16B = 1, k32B = 2 };
/// Numbered as CUtensorMapSwizzle.
enum class TensorMapSwizzle : uint8_t {
  kNone = 0,
  k32B = 1,
  k64B = 2,
  k128B = 3,
  k128BAtom32B = 4,
  k128BAtom32BFlip8B = 5,
  k128BAtom64B = 6,
};
/// Numbered as CUtensorMapL2promotion: the pieces in which L2 fetches what a copy reads.
enum class TensorMapL2Promotion : uint8_t { kNone = 0, k64B = 1, k128B = 2, k256B = 3 };
/// Numbered as CUtensorMapFloatOOBfill: what elements outside the tensor are read as. NaN for floating-point types only.
enum class TensorMapFill : uint8_t { kZero = 0, kNan = 1 };

}  // namespace imbrex
