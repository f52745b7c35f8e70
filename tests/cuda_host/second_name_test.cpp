// SPDX-License-Identifier: Apache-2.0
// The jump from a second name to the first is assembly: that every argument comes through, in registers and on the stack,
// and the word with it.
#include "cuda_host/abi/second_name.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

namespace {

struct Dim3 {
  unsigned x, y, z;
};
struct Pitched {  // too large for registers
  int64_t address, pitch, width, height;
};

bool g_by_second_name;

}  // namespace

#define SECOND_NAME_TESTED extern "C" __attribute__((visibility("default"), noinline, used))

SECOND_NAME_TESTED int64_t imbrex_test_digits(int64_t a, int b, const void* c, int64_t d, int64_t e,
                                              int64_t f, int64_t g, int64_t h, int64_t i, int64_t j) {
  g_by_second_name = imbrex::cuda::take_second_name();
  int64_t digits = 0;
  for (const int64_t digit : {a, int64_t{b}, reinterpret_cast<int64_t>(c), d, e, f, g, h, i, j})
    digits = 10 * digits + digit;
  return digits;
}
SECOND_NAME_TESTED int64_t imbrex_test_launch(const void* kernel, Dim3 grid, Dim3 block, void** arguments,
                                              int64_t shared, void* stream) {
  g_by_second_name = imbrex::cuda::take_second_name();
  int64_t digits = reinterpret_cast<int64_t>(kernel);
  for (const int64_t digit :
       {int64_t{grid.x}, int64_t{grid.y}, int64_t{grid.z}, int64_t{block.x}, int64_t{block.y},
        int64_t{block.z}, reinterpret_cast<int64_t>(arguments), shared, reinterpret_cast<int64_t>(stream)})
    digits = 10 * digits + digit;
  return digits;
}
SECOND_NAME_TESTED Pitched imbrex_test_turned(Pitched from, int64_t add) {
  g_by_second_name = imbrex::cuda::take_second_name();
  return {from.height + add, from.width, from.pitch, from.address};
}

IMBREX_DEFINE_LEAVE_WORD
IMBREX_SECOND_NAME(imbrex_test_digits, _ptsz)
IMBREX_SECOND_NAME(imbrex_test_launch, _ptsz)
IMBREX_SECOND_NAME(imbrex_test_turned, _ptds)

extern "C" {
decltype(imbrex_test_digits) imbrex_test_digits_ptsz;
decltype(imbrex_test_launch) imbrex_test_launch_ptsz;
decltype(imbrex_test_turned) imbrex_test_turned_ptds;
}

namespace {

const void* pointer(int64_t digit) { return reinterpret_cast<const void*>(digit); }

TEST(SecondName, HandsOnEveryArgument) {
  EXPECT_EQ(imbrex_test_digits_ptsz(1, 2, pointer(3), 4, 5, 6, 7, 8, 9, 0), 1234567890);
  EXPECT_TRUE(g_by_second_name);
  EXPECT_EQ(
      imbrex_test_launch_ptsz(pointer(1), {2, 3, 4}, {5, 6, 7}, reinterpret_cast<void**>(8), 9, nullptr),
      1234567890);
  EXPECT_TRUE(g_by_second_name);
  const Pitched turned = imbrex_test_turned_ptds({1, 2, 3, 4}, 5);
  EXPECT_EQ(turned.address, 9);
  EXPECT_EQ(turned.pitch, 3);
  EXPECT_EQ(turned.width, 2);
  EXPECT_EQ(turned.height, 1);
  EXPECT_TRUE(g_by_second_name);
}

TEST(SecondName, LeavesWordForOneCallOfItsOwnThread) {
  EXPECT_EQ(imbrex_test_digits_ptsz(1, 2, pointer(3), 4, 5, 6, 7, 8, 9, 0), 1234567890);
  EXPECT_EQ(imbrex_test_digits(0, 0, nullptr, 0, 0, 0, 0, 0, 0, 7), 7);
  EXPECT_FALSE(g_by_second_name) << "the first name, after the second";
  imbrex::cuda::t_by_second_name = true;
  std::thread([] { EXPECT_EQ(imbrex_test_digits(0, 0, nullptr, 0, 0, 0, 0, 0, 0, 7), 7); }).join();
  EXPECT_FALSE(g_by_second_name) << "the word of another thread";
  EXPECT_TRUE(imbrex::cuda::take_second_name());
}

}  // namespace
