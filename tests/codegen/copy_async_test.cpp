// SPDX-License-Identifier: Apache-2.0
// copy_async: every element of the tile, zeros outside the tensor, the widest copies alignment allows.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Copies the [rows, columns] tile at (i, j) of an [m, n] matrix to shared memory and from there to y.
std::string copy_kernel(DataType type, int rows, int columns, const std::string& n, const std::string& stride,
                        int warps = 4, bool constant_offsets = false) {
  return fill(
      R"(kernel copy(%m: int32, %width: int32, %i: int32, %k: int32, %x: ptr<{t}>, %y: ptr<{t}>) target sm_80 warps {w} from "copy.cpp":1 {
  %c0: int32 = const {int = 0}
  %c1: int32 = const {int = 1}
  %c8: int32 = const {int = 8}
  %rows: int32 = const {int = {rows}}
  %columns: int32 = const {int = {columns}}
  %n0: int32 = const {int = {n}}
  %stride: int32 = const {int = {stride}}
  launch_grid %c1
  %j: int32 = mul %k, %c8
  %gx: global<{t}, [?, ?]> = global_view %x, %m, {nv}, %stride, %c1 {rank = 2}
  %gy: global<{t}, [{rows}, {columns}]> = global_view %y, %rows, %columns, %columns, %c1 {rank = 2}
  %s: shared<{t}, [{rows}, {columns}]> = shared_alloc {dtype = {t}, shape = [{rows}, {columns}]}
  copy_async %gx, %s, {offsets} {dims = [0, 1]} @20
  copy_async_wait_all
  sync
  %r: register<{t}, [{rows}, {columns}]> = load_shared %s
  store_global %gy, %r, %c0, %c0 {dims = [0, 1]}
})",
      {{"t", std::string(type.name())},
       {"w", std::to_string(warps)},
       {"rows", std::to_string(rows)},
       {"columns", std::to_string(columns)},
       {"nv", n == "?" ? "%width" : "%n0"},
       {"n", n == "?" ? "1" : n},
       {"stride", stride},
       {"offsets", constant_offsets ? "%c0, %c0" : "%i, %j"}});
}

void check_copy(DataType type, int rows, int columns, int m, int n, int stride, bool constant_n, int i, int k,
                int warps = 4) {
  SCOPED_TRACE(std::string(type.name()) + " " + std::to_string(rows) + "x" + std::to_string(columns) +
               " at " + std::to_string(i) + ", " + std::to_string(8 * k) + " of " + std::to_string(m) + "x" +
               std::to_string(n) + " pitch " + std::to_string(stride));
  std::mt19937 random(9);
  Buffer x(type, m * stride), y(type, rows * columns);
  fill_random(x, random);
  y.fill(1);
  run(compile(copy_kernel(type, rows, columns, constant_n ? std::to_string(n) : "?", std::to_string(stride),
                          warps)),
      {m, n, i, k, &x, &y});
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      const int row = i + r, column = 8 * k + c;
      const bool inside = row >= 0 && row < m && column >= 0 && column < n;
      ASSERT_EQ(y.get(r * columns + c), inside ? x.get(row * stride + column) : 0) << r << ", " << c;
    }
}

TEST(CopyAsync, TilesInsideAndAcrossEdges) {
  for (DataType t : {float16, bfloat16, float32, int8, float64})
    for (bool constant : {false, true}) {
      check_copy(t, 64, 64, 100, 128, 128, constant, 16, 2);   // inside
      check_copy(t, 64, 64, 100, 128, 128, constant, 70, 10);  // over both edges
      check_copy(t, 64, 64, 100, 128, 128, constant, 200, 0);  // outside
    }
}

TEST(CopyAsync, EdgesInsideAVector) {
  for (int n : {121, 122, 124, 127}) {
    check_copy(float16, 32, 64, 40, n, 128, true, 0, 8);
    check_copy(float16, 32, 64, 40, n, 128, false, 0, 8);
    check_copy(int8, 32, 64, 40, n, 128, false, 0, 8);
  }
  check_copy(float32, 32, 64, 40, 1 << 30, 128, false, 0, 0);  // 4 GiB to the end of the row
}

TEST(CopyAsync, TilesOfOtherShapes) {
  check_copy(float16, 96, 32, 100, 64, 64, true, 0, 1);
  check_copy(float16, 24, 96, 100, 200, 208, true, 3, 1);
  check_copy(float16, 8, 16, 100, 64, 64, true, 0, 1, 8);  // fewer vectors than threads
  check_copy(float32, 224, 16, 300, 64, 64, false, 5, 1);
}

TEST(CopyAsync, WidthFollowsAlignment) {
  EXPECT_THAT(compile(copy_kernel(float16, 64, 64, "128", "128")).ptx,
              HasSubstr("cp.async.cg.shared.global"));
  const std::string eight = compile(copy_kernel(float16, 64, 64, "124", "124")).ptx;
  EXPECT_THAT(eight, AllOf(HasSubstr("], 8"), Not(HasSubstr("cp.async.cg"))));
  const CompiledKernel four = compile(copy_kernel(float16, 64, 64, "126", "126"));
  EXPECT_THAT(four.ptx, HasSubstr("], 4"));
  EXPECT_EQ(four.arguments[4].alignment, 4);
  check_copy(float16, 64, 64, 70, 124, 124, true, 0, 4);
  check_copy(float16, 64, 64, 70, 126, 126, true, 0, 4);
}

TEST(CopyAsync, OddRowsOf16BitElementsAreRefused) {
  const std::string message = compile_error(copy_kernel(float16, 64, 64, "127", "127"));
  EXPECT_THAT(message, AllOf(HasSubstr("copy.cpp:20"), HasSubstr("cp.async copies 4, 8 or 16 aligned bytes"),
                             HasSubstr("multiples of 2 elements (best 8)"), HasSubstr("load_global")));
}

TEST(CopyAsync, TestsOnlyEdgesThatCanBeCrossed) {
  // Columns 0 ... 63 of 128 are inside; rows may not be, and their number is not known.
  const std::string ptx = compile(copy_kernel(float16, 64, 64, "128", "128", 4, true)).ptx;
  size_t tests = 0;
  for (size_t at = ptx.find("setp"); at != std::string::npos; at = ptx.find("setp", at + 1)) ++tests;
  EXPECT_EQ(tests, 4u) << ptx;  // a thread copies four rows
}

TEST(CopyAsync, Assembles) {
  expect_assembles(compile(copy_kernel(float16, 64, 64, "?", "128")));
  expect_assembles(compile(copy_kernel(float16, 64, 64, "126", "126")));
}

}  // namespace
}  // namespace imbrex::codegen::testing
