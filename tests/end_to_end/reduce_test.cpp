// SPDX-License-Identifier: Apache-2.0
// Reductions along every axis of tiles of every shape.
#include <algorithm>

#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

using Extents = std::vector<int64_t>;
using Reduce = RegisterValue (*)(const TileArg&, ReduceOptions);

enum class Kind { kSum, kMin, kMax, kAny, kAll };
constexpr Kind kKinds[] = {Kind::kSum, Kind::kMin, Kind::kMax, Kind::kAny, Kind::kAll};

RegisterValue reduced(Kind kind, const RegisterValue& x, ReduceOptions options) {
  switch (kind) {
    case Kind::kSum:
      return sum(x, options);
    case Kind::kMin:
      return min(x, options);
    case Kind::kMax:
      return max(x, options);
    case Kind::kAny:
      return any(x, options);
    default:
      return all(x, options);
  }
}

/// The same along `axis` of row-major numbers.
std::vector<double> reduced(Kind kind, const std::vector<double>& x, const Extents& shape, size_t axis) {
  int64_t inner = 1, outer = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    (d < axis ? outer : d > axis ? inner : inner) *= d == axis ? 1 : shape[d];
  std::vector<double> out;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double result = 0;
      for (int64_t k = 0; k < shape[axis]; ++k) {
        const double value = x[(o * shape[axis] + k) * inner + i];
        if (k == 0)
          result = value;
        else if (kind == Kind::kSum)
          result += value;
        else if (kind == Kind::kMin || kind == Kind::kAll)
          result = std::min(result, value);
        else
          result = std::max(result, value);
      }
      out.push_back(result);
    }
  return out;
}

class Reductions : public ::testing::TestWithParam<Extents> {};

TEST_P(Reductions, AlongEveryAxis) {
  const Extents shape = GetParam();
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  for (Kind kind : kKinds)
    for (size_t axis = 0; axis < shape.size(); ++axis)
      for (bool keep : {false, true}) {
        if (!keep && shape.size() == 1) continue;  // no tensors without dimensions
        const bool is_logical = kind == Kind::kAny || kind == Kind::kAll;
        const DataType type = is_logical ? boolean : kind == Kind::kSum ? int32 : float32;
        SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " axis " + std::to_string(axis) +
                     (keep ? " kept" : ""));
        Extents result_shape = shape;
        if (keep)
          result_shape[axis] = 1;
        else
          result_shape.erase(result_shape.begin() + static_cast<int64_t>(axis));
        Machine machine;
        DeviceTensor x = machine.random(type, {elements}), y = machine.output(type, {elements / shape[axis]});
        const std::vector<double> in = x.to_host().to_doubles();
        machine.run(
            [=](Int32 ctas, Ptr<> x_ptr, Ptr<> y_ptr) {
              grid(ctas);
              const Scalars whole(shape.begin(), shape.end()), part(result_shape.begin(), result_shape.end());
              auto tile = load_global(global_view(x_ptr, type, whole), Scalars(shape.size(), 0), shape);
              auto result = reduced(kind, tile, {.axis = static_cast<int>(axis), .keep = keep});
              store_global(global_view(y_ptr, type, part), result, Scalars(result_shape.size(), 0));
            },
            1, x, y);
        const std::vector<double> expected = reduced(kind, in, shape, axis);
        expect_elements(y, [&](int64_t i) { return expected[i]; });
      }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Reductions,
                         ::testing::Values(Extents{1}, Extents{31}, Extents{1000}, Extents{1, 1},
                                           Extents{4, 128}, Extents{128, 4}, Extents{33, 65}, Extents{7, 3},
                                           Extents{64, 64}, Extents{3, 5, 7}, Extents{2, 16, 32}),
                         ParamName());

TEST(Reductions, OfFloatsBroadcastBackAndChain) {
  for (Arch arch : kAllArchs)
    for (auto [m, n] : {std::pair<int64_t, int64_t>{5, 100}, {16, 64}, {1, 777}}) {
      Machine machine(arch, 1);
      DeviceTensor x = machine.random(float32, {m, n}), y = machine.output(float32, {m, n}),
                   total = machine.output(float32, {1});
      machine.run(
          [m, n](Int32 ctas, Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<float32> total_ptr) {
            grid(ctas);
            auto tile = load_global(global_view(x_ptr, {m, n}), {0, 0}, {m, n});
            auto rows = sum(tile, {.axis = 1, .keep = true});
            auto columns = max(tile, {.axis = 0, .keep = true});
            store_global(global_view(y_ptr, {m, n}), tile * columns - rows, {0, 0});
            store_global(global_view(total_ptr, {1}), sum(sum(tile, {.axis = 0}), {.axis = 0, .keep = true}),
                         {0});
          },
          1, x, y, total);
      const std::vector<double> in = x.to_host().to_doubles();
      const std::vector<double> rows = reduced(Kind::kSum, in, {m, n}, 1),
                                columns = reduced(Kind::kMax, in, {m, n}, 0);
      expect_elements(
          y, [&, n = n](int64_t i, int64_t j) { return in[i * n + j] * columns[j] - rows[i]; }, 1e-5, 10);
      double all = 0;
      for (double value : in) all += value;
      expect_elements(
          total, [&](int64_t) { return all; }, 1e-5, 10);
    }
}

TEST(Reductions, InEveryTypeAndBySmallGroups) {
  for (DataType type : {int8, int16, int64, uint32, float16, bfloat16, float64}) {
    SCOPED_TRACE(type.name());
    Machine machine;
    DeviceTensor x = machine.iota(type, {8, 24}), low = machine.output(type, {8}),
                 high = machine.output(type, {24}), total = machine.output(type, {24});
    machine.run(
        [type = type](Int32 ctas, Ptr<> x_ptr, Ptr<> low_ptr, Ptr<> high_ptr, Ptr<> total_ptr) {
          grid(ctas);
          auto g_x = global_view(x_ptr, type, {8, 24});
          if (auto warp = single_warp(1))
            store_global(global_view(low_ptr, type, {8}), min(load_global(g_x, {0, 0}, {8, 24}), {.axis = 1}),
                         {0});
          if (auto half = warp_group(2, 2)) {
            auto tile = load_global(g_x, {0, 0}, {8, 24});
            store_global(global_view(high_ptr, type, {24}), max(tile, {.axis = 0}), {0});
            store_global(global_view(total_ptr, type, {24}),
                         sum(load_global(g_x, {0, 0}, {2, 24}), {.axis = 0}), {0});
          }
        },
        1, x, low, high, total);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(low, [&](int64_t i) { return in[i * 24]; });
    expect_elements(high, [&](int64_t j) { return in[7 * 24 + j]; });
    expect_elements(total, [&](int64_t j) { return in[j] + in[24 + j]; });
  }
}

TEST(Reductions, MinAndMaxIgnoreNan) {
  Machine machine;
  std::vector<float> numbers(256, std::nanf(""));
  numbers[37] = 3, numbers[200] = -5;
  DeviceTensor x = machine.tensor(float32, numbers), y = machine.output(float32, {2});
  machine.run(
      [](Int32 ctas, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(ctas);
        auto tile = load_global(global_view(x_ptr, {256}), {0}, {256});
        auto g_y = global_view(y_ptr, {2});
        store_global(g_y, min(tile, {.axis = 0, .keep = true}), {0});
        store_global(g_y, max(tile, {.axis = 0, .keep = true}), {1});
      },
      1, x, y);
  expect_elements(y, [](int64_t i) { return i == 0 ? -5 : 3; });
}

}  // namespace
}  // namespace imbrex::testing
