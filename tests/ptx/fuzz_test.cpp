// SPDX-License-Identifier: Apache-2.0
// Damaged PTX must be answered with ParseError or be read; it must never crash, hang or throw anything else.
// Bounded and seeded: the same run every time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "imbrex/core/error.h"
#include "ptx/check.h"
#include "ptx/reader.h"
#include "ptx/writer.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

// For each file; IMBREX_FUZZ_ROUNDS asks for more.
int rounds() {
  const char* asked = std::getenv("IMBREX_FUZZ_ROUNDS");
  return asked != nullptr ? std::atoi(asked) : 60;
}

// Pieces that are likely to lead somewhere.
constexpr const char* kPieces[] = {"{",
                                   "}",
                                   "(",
                                   ")",
                                   "[",
                                   "]",
                                   ";",
                                   ",",
                                   ".",
                                   ":",
                                   "::",
                                   "@",
                                   "!",
                                   "|",
                                   "<",
                                   ">",
                                   "+",
                                   "-",
                                   "_",
                                   "0x",
                                   "0f",
                                   "99999999999999999999",
                                   "/*",
                                   "//",
                                   "\"",
                                   "%r",
                                   ".reg",
                                   ".b32",
                                   ".global",
                                   ".entry",
                                   ".func",
                                   ".loc 1 1 1",
                                   ".branchtargets",
                                   "bra",
                                   "call",
                                   "ret;",
                                   "\0",
                                   "\xff",
                                   "generic(",
                                   "= {",
                                   "{{{{{{{{",
                                   "((((((((((((",
                                   "~~~~~~~~",
                                   "-2147483648",
                                   ".align 8",
                                   "[1000000][1000000]",
                                   "<4000000>"};

std::string mutate(std::string text, std::mt19937& random) {
  auto below = [&](size_t n) { return static_cast<size_t>(random() % std::max<size_t>(n, 1)); };
  for (size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
    size_t at = below(text.size());
    size_t length = std::min(1 + below(24), text.size() - at);
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        text.insert(below(text.size()), text.substr(at, length));
        break;
      case 4:
        text.replace(at, length, kPieces[below(std::size(kPieces))]);
        break;
      case 5:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(Fuzz, DamagedFiles) {
  std::mt19937 random(20260101);
  int rejected = 0;
  int accepted = 0;
  for (const std::filesystem::path& path : data_files()) {
    std::string original = file_text(path);
    for (int round = 0; round < rounds(); ++round) {
      std::string text = mutate(original, random);
      try {
        Module m = read(text);
        ++accepted;
        check(m);
        // What was read must print to something that reads as the same.
        std::string difference;
        EXPECT_TRUE(equivalent(m, read(write(m)), &difference))
            << path << " round " << round << ": " << difference;
      } catch (const ParseError& e) {
        ++rejected;
        EXPECT_LE(e.diagnostics().size(), 200u);
      }
    }
  }
  EXPECT_GT(rejected, 100);
  EXPECT_GT(accepted, 10);
}

// Every prefix of a small file, which hits every place the text can end.
TEST(Fuzz, EveryPrefix) {
  std::string text = kernel(
      ".shared .align 16 .b8 s[64];\n.loc 1 2 3\n{\n.reg .b32 t;\nL: @p ld.shared.v2.b32 {t, _}, [s+4];\n"
      "call (h0), k, (s);\nbra L;\n}\nmov.b64 w0, -0d3FF0000000000000;");
  for (size_t n = 0; n < text.size(); ++n) {
    try {
      read(text.substr(0, n));
    } catch (const ParseError&) {
    }
  }
}

}  // namespace
}  // namespace imbrex::ptx
