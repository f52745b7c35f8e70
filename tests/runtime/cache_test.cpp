// SPDX-License-Identifier: Apache-2.0
// The cache and everything that happens to files: damage, full and read-only disks, many processes, SIGKILL.
#include "imbrex/runtime/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "../skip.h"
#include "runtime/cache/cache_file.h"
#include "runtime/host/files.h"

namespace imbrex {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/imbrex-cache-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  static CacheKey key(const std::string& text, const std::string& kind = "cubin") {
    return {kind, "all", {{"ptx", text}, {"target", "sm_90a"}, {"assembler", "ptxas 13.0"}}};
  }
  /// The files of entries, temporary ones included.
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().filename() != ".trimming") found.push_back(entry.path());
    return found;
  }
  static std::string random_bytes(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }

  std::string folder;
};

TEST_F(CacheTest, GivesBackWhatWasStoredUnderExactlyThisKey) {
  Cache cache(folder, 1 << 20);
  const std::string payload = random_bytes(5000, 1);
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  EXPECT_TRUE(cache.store(key("a"), payload));
  EXPECT_TRUE(cache.store(key("b\nnewline\\n"), ""));
  Cache other(folder, 1 << 20);
  EXPECT_EQ(other.load(key("a")), payload);
  EXPECT_EQ(other.load(key("b\nnewline\\n")), "");
  EXPECT_EQ(other.load(key("b\\nnewline\n")), std::nullopt);
  EXPECT_EQ(other.load(key("a", "tuning")), std::nullopt);
  EXPECT_TRUE(cache.store(key("a"), "newer"));
  EXPECT_EQ(other.load(key("a")), "newer");
  other.remove(key("a"));
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
}

TEST_F(CacheTest, EveryTruncationIsNoticed) {
  Cache cache(folder, 1 << 20);
  ASSERT_TRUE(cache.store(key("a"), random_bytes(100, 2)));
  const std::string whole = runtime::read_file(files().at(0)).value();
  for (size_t length = 0; length < whole.size(); ++length)
    ASSERT_EQ(runtime::unpack_cache_file(whole.substr(0, length)), std::nullopt) << length;
  fs::resize_file(files().at(0), whole.size() / 2);
  EXPECT_THAT(cache.explain(key("a")), HasSubstr("damaged"));
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  EXPECT_TRUE(files().empty()) << "a damaged entry is removed";
  EXPECT_TRUE(cache.store(key("a"), "rebuilt"));
  EXPECT_EQ(cache.load(key("a")), "rebuilt");
}

TEST_F(CacheTest, EveryFlippedBitIsNoticed) {
  const std::string whole = runtime::pack_cache_file(key("a").text(), random_bytes(100, 3));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_EQ(runtime::unpack_cache_file(flipped), std::nullopt) << "bit " << bit;
  }
  Cache cache(folder, 1 << 20);
  ASSERT_TRUE(cache.store(key("a"), random_bytes(100, 3)));
  std::string flipped = runtime::read_file(files().at(0)).value();
  flipped[flipped.size() - 7] ^= 4;
  ASSERT_EQ(runtime::write_file_whole(files().at(0), flipped), 0);
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  EXPECT_TRUE(cache.list("cubin").empty());
}

TEST_F(CacheTest, AnEntryUnderAnotherKeysNameIsNotTaken) {
  Cache cache(folder, 1 << 20);
  ASSERT_TRUE(cache.store(key("a"), "of a"));
  const fs::path a = files().at(0);
  ASSERT_TRUE(cache.store(key("b"), "of b"));
  for (const fs::path& file : files())
    if (file != a) fs::copy_file(a, file, fs::copy_options::overwrite_existing);
  EXPECT_EQ(cache.load(key("b")), std::nullopt);
  EXPECT_EQ(cache.load(key("a")), "of a");
}

TEST_F(CacheTest, TheLeastRecentlyUsedGoFirst) {
  Cache cache(folder, 50000);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(cache.store(key(std::to_string(i)), random_bytes(5000, i)));
    for (const fs::path& file : files())  // each store older by a minute than the next
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::minutes(1));
  }
  ASSERT_TRUE(cache.load(key("0")));  // used: now the most recent
  cache.trim(12000);
  EXPECT_EQ(files().size(), 2u);
  EXPECT_TRUE(cache.load(key("0")));
  EXPECT_TRUE(cache.load(key("7")));
}

TEST_F(CacheTest, StaysBelowItsSize) {
  Cache cache(folder, 40000);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(cache.store(key(std::to_string(i)), random_bytes(3000, i)));
  int64_t total = 0;
  for (const fs::path& file : files()) total += static_cast<int64_t>(fs::file_size(file));
  EXPECT_LE(total, 40000);
  EXPECT_GT(total, 20000);
}

TEST_F(CacheTest, WhatCrashedWritersLeftIsRemovedInTime) {
  Cache cache(folder, 1 << 20);
  ASSERT_TRUE(cache.store(key("a"), "a"));
  const fs::path old = fs::path(folder) / "cubin/all" / (std::string(runtime::kTemporaryPrefix) + "old");
  const fs::path fresh = fs::path(folder) / "cubin/all" / (std::string(runtime::kTemporaryPrefix) + "new");
  ASSERT_EQ(runtime::write_file_whole(old, "half"), 0);
  ASSERT_EQ(runtime::write_file_whole(fresh, "half"), 0);
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(cache.list("cubin").size(), 1u);
  cache.trim(1 << 20);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "its writer may be at work";
}

TEST_F(CacheTest, ReadOnlyFolderIsToleratedWithOneWarning) {
  if (geteuid() == 0) {
    // Root writes everywhere but below a file.
    ASSERT_EQ(runtime::write_file_whole(folder + "/file", ""), 0);
    folder += "/file";
  } else {
    fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  }
  Cache cache(folder, 1 << 20);
  std::vector<std::string> warnings;
  cache.warn = [&](const std::string& text) { warnings.push_back(text); };
  EXPECT_FALSE(cache.store(key("a"), "a"));
  EXPECT_FALSE(cache.store(key("b"), "b"));
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  cache.trim(0);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("cannot write to " + folder));
  EXPECT_THAT(warnings[0], HasSubstr("set IMBREX_CACHE_DIR"));
  if (geteuid() == 0) folder.resize(folder.size() - 5);
  fs::permissions(folder, fs::perms::owner_all);
}

// In a child process, since the limit cannot be lifted again: writes beyond 8 KiB fail half-way.
TEST_F(CacheTest, AFileThatCannotGrowIsToleratedAndNeverHalfKept) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
    Cache cache(folder, 1 << 20);
    int warnings = 0;
    cache.warn = [&](const std::string& text) {
      warnings += text.find("free some space") != std::string::npos;
    };
    const bool small = cache.store(key("small"), random_bytes(1000, 1));
    const bool large = cache.store(key("large"), random_bytes(20000, 1));
    _exit(small && !large && warnings == 1 && !cache.load(key("large")) && cache.load(key("small")) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files().size(), 1u) << "nothing half-written stays";
}

TEST_F(CacheTest, FullDiskIsTolerated) {
  const std::string disk = folder + "/disk";
  ASSERT_EQ(runtime::make_folders(disk), 0);
  // Without that right the limit on file sizes above stands in for it.
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) IMBREX_SKIP(mounting);
  {
    Cache cache(disk, 1 << 20);
    std::vector<std::string> warnings;
    cache.warn = [&](const std::string& text) { warnings.push_back(text); };
    int kept = 0;
    for (int i = 0; i < 20; ++i) kept += cache.store(key(std::to_string(i)), random_bytes(9000, i));
    EXPECT_GT(kept, 1);
    EXPECT_LT(kept, 10);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_THAT(warnings[0], HasSubstr("No space left on device"));
    for (int i = 0; i < 20; ++i) {
      if (auto payload = cache.load(key(std::to_string(i)))) {
        EXPECT_EQ(*payload, random_bytes(9000, i));
      }
    }
    EXPECT_GT(cache.clear(), 0);
    EXPECT_TRUE(cache.store(key("after"), "room again"));
  }
  EXPECT_EQ(umount(disk.c_str()), 0);
}

TEST_F(CacheTest, ManyProcessesWriteOneKeyAndEveryReaderSeesAWholeEntry) {
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    Cache cache(folder, 1 << 20);
    int wrong = 0;
    for (int i = 0; i < 100; ++i) {
      cache.store(key("one"), std::string(3000 + 1000 * c, static_cast<char>('a' + c)));
      const std::optional<std::string> got = cache.load(key("one"));
      const int by = got && !got->empty() ? (*got)[0] - 'a' : -1;
      wrong += by < 0 || by > 3 || *got != std::string(3000 + 1000 * by, static_cast<char>('a' + by));
    }
    _exit(wrong == 0 ? 0 : 1);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(CacheTest, KilledInTheMiddleNothingWrongIsFound) {
  Cache cache(folder, 100 << 20);
  const std::string payload = random_bytes(300000, 7);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) cache.store(key("k"), payload);
    }
    while (round == 0 && !cache.load(key("k")))
      usleep(1000);  // from then on an entry is there, always a whole one
    usleep(1000 + 700 * round);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(cache.load(key("k")), payload) << "round " << round;
  }
}

TEST_F(CacheTest, ExplainsAMissByWhatDiffers) {
  Cache cache(folder, 1 << 20);
  EXPECT_THAT(cache.explain(key("a")), HasSubstr("no cubin has been stored"));
  ASSERT_TRUE(cache.store(key("a"), "1"));
  EXPECT_THAT(cache.explain(key("a")), testing::StartsWith("found: " + folder));
  CacheKey newer = key("a");
  newer.parts[2].second = "ptxas 13.1";
  EXPECT_EQ(
      cache.explain(newer),
      "not found; the nearest of 1 entries differs in\n  assembler: wanted 'ptxas 13.1', kept 'ptxas 13.0'");
  CacheKey unlike{"cubin", "all", {{"ptx", "x"}, {"target", "y"}, {"assembler", "z"}}};
  EXPECT_THAT(cache.explain(unlike), HasSubstr("none of the 1 entries"));
}

TEST_F(CacheTest, NoDirectoryKeepsNothing) {
  Cache cache("", 1 << 20);
  EXPECT_FALSE(cache.store(key("a"), "1"));
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  EXPECT_EQ(cache.clear(), 0);
}

}  // namespace
}  // namespace imbrex
