// SPDX-License-Identifier: Apache-2.0
// load_global and store_global: widths, masks, and every element where it belongs.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Copies tiles of [rows, columns] of an [m, n] matrix whose rows are `stride` apart.
std::string copy_kernel(DataType type, int rows, int columns, const std::string& n, const std::string& stride,
                        const std::string& more = "") {
  return fill(
      R"(kernel copy(%m: int32, %width: int32, %pitch: int32, %a: ptr<{t}>, %b: ptr<{t}>) target sm_80 warps 4 from "copy.cpp":1 {
  %one: int32 = const {int = 1}
  %n0: int32 = const {int = {n}}
  %s0: int32 = const {int = {stride}}
  %rows: int32 = const {int = {rows}}
  %columns: int32 = const {int = {columns}}
  {more}
  %g0: int32 = ceil_div %m, %rows
  %g1: int32 = ceil_div {nv}, %columns
  launch_grid %g0, %g1
  %x: int32 = block_idx {axis = 0}
  %y: int32 = block_idx {axis = 1}
  %i: int32 = mul %x, %rows
  %j: int32 = mul %y, %columns
  %ga: global<{t}, [?, ?]> = global_view %a, %m, {nv}, {sv}, %one {rank = 2}
  %gb: global<{t}, [?, ?]> = global_view %b, %m, {nv}, {sv}, %one {rank = 2}
  %r: register<{t}, [{rows}, {columns}]> = load_global %ga, %i, %j {shape = [{rows}, {columns}], dims = [0, 1]}
  store_global %gb, %r, %i, %j {dims = [0, 1]}
})",
      {{"t", std::string(type.name())},
       {"n", n == "?" ? "1" : n},
       {"nv", n == "?" ? "%width" : "%n0"},
       {"stride", stride == "?" ? "1" : stride},
       {"sv", stride == "?" ? "%pitch" : "%s0"},
       {"rows", std::to_string(rows)},
       {"columns", std::to_string(columns)},
       {"more", more}});
}

void check_copy(DataType type, int rows, int columns, int m, int n, int stride, bool constant_n,
                bool constant_stride, const std::string& more = "") {
  SCOPED_TRACE(std::string(type.name()) + " tile " + std::to_string(rows) + "x" + std::to_string(columns) +
               " of " + std::to_string(m) + "x" + std::to_string(n) + " pitch " + std::to_string(stride));
  std::mt19937 random(5);
  Buffer a(type, m * stride), b(type, m * stride);
  fill_random(a, random);
  b.fill(1);
  const CompiledKernel kernel = compile(copy_kernel(type, rows, columns, constant_n ? std::to_string(n) : "?",
                                                    constant_stride ? std::to_string(stride) : "?", more));
  run(kernel, {m, n, stride, &a, &b});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < stride; ++j)
      ASSERT_EQ(b.get(i * stride + j), j < n ? a.get(i * stride + j) : rounded(type, 1)) << i << ", " << j;
}

TEST(GlobalMemory, CopiesRaggedMatricesOfEveryType) {
  for (DataType t :
       {boolean, int8, uint8, int16, float16, bfloat16, int32, float32, int64, float64, float8_e4m3})
    for (bool constant : {false, true}) {
      check_copy(t, 16, 64, 40, 100, 100, constant, constant);
      check_copy(t, 8, 32, 9, 33, 48, constant, true);
    }
}

TEST(GlobalMemory, CopiesShapesThatAreNoPowersOfTwo) {
  for (DataType t : {float16, float32, int8}) {
    check_copy(t, 12, 96, 30, 200, 208, true, true);
    check_copy(t, 3, 24, 10, 50, 50, false, false);
    check_copy(t, 1, 7, 3, 20, 20, false, true);
  }
}

TEST(GlobalMemory, VectorsAreAsWideAsAlignmentAllows) {
  const CompiledKernel aligned = compile(copy_kernel(float16, 16, 64, "128", "128"));
  EXPECT_THAT(aligned.ptx, HasSubstr("ld.global.v4.b32"));
  EXPECT_EQ(aligned.arguments[3].alignment, 16);
  const CompiledKernel pairs = compile(copy_kernel(float16, 16, 64, "126", "126"));
  EXPECT_THAT(pairs.ptx, Not(HasSubstr("ld.global.v2")));
  EXPECT_THAT(pairs.ptx, HasSubstr("ld.global.b32"));
  EXPECT_EQ(pairs.arguments[3].alignment, 4);
  const CompiledKernel odd = compile(copy_kernel(float16, 16, 64, "127", "127"));
  EXPECT_THAT(odd.ptx, HasSubstr("ld.global.b16"));
  EXPECT_THAT(odd.ptx, Not(HasSubstr("ld.global.b32")));
}

TEST(GlobalMemory, AssumedDivisibilityWidensVectors) {
  const std::string assume = R"(%c8: int32 = const {int = 8}
  %zero: int32 = const {int = 0}
  %rem: int32 = rem %pitch, %c8
  %is: bool = eq %rem, %zero
  assume %is)";
  EXPECT_THAT(compile(copy_kernel(float16, 16, 64, "?", "?")).ptx, Not(HasSubstr("ld.global.v")));
  EXPECT_THAT(compile(copy_kernel(float16, 16, 64, "?", "?", assume)).ptx, HasSubstr("ld.global.v4.b32"));
  check_copy(float16, 16, 64, 20, 90, 96, false, false, assume);
}

TEST(GlobalMemory, TestsOnlyEdgesThatCanBeCrossed) {
  // 128 columns are whole tiles: only rows are tested, and a row's vectors share the test.
  const CompiledKernel whole = compile(copy_kernel(float32, 16, 64, "128", "128"));
  EXPECT_THAT(whole.ptx, Not(HasSubstr("$edge")));
  size_t tests = 0;
  for (size_t at = whole.ptx.find("setp"); at != std::string::npos; at = whole.ptx.find("setp", at + 1))
    ++tests;
  EXPECT_EQ(tests, 2u) << whole.ptx;  // two vectors a thread, in two rows; loads and stores share them
}

TEST(GlobalMemory, TransposedTilesAndNegativeOffsets) {
  // Element [i, j] of the tile is [j - 2, i - 3] of the matrix; what lies outside is 9.
  const std::string text =
      R"(kernel shifted(%m: int32, %n: int32, %a: ptr<float32>, %b: ptr<float32>) target sm_80 warps 2 from "shifted.cpp":1 {
  %one: int32 = const {int = 1}
  %minus2: int32 = const {int = -2}
  %minus3: int32 = const {int = -3}
  %c0: int32 = const {int = 0}
  %c16: int32 = const {int = 16}
  launch_grid %one
  %ga: global<float32, [?, ?]> = global_view %a, %m, %n, %n, %one {rank = 2}
  %gb: global<float32, [16, 16]> = global_view %b, %c16, %c16, %c16, %one {rank = 2}
  %r: register<float32, [16, 16]> = load_global %ga, %minus2, %minus3 {shape = [16, 16], dims = [1, 0], other = 9.0}
  store_global %gb, %r, %c0, %c0 {dims = [0, 1]}
})";
  const int m = 9, n = 11;
  std::mt19937 random(3);
  Buffer a(float32, m * n), b(float32, 256);
  fill_random(a, random);
  run(compile(text), {m, n, &a, &b});
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      const int row = j - 2, column = i - 3;
      const bool inside = row >= 0 && row < m && column >= 0 && column < n;
      ASSERT_EQ(b.get(i * 16 + j), inside ? a.get(row * n + column) : 9.0) << i << ", " << j;
    }
}

TEST(GlobalMemory, ViewsOfViews) {
  // b[i, j] = a[1, 4 + j, 2 + i] of a [3, m, n] tensor: index, slice and permute.
  const std::string text =
      R"(kernel views(%m: int32, %n: int32, %a: ptr<float16>, %b: ptr<float16>) target sm_80 warps 1 from "views.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %c2: int32 = const {int = 2}
  %c3: int32 = const {int = 3}
  %c4: int32 = const {int = 4}
  %c8: int32 = const {int = 8}
  launch_grid %c1
  %mn: int32 = mul %m, %n
  %ga: global<float16, [3, ?, ?]> = global_view %a, %c3, %m, %n, %mn, %n, %c1 {rank = 3}
  %g1: global<float16, [?, ?]> = index %ga, %c1
  %g2: global<float16, [8, 8]> = slice %g1, %c4, %c2 {shape = [8, 8]}
  %g3: global<float16, [8, 8]> = permute %g2 {dims = [1, 0]}
  %gb: global<float16, [8, 8]> = global_view %b, %c8, %c8, %c8, %c1 {rank = 2}
  %r: register<float16, [8, 8]> = load_global %g3, %c0, %c0 {shape = [8, 8], dims = [0, 1]}
  store_global %gb, %r, %c0, %c0 {dims = [0, 1]}
})";
  const int m = 13, n = 10;
  std::mt19937 random(3);
  Buffer a(float16, 3 * m * n), b(float16, 64);
  fill_random(a, random);
  run(compile(text), {m, n, &a, &b});
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j)
      ASSERT_EQ(b.get(i * 8 + j), a.get(m * n + (4 + j) * n + 2 + i)) << i << ", " << j;
}

TEST(GlobalMemory, RowsThatEndInsideAByteAreRefused) {
  EXPECT_THAT(compile_error(copy_kernel(float6_e2m3, 16, 64, "126", "126")), HasSubstr("whole bytes"));
}

}  // namespace
}  // namespace imbrex::codegen::testing
