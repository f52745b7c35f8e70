// SPDX-License-Identifier: Apache-2.0
// promote_variables, unroll, propagate_constants and dead_code: what becomes of variables and loops.
#include <gmock/gmock.h>

#include "pass_test.h"
#include "passes/dead_code.h"
#include "passes/fold.h"
#include "passes/promote_variables.h"
#include "passes/propagate_constants.h"
#include "passes/unroll.h"

namespace imbrex::passes {
namespace {

TEST(PromoteVariables, WithoutAssignmentsTheyAreTheirValue) {
  expect_rewrite("%v: var<int32> = var %n\nif %c {\n %x: int32 = read %v\n printf %x {format = \"\"}\n}",
                 "if %c {\n printf %n {format = \"\"}\n}", promote_variables, dead_code);
}

TEST(PromoteVariables, ReadsGetTheLastAssignment) {
  expect_rewrite(
      "%v: var<int32> = var %n\n%x: int32 = read %v\nassign %v, %m\n%y: int32 = read %v\nprintf %x, %y "
      "{format = \"\"}",
      "printf %n, %m {format = \"\"}", promote_variables, dead_code);
}

TEST(PromoteVariables, LoopsAndBranchesMakeThemUnknown) {
  // The read at the loop's head stays, the one after it is the same; what is assigned is known until the end.
  expect_rewrite(
      "%v: var<int32> = var %n\nloop {\n %x: int32 = read %v\n %y: int32 = read %v\n %s: int32 = add %x, %y\n"
      " assign %v, %s\n %z: int32 = read %v\n printf %z {format = \"\"}\n}",
      "%v: var<int32> = var %n\nloop {\n %x: int32 = read %v\n %s: int32 = add %x, %x\n"
      " assign %v, %s\n printf %s {format = \"\"}\n}",
      promote_variables, dead_code);
}

TEST(PromoteVariables, OverwrittenAssignmentsGoUnlessABreakMayShowThem) {
  expect_rewrite(
      "%v: var<int32> = var %n\nloop {\n assign %v, %m\n assign %v, %n\n if %c {\n break\n }\n assign %v, "
      "%m\n}\n"
      "%x: int32 = read %v\nprintf %x {format = \"\"}",
      "%v: var<int32> = var %n\nloop {\n assign %v, %n\n if %c {\n break\n }\n assign %v, %m\n}\n"
      "%x: int32 = read %v\nprintf %x {format = \"\"}",
      promote_variables, dead_code);
}

TEST(DeadCode, KeepsEffectsAndDropsTheRest) {
  expect_rewrite(
      "%a: int32 = add %n, %m\n%s: shared<float16, [8]> = shared_alloc {dtype = float16, shape = [8]}\n"
      "%v: var<int32> = var %a\nif %c {\n assign %v, %n\n}\nsync",
      "sync", dead_code);
}

const char* const kBounds =
    "%i0: int32 = const {int = 0}\n%i4: int32 = const {int = 4}\n%i5: int32 = const {int = 5}\n%i1: int32 = "
    "const {int = 1}\n";

TEST(Unroll, CompletelyAndByAFactor) {
  const std::string bounds = kBounds;
  expect_rewrite(bounds + "for %i: int32 in %i0, %i4, %i1 {unroll = 0} {\n printf %i {format = \"\"}\n}",
                 "%a: int32 = const {int = 0}\nprintf %a {format = \"\"}\n%b: int32 = const {int = "
                 "1}\nprintf %b {format = \"\"}\n"
                 "%d: int32 = const {int = 2}\nprintf %d {format = \"\"}\n%e: int32 = const {int = "
                 "3}\nprintf %e {format = \"\"}",
                 unroll, dead_code);
  // 5 trips by 2: two trips of two, and one.
  expect_rewrite(bounds + "for %i: int32 in %i0, %i5, %i1 {unroll = 2} {\n printf %i {format = \"\"}\n}",
                 "%b: int32 = const {int = 0}\n%one: int32 = const {int = 1}\n%e: int32 = const {int = 4}\n"
                 "%s: int32 = const {int = 2}\nfor %i: int32 in %b, %e, %s {\n printf %i {format = \"\"}\n"
                 " %j: int32 = add %i, %one\n printf %j {format = \"\"}\n}\n"
                 "%last: int32 = const {int = 4}\nprintf %last {format = \"\"}",
                 unroll, dead_code);
}

TEST(Unroll, ARunTimeTripCountLeavesARemainderLoop) {
  const auto f = kernel(std::string(kBounds) +
                        "for %i: int32 in %i0, %n, %i4 {unroll = 4} {\n printf %i {format = \"\"}\n}");
  unroll(*f);
  ASSERT_NO_THROW(ir::verify(*f));
  int loops = 0, prints = 0;
  ir::walk(f->body, [&](ir::Op& op) {
    loops += op.code == ir::Opcode::kFor;
    prints += op.code == ir::Opcode::kPrintf;
  });
  EXPECT_EQ(loops, 2);
  EXPECT_EQ(prints, 5);
}

TEST(Unroll, CopiesShareTheirSharedMemory) {
  const auto f = kernel(std::string(kBounds) +
                        "for %i: int32 in %i0, %i4, %i1 {unroll = 4} {\n"
                        " %s: shared<int32, [8]> = shared_alloc {dtype = int32, shape = [8]}\n"
                        " %r: register<int32, [8]> = broadcast %i {shape = [8]}\n store_shared %s, %r\n}");
  unroll(*f);
  int allocations = 0;
  ir::walk(f->body, [&](ir::Op& op) { allocations += op.code == ir::Opcode::kSharedAlloc; });
  EXPECT_EQ(allocations, 1);
}

TEST(Unroll, RefusesWhatCannotBeCopied) {
  EXPECT_THAT(
      refusal(std::string(kBounds) + "for %i: int32 in %i0, %n, %i1 {unroll = 0} @7 {\n sync\n}", unroll),
      testing::HasSubstr("the number of trips is known only at run time"));
  EXPECT_THAT(
      refusal("%a: int32 = const {int = 0}\n%e: int32 = const {int = 1000000}\n%s: int32 = const {int = 1}\n"
              "for %i: int32 in %a, %e, %s {unroll = 0} {\n sync\n}",
              unroll),
      testing::HasSubstr("1000000 copies of a body of 1 ops"));
}

// The ring buffer of the Blackwell kernels: stage = (stage + 1) % stages; phase ^= stage == 0.
std::string ring_buffer(int trips, int stages) {
  return "%i0: int32 = const {int = 0}\n%i1: int32 = const {int = 1}\n%end: int32 = const {int = " +
         std::to_string(trips) + "}\n%stages: int32 = const {int = " + std::to_string(stages) +
         "}\n%stage: var<int32> = var %i0\n%phase: var<int32> = var %i0\n"
         "for %i: int32 in %i0, %end, %i1 {unroll = " +
         std::to_string(stages) +
         "} {\n"
         "  %s: int32 = read %stage\n  %now: int32 = read %phase\n  printf %s, %now {format = \"\"}\n"
         "  %next: int32 = add %s, %i1\n  %wrapped: int32 = rem %next, %stages\n  assign %stage, %wrapped\n"
         "  %again: bool = eq %wrapped, %i0\n  %flip: int32 = cast %again {dtype = int32}\n"
         "  %q: int32 = read %phase\n  %r: int32 = xor %q, %flip\n  assign %phase, %r\n}";
}

TEST(RingBuffer, StagesAreNumbersAndThePhaseFlipsOnceATrip) {
  expect_rewrite(
      ring_buffer(12, 3),
      "%i0: int32 = const {int = 0}\n%i1: int32 = const {int = 1}\n"
      "%end: int32 = const {int = 12}\n%three: int32 = const {int = 3}\n%phase: var<int32> = var %i0\n"
      "for %i: int32 in %i0, %end, %three {\n  %now: int32 = read %phase\n  printf %i0, %now {format = "
      "\"\"}\n"
      "  printf %i1, %now {format = \"\"}\n  %two: int32 = const {int = 2}\n  printf %two, %now {format = "
      "\"\"}\n"
      "  %r: int32 = xor %now, %i1\n  assign %phase, %r\n}",
      promote_variables, unroll, promote_variables, propagate_constants, fold, dead_code);
}

TEST(RingBuffer, TheRemainderContinuesWhereTheLoopEnded) {
  const auto f = kernel(ring_buffer(8, 3));  // two trips of three, and two
  for (auto* pass : {promote_variables, unroll, promote_variables, propagate_constants, fold, dead_code})
    pass(*f);
  std::vector<std::optional<int64_t>> stages;
  ir::walk(f->body, [&](ir::Op& op) {
    if (op.code == ir::Opcode::kPrintf) stages.push_back(ir::constant_int(op.operands[0]));
  });
  const std::vector<std::optional<int64_t>> expected = {0, 1, 2, 0, 1};
  EXPECT_EQ(stages, expected);
}

TEST(PropagateConstants, AThreadGroupIsSkippedByTheOthers) {
  expect_rewrite(
      "%i0: int32 = const {int = 0}\n%i1: int32 = const {int = 1}\n%v: var<int32> = var %i0\n"
      "thread_group {begin = 0, threads = 32} {\n assign %v, %i1\n}\n%x: int32 = read %v\nprintf %x {format "
      "= \"\"}",
      "%i0: int32 = const {int = 0}\n%i1: int32 = const {int = 1}\n%v: var<int32> = var %i0\n"
      "thread_group {begin = 0, threads = 32} {\n assign %v, %i1\n}\n%x: int32 = read %v\nprintf %x {format "
      "= \"\"}",
      propagate_constants);
}

}  // namespace
}  // namespace imbrex::passes
