// SPDX-License-Identifier: Apache-2.0
// Scalars from memory and from tiles: in offsets, conditions, bounds of loops, and of every type.
#include <algorithm>

#include "kit.h"

namespace imbrex::testing {
namespace {

/// Rows of each group summed, the groups' first rows in memory.
TEST(Items, BoundLoopsAndOffsets) {
  for (Arch arch : kAllArchs) {
    static constexpr int64_t kRows = 100, kColumns = 72;
    const std::vector<int> offsets = {0, 7, 7, 64, 100};
    Machine machine(arch);
    DeviceTensor starts = machine.tensor(int32, offsets), x = machine.random(float32, {kRows, kColumns}),
                 y = machine.output(float32, {4, kColumns});
    machine.run(
        [](Ptr<int32> starts_ptr, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
          grid(4);
          auto g_starts = global_view(starts_ptr, {5});
          auto g_x = global_view(x_ptr, {kRows, kColumns});
          Int32 group = block_idx.x;
          RegisterTensor total = zeros(float32, {1, 128});
          for (Int32 row : range(g_starts[group], g_starts[group + 1]))
            total += load_global(g_x, {row, 0}, {1, 128});
          store_global(global_view(y_ptr, {4, kColumns}), total, {group, 0});
        },
        starts, x, y);
    const std::vector<float> in = values<float>(x);
    expect_elements(y, [&](int64_t group, int64_t column) {
      float sum = 0;
      for (int row = offsets[group]; row < offsets[group + 1]; ++row) sum += in[row * kColumns + column];
      return sum;
    });
  }
}

/// Every type, from global memory, shared memory and registers.
TEST(Items, OfEveryType) {
  for (DataType type : {boolean, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16,
                        float32, float64, float8_e4m3}) {
    SCOPED_TRACE(type.name());
    Machine machine;
    const std::vector<double> numbers = type.is_bool()     ? std::vector<double>{0, 1, 1, 0, 1, 0, 0, 1}
                                        : type.is_signed() ? std::vector<double>{-3, 7, -20, 44, 5, -1, 2, 0}
                                                           : std::vector<double>{3, 7, 200, 44, 5, 1, 2, 0};
    DeviceTensor x = machine.tensor(type, numbers), y = machine.output(type, {3, 8});
    machine.run(
        [type = type](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) {
          grid(1);
          auto g_x = global_view(x_ptr, type, {n});
          auto g_y = global_view(y_ptr, type, {3, 8});
          auto s_x = shared_tensor(type, {8});
          auto tile = load_global(g_x, {0}, {8});
          store_shared(s_x, tile);
          sync_threads();
          for (Int32 i : range(8)) {
            store_global(g_y, full(type, {1, 1}, g_x[i]), {0, i});
            store_global(g_y, full(type, {1, 1}, s_x.item({i})), {1, i});
            store_global(g_y, full(type, {1, 1}, tile.item({7 - i})), {2, 7 - i});
          }
        },
        8, x, y);
    expect_elements(y, [&](int64_t, int64_t i) { return x.to_host().to_doubles()[i]; });
  }
}

/// An element of a tile that one thread of 128, of 32, or of another group holds; in every group of threads.
TEST(Items, OfTilesReachEveryThread) {
  for (Arch arch : kAllArchs) {
    Machine machine(arch);
    DeviceTensor x = machine.random(float32, {16, 40}), y = machine.output(float32, {4, 256}),
                 at = machine.tensor(int32, std::vector<int>{11, 37});
    machine.run(
        [](Ptr<float32> x_ptr, Ptr<int32> at_ptr, Ptr<float32> y_ptr) {
          grid(1);
          warps(8);
          auto g_x = global_view(x_ptr, {16, 40});
          auto g_at = global_view(at_ptr, {2});
          auto g_y = global_view(y_ptr, {4, 256});
          const auto put = [&](int row, int first, int threads, const ScalarArg& value) {
            store_global(g_y, full(float32, {1, threads}, value), {row, first});
          };
          auto tile = load_global(g_x, {0, 0}, {16, 40});
          put(0, 0, 256, tile.item({g_at[0], g_at[1]}));
          put(1, 0, 256, tile.item({3, 39}));
          if (auto warp = single_warp(5)) put(2, 0, 32, load_global(g_x, {0, 0}, {16, 40}).item({5, 6}));
          if (auto group = warp_group(1, 2)) put(2, 32, 64, load_global(g_x, {0, 0}, {16, 40}).item({6, 7}));
          if (auto group = thread_group(256 - 32 + 8, 8))
            put(2, 96, 8, load_global(g_x, {2, 0}, {1, 40}).item({0, 9}));
          if (auto thread = single_thread(17))
            put(2, 104, 1, load_global(g_x, {0, 0}, {2, 2}).item({g_at[0] - 10, 1}));
        },
        x, at, y);
    const std::vector<float> in = values<float>(x), out = values<float>(y);
    const auto expect = [&](int row, int first, int count, float want) {
      for (int i = 0; i < count; ++i) EXPECT_EQ(out[row * 256 + first + i], want) << row << " " << first + i;
    };
    expect(0, 0, 256, in[11 * 40 + 37]);
    expect(1, 0, 256, in[3 * 40 + 39]);
    expect(2, 0, 32, in[5 * 40 + 6]);
    expect(2, 32, 64, in[6 * 40 + 7]);
    expect(2, 96, 8, in[2 * 40 + 9]);
    expect(2, 104, 1, in[1 * 40 + 1]);
  }
}

TEST(Items, ReductionsToOneScalarDecide) {
  for (int64_t rows : {1, 3, 64})
    for (int64_t columns : {1, 33, 128}) {
      Machine machine;
      DeviceTensor x = machine.random(float32, {rows, columns}), y = machine.output(float32, {6});
      machine.run(
          [rows, columns](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
            grid(1);
            auto x = load_global(global_view(x_ptr, {rows, columns}), {0, 0}, {rows, columns});
            auto g_y = global_view(y_ptr, {6});
            const auto put = [&](int at, const ScalarArg& value) {
              store_global(g_y, full(float32, {1}, value), {at});
            };
            put(0, sum(x));
            put(1, min(x));
            Float32 largest = max(x);
            put(2, largest);
            put(3, 0);
            if (auto arm = when(any(x == largest))) put(3, 1);
            put(4, 1);
            if (auto arm = when(any(x > largest))) put(4, 0);
            put(5, select(all(x <= largest), 1.0, 0.0));
          },
          x, y);
      const std::vector<float> in = values<float>(x), out = values<float>(y);
      double total = 0;
      for (float v : in) total += v;
      EXPECT_NEAR(out[0], total, 1e-4 * static_cast<double>(in.size()));
      EXPECT_EQ(out[1], *std::min_element(in.begin(), in.end()));
      EXPECT_EQ(out[2], *std::max_element(in.begin(), in.end()));
      for (int i : {3, 4, 5}) EXPECT_EQ(out[i], 1) << i;
    }
}

TEST(Items, ReductionsOverSeveralAxes) {
  Machine machine;
  DeviceTensor x = machine.random(int32, {4, 6, 40}), y = machine.output(int32, {6}),
               z = machine.output(int32, {4, 1, 1});
  machine.run(
      [](Ptr<int32> x_ptr, Ptr<int32> y_ptr, Ptr<int32> z_ptr) {
        grid(1);
        auto x = load_global(global_view(x_ptr, {4, 6, 40}), {0, 0, 0}, {4, 6, 40});
        store_global(global_view(y_ptr, {6}), sum(x, {.axes = {0, -1}}), {0});
        store_global(global_view(z_ptr, {4, 1, 1}), max(x, {.keep = true, .axes = {1, 2}}), {0, 0, 0});
      },
      x, y, z);
  const std::vector<int32_t> in = values<int32_t>(x);
  expect_elements(y, [&](int64_t j) {
    uint32_t sum = 0;
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 40; ++k) sum += static_cast<uint32_t>(in[(i * 6 + j) * 40 + k]);
    return static_cast<int32_t>(sum);
  });
  expect_elements(z, [&](int64_t i, int64_t, int64_t) {
    return *std::max_element(in.begin() + i * 240, in.begin() + (i + 1) * 240);
  });
}

/// A flag that a thread of the same group writes while the others read it is no scalar.
TEST(Items, ChangedWhileTheyAreReadAreARace) {
  Machine machine;
  DeviceTensor x = machine.tensor(int32, std::vector<int>{5}), y = machine.output(int32, {128});
  const LaunchReport report = machine.launch(
      [](Ptr<int32> x_ptr, Ptr<int32> y_ptr) {
        grid(1);
        auto g_x = global_view(x_ptr, {1});
        if (auto thread = single_thread(96)) store_global(g_x, full(int32, {1}, 6), {0});
        store_global(global_view(y_ptr, {128}), full(int32, {128}, g_x[0]), {0});
      },
      x, y);
  ASSERT_FALSE(report.clean());
  EXPECT_NE(report.virtual_report.format().find("race"), std::string::npos) << report.virtual_report.format();
}

template <class F>
std::string compile_error(const F& kernel, Machine machine = Machine()) {
  DeviceTensor x = machine.random(float32, {64});
  return error_of<CompileError>([&] { machine.launch(kernel, x); });
}

TEST(Items, ErrorsSayWhatToDo) {
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              auto g_x = global_view(x_ptr, {8, 8});
              check(g_x[0] > 0);
            }).find("a tensor of [8] elements where a scalar is wanted"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              check(load_global(global_view(x_ptr, {64}), {0}, {64}).item() > 0);
            }).find("item: [64] is not one element"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              check(load_global(global_view(x_ptr, {64}), {0}, {64}).item({64}) > 0);
            }).find("index 64 of dimension 0 is outside 0 ... 63"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              auto x = load_global(global_view(x_ptr, {64}), {0}, {64});
              if (auto warp = single_warp()) check(x.item({40}) > 0);
            }).find("spread over the threads of an enclosing group"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              auto x = load_global(global_view(x_ptr, {64}), {0}, {64});
              check(any(x) == 1);
            }).find("any: works on bool tensors, not on float32"),
            std::string::npos);
}

}  // namespace
}  // namespace imbrex::testing
