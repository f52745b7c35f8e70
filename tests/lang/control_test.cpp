// SPDX-License-Identifier: Apache-2.0
// Control flow: what each form becomes, and that cutting one short is reported, never dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "snippet.h"

namespace imbrex {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Pointer;
using testing::trace_snippet;
using testing::traced;

// --- loops ---

TEST(Range, BecomesAFor) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer&) {
    for (Int32 k : range(m, n, 2, {.unroll = 4})) check(k < 5);
  });
  EXPECT_EQ(text,
            "%0: int32 = const {int = 2}\n"
            "for %k: int32 in %m, %n, %0 {unroll = 4} {\n"
            "  %1: int32 = const {int = 5}\n"
            "  %2: bool = lt %k, %1\n"
            "  check %2 {message = \"check failed\"}\n"
            "}\n");
}

TEST(Range, BeginAndStepMayBeLeftOut) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    for (Int32 k : range(m)) check(k == 0);
  });
  EXPECT_THAT(
      text,
      HasSubstr("%0: int32 = const {int = 0}\n%1: int32 = const {int = 1}\nfor %k: int32 in %0, %m, %1 {"));
}

TEST(Range, TheLoopVariableIsTheBodysOwn) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    for (Int32 k : range(m)) {
      k += 1;
      check(k > 0);
    }
  });
  EXPECT_THAT(text, HasSubstr("for %k: int32"));
  EXPECT_THAT(text, HasSubstr("%k_1: var<int32> = var %k"));
  EXPECT_THAT(text, HasSubstr("assign %k_1"));
}

TEST(Range, TypesMeet) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    Int64 wide = m;
    UInt32 u = m;
    for (auto i : range(0, 10, int64_t{2})) check(i == 0);
    for (auto j : range(m, wide)) check(j == 0);
    for (auto k : range(u)) check(k == 0);
  });
  EXPECT_THAT(text, HasSubstr("for %i: int32"));
  EXPECT_THAT(text, HasSubstr("for %j: int64"));
  EXPECT_THAT(text, HasSubstr("for %k: uint32"));
}

TEST(Range, ServesSeveralLoops) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    auto rows = range(m);
    for (Int32 i : rows) check(i >= 0, "first");
    for (Int32 i : rows) check(i >= 0, "second");
  });
  EXPECT_THAT(text, HasSubstr("\"first\""));
  EXPECT_THAT(text, HasSubstr("\"second\""));
}

TEST(Forever, IsLeftByBreaks) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer&) {
    Int32 i = 0;
    for (Loop outer : forever()) {
      ++i;
      for (Int32 k : range(n)) {
        if (auto arm = when(k == i)) outer.break_loop();
        break_if(i == 3);
      }
      outer.break_if(i == m);
    }
  });
  EXPECT_EQ(text,
            "%0: int32 = const {int = 0}\n"
            "%i: var<int32> = var %0\n"
            "loop {\n"
            "  %1: int32 = read %i\n"
            "  %2: int32 = const {int = 1}\n"
            "  %3: int32 = add %1, %2\n"
            "  assign %i, %3\n"
            "  %4: int32 = const {int = 0}\n"
            "  %5: int32 = const {int = 1}\n"
            "  for %k: int32 in %4, %n, %5 {\n"
            "    %6: int32 = read %i\n"
            "    %7: bool = eq %k, %6\n"
            "    if %7 {\n"
            "      break {depth = 1}\n"
            "    }\n"
            "    %8: int32 = read %i\n"
            "    %9: int32 = const {int = 3}\n"
            "    %10: bool = eq %8, %9\n"
            "    if %10 {\n"
            "      break\n"
            "    }\n"
            "  }\n"
            "  %11: int32 = read %i\n"
            "  %12: bool = eq %11, %m\n"
            "  if %12 {\n"
            "    break\n"
            "  }\n"
            "}\n");
}

TEST(RangeErrors, Arguments) {
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { range(0, m, 0); }),
              HasSubstr("range: the step is 0"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { range(m, {.unroll = -1}); }),
              HasSubstr("range: cannot unroll -1 times"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { range(m, {.unroll = 0}); }),
              HasSubstr("range: cannot unroll completely"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { range(m.to(float32)); }),
              HasSubstr("range: bounds and step are integers, not float32"));
}

TEST(BreakErrors, WhereThereIsNothingToLeave) {
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { break_if(m == 0); }),
              HasSubstr("break_if: not inside a traced loop"));
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    std::optional<Loop> kept;
    for (Loop loop : forever()) {
      kept = loop;
      loop.break_if(m == 0);
    }
    for (Int32 i : range(m)) kept->break_if(i == 0);
  });
  EXPECT_THAT(error, HasSubstr("break_if: that loop has ended"));
}

TEST(BreakErrors, NotOutOfAThreadGroup) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    for (Loop loop : forever())
      if (auto warp = single_warp()) loop.break_if(m == 0);
  });
  EXPECT_THAT(error, HasSubstr("break_if: cannot leave a loop from inside a thread group"));
}

TEST(BreakErrors, NothingFollowsAnUnconditionalOne) {
  const std::string error = error_of([](Int32&, Int32&, Pointer&) {
    for (Loop loop : forever()) {
      loop.break_loop();
      sync();
    }
  });
  EXPECT_THAT(error, HasSubstr("sync: can never run: it follows an unconditional break"));
}

// --- conditions ---

TEST(When, ArmsNest) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer&) {
    Int32 x = 0;
    if (auto arm = when(m == n)) {
      x = 1;
    }
    if (auto arm = otherwise_when(m < n)) {
      x = 2;
    }
    if (auto arm = otherwise()) {
      if (auto inner = when(m == 7)) x = 3;
      if (auto inner = otherwise()) x = 4;
    }
  });
  EXPECT_EQ(text,
            "%0: int32 = const {int = 0}\n"
            "%x: var<int32> = var %0\n"
            "%1: bool = eq %m, %n\n"
            "if %1 {\n"
            "  %2: int32 = const {int = 1}\n"
            "  assign %x, %2\n"
            "} else {\n"
            "  %3: bool = lt %m, %n\n"
            "  if %3 {\n"
            "    %4: int32 = const {int = 2}\n"
            "    assign %x, %4\n"
            "  } else {\n"
            "    %5: int32 = const {int = 7}\n"
            "    %6: bool = eq %m, %5\n"
            "    if %6 {\n"
            "      %7: int32 = const {int = 3}\n"
            "      assign %x, %7\n"
            "    } else {\n"
            "      %8: int32 = const {int = 4}\n"
            "      assign %x, %8\n"
            "    }\n"
            "  }\n"
            "}\n");
}

TEST(WhenErrors, ArmsThatBelongToNothing) {
  const std::string error_1 = error_of([](Int32&, Int32&, Pointer&) {
    if (auto arm = otherwise()) sync();
  });
  EXPECT_THAT(error_1, HasSubstr("otherwise: there is no when() or otherwise_when() block right before it"));
  const std::string error_2 = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) sync();
    sync();
    if (auto arm = otherwise()) sync();
  });
  EXPECT_THAT(error_2, HasSubstr("otherwise: it must follow the when() block directly"));
  const std::string error_3 = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) sync();
    sync();
    if (auto arm = otherwise_when(m == 1)) sync();
  });
  EXPECT_THAT(error_3, HasSubstr("otherwise_when: only its own condition may stand between"));
  const std::string error_4 = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) sync();
    if (auto arm = otherwise()) sync();
    if (auto arm = otherwise()) sync();
  });
  EXPECT_THAT(error_4, HasSubstr("otherwise: there is no when()"));
  const std::string error_5 = error_of([](Int32& m, Int32&, Pointer&) {
    for (Int32 i : range(m)) {
      break_if(i == 2);
      if (auto arm = otherwise()) sync();
    }
  });
  EXPECT_THAT(error_5, HasSubstr("otherwise: there is no when()"));
  const std::string error_6 = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m)) sync();
  });
  EXPECT_THAT(error_6, HasSubstr("when: the condition is int32, not bool"));
}

// --- thread groups ---

TEST(ThreadGroup, FormsAndNesting) {
  const std::string text = traced([](Int32&, Int32&, Pointer&) {
    warps(8);
    if (auto group = warp_group(4, 4)) {
      if (auto warp = single_warp(2)) {
        if (auto thread = single_thread(5)) check(true);
      }
    }
    if (auto group = thread_group(16, 48)) check(true);
  });
  EXPECT_EQ(text,
            "thread_group {begin = 128, threads = 128} {\n"
            "  thread_group {begin = 64, threads = 32} {\n"
            "    thread_group {begin = 5, threads = 1} {\n"
            "      %0: bool = const {int = 1}\n"
            "      check %0 {message = \"check failed\"}\n"
            "    }\n"
            "  }\n"
            "}\n"
            "thread_group {begin = 16, threads = 48} {\n"
            "  %1: bool = const {int = 1}\n"
            "  check %1 {message = \"check failed\"}\n"
            "}\n");
}

TEST(ThreadGroupErrors, Bounds) {
  const std::string error_1 = error_of([](Int32&, Int32&, Pointer&) {
    if (auto warp = single_warp(4)) sync();
  });
  EXPECT_THAT(error_1, HasSubstr("single_warp: threads 128...159 of a group that has 128"));
  const std::string error_2 = error_of([](Int32&, Int32&, Pointer&) {
    if (auto warp = single_warp())
      if (auto inner = single_thread(32)) sync();
  });
  EXPECT_THAT(error_2, HasSubstr("single_thread: threads 32...32 of a group that has 32"));
  const std::string error_3 = error_of([](Int32&, Int32&, Pointer&) {
    if (auto group = thread_group(0, 0)) sync();
  });
  EXPECT_THAT(error_3, HasSubstr("thread_group: a group of 0 threads"));
  const std::string error_4 = error_of([](Int32&, Int32&, Pointer&) {
    if (auto warp = single_warp()) sync();
    warps(8);
  });
  EXPECT_THAT(error_4, HasSubstr("warps: must come before the first thread group"));
}

// --- scopes cut short ---

TEST(CutShort, BreakOutOfALoop) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    for (Int32 i : range(m)) {
      check(i == 0);
      break;
    }
    sync();
  });
  EXPECT_THAT(error, HasSubstr("range: the loop's body was left by a C++ break, return or goto"));
  EXPECT_THAT(error, HasSubstr("for (Int32 i : range(m)) {"));
}

TEST(CutShort, ReturnOutOfALoop) {
  const std::string error = error_of([](Int32&, Int32&, Pointer&) {
    for ([[maybe_unused]] Loop loop : forever()) {
      sync();
      return;
    }
  });
  EXPECT_THAT(error, HasSubstr("forever: the loop's body was left by a C++ break, return or goto"));
}

TEST(CutShort, ReturnOutOfALoopInsideAnother) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    for (Int32 i : range(m))
      for (Int32 j : range(i)) {
        check(j == 0);
        return;
      }
  });
  EXPECT_THAT(error, HasSubstr("the loop's body was left"));
}

TEST(CutShort, ACaughtException) {
  const std::string error_1 = error_of([](Int32& m, Int32&, Pointer&) {
    try {
      for (Int32 i : range(m)) {
        check(i == 0);
        throw 1;
      }
    } catch (int) {
    }
  });
  EXPECT_THAT(error_1, HasSubstr("the loop's body was left by a C++ exception"));
  const std::string error_2 = error_of([](Int32& m, Int32&, Pointer&) {
    try {
      if (auto arm = when(m == 0)) throw 1;
    } catch (int) {
    }
    sync();
  });
  EXPECT_THAT(error_2, HasSubstr("the block opened here was left by a C++ exception"));
}

TEST(CutShort, AnUncaughtExceptionIsTheUsers) {
  EXPECT_THROW(trace_snippet([](Int32& m, Int32&, Pointer&) {
                 for (Int32 i : range(m)) {
                   check(i == 0);
                   throw std::out_of_range("mine");
                 }
               }),
               std::out_of_range);
  EXPECT_EQ(lang::Trace::active(), nullptr);
}

TEST(CutShort, ReturnOutOfAGuard) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) {
      check(true);
      return;
    }
    sync();
  });
  EXPECT_THAT(error, HasSubstr("when: a C++ return leaves a traced block"));
  EXPECT_THAT(error, HasSubstr(" |       return;"));  // the line of the return
  EXPECT_THAT(error, HasSubstr("the block is opened at"));
}

TEST(CutShort, ContinueAndBreakOutOfAGuard) {
  const std::string error_1 = error_of([](Int32& m, Int32&, Pointer&) {
    for (Int32 i : range(m)) {
      if (auto arm = when(i == 0)) continue;
      sync();
    }
  });
  EXPECT_THAT(error_1, HasSubstr("when: a C++ continue leaves a traced block"));
  const std::string error_2 = error_of([](Int32& m, Int32&, Pointer&) {
    for (int i = 0; i < 4; ++i) {
      if (auto thread = single_thread()) {
        if (i == 2) break;
        check(m == 0);
      }
    }
  });
  EXPECT_THAT(error_2, HasSubstr("single_thread: a C++ break leaves a traced block"));
  const std::string error_3 = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) sync();
    if (auto arm = otherwise_when(m == 1)) {
      goto end;
    }
  end:
    sync();
  });
  EXPECT_THAT(error_3, HasSubstr("otherwise_when: a C++ goto leaves a traced block"));
}

TEST(CutShort, ElseAfterAGuard) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) {
      sync();
    } else {
      sync();
    }
  });
  EXPECT_THAT(error, HasSubstr("when: a C++ else after a traced block never runs"));
}

TEST(CutShort, WhatStaysInsideIsAllowed) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    if (auto arm = when(m == 0)) {
      // return; in a comment, "return" in a string, and jumps of their own:
      const char* text = "return; break; }";
      for (int i = 0; i < 4; ++i) {
        if (i == 1) continue;
        if (i == 3) break;
      }
      switch (text[0]) {
        case 'r':
          break;
        default:
          break;
      }
      auto twice = [&](const Int32& x) { return x * 2; };
      struct Local {
        int get() const { return 3; }
      };
      do {
        if (text[0] == 'r') break;
      } while (true);
      check(twice(m) > Local{}.get(), R"(return; )");
    }
  });
  EXPECT_EQ(error, "");
}

// --- values and scopes ---

TEST(Scopes, AValueUsedAfterItsScope) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    std::optional<Expr> kept;
    for (Int32 i : range(m)) kept.emplace(i * 2);
    check(*kept == 0);
  });
  EXPECT_THAT(error, HasSubstr("==: a value is used after its scope has ended"));
  EXPECT_THAT(error, HasSubstr("check(*kept == 0);"));
  EXPECT_THAT(error, HasSubstr("inside the for of"));
  EXPECT_THAT(error, HasSubstr("help: declare it before that block, and assign it inside"));
}

TEST(Scopes, AVariableOfAThreadGroup) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    std::optional<Int32> kept;
    if (auto warp = single_warp()) kept.emplace(m);
    *kept += 1;
  });
  EXPECT_THAT(error, HasSubstr("is used after its scope has ended"));
}

TEST(Scopes, OneArmsValueInTheOther) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    std::optional<Expr> kept;
    if (auto arm = when(m == 0)) kept.emplace(m + 1);
    if (auto arm = otherwise()) check(*kept == 1);
  });
  EXPECT_THAT(error, HasSubstr("is used after its scope has ended"));
}

// --- statements ---

TEST(Statements, AssumeCheckSync) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    assume(m % 8 == 0);
    sync();
    check(m > 0, "m must be positive");
  });
  EXPECT_EQ(text,
            "%0: int32 = const {int = 8}\n"
            "%1: int32 = rem %m, %0\n"
            "%2: int32 = const {int = 0}\n"
            "%3: bool = eq %1, %2\n"
            "assume %3\n"
            "sync\n"
            "%4: int32 = const {int = 0}\n"
            "%5: bool = gt %m, %4\n"
            "check %5 {message = \"m must be positive\"}\n");
}

TEST(Statements, RequireIsCheckedWhileTracing) {
  auto block = [](int size) {
    return error_of([size](Int32&, Int32&, Pointer&) {
      require(size % 16 == 0, "block_k is {}, not a multiple of {} for {}", size, 16, float16);
    });
  };
  EXPECT_EQ(block(32), "");
  EXPECT_THAT(block(24), HasSubstr("error: block_k is 24, not a multiple of 16 for float16"));
}

}  // namespace
}  // namespace imbrex
