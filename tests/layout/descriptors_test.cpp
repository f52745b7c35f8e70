// SPDX-License-Identifier: Apache-2.0
// Matrix descriptors and TMA boxes, judged by the hardware's own address formulas evaluated here in full,
// physical byte by physical byte.
#include "layout/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "layout/memory.h"
#include "layout_testing.h"

namespace imbrex::layout {
namespace {

constexpr Swizzle::Mode kModes[] = {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B};

// The element address of the descriptor table, before swizzling (es: element bytes).
int64_t descriptor_offset(const MatrixOperand& d, int64_t es, int64_t mn, int64_t k) {
  int64_t lbo = d.leading_bytes, sbo = d.stride_bytes, w = d.swizzle.span_bytes();
  if (d.swizzle.mode == Swizzle::k128BAtom32B)
    return mn * es / 128 * lbo + mn * es % 128 + k % 4 * 128 + k / 4 * sbo;
  if (d.major == Major::kK && d.swizzle) return mn / 8 * sbo + mn % 8 * w + k * es;
  if (d.major == Major::kK) return mn / 8 * sbo + mn % 8 * 16 + k * es / 16 * lbo + k * es % 16;
  if (d.swizzle) return mn * es / w * lbo + mn * es % w + k % 8 * w + k / 8 * sbo;
  return mn * es / 16 * sbo + mn * es % 16 + k % 8 * 16 + k / 8 * lbo;
}

// Every element of the operand, read through the descriptors of its blocks and steps, is where the layout has
// it. `base` is where the view starts in bytes (linear).
void expect_reads(const Layout& operand, const MatrixOperand& d, int64_t mn_step, int64_t k_step,
                  int64_t base = 0) {
  int64_t es = operand.element_bits() / 8;
  EXPECT_EQ(d.swizzle, operand.swizzle());
  EXPECT_LT(d.leading_bytes, 1 << 18);
  EXPECT_LT(d.stride_bytes, 1 << 18);
  EXPECT_EQ((d.leading_bytes | d.stride_bytes) % 16, 0);
  ASSERT_EQ(static_cast<int64_t>(d.mn_offsets.size()), operand.shape()[0] / mn_step);
  ASSERT_EQ(static_cast<int64_t>(d.k_offsets.size()), operand.shape()[1] / k_step);
  Coords offset;
  offset[Axis::kAddress] = base / es;
  for_each_index(operand.shape(), [&](const Index& i) {
    int64_t start = base + d.mn_offsets[static_cast<size_t>(i[0] / mn_step)] +
                    d.k_offsets[static_cast<size_t>(i[1] / k_step)];
    ASSERT_EQ(start % 16, 0);
    int64_t read = d.swizzle.apply(start + descriptor_offset(d, es, i[0] % mn_step, i[1] % k_step));
    ASSERT_EQ(read, operand.map(i, offset)[Axis::kAddress] * es)
        << operand.to_string() << " at " << i[0] << ", " << i[1];
  });
}

TEST(MatrixOperand, KMajorTiles) {
  for (Swizzle::Mode mode : kModes)
    for (int bits : {8, 16, 32})
      for (int64_t rows : {64, 96, 192, 224, 256}) {
        int64_t k_step = 32 * 8 / bits,
                width = std::max<int64_t>(2 * Swizzle{mode}.span_bytes() * 8 / bits, k_step);
        Layout tile = operand_tile({rows, width}, bits, {mode});
        int64_t mn_step = rows % 64 == 0 ? 64 : rows;
        Described<MatrixOperand> d = describe_matrix_operand(tile, mn_step, k_step);
        ASSERT_TRUE(d) << d.error;
        EXPECT_EQ(d->major, Major::kK);
        expect_reads(tile, *d, mn_step, k_step);
      }
}

TEST(MatrixOperand, MnMajorTiles) {
  for (Swizzle::Mode mode : kModes)
    for (int64_t mn : {64, 128, 192, 256}) {
      Layout tile = operand_tile({mn, 64}, 16, {mode}, -2);
      for (int64_t mn_step : {int64_t{64}, mn}) {
        Described<MatrixOperand> d = describe_matrix_operand(tile, Major::kMN, mn_step, 16);
        ASSERT_TRUE(d) << d.error;
        expect_reads(tile, *d, mn_step, 16);
      }
    }
  Layout wide_atoms = operand_tile({64, 32}, 32, {Swizzle::k128BAtom32B}, -2);
  Described<MatrixOperand> d = describe_matrix_operand(wide_atoms, Major::kMN, 64, 8);
  ASSERT_TRUE(d) << d.error;
  expect_reads(wide_atoms, *d, 64, 8);
}

TEST(MatrixOperand, WorkedExamples) {
  // A: K-major bf16, 64 rows of 64, and the next box and the next 64 rows.
  Described<MatrixOperand> a =
      describe_matrix_operand(operand_tile({128, 128}, 16, {Swizzle::k128B}), 64, 16);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->stride_bytes, 1024);
  EXPECT_THAT(a->mn_offsets, testing::ElementsAre(0, 8192));
  EXPECT_THAT(a->k_offsets, testing::ElementsAre(0, 32, 64, 96, 16384, 16416, 16448, 16480));
  // C: MN-major, 128 by 64 in boxes of 64 by 64.
  Described<MatrixOperand> c =
      describe_matrix_operand(operand_tile({128, 64}, 16, {Swizzle::k128B}, -2), Major::kMN, 128, 16);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->stride_bytes, 1024);
  EXPECT_EQ(c->leading_bytes, 8192);
  EXPECT_THAT(c->k_offsets, testing::ElementsAre(0, 2048, 4096, 6144));
  // D: core matrices.
  Described<MatrixOperand> d = describe_matrix_operand(operand_tile({64, 32}, 16, {}), Major::kK, 64, 16);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->stride_bytes, 128);
  EXPECT_EQ(d->leading_bytes, 1024);
  EXPECT_THAT(d->k_offsets, testing::ElementsAre(0, 2048));
}

TEST(MatrixOperand, ViewsOfStages) {
  // A ring of stages holding B as [n, k]; the instruction wants it through a transposed, sliced,
  // stage-indexed view.
  Layout ring = operand_tile({4, 192, 128}, 16, {Swizzle::k128B});
  for (int64_t stage = 0; stage < 4; ++stage) {
    Slice one = ring.at(stage);
    Slice part = one.layout.slice(Index{96, 64}, Shape{96, 64});
    Layout operand = part.layout.transpose().transpose();
    Described<MatrixOperand> d = describe_matrix_operand(operand, 96, 16);
    ASSERT_TRUE(d) << d.error;
    expect_reads(operand, *d, 96, 16, (one.offset + part.offset)[Axis::kAddress] * 2);
  }
  // Transposing a K-major tile makes it MN-major.
  Described<MatrixOperand> transposed = describe_matrix_operand(ring.at(0).layout.transpose(), 128, 16);
  ASSERT_TRUE(transposed) << transposed.error;
  EXPECT_EQ(transposed->major, Major::kMN);
  expect_reads(ring.at(0).layout.transpose(), *transposed, 128, 16);
}

TEST(MatrixOperand, EveryAcceptedLayoutIsReadRight) {
  // Random address layouts: whatever is accepted must be read right.
  int accepted = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    Swizzle swizzle{kModes[pick(random, 0, 3)]};
    // Strides near those that descriptors have, so that some fit.
    int64_t mn = 16 << pick(random, 0, 2), k = 16 << pick(random, 0, 1);
    auto digits = [&](int64_t extent) {
      Modes modes;
      while (extent > 1) {
        int64_t take = std::min<int64_t>(extent, 8);
        modes.insert(modes.begin(), {take, int64_t{1} << pick(random, 0, 11), Axis::kAddress});
        if (pick(random, 0, 2) == 0) modes.front().stride = pick(random, 0, 1) ? 1 : 8;
        extent /= take;
      }
      return modes;
    };
    Layout layout({mn, k}, {digits(mn), digits(k)}, {}, 16, swizzle);
    for (Major major : {Major::kK, Major::kMN}) {
      Described<MatrixOperand> d = describe_matrix_operand(layout, major, mn, 16);
      if (!d) continue;
      ++accepted;
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      expect_reads(layout, *d, mn, 16);
    }
  }
  EXPECT_GT(accepted, 5);
}

TEST(MatrixOperand, RefusalsNameTheElement) {
  EXPECT_EQ(describe_matrix_operand(row_major({64, 64}, 16), Major::kK, 64, 16).error,
            "as K-major operand with swizzle none, element (1, 0) lies at byte 128, but a descriptor reads "
            "it at byte 16");
  EXPECT_EQ(describe_matrix_operand(operand_tile({64, 64}, 16, {Swizzle::k128B}), Major::kMN, 64, 16).error,
            "as MN-major operand with swizzle 128B, element (1, 0) lies at byte 128, but a descriptor reads "
            "it at byte 2");
  EXPECT_EQ(describe_matrix_operand(operand_tile({60, 64}, 16, {Swizzle::k128B}), Major::kK, 64, 16).error,
            "60x64 does not divide into instructions of 64x16");
  EXPECT_EQ(describe_matrix_operand(row_major({4, 64, 64}, 16), 64, 16).error,
            "shape 4x64x64 is not a matrix");
  EXPECT_EQ(describe_matrix_operand(spatial({64, 16}), 64, 16).error,
            "it is not a dense layout of shared memory");
  EXPECT_EQ(describe_matrix_operand(accumulator(AccumulatorLayout::kD, 16), 128, 16).error,
            "it moves along the lane axis, not in shared memory");
  Layout uneven({8, 16}, {{{8, 32, Axis::kAddress}}, {{2, 9, Axis::kAddress}, {8, 1, Axis::kAddress}}}, {},
                16);
  EXPECT_EQ(describe_matrix_operand(uneven, Major::kK, 8, 16).error,
            "as K-major operand its groups are 144 bits apart, which no descriptor encodes");
  EXPECT_EQ(
      describe_matrix_operand(row_major({64, 64}, 16).with_swizzle({Swizzle::k128BAtom64B}), 64, 16).error,
      "matrix descriptors have no swizzle 128B/64B");
}

// Writes the tile as the TMA formula says: element numbers of the global tile by physical byte address.
std::map<int64_t, Index> written_by_tma(const Layout& tile, const TmaBoxes& boxes, int64_t base) {
  int64_t es = tile.element_bits() / 8;
  std::map<int64_t, Index> memory;
  bool narrow = boxes.swizzle && boxes.box[0] * es < boxes.swizzle.span_bytes();
  for (const TmaBox& box : boxes.boxes)
    for_each_index(boxes.box, [&](const Index& i) {
      int64_t dense = 0;  // rows of the box, counted through
      for (size_t d = boxes.box.size(); d-- > 1;) dense = dense * boxes.box[d] + i[d];
      int64_t row = narrow ? boxes.swizzle.span_bytes() : boxes.box[0] * es;
      int64_t address = boxes.swizzle.apply(base + box.offset_bytes + dense * row + i[0] * es);
      Index index = box.start;
      for (size_t d = 0; d < i.size(); ++d) index[static_cast<size_t>(boxes.dims[d])] += i[d];
      EXPECT_TRUE(memory.emplace(address, index).second) << "two elements at one address";
    });
  return memory;
}

void expect_writes(const Layout& tile, const TmaBoxes& boxes, int64_t base = 0) {
  int64_t es = tile.element_bits() / 8;
  std::map<int64_t, Index> memory = written_by_tma(tile, boxes, base);
  ASSERT_EQ(static_cast<int64_t>(memory.size()), tile.size());
  Coords offset;
  offset[Axis::kAddress] = base / es;
  for (const auto& [address, index] : memory)
    ASSERT_EQ(tile.map(index, offset)[Axis::kAddress] * es, address);
  for (int64_t extent : boxes.box) EXPECT_LE(extent, 256);
  EXPECT_EQ(boxes.box[0] * es % 16, 0);
  if (boxes.swizzle) {
    EXPECT_LE(boxes.box[0] * es, boxes.swizzle.span_bytes());
  }
}

TEST(TmaBoxes, OperandTiles) {
  for (Swizzle::Mode mode : kModes)
    for (int bits : {8, 16, 32})
      for (int64_t rows : {8, 64, 96, 192, 256, 512}) {
        int64_t width = 2 * Swizzle{mode}.span_bytes() * 8 / bits;
        for (int contiguous : {-1, -2}) {
          Layout tile = contiguous == -1 ? operand_tile({rows, width}, bits, {mode}, -1)
                                         : operand_tile({width, rows}, bits, {mode}, -2);
          Described<TmaBoxes> boxes = describe_tma_boxes(tile, contiguous);
          ASSERT_TRUE(boxes) << boxes.error << " " << tile.to_string();
          EXPECT_EQ(static_cast<int64_t>(boxes->boxes.size()), 2 * (rows == 512 ? 2 : 1));
          expect_writes(tile, *boxes);
        }
      }
}

TEST(TmaBoxes, StagesSlicesAndRanks) {
  Layout ring = operand_tile({4, 96, 128}, 16, {Swizzle::k128B});
  Slice stage = ring.at(3);
  Described<TmaBoxes> boxes = describe_tma_boxes(stage.layout);
  ASSERT_TRUE(boxes);
  EXPECT_EQ(boxes->box, (Shape{64, 96}));
  expect_writes(stage.layout, *boxes, stage.offset[Axis::kAddress] * 2);

  Slice part = stage.layout.slice(Index{32, 64}, Shape{64, 64});
  Described<TmaBoxes> one = describe_tma_boxes(part.layout);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->boxes.size(), 1u);
  expect_writes(part.layout, *one, (stage.offset + part.offset)[Axis::kAddress] * 2);

  // The whole ring in one three-dimensional copy per 64 columns is impossible (stages are 128 wide): several
  // boxes.
  Described<TmaBoxes> all = describe_tma_boxes(ring);
  ASSERT_TRUE(all);
  expect_writes(ring, *all);

  // Plain tiles: three dimensions in one box; map dimensions follow shared memory, not the tensor.
  Layout cube = row_major({4, 8, 16}, 32);
  Described<TmaBoxes> dense = describe_tma_boxes(cube);
  ASSERT_TRUE(dense);
  EXPECT_EQ(dense->boxes.size(), 1u);
  EXPECT_EQ(dense->box, (Shape{16, 8, 4}));
  expect_writes(cube, *dense);
  Layout turned = cube.permute(std::vector<int>{1, 0, 2});
  Described<TmaBoxes> reordered = describe_tma_boxes(turned);
  ASSERT_TRUE(reordered);
  EXPECT_EQ(reordered->dims, (std::vector<int>{2, 0, 1}));
  expect_writes(turned, *reordered);
}

TEST(TmaBoxes, NarrowSwizzledRowsArePadded) {
  // 32 bytes of every 128-byte row.
  Layout narrow({8, 16}, {{{8, 64, Axis::kAddress}}, {{16, 1, Axis::kAddress}}}, {}, 16, {Swizzle::k128B});
  Described<TmaBoxes> boxes = describe_tma_boxes(narrow);
  ASSERT_TRUE(boxes) << boxes.error;
  EXPECT_EQ(boxes->boxes.size(), 1u);
  expect_writes(narrow, *boxes);
}

TEST(TmaBoxes, RefusalsSayWhy) {
  EXPECT_EQ(describe_tma_boxes(row_major({8, 4}, 16)).error,
            "runs of 4 elements of 16 bits along dimension 1 are not a multiple of 16 bytes");
  EXPECT_EQ(describe_tma_boxes(row_major({8, 64}, 16).transpose()).error,
            "dimension 1, contiguous in global memory, has stride 64 in shared memory");
  EXPECT_EQ(describe_tma_boxes(padded_row_major({8, 64}, 16, 8)).error,
            "the box at [1, 0] would start at byte 144, not a multiple of 128");
  EXPECT_EQ(describe_tma_boxes(row_major({1, 1, 1, 1, 8, 64}, 16)).error,
            "6 dimensions, a tensor map has at most 5");
  EXPECT_EQ(describe_tma_boxes(spatial({8, 64})).error, "it is not a dense layout of shared memory");
}

}  // namespace
}  // namespace imbrex::layout
