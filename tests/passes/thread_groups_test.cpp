// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "pass_test.h"
#include "passes/checks/check_thread_groups.h"
#include "passes/checks/check_variables.h"

namespace imbrex::passes {
namespace {

using testing::HasSubstr;

TEST(CheckThreadGroups, NamesTheGroupTheOpHasAndTheOneItNeeds) {
  EXPECT_EQ(
      refusal("%b: barrier = mbarrier_alloc {counts = [1]}\n"
              "thread_group {begin = 32, threads = 64, name = \"loaders\"} @8 {\n tcgen05_commit %b @9\n}",
              check_thread_groups),
      "f.cpp:9: error: tcgen05_commit: needs exactly one warp, it runs in threads 32 ... 95\n"
      "  thread group 32 ... 95 of its enclosing group (loaders)  opened at f.cpp:8\n"
      "  the CTA has 128 threads\n"
      "  help: put it under single_warp()");
}

TEST(CheckThreadGroups, GroupsNestInsideEachOther) {
  const std::string warp_of =
      "thread_group {begin = 64, threads = 64} {\n thread_group {begin = 32, threads = 32} {\n ";
  EXPECT_EQ(refusal(warp_of + "sync\n }\n}", check_thread_groups), "passes");
  EXPECT_THAT(refusal("thread_group {begin = 64, threads = 128} {\n}", check_thread_groups),
              HasSubstr("threads 64 ... 191 do not lie in the enclosing group, which has 128"));
  EXPECT_THAT(refusal("thread_group {begin = 16, threads = 32} {\n}", check_thread_groups),
              HasSubstr("cut through warps"));
}

TEST(CheckThreadGroups, ScopesOfEachKind) {
  const auto in = [](int begin, int threads, const std::string& op) {
    return refusal(
        "%b: barrier = mbarrier_alloc {counts = [1]}\n%n8: int32 = const {int = 8}\n"
        "%t: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]}\n"
        "thread_group {begin = " +
            std::to_string(begin) + ", threads = " + std::to_string(threads) + "} {\n " + op + "\n}",
        check_thread_groups);
  };
  EXPECT_EQ(in(5, 1, "mbarrier_expect_tx %b, %n8"), "passes");
  EXPECT_THAT(in(0, 32, "mbarrier_expect_tx %b, %n8"),
              HasSubstr("needs exactly one thread, it runs in warp 0"));
  EXPECT_EQ(in(0, 128, "%r: register<float32, [128, 64]> = tcgen05_load %t"), "passes");
  EXPECT_THAT(in(0, 64, "%r: register<float32, [128, 64]> = tcgen05_load %t"),
              HasSubstr("needs whole warp groups"));
  EXPECT_THAT(in(32, 32, "%r: register<float32, [128, 64]> = tcgen05_load %t"),
              HasSubstr("needs whole warp groups"));
  EXPECT_THAT(in(32, 32, "setmaxnreg {registers = 40}"), HasSubstr("of the same warp group for none"));
  EXPECT_THAT(in(0, 16, "tcgen05_wait_load"), HasSubstr("needs whole warps"));
  EXPECT_THAT(in(0, 64, "%q: barrier = mbarrier_alloc {counts = [1]}"),
              HasSubstr("needs every thread of the CTA"));
  EXPECT_THAT(in(3, 1, "sync"), HasSubstr("a single thread has no other thread to wait for"));
}

TEST(CheckThreadGroups, BarriersUnderAConditionOnTheThreadsNumber) {
  const std::string few =
      "%i: int32 = thread_idx\n%three: int32 = const {int = 3}\n%few: bool = lt %i, %three\n";
  EXPECT_THAT(refusal(few + "if %few @7 {\n sync @8\n}", check_thread_groups),
              HasSubstr("f.cpp:8: error: sync: every thread of the group executes it, and the condition of "
                        "line 7 depends on the thread's number"));
  EXPECT_EQ(refusal(few + "if %few {\n thread_group {begin = 32, threads = 32} {\n  sync\n }\n}",
                    check_thread_groups),
            "passes");
  EXPECT_THAT(refusal(few + "%t: register<int32, [64]> = broadcast %m {shape = [64]}\n"
                            "for %at: int32 in %i, %m, %three {\n %v: int32 = item %t, %three\n}",
                      check_thread_groups),
              HasSubstr("item: every thread of the group executes it, and the loop of line"));
  EXPECT_EQ(refusal("%b: bool = lt %m, %m\nif %b {\n sync\n}", check_thread_groups), "passes");
  // The others would wait at the next barrier for threads that have gone.
  EXPECT_THAT(refusal(few + "if %few @7 {\n return @8\n}", check_thread_groups),
              HasSubstr("f.cpp:8: error: return: every thread of the CTA leaves, and the condition of line 7 "
                        "depends on the thread's number"));
}

TEST(CheckThreadGroups, ReportsEveryFinding) {
  const std::string text =
      refusal("thread_group {begin = 0, threads = 1} {\n sync @3\n sync @4\n}", check_thread_groups);
  EXPECT_THAT(text, HasSubstr("f.cpp:3"));
  EXPECT_THAT(text, HasSubstr("f.cpp:4"));
}

/// A variable %v of the CTA; `body` may use it and the number %one.
std::string with_variable(const std::string& body) {
  return refusal("%one: int32 = const {int = 1}\n%v: var<int32> = var %one @2\n" + body, check_variables);
}
constexpr const char* kSetByOne = "thread_group {begin = 3, threads = 1} {\n assign %v, %one @5\n}\n";

TEST(CheckVariables, SetBySomeAndReadByAll) {
  EXPECT_EQ(with_variable(std::string(kSetByOne) + "%r: int32 = read %v @8"),
            "f.cpp:5: error: assign: 'v' is set by one thread (thread 3) only, and read by others too, which "
            "keep the value from "
            "before\n"
            "  read at f.cpp:8, by threads 0 ... 127\n"
            "  the CTA has 128 threads\n"
            "  help: set it in all threads that read it, or hand the value over in shared memory");
  // In a loop the read of the next round comes behind.
  EXPECT_THAT(with_variable("loop {\n %r: int32 = read %v @8\n " + std::string(kSetByOne) + "}"),
              HasSubstr("read at f.cpp:8"));
}

/// The other threads would keep their part of the tile from before.
TEST(CheckVariables, TilesSetBySomeAndReadByAll) {
  EXPECT_THAT(
      refusal("%one: int32 = const {int = 1}\n%t: register<int32, [64]> = broadcast %one {shape = [64]}\n"
              "%v: var<int32, [64]> = var %t @2\n"
              "thread_group {begin = 0, threads = 64} {\n assign %v, %t @5\n}\n"
              "%r: register<int32, [64]> = read %v @8",
              check_variables),
      HasSubstr("f.cpp:5: error: assign: 'v' is set by threads 0 ... 63 only, and read by others too"));
}

TEST(CheckVariables, ReadBeforeByTheSameOrByOthersAlone) {
  EXPECT_EQ(with_variable("%r: int32 = read %v @8\n" + std::string(kSetByOne)), "passes");
  EXPECT_EQ(with_variable(std::string(kSetByOne) +
                          "thread_group {begin = 3, threads = 1} {\n %r: int32 = read %v\n}"),
            "passes");
  EXPECT_EQ(with_variable(std::string(kSetByOne) +
                          "thread_group {begin = 32, threads = 32} {\n %r: int32 = read %v\n}"),
            "passes");
  EXPECT_EQ(with_variable(std::string(kSetByOne) + "assign %v, %one\n%r: int32 = read %v"), "passes");
}

}  // namespace
}  // namespace imbrex::passes
