// SPDX-License-Identifier: Apache-2.0
// Register families against the closed formulas of the hardware documents, element by element.
#include "layout/registers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "imbrex/core/error.h"
#include "layout_testing.h"

namespace imbrex::layout {
namespace {

using Formula = std::function<Index(int64_t thread, int64_t i)>;

// Thread t's element i is formula(t, i), for all threads and elements, and nothing else is held.
void expect_holds(const Layout& layout, int64_t threads, int64_t elements, const Formula& formula) {
  EXPECT_EQ(layout.threads(), threads) << layout.to_string();
  EXPECT_EQ(layout.registers(), elements) << layout.to_string();
  EXPECT_TRUE(layout.is_bijective()) << layout.to_string();
  for (int64_t t = 0; t < threads; ++t)
    for (int64_t i = 0; i < elements; ++i)
      ASSERT_EQ(layout.element(t, i), formula(t, i))
          << layout.to_string() << " thread " << t << " element " << i;
}

// Row and column of an A fragment, k of a B fragment, by element i, g = lane >> 2 and q = lane & 3.
struct MmaRow {
  int64_t m, k;
  int bits;
  std::function<int64_t(int64_t g, int64_t q, int64_t i)> row, column, b_k;
};

TEST(MmaFragments, FollowTheTable) {
  auto rows_fixed = [](int64_t g, int64_t, int64_t) { return g; };
  const std::vector<MmaRow> table = {
      {16, 16, 16, [](auto g, auto, auto i) { return g + 8 * ((i >> 1) & 1); },
       [](auto, auto q, auto i) { return 2 * q + (i & 1) + 8 * (i >> 2); },
       [](auto, auto q, auto i) { return 2 * q + (i & 1) + 8 * (i >> 1); }},
      {16, 8, 16, [](auto g, auto, auto i) { return g + 8 * (i >> 1); },
       [](auto, auto q, auto i) { return 2 * q + (i & 1); },
       [](auto, auto q, auto i) { return 2 * q + (i & 1); }},
      {16, 8, 32, [](auto g, auto, auto i) { return g + 8 * (i & 1); },
       [](auto, auto q, auto i) { return q + 4 * (i >> 1); }, [](auto, auto q, auto i) { return q + 4 * i; }},
      {16, 4, 32, [](auto g, auto, auto i) { return g + 8 * i; }, [](auto, auto q, auto) { return q; },
       [](auto, auto q, auto) { return q; }},
      {16, 32, 8, [](auto g, auto, auto i) { return g + 8 * ((i >> 2) & 1); },
       [](auto, auto q, auto i) { return 4 * q + (i & 3) + 16 * (i >> 3); },
       [](auto, auto q, auto i) { return 4 * q + (i & 3) + 16 * (i >> 2); }},
      {16, 16, 8, [](auto g, auto, auto i) { return g + 8 * (i >> 2); },
       [](auto, auto q, auto i) { return 4 * q + (i & 3); },
       [](auto, auto q, auto i) { return 4 * q + (i & 3); }},
      {16, 64, 4, [](auto g, auto, auto i) { return g + 8 * ((i >> 3) & 1); },
       [](auto, auto q, auto i) { return 8 * q + (i & 7) + 32 * (i >> 4); },
       [](auto, auto q, auto i) { return 8 * q + (i & 7) + 32 * (i >> 3); }},
      {16, 32, 4, [](auto g, auto, auto i) { return g + 8 * (i >> 3); },
       [](auto, auto q, auto i) { return 8 * q + (i & 7); },
       [](auto, auto q, auto i) { return 8 * q + (i & 7); }},
      {16, 256, 1, [](auto g, auto, auto i) { return g + 8 * ((i >> 5) & 1); },
       [](auto, auto q, auto i) { return 32 * q + (i & 31) + 128 * (i >> 6); },
       [](auto, auto q, auto i) { return 32 * q + (i & 31) + 128 * (i >> 5); }},
      {16, 128, 1, [](auto g, auto, auto i) { return g + 8 * (i >> 5); },
       [](auto, auto q, auto i) { return 32 * q + (i & 31); },
       [](auto, auto q, auto i) { return 32 * q + i; }},
      {8, 4, 64, rows_fixed, [](auto, auto q, auto) { return q; }, [](auto, auto q, auto) { return q; }},
      {16, 4, 64, [](auto g, auto, auto i) { return g + 8 * i; }, [](auto, auto q, auto) { return q; },
       [](auto, auto q, auto) { return q; }},
      {16, 8, 64, [](auto g, auto, auto i) { return g + 8 * (i & 1); },
       [](auto, auto q, auto i) { return q + 4 * (i >> 1); }, [](auto, auto q, auto i) { return q + 4 * i; }},
      {16, 16, 64, [](auto g, auto, auto i) { return g + 8 * (i & 1); },
       [](auto, auto q, auto i) { return q + 4 * (i >> 1); }, [](auto, auto q, auto i) { return q + 4 * i; }},
      {8, 16, 8, rows_fixed, [](auto, auto q, auto i) { return 4 * q + i; },
       [](auto, auto q, auto i) { return 4 * q + i; }},
  };
  for (const MmaRow& entry : table) {
    SCOPED_TRACE(testing::Message() << "m" << entry.m << "n8k" << entry.k << " of " << entry.bits << " bits");
    MmaFragments fragments = mma_fragments(entry.m, 8, entry.k, entry.bits);
    expect_holds(fragments.a, 32, entry.m * entry.k / 32, [&](int64_t l, int64_t i) {
      return Index{entry.row(l >> 2, l & 3, i), entry.column(l >> 2, l & 3, i)};
    });
    expect_holds(fragments.b, 32, 8 * entry.k / 32, [&](int64_t l, int64_t i) {
      return Index{entry.b_k(l >> 2, l & 3, i), l >> 2};
    });
    expect_holds(fragments.c, 32, entry.m * 8 / 32, [&](int64_t l, int64_t i) {
      return Index{(l >> 2) + 8 * (i >> 1), 2 * (l & 3) + (i & 1)};
    });
  }
}

TEST(MmaFragments, UnknownShapesAreNamed) {
  try {
    mma_fragments(16, 16, 16, 16);
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_EQ(error.diagnostics()[0].message, "layout: mma.sync has no shape m16n16k16 for 16-bit elements");
    EXPECT_THAT(error.diagnostics()[0].facts, testing::ElementsAre("shapes of 16 bits: m16n8k16, m16n8k8"));
  }
}

TEST(MmaTiles, GiveEachWarpItsBox) {
  // 2 x 3 warps on 64 x 48: boxes of 32 x 16, that is 2 x 2 fragments, k of 3 steps.
  const MmaFragments tile = mma_tile(64, 48, 48, 16, 2, 3), one = mma_fragments(16, 8, 16, 16);
  EXPECT_EQ(tile.a.threads(), 192);
  EXPECT_EQ(tile.b.threads(), 192);
  EXPECT_EQ(tile.c.threads(), 192);
  for (int64_t warp = 0; warp < 6; ++warp)
    for (int64_t lane = 0; lane < 32; ++lane) {
      const int64_t m = warp / 3 * 32, n = warp % 3 * 16, t = 32 * warp + lane;
      for (int64_t i = 0; i < 2; ++i)
        for (int64_t j = 0; j < 2; ++j)
          for (int64_t r = 0; r < 4; ++r) {
            const Index c = *one.c.element(lane, r);
            ASSERT_EQ(tile.c.element(t, (2 * i + j) * 4 + r), (Index{m + 16 * i + c[0], n + 8 * j + c[1]}));
          }
      for (int64_t s = 0; s < 3; ++s)
        for (int64_t i = 0; i < 2; ++i) {
          for (int64_t r = 0; r < 8; ++r) {
            const Index a = *one.a.element(lane, r);
            ASSERT_EQ(tile.a.element(t, (3 * i + s) * 8 + r), (Index{m + 16 * i + a[0], 16 * s + a[1]}));
          }
          for (int64_t r = 0; r < 4; ++r) {
            const Index b = *one.b.element(lane, r);
            ASSERT_EQ(tile.b.element(t, (2 * s + i) * 4 + r), (Index{16 * s + b[0], n + 8 * i + b[1]}));
          }
        }
    }
  EXPECT_THROW(mma_tile(64, 48, 48, 16, 3, 2), CompileError);
}

TEST(Ldmatrix, PlainAndTransposed) {
  for (int matrices : {1, 2, 4}) {
    expect_holds(ldmatrix(matrices, false), 32, 2 * matrices, [](int64_t l, int64_t i) {
      return Index{8 * (i / 2) + (l >> 2), 2 * (l & 3) + i % 2};
    });
    expect_holds(ldmatrix(matrices, true), 32, 2 * matrices, [](int64_t l, int64_t i) {
      return Index{8 * (i / 2) + 2 * (l & 3) + i % 2, l >> 2};
    });
  }
  EXPECT_THROW(ldmatrix(3, false), CompileError);
}

TEST(Ldmatrix, FourMatricesMakeAnAFragment) {
  // Matrices in the order (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
  Layout four =
      ldmatrix(4, false).reshape({2, 2, 8, 8}).permute(std::vector<int>{1, 2, 0, 3}).reshape({16, 16});
  EXPECT_EQ(four, mma_fragments(16, 8, 16, 16).a);
}

TEST(Wgmma, AccumulatorsOfEveryN) {
  for (int64_t n = 8; n <= 256; n += 8)
    expect_holds(wgmma_accumulator(n), 128, n / 2, [](int64_t t, int64_t i) {
      int64_t w = t / 32, l = t % 32;
      return Index{16 * w + (l >> 2) + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (l & 3) + (i & 1)};
    });
  for (int64_t n : {0, 4, 12, 264}) EXPECT_THROW(wgmma_accumulator(n), CompileError);
}

TEST(Wgmma, OperandA) {
  auto a = [](int bits, int64_t elements, auto row, auto column) {
    expect_holds(wgmma_a(bits), 128, elements, [&](int64_t t, int64_t i) {
      return Index{16 * (t / 32) + (t % 32 >> 2) + 8 * row(i), column(t % 4, i)};
    });
  };
  a(
      16, 8, [](int64_t i) { return (i >> 1) & 1; },
      [](int64_t q, int64_t i) { return 2 * q + (i & 1) + 8 * (i >> 2); });
  a(
      32, 4, [](int64_t i) { return i & 1; }, [](int64_t q, int64_t i) { return q + 4 * (i >> 1); });
  a(
      8, 16, [](int64_t i) { return (i >> 2) & 1; },
      [](int64_t q, int64_t i) { return 4 * q + (i & 3) + 16 * (i >> 3); });
  a(
      1, 128, [](int64_t i) { return (i >> 5) & 1; },
      [](int64_t q, int64_t i) { return 32 * q + (i & 31) + 128 * (i >> 6); });
  EXPECT_THROW(wgmma_a(64), CompileError);
}

// Lane and column of register r in thread t, as the table of tcgen05.ld gives them.
struct LdPlace {
  int64_t lane, column;
};
LdPlace ld_place(TensorMemoryShape shape, int64_t t, int64_t r, int64_t split) {
  switch (shape) {
    case TensorMemoryShape::k32x32b:
      return {t, r};
    case TensorMemoryShape::k16x64b:
      return {8 * (t & 1) + (t >> 2), ((t >> 1) & 1) + 2 * r};
    case TensorMemoryShape::k16x128b:
      return {(t >> 2) + 8 * (r & 1), (t & 3) + 4 * (r >> 1)};
    case TensorMemoryShape::k16x256b:
      return {(t >> 2) + 8 * ((r >> 1) & 1), 2 * (t & 3) + (r & 1) + 8 * (r >> 2)};
    case TensorMemoryShape::k16x32bx2:
      return {t % 16, t < 16 ? r : r + split};
  }
  return {};
}

constexpr TensorMemoryShape kLdShapes[] = {TensorMemoryShape::k32x32b, TensorMemoryShape::k16x64b,
                                           TensorMemoryShape::k16x128b, TensorMemoryShape::k16x256b,
                                           TensorMemoryShape::k16x32bx2};

TEST(TensorMemoryRegisters, FollowTheTableOfLoads) {
  for (TensorMemoryShape shape : kLdShapes)
    for (int64_t warps : {1, 2, 4})
      for (int64_t n : {16, 96, 192, 224, 256})
        for (int p : {1, 2}) {
          SCOPED_TRACE(testing::Message()
                       << tensor_memory_shape_name(shape) << " n " << n << " packed " << p);
          bool whole = shape == TensorMemoryShape::k32x32b;
          int64_t per_half = (whole ? n : n / 2) / p;  // registers of one access over all columns
          Formula element = [&](int64_t t, int64_t i) {
            int64_t r = i / p, half = r / per_half;
            LdPlace place = ld_place(shape, t % 32, r % per_half, n / p / 2);
            return Index{t / 32 * 32 + half * 16 + place.lane, place.column * p + i % p};
          };
          expect_holds(tensor_memory_registers(shape, warps, n, p), 32 * warps, n, element);
          if (whole) continue;
          expect_holds(tensor_memory_half_registers(shape, warps, n, p), 32 * warps, n / 2,
                       [&](int64_t t, int64_t i) {
                         LdPlace place = ld_place(shape, t % 32, i / p, n / p / 2);
                         return Index{t / 32 * 16 + place.lane, place.column * p + i % p};
                       });
        }
}

TEST(TensorMemoryRegisters, HalfTilesAreWgmmaFragments) {
  EXPECT_EQ(tensor_memory_half_registers(TensorMemoryShape::k16x256b, 4, 96), wgmma_accumulator(96));
}

TEST(TensorMemoryRegisters, BadRequestsAreNamed) {
  EXPECT_THROW(tensor_memory_registers(TensorMemoryShape::k16x256b, 4, 12), CompileError);
  EXPECT_THROW(tensor_memory_registers(TensorMemoryShape::k32x32b, 5, 16), CompileError);
  EXPECT_THROW(tensor_memory_registers(TensorMemoryShape::k32x32b, 4, 16, 3), CompileError);
  EXPECT_THROW(tensor_memory_half_registers(TensorMemoryShape::k32x32b, 4, 16), CompileError);
}

TEST(Coalesced, CoversTheTensorWithEqualWork) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    constexpr int64_t kExtents[] = {1, 2, 3, 7, 8, 16, 24, 32, 64, 96, 100};
    Shape shape;
    for (int64_t d = pick(random, 0, 3); d > 0; --d) shape.push_back(kExtents[pick(random, 0, 10)]);
    if (count(shape) > 20000) continue;
    int64_t threads = 32 * pick(random, 1, 8);
    int bits = 8 << pick(random, 0, 3);
    Layout layout = coalesced(shape, threads, bits);
    EXPECT_EQ(layout.shape(), shape);
    EXPECT_TRUE(layout.is_injective());
    EXPECT_LE(layout.threads(), threads);
    EXPECT_GT(layout.threads() * 2, threads) << "copies fill the threads: " << layout.to_string();
    // A vector is whole in one thread, and its registers are consecutive.
    int64_t vector = 1;
    while (!shape.empty() && shape.back() % (2 * vector) == 0 && 2 * vector * bits <= 128) vector *= 2;
    for_each_index(shape, [&](const Index& index) {
      if (shape.empty()) return;
      Index start = index;
      start.back() -= start.back() % vector;
      Coords expected = layout.map(start);
      EXPECT_EQ(expected[Axis::kRegister] % vector, 0);
      expected[Axis::kRegister] += index.back() % vector;
      ASSERT_EQ(layout.map(index), expected) << layout.to_string();
    });
  }
}

TEST(Coalesced, Examples) {
  EXPECT_EQ(coalesced({128, 64}, 128, 16).to_string(), "[128: 8r8 16t8, 64: 8t1 8r1]");
  EXPECT_EQ(coalesced({64, 96}, 128, 16).to_string(), "[64: 2r24 32t4, 96: 3r8 4t1 8r1]") << "nothing padded";
  EXPECT_EQ(coalesced({100}, 128, 32, 4).to_string(), "[100: 100t1]")
      << "28 threads idle rather than 25 turns each";
  EXPECT_EQ(coalesced({64}, 128, 32).to_string(), "[64: 16t1 4r1; rep 8t16]");
  EXPECT_EQ(coalesced({}, 32, 32).to_string(), "[; rep 32t1]");
  EXPECT_EQ(coalesced({16, 8}, 128, 32, 4).to_string(), "[16: 16t8, 8: 8t1]");
}

// What the instructions do, by their definition: register j of lane l is row l / 4, 32 bits l % 4 of matrix j
// (transposed: rows 2 (l % 4) and the next, element l / 4), and lane 8j + r addresses row r of matrix j.
void expect_move(const Layout& registers, const MatrixMove& move, int bits) {
  const int64_t per_register = 32 / bits, per_row = 128 / bits;
  for (int64_t warp = 0; warp < registers.threads() / 32; ++warp)
    for (int64_t reg = 0; reg < move.rows.registers(); reg += per_row)
      for (int64_t j = 0; j < move.matrices; ++j) {
        const auto corner = move.rows.element(32 * warp + 8 * j, reg);
        ASSERT_TRUE(corner);
        const int64_t first = registers.map(*corner)[Axis::kRegister];
        EXPECT_EQ(first % per_register, 0);
        for (int64_t l = 0; l < 32; ++l)
          for (int64_t i = 0; i < per_register; ++i) {
            const int64_t row = move.transposed ? 2 * (l % 4) + i : l / 4;
            const int64_t at = move.transposed ? l / 4 : l % 4 * per_register + i;
            EXPECT_EQ(registers.element(32 * warp + l, first + i),
                      move.rows.element(32 * warp + 8 * j + row, reg + at))
                << registers.to_string() << " as " << move.rows.to_string() << ", lane " << l;
          }
      }
}

// One way, or with 16 bits also the transposed one; `matrices` at a time.
void expect_moves(const Layout& registers, int bits, int matrices) {
  const std::vector<MatrixMove> moves = matrix_moves(registers, bits);
  ASSERT_EQ(moves.size(), bits == 16 ? 2u : 1u) << registers.to_string();
  for (size_t i = 0; i < moves.size(); ++i) {
    EXPECT_EQ(moves[i].transposed, i == 1);
    EXPECT_EQ(moves[i].matrices, matrices);
    expect_move(registers, moves[i], bits);
  }
}

TEST(MatrixMoves, OfEveryFragment) {
  for (int bits : {8, 16, 32}) {
    const MmaFragments f = mma_fragments(16, 8, 256 / bits, bits);
    expect_moves(f.a, bits, 4);
    expect_moves(local({3, 1}) * f.a, bits, 4);
    expect_moves((spatial({2, 1}) * local({2, 2}) * f.a).replicate_to(128), bits, 4);
    expect_moves(f.b, bits, 2);
    expect_moves(spatial({1, 4}) * local({1, 3}) * f.b, bits, 2);
    expect_moves(local({1, 6}) * f.b, bits, 4);
  }
  expect_moves(mma_fragments(16, 8, 16, 16).c.transpose(), 16, 2);
  expect_moves(ldmatrix(1, true), 16, 1);
  for (int64_t n : {8, 24, 256}) expect_moves(wgmma_accumulator(n), 16, n % 16 == 8 ? 2 : 4);
  expect_moves(wgmma_a(16), 16, 4);
  expect_moves(wgmma_a(8), 8, 4);
}

TEST(MatrixMoves, NotOfOtherLayouts) {
  EXPECT_TRUE(matrix_moves(coalesced({64, 64}, 128, 16), 16).empty());
  EXPECT_TRUE(matrix_moves(mma_fragments(16, 8, 16, 16).c, 32).empty()) << "two neighbours in one thread";
  EXPECT_TRUE(matrix_moves(mma_fragments(8, 8, 4, 64).a, 64).empty());
  EXPECT_TRUE(matrix_moves(local({8, 8}), 16).empty());
  EXPECT_TRUE(matrix_moves(spatial({8, 4}), 16).empty()) << "registers half full";
  EXPECT_TRUE(matrix_moves(mma_fragments(16, 8, 16, 16).a.reduce(0, true), 16).empty()) << "copies";
}

}  // namespace
}  // namespace imbrex::layout
