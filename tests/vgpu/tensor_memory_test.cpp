// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/tensor_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace imbrex::vgpu {
namespace {

TEST(TensorMemory, CellsAreUndefinedUntilWritten) {
  TensorMemory memory;
  EXPECT_FALSE(memory.is_defined(5, 10));
  memory.define(5, 10, 3);
  EXPECT_TRUE(memory.is_defined(5, 10, 3));
  EXPECT_FALSE(memory.is_defined(5, 10, 4));
  EXPECT_FALSE(memory.is_defined(6, 10));
  memory.undefine_columns(0, 12);
  EXPECT_FALSE(memory.is_defined(5, 11));
  EXPECT_TRUE(memory.is_defined(5, 12));
}

TEST(TensorAllocator, HandsOutAlignedFreeColumns) {
  TensorAllocator allocator;
  EXPECT_EQ(allocator.free_places(512), std::vector<uint32_t>{0});
  EXPECT_EQ(allocator.free_places(128), (std::vector<uint32_t>{0, 128, 256, 384}));
  allocator.take(7, 128, 128);
  EXPECT_EQ(allocator.free_places(128), (std::vector<uint32_t>{0, 256, 384}));
  EXPECT_EQ(allocator.free_places(256), std::vector<uint32_t>{256});
  EXPECT_TRUE(allocator.free_places(512).empty());
  EXPECT_NE(allocator.find(7, 200, 56), nullptr);
  EXPECT_EQ(allocator.find(7, 200, 57), nullptr);
  EXPECT_EQ(allocator.find(8, 200, 1), nullptr);
  EXPECT_TRUE(allocator.is_taken(255));
  EXPECT_FALSE(allocator.is_taken(256));
}

TEST(TensorAllocator, ReleaseMustMatchTheAllocation) {
  TensorAllocator allocator;
  allocator.take(7, 0, 64);
  allocator.take(7, 64, 32);
  EXPECT_FALSE(allocator.release(7, 0, 32));
  EXPECT_FALSE(allocator.release(8, 0, 64));
  EXPECT_TRUE(allocator.release(7, 0, 64));
  ASSERT_EQ(allocator.blocks_of(7).size(), 1u);
  EXPECT_EQ(allocator.blocks_of(7)[0].column, 64u);
}

TEST(TensorPermit, SizesAndOrder) {
  TensorPermit permit;
  EXPECT_EQ(permit.refuse(32), "");
  EXPECT_EQ(permit.refuse(512), "");
  for (int64_t columns : {0, 16, 48, 1024, -32}) EXPECT_NE(permit.refuse(columns), "") << columns;
  permit.last_columns = 64;
  EXPECT_EQ(permit.refuse(64), "");
  EXPECT_NE(permit.refuse(128), "");
  permit.relinquished = true;
  EXPECT_NE(permit.refuse(32), "");
}

TEST(TensorShape, EveryCellOfAShapeIsHeldOnce) {
  for (TensorShape shape : {TensorShape::k32x32b, TensorShape::k16x64b, TensorShape::k16x128b,
                            TensorShape::k16x256b, TensorShape::k16x32bx2}) {
    const uint32_t repeat = 4, half_split = 16;
    std::map<uint32_t, int> cells;
    for (uint32_t t = 0; t < 32; ++t)
      for (uint32_t r = 0; r < registers_of(shape, repeat); ++r) {
        const TensorAddress cell = cell_of(shape, t, r, half_split);
        EXPECT_LT(cell.lane, shape == TensorShape::k32x32b ? 32u : 16u);
        EXPECT_LT(cell.column, columns_of(shape, repeat, half_split));
        ++cells[cell.bits()];
      }
    EXPECT_EQ(cells.size(), 32u * registers_of(shape, repeat));
    EXPECT_TRUE(std::all_of(cells.begin(), cells.end(), [](const auto& c) { return c.second == 1; }));
  }
}

TEST(TensorShape, The256BitShapeIsTheAccumulatorFragmentOfMma) {
  for (uint32_t t = 0; t < 32; ++t)
    for (uint32_t r = 0; r < 16; ++r) {
      const TensorAddress cell = cell_of(TensorShape::k16x256b, t, r, 0);
      EXPECT_EQ(cell.lane, (t >> 2) + 8 * (r >> 1 & 1));
      EXPECT_EQ(cell.column, 2 * (t & 3) + (r & 1) + 8 * (r >> 2));
    }
}

TEST(TensorShape, WarpsReachTheirOwnQuarter) {
  EXPECT_EQ(refuse_address(TensorShape::k32x32b, {0, 0}, 0), "");
  EXPECT_EQ(refuse_address(TensorShape::k32x32b, {32, 0}, 5), "");
  EXPECT_EQ(refuse_address(TensorShape::k16x256b, {112, 0}, 3), "");
  EXPECT_NE(refuse_address(TensorShape::k32x32b, {112, 0}, 3), "");
  EXPECT_EQ(refuse_address(TensorShape::k32x32b, {0, 0}, 1), "");  // its own quarter
  EXPECT_EQ(refuse_address(TensorShape::k32x32b, {64, 0}, 1),
            "lane 64 of the address: warp 1 reaches lanes 32 to 63 and must start at 32");
  EXPECT_NE(refuse_address(TensorShape::k16x64b, {40, 0}, 1), "");
}

}  // namespace
}  // namespace imbrex::vgpu
