// SPDX-License-Identifier: Apache-2.0
// Scans, sorting and top-k along every axis, in tiles that threads, warps and CTAs share in many ways.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "kit.h"

namespace imbrex::testing {
namespace {

/// The lines of a matrix along an axis, each through `f`.
std::vector<double> along(const std::vector<double>& in, int64_t m, int64_t n, int axis,
                          const std::function<void(std::vector<double>&)>& f) {
  std::vector<double> out = in;
  const int64_t lines = axis == 0 ? n : m, extent = axis == 0 ? m : n;
  for (int64_t l = 0; l < lines; ++l) {
    const auto at = [&](int64_t i) { return axis == 0 ? i * n + l : l * n + i; };
    std::vector<double> line(extent);
    for (int64_t i = 0; i < extent; ++i) line[i] = in[at(i)];
    f(line);
    for (int64_t i = 0; i < extent; ++i) out[at(i)] = line[i];
  }
  return out;
}

double combined(Combine by, double a, double b) {
  switch (by) {
    case Combine::kSum:
      return a + b;
    case Combine::kProduct:
      return a * b;
    case Combine::kMin:
      return std::min(a, b);
    case Combine::kMax:
      return std::max(a, b);
    case Combine::kAnd:
      return static_cast<double>(static_cast<int32_t>(a) & static_cast<int32_t>(b));
    case Combine::kOr:
      return static_cast<double>(static_cast<int32_t>(a) | static_cast<int32_t>(b));
    default:
      return static_cast<double>(static_cast<int32_t>(a) ^ static_cast<int32_t>(b));
  }
}

std::vector<double> scanned(const std::vector<double>& in, int64_t m, int64_t n, int axis, Combine by,
                            bool exclusive, double first) {
  return along(in, m, n, axis, [&](std::vector<double>& line) {
    double before = first;
    for (double& x : line) {
      const double sum = combined(by, before, x);
      x = exclusive ? before : sum;
      before = sum;
    }
  });
}

struct ScanCase {
  int64_t m, n;
  int axis, warps;
};
const ScanCase kScanCases[] = {{1, 1, 1, 1},   {1, 32, 1, 1},   {4, 256, 1, 4}, {1, 2048, 1, 4},
                               {64, 33, 0, 4}, {7, 100, 1, 4},  {96, 5, 0, 3},  {512, 4, 0, 8},
                               {16, 8, 0, 2},  {3, 1000, 1, 5}, {1, 96, 1, 3},  {128, 64, 1, 4}};

TEST(Scan, OfIntegersByEveryOperation) {
  const struct {
    Combine by;
    double first;
  } kinds[] = {{Combine::kSum, 0},
               {Combine::kMin, 2147483647.0},
               {Combine::kMax, -2147483648.0},
               {Combine::kAnd, -1},
               {Combine::kOr, 0},
               {Combine::kXor, 0}};
  for (const ScanCase& c : kScanCases)
    for (bool exclusive : {false, true}) {
      SCOPED_TRACE(::testing::Message() << c.m << " x " << c.n << " axis " << c.axis << " warps " << c.warps);
      Machine machine;
      DeviceTensor x = machine.random(int32, {c.m, c.n});
      std::vector<DeviceTensor> y;
      for (size_t i = 0; i < std::size(kinds); ++i) y.push_back(machine.output(int32, {c.m, c.n}));
      machine.run(
          [c, exclusive](Ptr<int32> x_ptr, Ptr<int32> sum, Ptr<int32> min, Ptr<int32> max, Ptr<int32> all,
                         Ptr<int32> any, Ptr<int32> parity) {
            warps(c.warps);
            grid(1);
            auto tile = load_global(global_view(x_ptr, {c.m, c.n}), {0, 0}, {c.m, c.n});
            const auto put = [&](const Ptr<int32>& to, Combine by) {
              store_global(global_view(to, {c.m, c.n}),
                           scan(tile, by, {.axis = c.axis, .exclusive = exclusive}), {0, 0});
            };
            put(sum, Combine::kSum);
            put(min, Combine::kMin);
            put(max, Combine::kMax);
            put(all, Combine::kAnd);
            put(any, Combine::kOr);
            put(parity, Combine::kXor);
          },
          x, y[0], y[1], y[2], y[3], y[4], y[5]);
      const std::vector<double> in = x.to_host().to_doubles();
      for (size_t k = 0; k < std::size(kinds); ++k) {
        std::vector<double> want = scanned(in, c.m, c.n, c.axis, kinds[k].by, exclusive, kinds[k].first);
        for (double& w : want) w = static_cast<int32_t>(static_cast<int64_t>(w));  // sums wrap
        expect_elements(y[k], [&](int64_t i, int64_t j) { return want[i * c.n + j]; });
      }
    }
}

TEST(Scan, SumsAndProductsOfFloats) {
  for (DataType type : {float16, bfloat16, float32, float64})
    for (const ScanCase& c : kScanCases) {
      SCOPED_TRACE(::testing::Message() << type.name() << " " << c.m << " x " << c.n << " axis " << c.axis);
      Machine machine;
      DeviceTensor x = machine.random(type, {c.m, c.n}), sums = machine.output(type, {c.m, c.n}),
                   products = machine.output(type, {c.m, c.n});
      machine.run(
          [c, type](Ptr<> x_ptr, Ptr<> sum, Ptr<> product) {
            warps(c.warps);
            grid(1);
            auto tile = load_global(global_view(x_ptr, type, {c.m, c.n}), {0, 0}, {c.m, c.n});
            store_global(global_view(sum, type, {c.m, c.n}), cumsum(tile, {.axis = c.axis}), {0, 0});
            store_global(global_view(product, type, {c.m, c.n}),
                         cumprod(1 + tile / 16, {.axis = c.axis, .exclusive = true}), {0, 0});
          },
          x, sums, products);
      const std::vector<double> in = x.to_host().to_doubles();
      const double step = type == float64 ? 1e-12 : type == float32 ? 1e-5 : type == float16 ? 2e-3 : 1e-2;
      const std::vector<double> sum = scanned(in, c.m, c.n, c.axis, Combine::kSum, false, 0);
      expect_elements(
          sums, [&](int64_t i, int64_t j) { return sum[i * c.n + j]; }, step, 8);
      if (type.bits() == 16) continue;  // 1 + x / 16 is rounded before the product
      std::vector<double> near_one = in;
      for (double& v : near_one) v = 1 + v / 16;
      const std::vector<double> product = scanned(near_one, c.m, c.n, c.axis, Combine::kProduct, true, 1);
      expect_elements(
          products, [&](int64_t i, int64_t j) { return product[i * c.n + j]; }, 2 * step, 1e-3);
    }
}

TEST(Scan, OfOneWarpAmongOthers) {
  Machine machine;
  DeviceTensor x = machine.random(int64, {300}), y = machine.output(int64, {300});
  machine.run(
      [](Ptr<int64> x_ptr, Ptr<int64> y_ptr) {
        grid(1);
        if (auto warp = single_warp(2)) {
          auto tile = load_global(global_view(x_ptr, {300}), {0}, {300});
          store_global(global_view(y_ptr, {300}), cumsum(tile), {0});
        }
      },
      x, y);
  std::vector<int64_t> want = values<int64_t>(x);
  std::partial_sum(want.begin(), want.end(), want.begin());
  EXPECT_EQ(values<int64_t>(y), want);
}

TEST(Scan, SaysWhatItTakes) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {8, 8});
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Ptr<float32> p) {
                      grid(1);
                      cumsum(load_global(global_view(p, {8, 8}), {0, 0}, {8, 8}), {.axis = 2});
                    },
                    x);
              }),
              ::testing::HasSubstr("cumsum: axis 2 of a tensor of 2 dimensions"));
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Ptr<float32> p) {
                      grid(1);
                      scan(load_global(global_view(p, {8, 8}), {0, 0}, {8, 8}), Combine::kXor);
                    },
                    x);
              }),
              ::testing::HasSubstr("scan: xor does not combine float32"));
}

struct SortCase {
  int64_t m, n;
  int axis, warps;
};
const SortCase kSortCases[] = {{5, 1, 1, 4},    {3, 32, 1, 4},   {2, 1024, 1, 4}, {64, 7, 0, 2},
                               {128, 64, 1, 4}, {1, 4096, 1, 8}, {16, 128, 0, 4}};

TEST(Sort, EveryTypeBothWays) {
  for (DataType type : {int32, float32, float16, uint8, int64, float64})
    for (const SortCase& c : kSortCases) {
      SCOPED_TRACE(::testing::Message() << type.name() << " " << c.m << " x " << c.n << " axis " << c.axis);
      if (type != int32 && c.n > 2048) continue;
      Machine machine;
      DeviceTensor x = machine.random(type, {c.m, c.n}), up = machine.output(type, {c.m, c.n}),
                   down = machine.output(type, {c.m, c.n});
      machine.run(
          [c, type](Ptr<> x_ptr, Ptr<> up_ptr, Ptr<> down_ptr) {
            warps(c.warps);
            grid(1);
            auto tile = load_global(global_view(x_ptr, type, {c.m, c.n}), {0, 0}, {c.m, c.n});
            store_global(global_view(up_ptr, type, {c.m, c.n}), sort(tile, {.axis = c.axis}), {0, 0});
            store_global(global_view(down_ptr, type, {c.m, c.n}),
                         sort(tile, {.axis = c.axis, .descending = true}), {0, 0});
          },
          x, up, down);
      const std::vector<double> in = x.to_host().to_doubles();
      const std::vector<double> rising =
          along(in, c.m, c.n, c.axis, [](std::vector<double>& line) { std::ranges::sort(line); });
      const std::vector<double> falling = along(
          in, c.m, c.n, c.axis, [](std::vector<double>& line) { std::ranges::sort(line, std::greater()); });
      expect_elements(up, [&](int64_t i, int64_t j) { return rising[i * c.n + j]; });
      expect_elements(down, [&](int64_t i, int64_t j) { return falling[i * c.n + j]; });
    }
}

TEST(Sort, TopKKeepsTheOrderOfEqualElements) {
  Machine machine;
  constexpr int64_t kRows = 6, kColumns = 256, kMost = 8;
  DeviceTensor x = machine.output(float32, {kRows, kColumns}), v = machine.output(float32, {kRows, kMost}),
               p = machine.output(int32, {kRows, kMost});
  HostTensor few(float32, {kRows, kColumns});  // of few values, so that there are many ties
  const std::vector<double> noise = machine.random(int32, {kRows * kColumns}).to_host().to_doubles();
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    few.set(i, static_cast<double>(static_cast<int64_t>(noise[i]) & 31));
  x = DeviceTensor::from_host(machine.device(), few);
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<float32> v_ptr, Ptr<int32> p_ptr) {
        grid(1);
        auto best =
            top_k(load_global(global_view(x_ptr, {kRows, kColumns}), {0, 0}, {kRows, kColumns}), kMost);
        store_global(global_view(v_ptr, {kRows, kMost}), best.values, {0, 0});
        store_global(global_view(p_ptr, {kRows, kMost}), best.indices, {0, 0});
      },
      x, v, p);
  const std::vector<double> in = few.to_doubles();
  std::vector<int64_t> order(kRows * kColumns);
  for (int64_t i = 0; i < kRows; ++i) {
    std::iota(order.begin() + i * kColumns, order.begin() + (i + 1) * kColumns, 0);
    std::stable_sort(order.begin() + i * kColumns, order.begin() + (i + 1) * kColumns,
                     [&](int64_t a, int64_t b) { return in[i * kColumns + a] > in[i * kColumns + b]; });
  }
  expect_elements(p, [&](int64_t i, int64_t j) { return order[i * kColumns + j]; });
  expect_elements(v, [&](int64_t i, int64_t j) { return in[i * kColumns + order[i * kColumns + j]]; });
}

TEST(Sort, WhereThereAreNaNsNothingIsLost) {
  Machine machine;
  HostTensor host(float32, {64});
  for (int64_t i = 0; i < 64; ++i)
    host.set(i, i % 7 == 3 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>((i * 37) % 64));
  DeviceTensor x = DeviceTensor::from_host(machine.device(), host), y = machine.output(float32, {64});
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        store_global(global_view(y_ptr, {64}), sort(load_global(global_view(x_ptr, {64}), {0}, {64})), {0});
      },
      x, y);
  std::vector<uint32_t> before = values<uint32_t>(x), after = values<uint32_t>(y);
  std::ranges::sort(before);
  std::ranges::sort(after);
  EXPECT_EQ(before, after);
}

TEST(Sort, SaysWhatToDoWithOtherExtents) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {100});
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Ptr<float32> p) {
                      grid(1);
                      sort(load_global(global_view(p, {100}), {0}, {100}));
                    },
                    x);
              }),
              ::testing::AllOf(
                  ::testing::HasSubstr("sort: the extent along axis 0 is 100, not a power of two"),
                  ::testing::HasSubstr("load a tile of 128, with the largest number for what is outside")));
}

}  // namespace
}  // namespace imbrex::testing
