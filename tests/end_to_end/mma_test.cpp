// SPDX-License-Identifier: Apache-2.0
// mma.sync in the language: every type, grids of warps, tiles of odd numbers of fragments, operands from
// every kind of memory, sums that are looked at while they grow. Small integers: every result is exact.
#include <fmt/format.h>

#include <random>

#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

/// Integers from -limit (or 0) to limit.
DeviceTensor integers(Machine& machine, DataType dtype, std::vector<int64_t> shape, int limit,
                      uint32_t seed) {
  HostTensor host(dtype, std::move(shape));
  std::mt19937 random(seed);
  const int low = dtype.is_signed() ? -limit : 0;
  for (int64_t i = 0; i < host.elements(); ++i)
    host.set(i, low + static_cast<int>(random() % static_cast<uint32_t>(limit - low + 1)));
  return DeviceTensor::from_host(machine.device(), host);
}

/// c + a b^T, b [n, k].
struct Reference {
  std::vector<double> a, b, c;
  int64_t n, k;
  Reference(const DeviceTensor& a_tensor, const DeviceTensor& b_tensor, const DeviceTensor& c_tensor)
      : a(a_tensor.to_host().to_doubles()),
        b(b_tensor.to_host().to_doubles()),
        c(c_tensor.to_host().to_doubles()),
        n(b_tensor.shape()[0]),
        k(b_tensor.shape()[1]) {}
  double operator()(int64_t i, int64_t j) const {
    double sum = c[static_cast<size_t>(i * n + j)];
    for (int64_t x = 0; x < k; ++x)
      sum += a[static_cast<size_t>(i * k + x)] * b[static_cast<size_t>(j * k + x)];
    return sum;
  }
};

struct Types {
  DataType a, b, c;
  Arch arch = Arch::kSm80;

  friend std::ostream& operator<<(std::ostream& out, const Types& t) {
    return out << fmt::format("{}_{}_{}_{}", t.a.name(), t.b.name(), t.c.name(), target_name(t.arch));
  }
};
struct Tile {
  int64_t m, n, k;  // in blocks of 16 x 8 x (256 bits)
  int warps;
  MmaOptions options = {};
};

const std::vector<Types> kTypes = {{float16, float16, float32},
                                   {float16, float16, float16},
                                   {bfloat16, bfloat16, float32},
                                   {tfloat32, tfloat32, float32},
                                   {float32, float32, float32},
                                   {int8, int8, int32},
                                   {uint8, uint8, int32},
                                   {int8, uint8, int32},
                                   {uint8, int8, int32},
                                   {float16, float16, float32, Arch::kSm90a},
                                   {bfloat16, bfloat16, float32, Arch::kSm100a},
                                   {float8_e4m3, float8_e4m3, float32, Arch::kSm89},
                                   {float8_e5m2, float8_e4m3, float32, Arch::kSm120a},
                                   {float8_e4m3, float8_e4m3, float32, Arch::kSm90a},
                                   {float8_e5m2, float8_e4m3, float32, Arch::kSm90a}};
const std::vector<Tile> kTiles = {{1, 1, 1, 1},         {1, 1, 3, 1},         {3, 5, 2, 1},
                                  {2, 3, 1, 2},         {1, 6, 2, 3},         {4, 4, 1, 4},
                                  {4, 8, 2, 8, {2, 4}}, {4, 4, 2, 4, {4, 1}}, {3, 10, 1, 6, {3, 2}}};

class Products : public ::testing::TestWithParam<Types> {};

TEST_P(Products, OfTilesInRegisters) {
  const Types types = GetParam();
  for (const Tile& tile : kTiles) {
    const int64_t m = 16 * tile.m, n = 8 * tile.n, k = 256 / types.a.bits() * tile.k;
    SCOPED_TRACE(fmt::format("{} x {} x {} by {} warps", m, n, k, tile.warps));
    Machine machine(types.arch);
    DeviceTensor a = integers(machine, types.a, {m, k}, 3, 1), b = integers(machine, types.b, {n, k}, 3, 2),
                 c = integers(machine, types.c, {m, n}, 9, 3), d = machine.output(types.c, {m, n});
    machine.run(
        [=](Ptr<> a, Ptr<> b, Ptr<> c, Ptr<> d) {
          grid(1);
          warps(tile.warps);
          auto x = load_global(global_view(a, types.a, {m, k}), {0, 0}, {m, k});
          auto y = load_global(global_view(b, types.b, {n, k}), {0, 0}, {n, k});
          auto z = load_global(global_view(c, types.c, {m, n}), {0, 0}, {m, n});
          store_global(global_view(d, types.c, {m, n}), mma(x, y.transpose(), z, tile.options), {0, 0});
        },
        a, b, c, d);
    expect_elements(d, Reference(a, b, c));
  }
}

// The same product through shared memory, both operands stored by rows or by columns.
TEST_P(Products, OfTilesInSharedMemory) {
  const Types types = GetParam();
  const int64_t m = 64, n = 48, k = 1024 / types.a.bits();
  for (bool a_by_columns : {false, true})
    for (bool b_by_columns : {false, true}) {
      SCOPED_TRACE(fmt::format("a by {}, b by {}", a_by_columns ? "columns" : "rows",
                               b_by_columns ? "columns" : "rows"));
      Machine machine(types.arch);
      DeviceTensor a = integers(machine, types.a, {m, k}, 3, 4), b = integers(machine, types.b, {n, k}, 3, 5),
                   c = integers(machine, types.c, {m, n}, 9, 6), d = machine.output(types.c, {m, n});
      machine.run(
          [=](Ptr<> a, Ptr<> b, Ptr<> c, Ptr<> d) {
            grid(1);
            warps(4);
            const auto transposed = [](const Shape& s, bool is) { return is ? Shape{s[1], s[0]} : s; };
            auto x = shared_tensor(types.a, transposed({m, k}, a_by_columns));
            auto y = shared_tensor(types.b, transposed({n, k}, b_by_columns));
            auto rows_of_x = a_by_columns ? x.transpose() : x;
            auto rows_of_y = b_by_columns ? y.transpose() : y;
            store_shared(rows_of_x, load_global(global_view(a, types.a, {m, k}), {0, 0}, {m, k}));
            store_shared(rows_of_y, load_global(global_view(b, types.b, {n, k}), {0, 0}, {n, k}));
            sync();
            RegisterTensor sum = load_global(global_view(c, types.c, {m, n}), {0, 0}, {m, n});
            const int64_t step = 256 / types.a.bits();
            for (int64_t i = 0; i < k; i += step)
              sum = mma(load_shared(rows_of_x.slice({0, i}, {m, step})),
                        load_shared(rows_of_y.transpose().slice({i, 0}, {step, n})), sum);
            store_global(global_view(d, types.c, {m, n}), sum, {0, 0});
          },
          a, b, c, d);
      expect_elements(d, Reference(a, b, c));
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Products, ::testing::ValuesIn(kTypes), ParamName());

TEST(Mma, SumsThatAreLookedAtWhileTheyGrow) {
  // old[i] is what the sum was before round i; the sum is updated in place where no one can tell.
  const int64_t n = 16, rounds = 5;
  Machine machine;
  DeviceTensor a = integers(machine, float16, {n, n}, 2, 7), b = integers(machine, float16, {n, n}, 2, 8),
               c = machine.output(float32, {n, n}), old = machine.output(float32, {rounds, n, n});
  machine.run(
      [=](Int32 count, Ptr<float16> a, Ptr<float16> b, Ptr<float32> c, Ptr<float32> old) {
        grid(1);
        warps(1);
        auto x = load_global(global_view(a, {n, n}), {0, 0}, {n, n});
        auto y = load_global(global_view(b, {n, n}), {0, 0}, {n, n}).transpose();
        auto g_old = global_view(old, {rounds, n, n});
        RegisterTensor sum = zeros(float32, {n, n});
        for (Int32 i : range(count)) {
          RegisterTensor before = sum;
          sum = mma(x, y, sum);
          sum = mma(x, y, sum);
          store_global(g_old[i], before, {0, 0});
        }
        store_global(global_view(c, {n, n}), sum, {0, 0});
      },
      rounds, a, b, c, old);
  DeviceTensor zero = integers(machine, float32, {n, n}, 0, 0);
  const Reference product(a, b, zero);
  expect_elements(c, [&](int64_t i, int64_t j) { return 2 * rounds * product(i, j); });
  expect_elements(old, [&](int64_t r, int64_t i, int64_t j) { return 2 * r * product(i, j); });
}

TEST(Mma, AProductIsAnOperandOfTheNext) {
  // (a b^T) b as attention has it: accumulators in 16 bits are fragments of a, without moving anything.
  const int64_t m = 64, n = 32;
  Machine machine;
  DeviceTensor a = integers(machine, float16, {m, n}, 1, 9), b = integers(machine, float16, {n, n}, 1, 10),
               d = machine.output(float32, {m, n});
  machine.run(
      [=](Ptr<float16> a, Ptr<float16> b, Ptr<float32> d) {
        grid(1);
        warps(4);
        auto x = load_global(global_view(a, {m, n}), {0, 0}, {m, n});
        auto y = load_global(global_view(b, {n, n}), {0, 0}, {n, n});
        const MmaOptions rows{.warps_m = 4, .warps_n = 1};
        auto scores = mma(x, y.transpose(), zeros(float32, {m, n}), rows);
        auto z = load_global(global_view(b, {n, n}), {0, 0}, {n, n});
        store_global(global_view(d, {m, n}), mma(scores.to(float16), z, zeros(float32, {m, n}), rows),
                     {0, 0});
      },
      a, b, d);
  const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles();
  expect_elements(d, [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t s = 0; s < n; ++s)
      for (int64_t k = 0; k < n; ++k)
        sum += x[static_cast<size_t>(i * n + k)] * y[static_cast<size_t>(s * n + k)] *
               y[static_cast<size_t>(s * n + j)];
    return sum;
  });
}

TEST(Mma, GroupsOfWarpsHaveProductsOfTheirOwn) {
  const int64_t n = 32;
  Machine machine;
  DeviceTensor a = integers(machine, int8, {n, n}, 5, 11), b = integers(machine, int8, {n, n}, 5, 12),
               d = machine.output(int32, {2, n, n});
  machine.run(
      [=](Ptr<int8> a, Ptr<int8> b, Ptr<int32> d) {
        grid(1);
        warps(6);
        const auto multiply = [&](int64_t at) {
          auto x = load_global(global_view(a, {n, n}), {0, 0}, {n, n});
          auto y = load_global(global_view(b, {n, n}), {0, 0}, {n, n});
          auto product = mma(x, y.transpose(), full(int32, {n, n}, at));
          store_global(global_view(d, {2, n, n})[at], product, {0, 0});
        };
        if (auto first = warp_group(0, 4)) multiply(0);
        if (auto second = warp_group(4, 2)) multiply(1);
      },
      a, b, d);
  DeviceTensor zero = integers(machine, int32, {n, n}, 0, 0);
  const Reference product(a, b, zero);
  expect_elements(d, [&](int64_t group, int64_t i, int64_t j) { return product(i, j) + group; });
}

}  // namespace
}  // namespace imbrex::testing
