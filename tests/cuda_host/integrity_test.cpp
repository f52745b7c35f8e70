// SPDX-License-Identifier: Apache-2.0
// MD2 against the test suite in RFC 1319.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "cuda_host/driver/integrity.h"

namespace imbrex::cuda {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte b : digest) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}
std::string md2_of(const std::string& text) {
  return hex(md2(std::as_bytes(std::span(text.data(), text.size()))));
}

TEST(Md2, AnswersAsTheStandardsTestSuite) {
  EXPECT_EQ(md2_of(""), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(md2_of("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(md2_of("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(md2_of("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(md2_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "da33def2a42df13975352846c30338cd");
}

TEST(Integrity, EveryFactChangesTheAnswer) {
  IntegrityFacts facts{13000, 13002, 1234, 77, nullptr, nullptr, nullptr, 1700000000};
  const IntegrityDevice device{{1, 2, 3}, 0, 1, 0};
  const std::string answer = hex(integrity_answer(facts, {&device, 1}));
  EXPECT_NE(answer, hex(integrity_answer(facts, {})));
  ++facts.unix_seconds;
  EXPECT_NE(answer, hex(integrity_answer(facts, {&device, 1})));
}

}  // namespace
}  // namespace imbrex::cuda
