// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/banks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "imbrex/core/error.h"

namespace imbrex {
namespace {

WarpAccess strided(int64_t stride_bytes, int bytes) {
  WarpAccess access{.addresses = {}, .bytes = bytes};
  for (int lane = 0; lane < 32; ++lane) access.addresses.push_back(lane * stride_bytes);
  return access;
}

TEST(Banks, WidthsTakeTheirPhases) {
  for (const auto& [bytes, phases] : std::map<int, int>{{1, 1}, {2, 1}, {4, 1}, {8, 2}, {16, 4}}) {
    const BankReport r = bank_report(strided(bytes, bytes));
    EXPECT_EQ(r.phases, phases) << bytes;
    EXPECT_EQ(r.conflicts(), 0) << bytes;
    EXPECT_EQ(r.degree, 1) << bytes;
  }
}

TEST(Banks, LanesThatWantOneWordShareIt) {
  EXPECT_EQ(bank_report(strided(0, 4)).wavefronts, 1);
  EXPECT_EQ(bank_report(strided(1, 1)).wavefronts, 1);  // four lanes a word
}

TEST(Banks, RowsOf128BytesCollideUntilTheyAreSwizzled) {
  WarpAccess rows = strided(128, 16);  // what ldmatrix reads: 8 rows a phase
  EXPECT_EQ(bank_report(rows).degree, 8);
  for (int64_t& address : rows.addresses) address = swizzled_address("128B", address);
  const BankReport swizzled = bank_report(rows);
  EXPECT_EQ(swizzled.wavefronts, 4);
  EXPECT_EQ(swizzled.conflicts(), 0);
}

TEST(Banks, IdleLanesTakeNoTime) {
  WarpAccess access = strided(4, 4);
  for (int lane = 1; lane < 32; ++lane) access.addresses[static_cast<size_t>(lane)] = -1;
  const BankReport r = bank_report(access);
  EXPECT_EQ(r.wavefronts, 1);
  EXPECT_EQ(r.cycle[0], 0);
  EXPECT_EQ(r.cycle[1], -1);
}

/// The definition, told differently: a phase takes as long as the bank with the most different words.
TEST(Banks, AgreesWithTheDefinitionOnRandomAccesses) {
  std::mt19937_64 random(20260401);
  for (int round = 0; round < 2000; ++round) {
    WarpAccess access{.addresses = {}, .bytes = 1 << random() % 5};
    for (int lane = 0; lane < 32; ++lane)
      access.addresses.push_back(random() % 8 == 0 ? -1
                                                   : static_cast<int64_t>(random() % 512) * access.bytes);
    const size_t per_phase = access.bytes <= 4 ? 32 : static_cast<size_t>(128 / access.bytes);
    int expected = 0, phases = 0;
    for (size_t first = 0; first < 32; first += per_phase) {
      std::map<int64_t, std::set<int64_t>> words;
      for (size_t lane = first; lane < first + per_phase; ++lane)
        if (access.addresses[lane] >= 0)
          for (int byte = 0; byte < access.bytes; ++byte) {
            const int64_t word = (access.addresses[lane] + byte) / 4;
            words[word % 32].insert(word);
          }
      size_t deepest = 0;
      for (const auto& [bank, wanted] : words) deepest = std::max(deepest, wanted.size());
      expected += static_cast<int>(deepest);
      phases += deepest > 0;
    }
    const BankReport r = bank_report(access);
    ASSERT_EQ(r.wavefronts, expected) << "round " << round;
    ASSERT_EQ(r.phases, phases) << "round " << round;
  }
}

TEST(Banks, LoadsThatPairsOfLanesShareTakeHalfThePhases) {
  WarpAccess pairs{.addresses = {}, .bytes = 8};
  for (int lane = 0; lane < 32; ++lane) pairs.addresses.push_back(lane / 2 * 8);
  EXPECT_EQ(bank_report(pairs).phases, 1);
  pairs.access = BankAccess::kStore;
  EXPECT_EQ(bank_report(pairs).phases, 2);
  WarpAccess one_pair_differs = pairs;
  one_pair_differs.access = BankAccess::kLoad;
  one_pair_differs.addresses[7] = 128;
  EXPECT_EQ(bank_report(one_pair_differs).phases, 2);
}

/// Every access of the recorded ones takes as many cycles as the chip's counters said.
TEST(Banks, AreThoseOfAnH200) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/analysis/data/banks_h200.txt");
  ASSERT_TRUE(file.good());
  const std::map<std::string, std::pair<int, BankAccess>> forms = {
      {"ld1", {1, BankAccess::kLoad}},    {"ld2", {2, BankAccess::kLoad}},
      {"ld4", {4, BankAccess::kLoad}},    {"ld8", {8, BankAccess::kLoad}},
      {"ld16", {16, BankAccess::kLoad}},  {"st1", {1, BankAccess::kStore}},
      {"st2", {2, BankAccess::kStore}},   {"st4", {4, BankAccess::kStore}},
      {"st8", {8, BankAccess::kStore}},   {"st16", {16, BankAccess::kStore}},
      {"lm4", {16, BankAccess::kMatrix}}, {"sm4", {16, BankAccess::kMatrix}}};
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string form;
    int wavefronts = 0;
    words >> form >> wavefronts;
    const auto [bytes, access] = forms.at(form);
    WarpAccess warp{.addresses = {}, .bytes = bytes, .access = access};
    for (int64_t address = 0; words >> address;) warp.addresses.push_back(address);
    ASSERT_EQ(warp.addresses.size(), 32u);
    EXPECT_EQ(bank_report(warp).wavefronts, wavefronts) << line;
    ++compared;
  }
  EXPECT_GE(compared, 280);
}

TEST(Banks, RefusesWhatNoInstructionDoes) {
  EXPECT_THROW(bank_report(strided(12, 12)), LaunchError);
  EXPECT_THROW(bank_report(strided(2, 4)), LaunchError);  // misaligned
  EXPECT_THROW(bank_report({.addresses = std::vector<int64_t>(33, 0), .bytes = 4}), LaunchError);
  EXPECT_THROW(swizzled_address("96B", 0), LaunchError);
}

}  // namespace
}  // namespace imbrex
