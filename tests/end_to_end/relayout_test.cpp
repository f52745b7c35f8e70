// SPDX-License-Identifier: Apache-2.0
// Tiles that meet in layouts of their own: the compiler moves what has to move, and the author writes nothing.
#include <limits>

#include "kit.h"

namespace imbrex::testing {
namespace {

TEST(Relayout, RowsAndColumnsOfOtherTilesMeetInOne) {
  // Sums of rows of one tile and of columns of another, both with layouts of their own, against each other.
  for (std::array<int64_t, 2> s : {std::array<int64_t, 2>{32, 64}, {64, 24}, {5, 128}}) {
    const auto [m, n] = s;
    Machine machine;
    DeviceTensor x = machine.random(float32, {m, 128}), y = machine.random(float32, {128, n}),
                 z = machine.output(float32, {m, n});
    machine.run(
        [m, n](Int32 ctas, Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<float32> z_ptr) {
          grid(ctas);
          auto rows =
              sum(load_global(global_view(x_ptr, {m, 128}), {0, 0}, {m, 128}), {.axis = 1, .keep = true});
          auto columns =
              max(load_global(global_view(y_ptr, {128, n}), {0, 0}, {128, n}), {.axis = 0, .keep = true});
          store_global(global_view(z_ptr, {m, n}), rows * columns, {0, 0});
        },
        1, x, y, z);
    const std::vector<double> a = x.to_host().to_doubles(), b = y.to_host().to_doubles();
    const auto row = [&](int64_t i) {
      double total = 0;
      for (int64_t k = 0; k < 128; ++k) total += a[i * 128 + k];
      return total;
    };
    const auto column = [&, n = n](int64_t j) {
      double most = -std::numeric_limits<double>::infinity();
      for (int64_t k = 0; k < 128; ++k) most = std::max(most, b[k * n + j]);
      return most;
    };
    expect_elements(
        z, [&](int64_t i, int64_t j) { return row(i) * column(j); }, 1e-5, 1);
  }
}

TEST(Relayout, TransposedTilesAddUp) {
  for (Arch arch : kAllArchs) {
    Machine machine(arch);
    DeviceTensor x = machine.random(float16, {48, 80}), y = machine.random(float16, {80, 48}),
                 z = machine.output(float32, {48, 80});
    machine.run(
        [](Int32 ctas, Ptr<float16> x_ptr, Ptr<float16> y_ptr, Ptr<float32> z_ptr) {
          grid(ctas);
          auto tile = load_global(global_view(x_ptr, {48, 80}), {0, 0}, {48, 80});
          auto other = load_global(global_view(y_ptr, {80, 48}), {0, 0}, {80, 48});
          store_global(global_view(z_ptr, {48, 80}), (tile + other.transpose()).to(float32), {0, 0});
          // What was transposed is used as it lies, too.
          store_global(global_view(y_ptr, {80, 48}), other * 2, {0, 0});
        },
        1, x, y, z);
    const std::vector<double> a = x.to_host().to_doubles(), twice = y.to_host().to_doubles();
    expect_elements(
        z, [&](int64_t i, int64_t j) { return a[i * 80 + j] + twice[j * 48 + i] / 2; }, 1e-3, 1);
  }
}

TEST(Relayout, AProductIsAnOperandOfTheNext) {
  // The accumulator of one product as the right-hand side of another: its fragments are not those of b.
  Machine machine;
  DeviceTensor x = machine.random(float16, {64, 64}), y = machine.output(float32, {64, 64});
  machine.run(
      [](Int32 ctas, Ptr<float16> x_ptr, Ptr<float32> y_ptr) {
        grid(ctas);
        auto a = load_global(global_view(x_ptr, {64, 64}), {0, 0}, {64, 64});
        auto first = mma(a, a, zeros(float32, {64, 64})).to(float16);
        store_global(global_view(y_ptr, {64, 64}), mma(a, first, zeros(float32, {64, 64})), {0, 0});
      },
      1, x, y);
  const std::vector<double> a = x.to_host().to_doubles();
  const auto product = [&](const std::vector<double>& p, const std::vector<double>& q) {
    std::vector<double> out(64 * 64);
    for (int64_t i = 0; i < 64; ++i)
      for (int64_t j = 0; j < 64; ++j)
        for (int64_t k = 0; k < 64; ++k) out[i * 64 + j] += p[i * 64 + k] * q[k * 64 + j];
    return out;
  };
  HostTensor rounded(float16, {64 * 64});
  const std::vector<double> first = product(a, a);
  for (int64_t i = 0; i < 64 * 64; ++i) rounded.set(i, first[i]);
  const std::vector<double> want = product(a, rounded.to_doubles());
  // A sum near the middle of two float16 may have become the other one.
  expect_elements(
      y, [&](int64_t i, int64_t j) { return want[i * 64 + j]; }, 1e-4, 10);
}

TEST(Relayout, VariablesAreSetFromOtherLayouts) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {64, 32}), y = machine.output(float32, {32, 64});
  machine.run(
      [](Int32 steps, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto g_x = global_view(x_ptr, {64, 32});
        RegisterTensor total = load_global(global_view(x_ptr, {32, 64}), {0, 0}, {32, 64});
        for (Int32 k : range(steps)) total += load_global(g_x, {0, 0}, {64, 32}).transpose() * k;
        store_global(global_view(y_ptr, {32, 64}), total, {0, 0});
      },
      4, x, y);
  const std::vector<double> a = x.to_host().to_doubles();
  expect_elements(
      y, [&](int64_t i, int64_t j) { return a[i * 64 + j] + 6 * a[j * 32 + i]; }, 1e-5, 1);
}

}  // namespace
}  // namespace imbrex::testing
