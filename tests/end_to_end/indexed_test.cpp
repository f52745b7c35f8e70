// SPDX-License-Identifier: Apache-2.0
// Gathers and scatters, of global and shared memory, whole rows and single elements, masked and at edges.
#include <algorithm>
#include <random>

#include "kit.h"

namespace imbrex::testing {
namespace {

std::vector<int64_t> random_indices(int64_t count, int64_t below, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t& i : out) i = static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  return out;
}

/// Rows of a table, with the width known when compiling or not, a multiple of a vector or not.
TEST(Gather, RowsOfATable) {
  static constexpr int64_t kRows = 50;
  for (Arch arch : kAllArchs)
    for (int64_t width : {64, 40, 37})
      for (bool is_known : {true, false})
        for (DataType index : {int32, int64, uint8}) {
          if (index != int32 && (arch != Arch::kSm80 || width != 40)) continue;
          SCOPED_TRACE(::testing::Message() << width << " " << is_known << " " << index.name());
          static constexpr int64_t kCount = 45;
          Machine machine(arch);
          const std::vector<int64_t> rows = random_indices(kCount, kRows, 1);
          DeviceTensor table = machine.random(float16, {kRows, width}), at = machine.tensor(index, rows),
                       y = machine.output(float16, {kCount, width});
          machine.run(
              [=](Int32 n, Ptr<float16> table_ptr, Ptr<> at_ptr, Ptr<float16> y_ptr) {
                grid(cdiv(int(kCount), 16));
                Int32 first = 16 * block_idx.x;
                const ScalarArg columns = is_known ? ScalarArg(width) : ScalarArg(n);
                auto rows = load_global(global_view(at_ptr, index, {kCount}), {first}, {16});
                auto tile =
                    gather(global_view(table_ptr, {kRows, columns}), {rows.reshape({16, 1}), 0}, {16, 64});
                store_global(global_view(y_ptr, {kCount, columns}), tile, {first, 0});
              },
              width, table, at, y);
          const std::vector<double> in = table.to_host().to_doubles();
          expect_elements(y, [&](int64_t i, int64_t j) { return in[rows[i] * width + j]; });
        }
}

/// Single elements, by one index tile and by two; of shared memory too.
TEST(Gather, Elements) {
  static constexpr int64_t kCount = 300, kTable = 24;
  Machine machine;
  const std::vector<int64_t> i = random_indices(kCount, kTable, 2), j = random_indices(kCount, kTable, 3);
  DeviceTensor table = machine.random(float32, {kTable, kTable}), g_i = machine.tensor(int32, i),
               g_j = machine.tensor(int32, j), y = machine.output(float32, {3, kCount});
  machine.run(
      [](Ptr<float32> table_ptr, Ptr<int32> i_ptr, Ptr<int32> j_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto g_table = global_view(table_ptr, {kTable, kTable});
        auto g_y = global_view(y_ptr, {3, kCount});
        auto s_table = shared_tensor(float32, {kTable, kTable});
        store_shared(s_table, load_global(g_table, {0, 0}, {kTable, kTable}));
        sync_threads();
        auto i = load_global(global_view(i_ptr, {kCount}), {0}, {320});
        auto j = load_global(global_view(j_ptr, {kCount}), {0}, {320});
        const auto put = [&](int row, const RegisterValue& x) {
          store_global(g_y, x.reshape({1, 320}), {row, 0});
        };
        put(0, gather(g_table, {i, j}, {320}));
        put(1, gather(s_table, {i, j}, {320}));
        put(2, gather(s_table.transpose(), {5, i}, {320}, {.other = -1, .mask = i < j}));
      },
      table, g_i, g_j, y);
  const std::vector<float> in = values<float>(table);
  expect_elements(y, [&](int64_t row, int64_t n) {
    if (row < 2) return in[i[n] * kTable + j[n]];
    return i[n] < j[n] ? in[i[n] * kTable + 5] : -1.0f;
  });
}

/// Every second index is out of bounds and masked.
TEST(Gather, WhatTheMaskLeavesOutIsNotAccessed) {
  Machine machine;
  std::vector<int64_t> at(64);
  for (int64_t n = 0; n < 64; ++n) at[n] = n % 2 ? n : -1000000 * (n + 1);
  DeviceTensor x = machine.random(int32, {64}), where = machine.tensor(int32, at),
               y = machine.output(int32, {64}), z = machine.output(int32, {64});
  machine.run(
      [](Ptr<int32> x_ptr, Ptr<int32> at_ptr, Ptr<int32> y_ptr, Ptr<int32> z_ptr) {
        grid(1);
        auto at = load_global(global_view(at_ptr, {64}), {0}, {64});
        store_global(global_view(z_ptr, {64}), full(int32, {64}, -7), {0});
        sync_threads();
        auto got = gather(global_view(x_ptr, {64}), {at}, {64}, {.mask = at >= 0});
        store_global(global_view(y_ptr, {64}), got, {0});
        scatter(global_view(z_ptr, {64}), got, {at}, {.mask = at >= 0});
      },
      x, where, y, z);
  const std::vector<int32_t> in = values<int32_t>(x);
  expect_elements(y, [&](int64_t n) { return n % 2 ? in[n] : 0; });
  expect_elements(z, [&](int64_t n) { return n % 2 ? in[n] : -7; });
}

/// Rows and elements to permuted places, in global and shared memory.
TEST(Scatter, ToPermutedPlaces) {
  static constexpr int64_t kRows = 32, kWidth = 40;
  Machine machine;
  std::vector<int64_t> order(kRows);
  for (int64_t n = 0; n < kRows; ++n) order[n] = n * 7 % kRows;
  DeviceTensor x = machine.random(float32, {kRows, kWidth}), at = machine.tensor(int32, order),
               y = machine.output(float32, {kRows, kWidth}), z = machine.output(float32, {kRows});
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<int32> at_ptr, Ptr<float32> y_ptr, Ptr<float32> z_ptr) {
        grid(1);
        auto at = load_global(global_view(at_ptr, {kRows}), {0}, {kRows});
        auto tile = load_global(global_view(x_ptr, {kRows, kWidth}), {0, 0}, {kRows, 64});
        scatter(global_view(y_ptr, {kRows, kWidth}), tile, {at.reshape({kRows, 1}), 0});
        auto s = shared_tensor(float32, {kRows});
        scatter(s, load_global(global_view(x_ptr, {kRows, kWidth}), {0, 3}, {kRows}, {.dims = {0}}), {at});
        sync_threads();
        store_global(global_view(z_ptr, {kRows}), load_shared(s), {0});
      },
      x, at, y, z);
  const std::vector<float> in = values<float>(x);
  std::vector<int64_t> from(kRows);
  for (int64_t n = 0; n < kRows; ++n) from[order[n]] = n;
  expect_elements(y, [&](int64_t i, int64_t j) { return in[from[i] * kWidth + j]; });
  expect_elements(z, [&](int64_t i) { return in[from[i] * kWidth + 3]; });
}

TEST(Gather, AnIndexOutsideIsFound) {
  for (const auto& [is_shared, wrong] : {std::pair(false, 64), std::pair(true, 64), std::pair(false, -2)}) {
    Machine machine;
    std::vector<int64_t> at(64, 3);
    at[37] = wrong;
    DeviceTensor x = machine.random(int32, {128}), where = machine.tensor(int32, at),
                 y = machine.output(int32, {64});
    const LaunchReport report = machine.launch(
        [is_shared = is_shared](Ptr<int32> x_ptr, Ptr<int32> at_ptr, Ptr<int32> y_ptr) {
          grid(1);
          auto at = load_global(global_view(at_ptr, {64}), {0}, {64});
          auto s_x = shared_tensor(int32, {64});
          auto g_x = global_view(x_ptr, {64});  // of a larger buffer
          store_shared(s_x, load_global(g_x, {0}, {64}));
          sync_threads();
          auto got = is_shared ? gather(s_x, {at}, {64}) : gather(g_x, {at}, {64});
          store_global(global_view(y_ptr, {64}), got, {0});
        },
        x, where, y);
    ASSERT_FALSE(report.clean());
    const std::string text = report.virtual_report.format();
    EXPECT_NE(
        text.find(fmt::format("index {} along dimension 0 is outside the tensor, which has 64 there", wrong)),
        std::string::npos)
        << text;
  }
}

TEST(Scatter, TwoElementsInOnePlaceAreARace) {
  Machine machine;
  DeviceTensor y = machine.output(int32, {4});
  const LaunchReport report = machine.launch(
      [](Ptr<int32> y_ptr) {
        grid(1);
        auto i = register_tensor(int32, {128}, [](auto i) { return i; });
        scatter(global_view(y_ptr, {4}), i, {i % 4});
      },
      y);
  ASSERT_FALSE(report.clean());
  EXPECT_NE(report.virtual_report.format().find("race"), std::string::npos) << report.virtual_report.format();
}

}  // namespace
}  // namespace imbrex::testing
