// SPDX-License-Identifier: Apache-2.0
#include "ir/ranges.h"

#include <gtest/gtest.h>

namespace imbrex::ir {
namespace {

/// The range of %x in a kernel body.
Range range_of(const std::string& body) {
  const auto f = parse(
      "kernel f(%n: int32, %u: uint32) target sm_90a warps 4 cluster [2, 1, 1] {\n"
      "%i0: int32 = const {int = 0}\n%i16: int32 = const {int = 16}\n%i100: int32 = const {int = 100}\n" +
      body + "\n}\n");
  verify(*f);
  Ranges ranges(*f);
  Range out;
  walk(f->body, [&](Op& op) {
    for (Value* result : op.results)
      if (result->name == "x") out = ranges.of(result);
  });
  return out;
}

void expect_range(const std::string& body, int64_t lo, int64_t hi, int64_t multiple) {
  const Range range = range_of(body);
  EXPECT_EQ(range.lo, lo) << body;
  EXPECT_EQ(range.hi, hi) << body;
  EXPECT_EQ(range.multiple, multiple) << body;
}

constexpr int64_t kInt32Min = -(int64_t{1} << 31), kInt32Max = (int64_t{1} << 31) - 1;

TEST(Ranges, ComeFromTypesNumbersAndTheLaunch) {
  expect_range("%x: int32 = neg %n", kInt32Min, kInt32Max, 1);
  expect_range("%x: int32 = add %i16, %i100", 116, 116, 4);
  expect_range("%x: int32 = block_idx {axis = 1}", 0, 65534, 1);
  expect_range("%x: int32 = cluster_rank", 0, 1, 1);
}

TEST(Ranges, WrappingKeepsOnlyPowersOfTwo) {
  expect_range("%x: int32 = mul %n, %i16", kInt32Min, kInt32Max, 16);
  expect_range("%x: int32 = mul %n, %i100", kInt32Min, kInt32Max, 4);  // 100 n may wrap to no multiple of 25
  expect_range("%b: int32 = block_idx {axis = 1}\n%x: int32 = mul %b, %i100", 0, 6553400, 100);
}

TEST(Ranges, LoopsRunBetweenTheirEnds) {
  expect_range("for %k: int32 in %i0, %i100, %i16 {\n%x: int32 = add %k, %i16\n}", 16, 112, 16);
  expect_range("for %k: int32 in %i0, %n, %i16 {\n%x: int32 = add %k, %i0\n}", 0, kInt32Max - 1, 16);
}

TEST(Ranges, VariablesAreWhatTheyAreSetTo) {
  expect_range(
      "%v: var<int32> = var %i0\nloop {\n%x: int32 = read %v\n%y: int32 = add %x, %i16\nassign %v, %y\n}",
      kInt32Min, kInt32Max, 16);
}

TEST(Ranges, AssumptionsAtTheTopLevelHold) {
  expect_range(
      "%r: int32 = rem %n, %i16\n%a: bool = eq %r, %i0\nassume %a\n%b: bool = ge %n, %i0\nassume %b\n"
      "%x: int32 = add %n, %i0",
      0, kInt32Max, 16);
}

TEST(Ranges, Remainders) {
  expect_range("%x: int32 = rem %n, %i16", -15, 15, 1);
  expect_range("%x: uint32 = and %u, %u", 0, (int64_t{1} << 32) - 1, 1);
}

}  // namespace
}  // namespace imbrex::ir
