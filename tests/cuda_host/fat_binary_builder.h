// SPDX-License-Identifier: Apache-2.0
// Fat binaries as nvcc makes them, for tests that have no nvcc.
#pragma once

#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda_host/image/fat_binary.h"

namespace imbrex::cuda {

enum class Compression { kNone, kLz4, kZstd };

class FatBinaryBuilder {
 public:
  FatBinaryBuilder& ptx(const std::string& text, int sm, Compression compression = Compression::kNone) {
    std::string with_nul = text;
    with_nul.push_back('\0');
    return add(1, sm, with_nul, compression);
  }
  FatBinaryBuilder& machine_code(int sm) {
    return add(2, sm,
               "\x7f"
               "ELF and so on",
               Compression::kNone);
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(16);
    put<uint32_t>(all, 0, kFatBinaryMagic);
    put<uint16_t>(all, 4, 1);
    put<uint16_t>(all, 6, 16);
    put<uint64_t>(all, 8, entries_.size());
    all.insert(all.end(), entries_.begin(), entries_.end());
    return all;
  }

 private:
  template <class T>
  static void put(std::vector<std::byte>& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }

  FatBinaryBuilder& add(uint16_t kind, int sm, const std::string& text, Compression compression) {
    std::string payload = text;
    uint64_t flags = 0x11;
    if (compression == Compression::kZstd) {
      payload.resize(ZSTD_compressBound(text.size()));
      payload.resize(ZSTD_compress(payload.data(), payload.size(), text.data(), text.size(), 3));
      flags |= kFatEntryZstd;
    } else if (compression == Compression::kLz4) {
      payload.resize(static_cast<size_t>(LZ4_compressBound(static_cast<int>(text.size()))));
      payload.resize(static_cast<size_t>(LZ4_compress_default(
          text.data(), payload.data(), static_cast<int>(text.size()), static_cast<int>(payload.size()))));
      flags |= kFatEntryLz4;
    }
    const uint64_t compressed = compression == Compression::kNone ? 0 : payload.size();
    payload.resize((payload.size() + 7) / 8 * 8);
    std::vector<std::byte> header(64);
    put<uint16_t>(header, 0, kind);
    put<uint16_t>(header, 2, 0x101);
    put<uint32_t>(header, 4, 64);
    put<uint64_t>(header, 8, payload.size());
    put<uint32_t>(header, 16, static_cast<uint32_t>(compressed));
    put<uint32_t>(header, 28, static_cast<uint32_t>(sm));
    put<uint64_t>(header, 40, flags);
    put<uint64_t>(header, 56, compression == Compression::kNone ? 0 : text.size());
    entries_.insert(entries_.end(), header.begin(), header.end());
    const auto* data = reinterpret_cast<const std::byte*>(payload.data());
    entries_.insert(entries_.end(), data, data + payload.size());
    return *this;
  }

  std::vector<std::byte> entries_;
};

}  // namespace imbrex::cuda
