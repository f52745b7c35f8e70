// SPDX-License-Identifier: Apache-2.0
// Shared and tensor-memory families, and swizzles, against the closed formulas of the hardware documents.
#include "layout/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "imbrex/core/error.h"
#include "layout_testing.h"

namespace imbrex::layout {
namespace {

int64_t bits_of(int64_t value, int high, int low) { return (value >> low) & ((1 << (high - low + 1)) - 1); }

TEST(Swizzle, FollowsTheTable) {
  for (int64_t address = 0; address < 4096; ++address) {
    EXPECT_EQ(Swizzle{}.apply(address), address);
    EXPECT_EQ(Swizzle{Swizzle::k32B}.apply(address), address ^ (bits_of(address, 7, 7) << 4));
    EXPECT_EQ(Swizzle{Swizzle::k64B}.apply(address), address ^ (bits_of(address, 8, 7) << 4));
    EXPECT_EQ(Swizzle{Swizzle::k128B}.apply(address), address ^ (bits_of(address, 9, 7) << 4));
    EXPECT_EQ(Swizzle{Swizzle::k128BAtom32B}.apply(address), address ^ (bits_of(address, 8, 7) << 5));
    EXPECT_EQ(Swizzle{Swizzle::k128BAtom32BFlip8B}.apply(address),
              address ^ (bits_of(address, 8, 7) << 5) ^ (bits_of(address, 7, 7) << 3));
    EXPECT_EQ(Swizzle{Swizzle::k128BAtom64B}.apply(address), address ^ (bits_of(address, 7, 7) << 6));
  }
}

TEST(Swizzle, KeepsAtomsRowsAndPeriods) {
  for (int mode = 0; mode < Swizzle::kCount; ++mode) {
    Swizzle swizzle{static_cast<Swizzle::Mode>(mode)};
    int64_t span = swizzle.span_bytes(), period = swizzle.period_bytes();
    EXPECT_EQ(Swizzle::from_name(swizzle.name()), swizzle);
    for (int64_t address = 0; address < 4096; ++address) {
      int64_t to = swizzle.apply(address);
      EXPECT_EQ(swizzle.apply(to), address) << "an involution";
      if (swizzle) {
        EXPECT_EQ(to / span, address / span);
      }
      if (address % swizzle.atom_bytes() != 0) {
        EXPECT_EQ(to, swizzle.apply(address - 1) + 1);
      }
      EXPECT_EQ(swizzle.apply(address + period), to + period);
    }
  }
  EXPECT_EQ(Swizzle::from_name("256B"), std::nullopt);
}

TEST(Swizzle, WidestForARow) {
  EXPECT_EQ(Swizzle::widest_for(128).mode, Swizzle::k128B);
  EXPECT_EQ(Swizzle::widest_for(192).mode, Swizzle::k64B);
  EXPECT_EQ(Swizzle::widest_for(96).mode, Swizzle::k32B);
  EXPECT_EQ(Swizzle::widest_for(48).mode, Swizzle::kNone);
}

TEST(Shared, RowMajorAndPadded) {
  Layout dense = row_major({3, 5, 7}, 16), padded = padded_row_major({3, 5, 7}, 16, 2);
  for_each_index({3, 5, 7}, [&](const Index& i) {
    EXPECT_EQ(dense.map(i)[Axis::kAddress], (i[0] * 5 + i[1]) * 7 + i[2]);
    EXPECT_EQ(padded.map(i)[Axis::kAddress], (i[0] * 5 + i[1]) * 9 + i[2]);
  });
  EXPECT_EQ(dense.bytes(), 3 * 5 * 7 * 2);
  EXPECT_EQ(padded.bytes(), (3 * 5 * 9 - 2) * 2);
  EXPECT_THROW(dense.with_element_bits(0).bytes(), CompileError) << "bytes of elements of unknown size";
  EXPECT_FALSE(padded.is_bijective());
  EXPECT_TRUE(padded.is_injective());
}

TEST(Shared, OperandTilesOfBothMajors) {
  for (Swizzle::Mode mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B})
    for (int bits : {8, 16, 32}) {
      Swizzle swizzle{mode};
      int64_t span = swizzle.span_bytes() * 8 / bits, rows = 24, stages = 3, es = bits / 8;
      int64_t width = 2 * span;
      Layout k_major = operand_tile({stages, rows, width}, bits, swizzle);
      Layout mn_major = operand_tile({stages, width, rows}, bits, swizzle, -2);
      EXPECT_EQ(k_major.transpose(), mn_major);
      EXPECT_EQ(k_major.bytes(), stages * rows * width * es);
      for_each_index({stages, rows, width}, [&](const Index& i) {
        int64_t linear = (i[0] * rows * width + i[2] / span * rows * span + i[1] * span + i[2] % span) * es;
        ASSERT_EQ(k_major.map(i)[Axis::kAddress] * es, swizzle.apply(linear));
        ASSERT_EQ(k_major.inverse(k_major.map(i)), i);
      });
      EXPECT_TRUE(k_major.is_bijective());
    }
}

TEST(Shared, NarrowTilesAreRefusedWithAHelp) {
  try {
    operand_tile({64, 48}, 16, {Swizzle::k128B});
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_EQ(
        error.diagnostics()[0].message,
        "layout: operand tile 64x48: 48 elements of 16 bits along dimension 1 do not divide into rows of 128 "
        "bytes");
    EXPECT_EQ(error.diagnostics()[0].help, "use a narrower swizzle or a larger tile");
  }
}

TEST(Shared, SwizzledBaseMovesThePattern) {
  Layout tile = operand_tile({64, 64}, 16, {Swizzle::k128B});
  Coords base;
  base[Axis::kAddress] = 64 * 3;  // three lines into the pattern
  EXPECT_EQ(tile.map({0, 0}, base)[Axis::kAddress], 64 * 3 + 3 * 8);
  EXPECT_EQ(tile.map({5, 0}, base)[Axis::kAddress], 64 * 8);
  // The worked example of the documents: m = 3, k = 17 lies at byte 0x192.
  EXPECT_EQ(tile.map({3, 17})[Axis::kAddress] * 2, 0x192);
}

TEST(Shared, FourBitElements) {
  Layout tile = operand_tile({8, 256}, 4, {Swizzle::k128B});
  for_each_index({8, 256}, [&](const Index& i) {
    int64_t nibble = tile.map(i)[Axis::kAddress];
    EXPECT_EQ(nibble / 2, (Swizzle{Swizzle::k128B}).apply(i[0] * 128 + i[1] / 2));
    EXPECT_EQ(nibble % 2, i[1] % 2);
  });
  EXPECT_EQ(tile.bytes(), 1024);
}

struct TensorMemoryPlace {
  int64_t cta, lane, column;
  friend bool operator==(const TensorMemoryPlace&, const TensorMemoryPlace&) = default;
};
TensorMemoryPlace place_of(const Layout& layout, const Coords& at) {
  return {at[Axis::kCta], at[Axis::kLane], at[Axis::kColumn] * layout.element_bits() / 32};
}

TEST(TensorMemory, AccumulatorsFollowTheTable) {
  struct Row {
    AccumulatorLayout kind;
    int64_t m, columns_per;
    std::function<TensorMemoryPlace(int64_t i, int64_t j, int64_t n)> place;
  };
  const Row rows[] = {
      {AccumulatorLayout::kD, 128, 1,
       [](auto i, auto j, auto) {
         return TensorMemoryPlace{0, i, j};
       }},
      {AccumulatorLayout::kF, 64, 1,
       [](auto i, auto j, auto) {
         return TensorMemoryPlace{0, 32 * (i / 16) + i % 16, j};
       }},
      {AccumulatorLayout::kA, 256, 1,
       [](auto i, auto j, auto) {
         return TensorMemoryPlace{i / 128, i % 128, j};
       }},
      {AccumulatorLayout::kB, 128, 2,
       [](auto i, auto j, auto n) {
         return TensorMemoryPlace{i / 64, i % 64 + 64 * (j / (n / 2)), j % (n / 2)};
       }},
      {AccumulatorLayout::kE, 64, 2,
       [](auto i, auto j, auto n) {
         return TensorMemoryPlace{0, i + 64 * (j / (n / 2)), j % (n / 2)};
       }},
      {AccumulatorLayout::kG, 32, 4,
       [](auto i, auto j, auto n) {
         return TensorMemoryPlace{0, i + 32 * (j / (n / 4)), j % (n / 4)};
       }},
  };
  for (const Row& row : rows)
    for (int64_t n : {16, 96, 192, 224, 256})
      for (int bits : {16, 32}) {
        Layout layout = accumulator(row.kind, n, bits);
        ASSERT_EQ(layout.shape(), (Shape{row.m, n}));
        EXPECT_TRUE(layout.is_injective());
        EXPECT_EQ(layout.columns(), n / row.columns_per);
        for_each_index({row.m, n}, [&](const Index& i) {
          ASSERT_EQ(place_of(layout, layout.map(i)), row.place(i[0], i[1], n)) << layout.to_string();
        });
      }
  EXPECT_THROW(accumulator(AccumulatorLayout::kG, 18), CompileError);
  EXPECT_THROW(accumulator(AccumulatorLayout::kD, 64, 8), CompileError);
}

TEST(TensorMemory, OperandAIsPacked) {
  for (int bits : {4, 8, 16, 32})
    for (const auto& choice : {std::pair<int64_t, bool>{64, false}, {128, false}, {128, true}, {256, true}}) {
      const int64_t m = choice.first;
      const bool pair = choice.second;
      Layout layout = tensor_memory_a(m, 96, bits, pair);
      EXPECT_EQ(layout.columns(), 96 * bits / 32);
      for_each_index({m, 96}, [&](const Index& at) {
        int64_t i = at[0], k = at[1], per = 32 / bits;
        std::vector<Coords> places = layout.places(at);
        std::set<int64_t> lanes, expected;
        for (const Coords& place : places) {
          EXPECT_EQ(place[Axis::kColumn] / per, k / per);
          EXPECT_EQ(place[Axis::kColumn] % per, k % per);
          lanes.insert(place[Axis::kLane]);
        }
        if (m == 64) expected = {32 * (i / 16) + i % 16};
        if (m == 128 && !pair) expected = {i};
        if (m == 128 && pair) expected = {i % 64, i % 64 + 64};
        if (m == 256) expected = {i % 128};
        ASSERT_EQ(lanes, expected);
        EXPECT_EQ(places[0][Axis::kCta], pair ? i / (m / 2) : 0);
      });
    }
  EXPECT_THROW(tensor_memory_a(128, 3, 8), CompileError);
  EXPECT_THROW(tensor_memory_a(256, 16, 16), CompileError);
}

TEST(TensorMemory, ScaleFactorsHaveFourCopies) {
  for (int64_t rows : {32, 96, 128, 192, 256})
    for (int64_t factors : {1, 2, 4, 8, 16}) {
      Layout layout = scale_factors(rows, factors);
      for_each_index({rows, factors}, [&](const Index& at) {
        std::vector<Coords> places = layout.places(at);
        ASSERT_EQ(places.size(), 4u);
        for (int64_t copy = 0; copy < 4; ++copy) {
          const Coords& place = places[static_cast<size_t>(copy)];
          EXPECT_EQ(place[Axis::kLane], at[0] % 32 + 32 * copy);
          EXPECT_EQ(place[Axis::kColumn] / 4, at[0] / 32 + at[1] / 4 * (rows / 32));
          EXPECT_EQ(place[Axis::kColumn] % 4, at[1] % 4);
        }
      });
    }
}

TEST(TensorMemory, ScaleFactorsOfAPairInTwoHalves) {
  for (int64_t n : {64, 128, 192, 256}) {
    Layout layout = scale_factors(n, 4, true);
    for_each_index({n, 4}, [&](const Index& at) {
      std::vector<Coords> places = layout.places(at);
      ASSERT_EQ(places.size(), 2u);
      for (int64_t copy = 0; copy < 2; ++copy) {
        const Coords& place = places[static_cast<size_t>(copy)];
        EXPECT_EQ(place[Axis::kLane], at[0] % 32 + 64 * (at[0] / (n / 2)) + 32 * copy);
        EXPECT_EQ(place[Axis::kColumn] / 4, at[0] / 32 % (n / 64));
        EXPECT_EQ(place[Axis::kColumn] % 4, at[1]);
      }
    });
  }
  EXPECT_THROW(scale_factors(96, 4, true), CompileError);
}

}  // namespace
}  // namespace imbrex::layout
