// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/driver/integrity.h"

#include <algorithm>
#include <vector>

namespace imbrex::cuda {
namespace {

constexpr size_t kBlock = 16;

// RFC 1319's permutation of the bytes, made as it is described there: from the digits of pi.
constexpr std::array<uint8_t, 256> kPi = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,   243,
    192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212, 224, 22,
    103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142,
    187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,
    128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151, 3,   255, 25,  48,  179,
    72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184, 56,  210, 150, 164, 125, 182,
    118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100, 113, 135, 32,  134, 91,  207, 101,
    230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246, 28,  70,  97,  105, 52,  64,  126, 15,
    85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,  44,  83,  13,  110,
    133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193, 171, 250,
    36,  225, 123, 8,   12,  189, 177, 74,  120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
    59,  0,   29,  57,  242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,
    49,  68,  80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20};

/// What was agreed on beforehand.
constexpr std::array<uint8_t, kBlock> kKey = {20,  106, 221, 174, 83, 169, 167, 82,
                                              170, 8,   65,  54,  11, 245, 90,  159};

void absorb(std::array<uint8_t, 48>& state, const uint8_t* block) {
  for (size_t i = 0; i < kBlock; ++i) {
    state[kBlock + i] = block[i];
    state[2 * kBlock + i] = block[i] ^ state[i];
  }
  uint8_t t = 0;
  for (uint8_t round = 0; round < 18; ++round) {
    for (uint8_t& byte : state) t = byte ^= kPi[t];
    t = static_cast<uint8_t>(t + round);
  }
}

template <class T>
void append(std::vector<std::byte>& message, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
}

}  // namespace

Digest md2(std::span<const std::byte> bytes) {
  std::vector<uint8_t> text(bytes.size());
  std::ranges::transform(bytes, text.begin(), [](std::byte b) { return static_cast<uint8_t>(b); });
  const auto padding = static_cast<uint8_t>(kBlock - text.size() % kBlock);
  text.insert(text.end(), padding, padding);
  std::array<uint8_t, kBlock> checksum{};
  uint8_t last = 0;
  for (size_t at = 0; at < text.size(); at += kBlock)
    for (size_t i = 0; i < kBlock; ++i) last = checksum[i] ^= kPi[text[at + i] ^ last];
  text.insert(text.end(), checksum.begin(), checksum.end());
  std::array<uint8_t, 48> state{};
  for (size_t at = 0; at < text.size(); at += kBlock) absorb(state, &text[at]);
  Digest digest;
  for (size_t i = 0; i < kBlock; ++i) digest[i] = std::byte{state[i]};
  return digest;
}

Digest hmac_md2(std::span<const std::byte> key, std::span<const std::byte> message) {
  const auto keyed = [&](std::byte pad, std::span<const std::byte> rest) {
    std::vector<std::byte> text(kBlock, pad);
    for (size_t i = 0; i < key.size(); ++i) text[i] ^= key[i];
    text.insert(text.end(), rest.begin(), rest.end());
    return md2(text);
  };
  const Digest inner = keyed(std::byte{0x36}, message);
  return keyed(std::byte{0x5c}, inner);
}

Digest integrity_answer(const IntegrityFacts& facts, std::span<const IntegrityDevice> devices) {
  std::vector<std::byte> message;
  append(message, facts);
  for (const IntegrityDevice& device : devices) append(message, device);
  return hmac_md2(std::as_bytes(std::span(kKey)), message);
}

}  // namespace imbrex::cuda
