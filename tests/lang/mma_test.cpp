// SPDX-License-Identifier: Apache-2.0
// mma: its IR, and what cannot be multiplied.
#include <gmock/gmock.h>

#include "snippet.h"

namespace imbrex {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::traced;

TEST(Mma, IsOneOp) {
  const std::string text = traced([](Int32&, Int32&, testing::Pointer&) {
    auto a = load_shared(shared_tensor(float16, {64, 32}));
    auto b = load_shared(shared_tensor(float16, {32, 48}));
    RegisterTensor acc = zeros(float32, {64, 48});
    acc = mma(a, b, acc);
    acc = mma(a, b, acc, {.warps_m = 2, .warps_n = 2});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("register<float32, [64, 48]> = mma %a, %b, %4\nassign %acc, %5"),
                          HasSubstr("= mma %a, %b, %6 {warps_m = 2, warps_n = 2}\nassign %acc, %7")));
}

struct Product {
  DataType a, b, c;
  Shape a_shape, b_shape, c_shape;
  MmaOptions options = {};
};
std::string complaint(const Product& p) {
  return error_of([&](Int32&, Int32&, testing::Pointer&) {
    auto a = zeros(p.a, p.a_shape);
    mma(a, zeros(p.b, p.b_shape), zeros(p.c, p.c_shape), p.options);
  });
}

TEST(MmaErrors, Shapes) {
  EXPECT_THAT(
      complaint({float16, float16, float32, {64, 32}, {64, 32}, {64, 64}}),
      AllOf(HasSubstr("mma_test.cpp:"), HasSubstr("mma: inner sizes differ, a has k = 32 and b has k = 64"),
            HasSubstr("help: transpose b: it is [k, n]"),
            HasSubstr("a    register<float16, [64, 32]>  made at")));
  EXPECT_THAT(complaint({float16, float16, float32, {64, 32}, {32, 64}, {64, 32}}),
              HasSubstr("mma: c is [64, 32], a x b gives [64, 64]"));
  EXPECT_THAT(complaint({float16, float16, float32, {16}, {16, 16}, {16, 16}}),
              HasSubstr("mma: works on matrices, not on [16], [16, 16] and [16, 16]"));
  EXPECT_THAT(
      complaint({float16, float16, float32, {64, 24}, {24, 60}, {64, 60}}),
      HasSubstr("mma: m, n and k are 64, 60 and 24; for float16 they must be multiples of 16, 8 and 16"));
  EXPECT_THAT(complaint({int8, int8, int32, {64, 16}, {16, 64}, {64, 64}}),
              HasSubstr("for int8 they must be multiples of 16, 8 and 32"));
}

TEST(MmaErrors, Types) {
  EXPECT_THAT(
      complaint({float64, float64, float64, {16, 16}, {16, 16}, {16, 16}}),
      AllOf(HasSubstr("mma: does not multiply float64"),
            HasSubstr("help: dot() multiplies any type; for the tensor cores cast to float16, bfloat16")));
  EXPECT_THAT(complaint({float16, bfloat16, float32, {16, 16}, {16, 16}, {16, 16}}),
              HasSubstr("mma: a holds float16, b holds bfloat16"));
  EXPECT_THAT(complaint({float16, float16, bfloat16, {16, 16}, {16, 16}, {16, 16}}),
              HasSubstr("mma: float16 products are summed in float32 or float16, c holds bfloat16"));
  EXPECT_THAT(complaint({int8, uint8, float32, {16, 32}, {32, 16}, {16, 16}}),
              HasSubstr("mma: int8 products are summed in int32, c holds float32"));
}

TEST(MmaErrors, Warps) {
  EXPECT_THAT(complaint({float16, float16, float32, {64, 16}, {16, 64}, {64, 64}, {.warps_m = 2}}),
              HasSubstr("mma: warps_m is 2 and warps_n is 0; give both, or neither"));
  EXPECT_THAT(
      complaint({float16, float16, float32, {64, 16}, {16, 64}, {64, 64}, {.warps_m = 8, .warps_n = 1}}),
      HasSubstr("mma: 8 x 1 warps cannot share a [64, 64] product: each takes a box of whole 16 x 8 blocks"));
}

}  // namespace
}  // namespace imbrex
