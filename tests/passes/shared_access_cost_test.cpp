// SPDX-License-Identifier: Apache-2.0
// Wavefronts of shared-memory accesses, counted by hand.
#include <gtest/gtest.h>

#include "layout/memory.h"
#include "layout/registers.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {
namespace {

using layout::Layout;
using layout::local;
using layout::operand_tile;
using layout::row_major;
using layout::spatial;
using layout::Swizzle;

TEST(SharedAccessCost, CoalescedVectorsHaveNoConflicts) {
  // 128 x 64 float16, eight 16-byte accesses a thread, four phases of eight lanes each.
  EXPECT_EQ(shared_access_cost(layout::coalesced({128, 64}, 128, 16), row_major({128, 64}, 16)), 8 * 4);
}

TEST(SharedAccessCost, ARowForEachThread) {
  const Layout rows = spatial({128, 1}) * local({1, 64});
  // All eight lanes of a phase meet in the same four banks; the swizzle spreads them.
  EXPECT_EQ(shared_access_cost(rows, row_major({128, 64}, 16)), 8 * 4 * 8);
  EXPECT_EQ(shared_access_cost(rows, operand_tile({128, 64}, 16, {Swizzle::k128B})), 8 * 4);
  EXPECT_EQ(shared_access_cost(rows, layout::padded_row_major({128, 64}, 16, 8)), 8 * 4);
}

TEST(SharedAccessCost, ColumnsOfWords) {
  const Layout columns = spatial({32, 1}) * local({1, 32});
  EXPECT_EQ(shared_access_cost(columns, row_major({32, 32}, 32).transpose()), 32)
      << "scalars, all banks different";
  EXPECT_EQ(shared_access_cost(columns, layout::padded_row_major({32, 32}, 32, 1)), 32)
      << "the classic padding";
  const Layout strided = columns.permute(std::vector<int>{1, 0});
  EXPECT_EQ(shared_access_cost(strided, row_major({32, 32}, 32)), 32);
}

TEST(SharedAccessCost, OneWordForAllLanesIsABroadcast) {
  EXPECT_EQ(shared_access_cost(local({1}).replicate_to(32), row_major({1}, 32)), 1);
}

TEST(SharedAccessCost, MatricesTakeOneWavefrontEachWithoutConflicts) {
  // 128 x 64 float16 as A fragments of four warps: eight ldmatrix.x4 a warp.
  const Layout a = spatial({4, 1}) * local({2, 4}) * layout::mma_fragments(16, 8, 16, 16).a;
  EXPECT_EQ(matrix_access_cost(a, operand_tile({128, 64}, 16, {Swizzle::k128B})), 8 * 4);
  EXPECT_EQ(matrix_access_cost(a, row_major({128, 64}, 16)), 8 * 4 * 8);
  EXPECT_EQ(matrix_access_cost(a, layout::padded_row_major({128, 64}, 16, 8)), 8 * 4);
  // Rows that no instruction can take whole: 32 bits at a time.
  const Layout odd = layout::padded_row_major({128, 64}, 16, 2);
  EXPECT_EQ(matrix_access_cost(a, odd), shared_access_cost(a, odd));
}

}  // namespace
}  // namespace imbrex::passes
