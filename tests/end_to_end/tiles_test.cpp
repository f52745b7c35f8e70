// SPDX-License-Identifier: Apache-2.0
// Tiles between global memory, registers and shared memory: edges, strides, views, broadcasting.
#include <array>

#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

using Extents = std::vector<int64_t>;

// ---- global memory, with tiles that do not divide it

struct Problem {
  Extents shape, tile;
  std::string text() const {
    std::string out;
    for (int64_t extent : shape) out += std::to_string(extent) + " ";
    out += "in tiles of";
    for (int64_t extent : tile) out += " " + std::to_string(extent);
    return out;
  }
};

TEST(Ragged, CopiesOfOneDimension) {
  const std::vector<Problem> problems = {{{1}, {128}},     {{7}, {4}},    {{1000}, {256}},
                                         {{4096}, {1024}}, {{515}, {96}}, {{333}, {1}}};
  for (const Problem& problem : problems) {
    SCOPED_TRACE(problem.text());
    const auto& [shape, tile] = problem;
    for (DataType type : {int8, float16, float32, int64}) {
      Machine machine;
      DeviceTensor x = machine.iota(type, shape), y = machine.output(type, shape);
      machine.run(
          [type = type, t = tile[0]](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(cdiv(n, t));
            Int32 at = t * block_idx.x;
            auto g_x = global_view(x_ptr, type, {n});
            auto g_y = global_view(y_ptr, type, {n});
            store_global(g_y, load_global(g_x, {at}, {t}), {at});
          },
          shape[0], x, y);
      const std::vector<double> in = x.to_host().to_doubles();
      expect_elements(y, [&](int64_t i) { return in[i]; });
    }
  }
}

TEST(Ragged, CopiesOfTwoDimensions) {
  const std::vector<Problem> problems = {{{1, 1}, {16, 16}},    {{37, 53}, {16, 16}},  {{64, 128}, {32, 64}},
                                         {{100, 72}, {24, 40}}, {{3, 1000}, {1, 512}}, {{129, 3}, {64, 1}},
                                         {{33, 65}, {5, 7}}};
  for (const Problem& problem : problems) {
    SCOPED_TRACE(problem.text());
    const auto& [shape, tile] = problem;
    const int64_t columns = shape[1];
    for (DataType type : {uint8, bfloat16, float32, float64}) {
      Machine machine;
      DeviceTensor x = machine.iota(type, shape), y = machine.output(type, shape),
                   z = machine.output(type, shape);
      // Columns of the launch, and columns of the kernel: other vectors, other tests.
      machine.run(
          [type = type, t = tile](Int32 m, Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(cdiv(m, t[0]), cdiv(n, t[1]));
            Int32 i = t[0] * block_idx.x, j = t[1] * block_idx.y;
            auto tile = load_global(global_view(x_ptr, type, {m, n}), {i, j}, t);
            store_global(global_view(y_ptr, type, {m, n}), tile, {i, j});
          },
          shape[0], columns, x, y);
      machine.run(
          [type = type, t = tile, columns](Int32 m, Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(cdiv(m, t[0]), cdiv(columns, t[1]));
            Int32 i = t[0] * block_idx.x, j = t[1] * block_idx.y;
            auto tile = load_global(global_view(x_ptr, type, {m, columns}), {i, j}, t);
            store_global(global_view(y_ptr, type, {m, columns}), tile, {i, j});
          },
          shape[0], x, z);
      for (const DeviceTensor& out : {y, z})
        expect_elements(out, [&](int64_t i, int64_t j) { return (i * columns + j) % 256; });
    }
  }
}

TEST(Ragged, CopiesOfThreeDimensions) {
  const std::vector<Problem> problems = {{{2, 3, 5}, {1, 2, 4}},
                                         {{9, 17, 33}, {2, 8, 16}},
                                         {{4, 16, 64}, {4, 16, 64}},
                                         {{5, 4, 30}, {3, 3, 10}}};
  for (const Problem& problem : problems) {
    SCOPED_TRACE(problem.text());
    const auto& [shape, tile] = problem;
    Machine machine;
    DeviceTensor x = machine.iota(int32, shape), y = machine.output(int32, shape);
    machine.run(
        [t = tile](Int32 a, Int32 b, Int32 c, Ptr<int32> x_ptr, Ptr<int32> y_ptr) {
          grid(cdiv(a, t[0]), cdiv(b, t[1]), cdiv(c, t[2]));
          Int32 i = t[0] * block_idx.x, j = t[1] * block_idx.y, k = t[2] * block_idx.z;
          auto tile = load_global(global_view(x_ptr, {a, b, c}), {i, j, k}, t);
          store_global(global_view(y_ptr, {a, b, c}), tile, {i, j, k});
        },
        shape[0], shape[1], shape[2], x, y);
    expect_elements(
        y, [&, s = shape](int64_t i, int64_t j, int64_t k) { return ((i * s[1] + j) * s[2] + k) % 256; });
  }
}

TEST(Edges, ElementsOutsideAreOther) {
  // A tile that begins before the tensor and ends behind it, in both dimensions.
  Machine machine;
  DeviceTensor x = machine.iota(float32, {10, 12}), y = machine.output(float32, {16, 32});
  machine.run(
      [](Int32 m, Int32 n, Int32 row, Int32 column, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto tile = load_global(global_view(x_ptr, {m, n}), {row, column}, {16, 32}, {.other = -2.5});
        store_global(global_view(y_ptr, {16, 32}), tile, {0, 0});
      },
      10, 12, -3, -5, x, y);
  expect_elements(y, [](int64_t i, int64_t j) {
    const int64_t r = i - 3, c = j - 5;
    return r >= 0 && r < 10 && c >= 0 && c < 12 ? static_cast<double>(r * 12 + c) : -2.5;
  });
}

TEST(Edges, StoresStayInside) {
  Machine machine;
  DeviceTensor y = machine.output(int32, {10, 12});
  machine.run(
      [](Int32 m, Int32 n, Int32 row, Int32 column, Ptr<int32> y_ptr) {
        grid(1);
        auto tile = register_tensor(int32, {16, 16}, [](auto i, auto j) { return i * 100 + j; });
        store_global(global_view(y_ptr, {m, n}), tile, {row, column});
      },
      10, 12, -3, 5, y);
  expect_elements(y, [](int64_t i, int64_t j) { return j >= 5 ? (i + 3) * 100 + j - 5 : -1; });
}

TEST(Edges, TilesFarOutsideTouchNothing) {
  Machine machine;
  DeviceTensor x = machine.iota(float32, {10, 12}), y = machine.output(float32, {8, 8});
  machine.run(
      [](Int32 m, Int32 n, Int32 far, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto g_x = global_view(x_ptr, {m, n});
        auto tile = load_global(g_x, {far, 0}, {8, 8}, {.other = 1}) + load_global(g_x, {0, -far}, {8, 8});
        store_global(g_x, tile, {-far, far});
        store_global(global_view(y_ptr, {8, 8}), tile, {0, 0});
      },
      10, 12, 1000000, x, y);
  expect_elements(y, [](int64_t, int64_t) { return 1; });
}

TEST(Strides, ColumnMajorPaddedAndRepeated) {
  Machine machine;
  const int64_t m = 21, n = 34, pitch = 40;
  DeviceTensor x = machine.iota(float32, {m, pitch}), y = machine.output(float32, {n, m}),
               z = machine.output(float32, {m, n});
  machine.run(
      [](Int32 rows, Int32 columns, Int32 pitch, Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<float32> z_ptr) {
        grid(cdiv(rows, 16), cdiv(columns, 16));
        Int32 i = 16 * block_idx.x, j = 16 * block_idx.y;
        auto padded = global_view(x_ptr, {rows, columns}, {pitch, 1});
        auto column_major = global_view(y_ptr, {rows, columns}, {1, rows});
        auto one_row = global_view(x_ptr, {rows, columns}, Scalars{0, 1});  // every row is the first
        auto tile = load_global(padded, {i, j}, {16, 16});
        store_global(column_major, tile, {i, j});
        store_global(global_view(z_ptr, {rows, columns}), tile + load_global(one_row, {i, j}, {16, 16}),
                     {i, j});
      },
      m, n, pitch, x, y, z);
  expect_elements(y, [=](int64_t j, int64_t i) { return (i * pitch + j) % 256; });
  expect_elements(z, [=](int64_t i, int64_t j) { return (i * pitch + j) % 256 + j; });
}

TEST(Dims, TilesRunAlongTheDimensionsAsked) {
  Machine machine;
  const int64_t a = 5, b = 18, c = 21;
  DeviceTensor x = machine.iota(int32, {a, b, c}), planes = machine.output(int32, {b, a, c}),
               swapped = machine.output(int32, {a, c, b});
  machine.run(
      [](Int32 a, Int32 b, Int32 c, Ptr<int32> x_ptr, Ptr<int32> planes_ptr, Ptr<int32> swapped_ptr) {
        grid(b, a);
        auto g_x = global_view(x_ptr, {a, b, c});
        // Of the CTAs that would all write the same, one does.
        // Dimensions 0 and 2 at one place of dimension 1.
        if (auto first = when(block_idx.y == 0)) {
          auto plane = load_global(g_x, {0, block_idx.x, 0}, {8, 32}, {.dims = {0, 2}});
          store_global(global_view(planes_ptr, {b, a, c}), plane.reshape({1, 8, 32}), {block_idx.x, 0, 0});
        }
        // Dimension 2 first.
        if (auto first = when(block_idx.x == 0)) {
          auto turned = load_global(g_x, {block_idx.y, 0, 0}, {32, 32}, {.dims = {2, 1}});
          store_global(global_view(swapped_ptr, {a, c, b}), turned, {block_idx.y, 0, 0});
        }
      },
      a, b, c, x, planes, swapped);
  expect_elements(planes, [=](int64_t j, int64_t i, int64_t k) { return ((i * b + j) * c + k) % 256; });
  expect_elements(swapped, [=](int64_t i, int64_t k, int64_t j) { return ((i * b + j) * c + k) % 256; });
}

TEST(GlobalViews, TransposeSliceIndexPermute) {
  Machine machine;
  const int64_t a = 3, b = 20, c = 35;
  DeviceTensor x = machine.iota(int32, {a, b, c});
  DeviceTensor turned = machine.output(int32, {c, b}), box = machine.output(int32, {8, 9}),
               permuted = machine.output(int32, {c, a, b});
  machine.run(
      [](Int32 a, Int32 b, Int32 c, Int32 plane, Int32 row, Int32 column, Ptr<int32> x_ptr, Ptr<int32> t_ptr,
         Ptr<int32> b_ptr, Ptr<int32> p_ptr) {
        grid(1);
        auto g_x = global_view(x_ptr, {a, b, c});
        store_global(global_view(t_ptr, {c, b}), load_global(g_x[plane].transpose(), {0, 0}, {64, 32}),
                     {0, 0});
        auto g_box = g_x[plane].slice({row, column}, {8, 9});
        store_global(global_view(b_ptr, {8, 9}), load_global(g_box, {0, 0}, {8, 9}), {0, 0});
        auto tile = load_global(g_x.permute({2, 0, 1}), {0, 0, 0}, {64, 4, 32});
        store_global(global_view(p_ptr, {c, a, b}), tile, {0, 0, 0});
      },
      a, b, c, 1, 4, 17, x, turned, box, permuted);
  const auto at = [=](int64_t i, int64_t j, int64_t k) { return ((i * b + j) * c + k) % 256; };
  expect_elements(turned, [&](int64_t k, int64_t j) { return at(1, j, k); });
  expect_elements(box, [&](int64_t j, int64_t k) { return at(1, 4 + j, 17 + k); });
  expect_elements(permuted, [&](int64_t k, int64_t i, int64_t j) { return at(i, j, k); });
}

// ---- shared memory

class SharedShapes : public ::testing::TestWithParam<Extents> {};

TEST_P(SharedShapes, StoreAndLoadWholeAndTransposed) {
  const Extents s = GetParam();
  for (DataType type : {int8, float16, float32, int64}) {
    Machine machine;
    DeviceTensor x = machine.iota(type, s), y = machine.output(type, s),
                 z = machine.output(type, {s[1], s[0]});
    machine.run(
        [type = type, s](Int32 ctas, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> z_ptr) {
          grid(ctas);
          auto box = shared_tensor(type, s);
          store_shared(box, load_global(global_view(x_ptr, type, {s[0], s[1]}), {0, 0}, s));
          sync();
          store_global(global_view(y_ptr, type, {s[0], s[1]}), load_shared(box), {0, 0});
          store_global(global_view(z_ptr, type, {s[1], s[0]}), load_shared(box.transpose()), {0, 0});
        },
        1, x, y, z);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[i * s[1] + j]; });
    expect_elements(z, [&](int64_t j, int64_t i) { return in[i * s[1] + j]; });
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedShapes,
                         ::testing::Values(Extents{1, 1}, Extents{16, 16}, Extents{64, 64}, Extents{3, 20},
                                           Extents{96, 24}, Extents{33, 65}, Extents{128, 8},
                                           Extents{1, 200}),
                         ParamName());

TEST(SharedViews, StagesSlicesPermutationsReshapes) {
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm80, seed);
    DeviceTensor x = machine.iota(int32, {4, 24, 32});
    DeviceTensor stages = machine.output(int32, {4, 24, 32}), slices = machine.output(int32, {8, 16}),
                 permuted = machine.output(int32, {32, 4, 24}), flat = machine.output(int32, {96, 32});
    machine.run(
        [](Int32 count, Int32 row, Int32 column, Ptr<int32> x_ptr, Ptr<int32> stages_ptr,
           Ptr<int32> slices_ptr, Ptr<int32> permuted_ptr, Ptr<int32> flat_ptr) {
          grid(1);
          auto g_x = global_view(x_ptr, {4, 24, 32});
          auto g_stages = global_view(stages_ptr, {4, 24, 32});
          auto s = shared_tensor(int32, {4, 24, 32});
          for (Int32 i : range(count)) store_shared(s[i], load_global(g_x, {i, 0, 0}, {24, 32}));
          sync();
          // In reverse order, from a run-time stage.
          for (Int32 i : range(count))
            store_global(g_stages, load_shared(s[3 - i]).reshape({1, 24, 32}), {i, 0, 0});
          store_global(global_view(slices_ptr, {8, 16}), load_shared(s[2].slice({row, column}, {8, 16})),
                       {0, 0});
          store_global(global_view(permuted_ptr, {32, 4, 24}), load_shared(s.permute({2, 0, 1})), {0, 0, 0});
          sync();
          store_shared(s[1].slice({0, 8}, {24, 16}), full(int32, {24, 16}, -7));
          sync();
          store_global(global_view(flat_ptr, {96, 32}), load_shared(s.reshape({96, 32})), {0, 0});
        },
        4, 8, 16, x, stages, slices, permuted, flat);
    const auto at = [](int64_t i, int64_t j, int64_t k) { return ((i * 24 + j) * 32 + k) % 256; };
    expect_elements(stages, [&](int64_t i, int64_t j, int64_t k) { return at(3 - i, j, k); });
    expect_elements(slices, [&](int64_t j, int64_t k) { return at(2, 8 + j, 16 + k); });
    expect_elements(permuted, [&](int64_t k, int64_t i, int64_t j) { return at(i, j, k); });
    expect_elements(flat, [&](int64_t r, int64_t k) {
      return r / 24 == 1 && k >= 8 && k < 24 ? -7 : at(r / 24, r % 24, k);
    });
  }
}

// ---- registers

TEST(Registers, ViewsAndRelayouts) {
  for (Extents s : {Extents{16, 32}, {8, 64}, {128, 4}}) {
    Machine machine;
    const int64_t m = s[0], n = s[1];
    DeviceTensor x = machine.iota(int32, s), turned = machine.output(int32, {n, m}),
                 reshaped = machine.output(int32, {m / 2, 2, n}), sum = machine.output(int32, s);
    machine.run(
        [m, n](Int32 ctas, Ptr<int32> x_ptr, Ptr<int32> t_ptr, Ptr<int32> r_ptr, Ptr<int32> s_ptr) {
          grid(ctas);
          auto tile = load_global(global_view(x_ptr, {m, n}), {0, 0}, {m, n});
          store_global(global_view(t_ptr, {n, m}), tile.transpose(), {0, 0});
          store_global(global_view(r_ptr, {m / 2, 2, n}), tile.reshape({m / 2, 2, n}), {0, 0, 0});
          auto other = relayout(load_global(global_view(x_ptr, {n, m}), {0, 0}, {n, m}).transpose());
          store_global(global_view(s_ptr, {m, n}), tile + relayout(other), {0, 0});
        },
        1, x, turned, reshaped, sum);
    expect_elements(turned, [=](int64_t j, int64_t i) { return (i * n + j) % 256; });
    expect_elements(reshaped, [=](int64_t i, int64_t h, int64_t j) { return ((2 * i + h) * n + j) % 256; });
    expect_elements(sum, [=](int64_t i, int64_t j) { return (i * n + j) % 256 + (j * m + i) % 256; });
  }
}

TEST(Registers, TabulatedInEveryRank) {
  Machine machine;
  DeviceTensor one = machine.output(int32, {100}), two = machine.output(float32, {9, 14}),
               three = machine.output(boolean, {3, 5, 7}), four = machine.output(int64, {2, 3, 4, 5});
  machine.run(
      [](Int32 scale, Ptr<int32> p1, Ptr<float32> p2, Ptr<boolean> p3, Ptr<int64> p4) {
        grid(1);
        store_global(global_view(p1, {100}),
                     register_tensor(int32, {100}, [&](auto i) { return i * scale + 1; }), {0});
        store_global(global_view(p2, {9, 14}),
                     register_tensor(float32, {9, 14}, [&](auto i, auto j) { return i - j.to(float32) / 2; }),
                     {0, 0});
        store_global(global_view(p3, {3, 5, 7}),
                     register_tensor(boolean, {3, 5, 7}, [&](auto i, auto j, auto k) { return i + j >= k; }),
                     {0, 0, 0});
        auto tile = register_tensor(int64, {2, 3, 4, 5}, [&](auto i, auto j, auto k, auto l) {
          return ((i * 10 + j) * 10 + k) * 10 + l;
        });
        store_global(global_view(p4, {2, 3, 4, 5}), tile, {0, 0, 0, 0});
      },
      3, one, two, three, four);
  expect_elements(one, [](int64_t i) { return 3 * i + 1; });
  expect_elements(two,
                  [](int64_t i, int64_t j) { return static_cast<double>(i) - static_cast<double>(j) / 2; });
  expect_elements(three, [](int64_t i, int64_t j, int64_t k) { return i + j >= k; });
  expect_elements(
      four, [](int64_t i, int64_t j, int64_t k, int64_t l) { return ((i * 10 + j) * 10 + k) * 10 + l; });
}

TEST(Registers, Broadcasting) {
  for (auto [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {9, 50}, {70, 3}}) {
    Machine machine;
    DeviceTensor x = machine.iota(float32, {m, n}), row = machine.iota(float32, {n}),
                 column = machine.iota(float32, {m, 1}), y = machine.output(float32, {m, n}),
                 outer = machine.output(float32, {m, n}), picked = machine.output(float32, {m, n});
    machine.run(
        [m, n](Float32 k, Ptr<float32> x_ptr, Ptr<float32> row_ptr, Ptr<float32> column_ptr,
               Ptr<float32> y_ptr, Ptr<float32> outer_ptr, Ptr<float32> picked_ptr) {
          grid(1);
          auto tile = load_global(global_view(x_ptr, {m, n}), {0, 0}, {m, n});
          auto r = load_global(global_view(row_ptr, {n}), {0}, {n});
          auto c = load_global(global_view(column_ptr, {m, 1}), {0, 0}, {m, 1});
          store_global(global_view(y_ptr, {m, n}), (tile + r) * k - c / 2, {0, 0});
          store_global(global_view(outer_ptr, {m, n}), r * 3 - c, {0, 0});
          store_global(global_view(picked_ptr, {m, n}), select(c < r, tile, -1), {0, 0});
        },
        3.0f, x, row, column, y, outer, picked);
    const auto in = [n = n](int64_t i, int64_t j) { return static_cast<double>((i * n + j) % 256); };
    expect_elements(y, [&](int64_t i, int64_t j) {
      return (in(i, j) + static_cast<double>(j)) * 3 - static_cast<double>(i) / 2;
    });
    expect_elements(outer, [&](int64_t i, int64_t j) { return 3 * j - i; });
    expect_elements(picked, [&](int64_t i, int64_t j) { return i < j ? in(i, j) : -1; });
  }
}

TEST(Registers, VariablesAccumulateAndConvert) {
  Machine machine;
  DeviceTensor x = machine.iota(float16, {6, 40}), y = machine.output(float32, {40}),
               z = machine.output(int32, {40});
  machine.run(
      [](Int32 rows, Ptr<float16> x_ptr, Ptr<float32> y_ptr, Ptr<int32> z_ptr) {
        grid(1);
        auto g_x = global_view(x_ptr, {rows, 40});
        RegisterTensor total = zeros(float32, {40});
        RegisterTensor last = full(int32, {40}, -1);
        for (Int32 i : range(rows)) {
          auto row = load_global(g_x, {i, 0}, {40});
          total += row.to(float32) * i;
          if (auto arm = when(i % 2 == 0)) last = row.to(int32);
          total -= 1;
        }
        RegisterTensor copy = total;
        total = 0;
        store_global(global_view(y_ptr, {40}), copy + total, {0});
        store_global(global_view(z_ptr, {40}), last, {0});
      },
      6, x, y, z);
  expect_elements(y, [](int64_t j) {
    double sum = -6;
    for (int64_t i = 0; i < 6; ++i) sum += static_cast<double>((i * 40 + j) % 256 * i);
    return sum;
  });
  expect_elements(z, [](int64_t j) { return (4 * 40 + j) % 256; });
}

// ---- parts of the CTA

TEST(Groups, LoadComputeAndStoreOnTheirOwn) {
  for (Arch arch : kAllArchs) {
    Machine machine(arch, 3);
    DeviceTensor x = machine.iota(float32, {64, 48}), y = machine.output(float32, {64, 48});
    machine.run(
        [](Int32 m, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
          grid(cdiv(m, 32));
          warps(8);
          auto g_x = global_view(x_ptr, {m, 48});
          auto g_y = global_view(y_ptr, {m, 48});
          Int32 row = 32 * block_idx.x;
          auto work = [&](int64_t first, int64_t rows, int scale) {
            auto tile = load_global(g_x, {row + first, 0}, {rows, 48});
            auto centred = tile - max(tile, {.axis = 1, .keep = true});
            store_global(g_y, centred * scale, {row + first, 0});
          };
          if (auto warp = single_warp(0)) work(0, 3, 1);
          if (auto half = warp_group(4, 4)) work(3, 13, 2);
          if (auto pair = warp_group(2, 2)) work(16, 16, 3);
        },
        64, x, y);
    expect_elements(y, [](int64_t i, int64_t j) {
      double largest = 0;
      for (int64_t k = 0; k < 48; ++k) largest = std::max(largest, static_cast<double>((i * 48 + k) % 256));
      const int64_t r = i % 32;
      return (static_cast<double>((i * 48 + j) % 256) - largest) * (r < 3 ? 1 : r < 16 ? 2 : 3);
    });
  }
}

}  // namespace
}  // namespace imbrex::testing
