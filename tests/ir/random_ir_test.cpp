// SPDX-License-Identifier: Apache-2.0
#include "random_ir.h"

#include <gtest/gtest.h>

#include <random>

#include "imbrex/core/error.h"

namespace imbrex::ir {
namespace {

TEST(RandomIr, IsValidAndReadsBack) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const auto f = random_function(seed, 80);
    const std::string text = print(*f);
    ASSERT_NO_THROW(verify(*f)) << text;
    const auto again = parse(text);
    ASSERT_NO_THROW(verify(*again)) << text;
    ASSERT_EQ(print(*again), text);
  }
}

// Cut, repeat, swap and overwrite bytes of valid text: it parses (and verifies) or throws one of our errors.
TEST(RandomIr, MutatedTextNeverCrashes) {
  std::mt19937_64 random(1);
  int parsed = 0, rejected = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text = print(*random_function(seed % 50, 40));
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const size_t at = random() % text.size(), length = 1 + random() % 12;
      switch (random() % 4) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        case 2:
          text[at] = static_cast<char>(random());
          break;
        case 3:
          std::swap(text[at], text[random() % text.size()]);
          break;
      }
    }
    try {
      verify(*parse(text));
      ++parsed;
    } catch (const Error&) {
      ++rejected;
    }
  }
  EXPECT_GT(parsed, 20);
  EXPECT_GT(rejected, 1000);
}

}  // namespace
}  // namespace imbrex::ir
