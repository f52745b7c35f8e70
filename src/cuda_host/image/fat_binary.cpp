// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/image/fat_binary.h"

#include <fmt/format.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "cuda_host/abi/api_error.h"

namespace imbrex::cuda {
namespace {

constexpr uint64_t kEntryHeaderBytes = 64;
/// What a corrupt header may make us allocate: PTX compresses some ten times.
constexpr uint64_t kMostTextBytes = uint64_t{1} << 20, kMostRatio = 1000;

[[noreturn]] void corrupt(const std::string& what) {
  refuse(CUDA_ERROR_INVALID_IMAGE, "corrupt fat binary: " + what);
}

template <class T>
T read(std::span<const std::byte> bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string decompressed(std::span<const std::byte> payload, uint64_t text_bytes, bool zstd, uint64_t at) {
  if (text_bytes > std::max(kMostTextBytes, kMostRatio * payload.size()))
    corrupt(fmt::format("the entry at byte {} would decompress to {} bytes", at, text_bytes));
  std::string text(text_bytes, '\0');
  const char* from = reinterpret_cast<const char*>(payload.data());
  if (zstd) {
    const size_t got = ZSTD_decompress(text.data(), text.size(), from, payload.size());
    if (ZSTD_isError(got) != 0u)
      corrupt(fmt::format("the entry at byte {} does not decompress (zstd: {})", at, ZSTD_getErrorName(got)));
    text.resize(got);
  } else {
    const int got = LZ4_decompress_safe(from, text.data(), static_cast<int>(payload.size()),
                                        static_cast<int>(text.size()));
    if (got < 0) corrupt(fmt::format("the entry at byte {} does not decompress (LZ4)", at));
    text.resize(static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

uint64_t fat_binary_bytes(std::span<const std::byte> header) {
  if (header.size() < sizeof(FatBinaryHeader)) return 0;
  const auto head = read<FatBinaryHeader>(header, 0);
  if (head.magic != kFatBinaryMagic) return 0;
  return head.header_bytes + head.following_bytes;
}

std::vector<FatEntry> read_fat_binary(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(FatBinaryHeader))
    corrupt(fmt::format("{} bytes, its header alone has {}", bytes.size(), sizeof(FatBinaryHeader)));
  const auto head = read<FatBinaryHeader>(bytes, 0);
  if (head.magic != kFatBinaryMagic)
    corrupt(fmt::format("it starts with 0x{:08X}, not 0x{:08X}", head.magic, kFatBinaryMagic));
  if (head.header_bytes < sizeof(FatBinaryHeader) || head.header_bytes > bytes.size() ||
      head.following_bytes > bytes.size() - head.header_bytes)
    corrupt(fmt::format("its header speaks of {} and {} bytes, there are {}", head.header_bytes,
                        head.following_bytes, bytes.size()));
  const uint64_t end = head.header_bytes + head.following_bytes;
  std::vector<FatEntry> entries;
  for (uint64_t at = head.header_bytes; at < end;) {
    if (end - at < kEntryHeaderBytes) corrupt(fmt::format("half an entry at byte {}", at));
    const uint64_t header_bytes = read<uint32_t>(bytes, at + 4),
                   payload_bytes = read<uint64_t>(bytes, at + 8);
    const uint64_t compressed_bytes = read<uint32_t>(bytes, at + 16), flags = read<uint64_t>(bytes, at + 40);
    if (header_bytes < kEntryHeaderBytes || header_bytes > end - at ||
        payload_bytes > end - at - header_bytes)
      corrupt(fmt::format("the entry at byte {} has {} and {} bytes, {} are left", at, header_bytes,
                          payload_bytes, end - at));
    std::span<const std::byte> payload = bytes.subspan(at + header_bytes, payload_bytes);
    FatEntry entry{static_cast<FatEntryKind>(read<uint16_t>(bytes, at)), read<int>(bytes, at + 28), ""};
    if (entry.kind == FatEntryKind::kPtx) {
      if ((flags & (kFatEntryLz4 | kFatEntryZstd)) != 0) {
        if (compressed_bytes > payload.size())
          corrupt(fmt::format("the entry at byte {} has {} compressed bytes, its payload {}", at,
                              compressed_bytes, payload.size()));
        entry.text = decompressed(payload.first(compressed_bytes), read<uint64_t>(bytes, at + 56),
                                  (flags & kFatEntryZstd) != 0, at);
      } else {
        entry.text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
      }
      if (const size_t nul = entry.text.find('\0'); nul != std::string::npos) entry.text.resize(nul);
    }
    if (entry.kind == FatEntryKind::kPtx || entry.kind == FatEntryKind::kMachineCode)
      entries.push_back(std::move(entry));
    at += header_bytes + payload_bytes;
  }
  return entries;
}

}  // namespace imbrex::cuda
