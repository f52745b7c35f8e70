// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/sectors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "imbrex/core/error.h"

namespace imbrex {
namespace {

WarpAccess strided(int64_t stride_bytes, int bytes, int64_t start = 0) {
  WarpAccess access{.addresses = {}, .bytes = bytes};
  for (int lane = 0; lane < 32; ++lane) access.addresses.push_back(start + lane * stride_bytes);
  return access;
}

void expect(const WarpAccess& access, int sectors, int ideal, int64_t bytes) {
  const SectorReport r = sector_report(access);
  EXPECT_EQ(r.sectors, sectors);
  EXPECT_EQ(r.ideal, ideal);
  EXPECT_EQ(r.bytes, bytes);
}

TEST(Sectors, NeighboursFillTheirSectors) {
  expect(strided(1, 1), 1, 1, 32);
  expect(strided(4, 4), 4, 4, 128);
  expect(strided(16, 16), 16, 16, 512);
  expect(strided(32, 32), 32, 32, 1024);
}

TEST(Sectors, StridesTouchMore) {
  expect(strided(8, 4), 8, 4, 128);    // every second float
  expect(strided(32, 4), 32, 4, 128);  // a column: a sector for each lane
  expect(strided(4096, 4), 32, 4, 128);
  expect(strided(0, 4), 1, 1, 128);  // a broadcast
}

TEST(Sectors, AStartWithinASectorCostsOneMore) {
  expect(strided(4, 4, 4), 5, 4, 128);
  expect(strided(4, 4, 32), 4, 4, 128);
}

TEST(Sectors, IdleLanesAskForNothing) {
  WarpAccess access = strided(4, 4);
  for (size_t lane = 1; lane < 32; ++lane) access.addresses[lane] = -1;
  expect(access, 1, 1, 4);
  access.addresses[0] = -1;
  EXPECT_EQ(sector_report(access).lanes, 0);
  EXPECT_EQ(sector_report(access).sectors, 0);
}

TEST(Sectors, AgreeWithTheDefinitionOnRandomAccesses) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 2000; ++round) {
    WarpAccess access{.addresses = {}, .bytes = 1 << random() % 6};
    std::set<int64_t> sectors, bytes;
    int64_t asked = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const int64_t address = random() % 4 == 0 ? -1 : static_cast<int64_t>(random() % 128) * access.bytes;
      access.addresses.push_back(address);
      if (address < 0) continue;
      asked += access.bytes;
      for (int byte = 0; byte < access.bytes; ++byte) {
        sectors.insert((address + byte) / 32);
        bytes.insert(address + byte);
      }
    }
    const SectorReport r = sector_report(access);
    ASSERT_EQ(r.sectors, static_cast<int>(sectors.size())) << "round " << round;
    ASSERT_EQ(r.ideal, static_cast<int>((bytes.size() + 31) / 32)) << "round " << round;
    ASSERT_EQ(r.bytes, asked) << "round " << round;
  }
}

TEST(Sectors, AtomicsOnOneWordTakeTurns) {
  const auto turns = [](const WarpAccess& access) {
    return sector_report(access, SectorSharing::kByTurns).sectors;
  };
  EXPECT_EQ(turns(strided(0, 4)), 32);
  EXPECT_EQ(turns(strided(4, 4)), 4);  // a word for each lane
  WarpAccess pairs{.addresses = {}, .bytes = 4};
  for (int lane = 0; lane < 32; ++lane) pairs.addresses.push_back(lane / 2 * 4);
  EXPECT_EQ(turns(pairs), 4);  // two sectors, twice each
}

/// Every recorded access touches as many sectors as the chip counted.
TEST(Sectors, AreThoseOfAnH200) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/analysis/data/sectors_h200.txt");
  ASSERT_TRUE(file.good());
  std::map<std::string, int> compared;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string form;
    int requests = 0, sectors = 0;
    words >> form >> requests >> sectors;
    WarpAccess access{.addresses = {}, .bytes = std::stoi(form.substr(form.find_first_of("0123456789")))};
    for (int64_t address = 0; words >> address;) access.addresses.push_back(address);
    ASSERT_EQ(access.addresses.size(), 32u);
    const bool by_turns = form == "atom4" || form == "red4";
    EXPECT_EQ(requests, 1) << line;
    EXPECT_EQ(sector_report(access, by_turns ? SectorSharing::kByTurns : SectorSharing::kTogether).sectors,
              sectors)
        << line;
    ++compared[form];
  }
  EXPECT_EQ(compared.size(), 15u);
  for (const auto& [form, count] : compared) EXPECT_EQ(count, 48) << form;
}

TEST(Sectors, RefusesWhatNoInstructionDoes) {
  EXPECT_THROW(sector_report(strided(12, 12)), LaunchError);
  EXPECT_THROW(sector_report(strided(64, 64)), LaunchError);
  EXPECT_THROW(sector_report(strided(2, 4)), LaunchError);  // misaligned
  EXPECT_THROW(sector_report({.addresses = std::vector<int64_t>(33, 0), .bytes = 4}), LaunchError);
}

}  // namespace
}  // namespace imbrex
