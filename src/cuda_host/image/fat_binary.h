// SPDX-License-Identifier: Apache-2.0
// Fat binaries: what nvcc leaves of a program's kernels in the program, for several GPUs and in several forms.
//
//   header   u32 magic 0xBA55ED50, u16 version, u16 header bytes, u64 bytes that follow
//   entry    u16 kind, u16 version, u32 header bytes, u64 payload bytes, u32 bytes when compressed, +28 u32 sm,
//            +40 u64 flags, +56 u64 bytes when decompressed; then the payload
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace imbrex::cuda {

inline constexpr uint32_t kFatBinaryMagic = 0xBA55ED50;
inline constexpr uint32_t kFatBinaryWrapperMagic = 0x466243B1;

enum class FatEntryKind : uint16_t { kPtx = 1, kMachineCode = 2 };
inline constexpr uint64_t kFatEntryLz4 = 0x2000, kFatEntryZstd = 0x8000;

struct FatEntry {
  FatEntryKind kind = FatEntryKind::kPtx;
  int sm = 0;        // 90 for sm_90 and sm_90a
  std::string text;  // PTX, decompressed; empty for machine code, which nobody here reads
};

/// What the host layer writes in front of the entries of a fat binary.
struct FatBinaryHeader {
  uint32_t magic = kFatBinaryMagic;
  uint16_t version = 1;
  uint16_t header_bytes = sizeof(uint64_t) * 2;
  uint64_t following_bytes = 0;
};

/// The entries, in order; of kinds that are not known none. Throws ApiError (CUDA_ERROR_INVALID_IMAGE) that says
/// what is corrupt, where.
std::vector<FatEntry> read_fat_binary(std::span<const std::byte> bytes);

/// Several fat binaries may lie behind one another, as `nvcc -fatbin` and linkers leave them: the bytes that the
/// header at the start says its own has; 0 where there is no such header.
uint64_t fat_binary_bytes(std::span<const std::byte> header);

}  // namespace imbrex::cuda
