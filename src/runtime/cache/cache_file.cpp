// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache/cache_file.h"

#include <fmt/format.h>

#include <charconv>

#include "core/sha256.h"

namespace imbrex::runtime {
namespace {

constexpr std::string_view kMagic = "imbrex cache 1\n";

}  // namespace

std::string pack_cache_file(std::string_view key_text, std::string_view payload) {
  std::string body = fmt::format("{}\n", key_text.size());
  body += key_text;
  body += payload;
  return fmt::format("{}{}\n", kMagic, sha256(body)) + body;
}

std::optional<CacheFile> unpack_cache_file(std::string_view file) {
  constexpr size_t kDigest = 64;
  if (!file.starts_with(kMagic) || file.size() < kMagic.size() + kDigest + 1) return std::nullopt;
  const std::string_view digest = file.substr(kMagic.size(), kDigest);
  std::string_view body = file.substr(kMagic.size() + kDigest);
  if (body[0] != '\n') return std::nullopt;
  body.remove_prefix(1);
  if (sha256(body) != digest) return std::nullopt;
  size_t key_bytes = 0;
  auto [end, error] = std::from_chars(body.begin(), body.end(), key_bytes);
  if (error != std::errc() || end == body.end() || *end != '\n') return std::nullopt;
  body.remove_prefix(static_cast<size_t>(end + 1 - body.begin()));
  if (key_bytes > body.size()) return std::nullopt;
  return CacheFile{std::string(body.substr(0, key_bytes)), std::string(body.substr(key_bytes))};
}

}  // namespace imbrex::runtime
