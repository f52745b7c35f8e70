// SPDX-License-Identifier: Apache-2.0
// Leaving a kernel early, pointers from tables, memory that is used twice, cp.async from places that are data, threads and
// CTAs by number.
#include "kit.h"

namespace imbrex::testing {
namespace {

TEST(Return, CtasLeaveEarly) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {64}), y = machine.output(float32, {64});
  machine.run(
      [](Int32 ctas, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(ctas);
        Int32 i = 16 * block_idx.x;
        return_if(i >= 64);
        auto tile = load_global(global_view(x_ptr, {64}), {i}, {16});
        for (Int32 k : range(4)) {
          if (auto last = when(k == 1 && i == 32)) {
            store_global(global_view(y_ptr, {64}), -tile, {i});
            return_();
          }
        }
        store_global(global_view(y_ptr, {64}), tile, {i});
      },
      100, x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i) { return i / 16 == 2 ? -in[i] : in[i]; });
}

TEST(Return, NotOutOfAThreadGroupAndNotBeforeMore) {
  Machine machine;
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Int32 n) {
                      grid(n);
                      if (auto warp = single_warp(0)) return_if(n > 2);
                    },
                    1);
              }),
              ::testing::HasSubstr("only some of the CTA's threads would leave the kernel"));
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Int32 n) {
                      grid(n);
                      return_();
                      sync_threads();
                    },
                    1);
              }),
              ::testing::HasSubstr("can never run: it follows an unconditional return"));
}

TEST(Pointers, OfATableAreData) {
  Machine machine;
  constexpr int64_t kTables = 3, kElements = 40;
  std::vector<DeviceTensor> parts;
  HostTensor addresses(uint64, {kTables});
  for (int64_t t = 0; t < kTables; ++t) {
    parts.push_back(machine.random(float32, {kElements}));
    const uint64_t address = parts.back().address();
    std::memcpy(addresses.bytes().data() + 8 * t, &address, 8);
  }
  DeviceTensor table = DeviceTensor::from_host(machine.device(), addresses),
               y = machine.output(float32, {kTables, kElements});
  machine.run(
      [](Ptr<uint64> table_ptr, Ptr<float32> y_ptr) {
        grid(kTables);
        auto g_table = global_view(table_ptr, {kTables});
        auto g_part = global_view(pointer_at<float32>(g_table[block_idx.x]), {kElements});
        auto tile = load_global(g_part, {0}, {kElements});
        store_global(global_view(y_ptr, {kTables, kElements})[block_idx.x], 2 * tile, {0});
        sync_threads();  // copies of the tile in several threads
        store_global(g_part, tile + 1, {0});
      },
      table, y);
  for (int64_t t = 0; t < kTables; ++t) {
    const std::vector<double> now = parts[t].to_host().to_doubles();
    const std::vector<double> twice = y.to_host().to_doubles();
    for (int64_t i = 0; i < kElements; ++i)
      EXPECT_NEAR(twice[t * kElements + i] / 2 + 1, now[i], 1e-6) << t << " " << i;
  }
}

TEST(SharedMemory, WhatIsFreedIsUsedAgain) {
  for (bool synchronises : {true, false}) {
    Machine machine;
    DeviceTensor x = machine.random(float32, {2, 128, 64}), y = machine.output(float32, {2, 64, 128});
    const LaunchReport report = machine.launch(
        [synchronises](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
          grid(1);
          auto g_x = global_view(x_ptr, {2, 128, 64}), g_y = global_view(y_ptr, {2, 64, 128});
          // Each takes 32 KiB, all of them 64.
          auto first = shared_tensor(float32, {128, 64});
          auto kept = shared_tensor(float32, {128, 64});
          store_shared(first, load_global(g_x[0], {0, 0}, {128, 64}));
          store_shared(kept, load_global(g_x[1], {0, 0}, {128, 64}));
          sync_threads();
          auto turned = load_shared(first.transpose());
          free_shared(first);
          if (synchronises) sync_threads();
          auto second = shared_tensor(float32, {64, 128});
          store_shared(second, turned + 1);
          sync_threads();
          store_global(g_y[0], load_shared(second), {0, 0});
          store_global(g_y[1], load_shared(kept.transpose()), {0, 0});
        },
        x, y);
    if (!synchronises) {
      EXPECT_FALSE(report.clean());
      EXPECT_THAT(report.virtual_report.format(), ::testing::HasSubstr("race"));
      continue;
    }
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t s, int64_t i, int64_t j) {
      const double element = in[(s * 128 + j) * 64 + i];
      return s == 0 ? static_cast<double>(static_cast<float>(element) + 1.0f) : element;
    });
  }
}

TEST(SharedMemory, FreedTensorsMakeRoom) {
  // Three tiles of 64 KiB on a GPU whose CTAs have 163: two at a time.
  Machine machine;
  DeviceTensor x = machine.random(float32, {3, 128, 128}), y = machine.output(float32, {3, 128, 128});
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        for (int64_t i = 0; i < 3; ++i) {
          auto tile = shared_tensor(float32, {128, 128});
          store_shared(tile, load_global(global_view(x_ptr, {3, 128, 128})[i], {0, 0}, {128, 128}));
          sync_threads();
          store_global(global_view(y_ptr, {3, 128, 128})[i], load_shared(tile.transpose()), {0, 0});
          sync_threads();
          free_shared(tile);
        }
      },
      x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t s, int64_t i, int64_t j) { return in[(s * 128 + j) * 128 + i]; });
}

TEST(SharedMemory, FreedTensorsAreNotUsed) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {64});
  const std::string text = error_of<CompileError>([&] {
    machine.launch(
        [](Ptr<float32> x_ptr) {
          grid(1);
          auto g_x = global_view(x_ptr, {64});
          auto tile = shared_tensor(float32, {64});
          store_shared(tile, load_global(g_x, {0}, {64}));
          free_shared(tile);
          store_global(g_x, load_shared(tile), {0});
        },
        x);
  });
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("load_shared: uses %tile after it was freed"),
                                     ::testing::HasSubstr("freed by shared_free at")));
  EXPECT_THAT(error_of<CompileError>([&] {
                machine.launch(
                    [](Ptr<float32> x_ptr) {
                      grid(1);
                      auto tile = shared_tensor(float32, {2, 64});
                      store_shared(tile[0], load_global(global_view(x_ptr, {64}), {0}, {64}));
                      free_shared(tile[0]);
                    },
                    x);
              }),
              ::testing::HasSubstr("frees a whole allocation, not a view of one"));
}

TEST(CopyAsyncGather, RowsByIndexWithAMask) {
  for (DataType type : {float16, float32, uint8})
    for (int64_t width : {64, 96, 208}) {
      SCOPED_TRACE(::testing::Message() << type.name() << " " << width);
      constexpr int64_t kRows = 24, kTable = 50;
      Machine machine;
      DeviceTensor table = machine.random(type, {kTable, width}), y = machine.output(type, {kRows, 64});
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < kRows; ++i) numbers.push_back(i % 5 == 4 ? -1 : (i * 29 + 7) % kTable);
      DeviceTensor index = machine.tensor(int32, numbers);
      machine.run(
          [type, width](Ptr<> table_ptr, Ptr<int32> index_ptr, Ptr<> y_ptr) {
            grid(1);
            auto g_table = global_view(table_ptr, type, {kTable, width});
            auto rows = load_global(global_view(index_ptr, {kRows}), {0}, {kRows}).reshape({kRows, 1});
            auto tile = shared_tensor(type, {kRows, 64});
            copy_async_gather(g_table, tile, {rows, width - 64}, {}, rows >= 0);
            copy_async_wait_all();
            sync_threads();
            store_global(global_view(y_ptr, type, {kRows, 64}), load_shared(tile), {0, 0});
          },
          table, index, y);
      const std::vector<double> in = table.to_host().to_doubles();
      expect_elements(y, [&](int64_t i, int64_t j) {
        return numbers[i] < 0 ? 0.0 : in[numbers[i] * width + width - 64 + j];
      });
    }
}

TEST(CopyAsyncGather, ReportsIndicesOutside) {
  Machine machine;
  DeviceTensor table = machine.random(float32, {8, 32}), y = machine.output(float32, {4, 32});
  DeviceTensor index = machine.tensor<int64_t>(int32, {1, 2, 8, 3});
  const LaunchReport report = machine.launch(
      [](Ptr<float32> table_ptr, Ptr<int32> index_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto rows = load_global(global_view(index_ptr, {4}), {0}, {4}).reshape({4, 1});
        auto tile = shared_tensor(float32, {4, 32});
        copy_async_gather(global_view(table_ptr, {8, 32}), tile, {rows, 0});
        copy_async_wait_all();
        sync_threads();
        store_global(global_view(y_ptr, {4, 32}), load_shared(tile), {0, 0});
      },
      table, index, y);
  EXPECT_FALSE(report.clean());
  EXPECT_THAT(report.virtual_report.format(),
              ::testing::HasSubstr(
                  "copy_async_gather: index 8 along dimension 0 is outside the tensor, which has 8 there"));
}

TEST(Threads, ByNumberInTheirGroup) {
  Machine machine;
  DeviceTensor y = machine.output(int32, {256});
  machine.run(
      [](Ptr<int32> y_ptr) {
        grid(1);
        auto g_y = global_view(y_ptr, {256});
        const auto number = [&] {
          const int64_t begin = thread_group_begin(), size = thread_group_size();
          auto mine = register_tensor(int32, {size}, [&](auto i) { return i; });
          store_global(g_y, mine * 0 + thread_index() + 1000 * begin, {128 + begin});
        };
        store_global(g_y, register_tensor(int32, {128}, [&](auto) { return thread_index(); }), {0});
        if (auto warp = single_warp(1)) number();
        if (auto rest = warp_group(2, 2)) number();
        if (auto first = single_warp(0)) store_global(g_y, zeros(int32, {32}), {128});
      },
      y);
  expect_elements(y, [](int64_t i) -> int64_t {
    if (i < 128) return i;
    const int64_t t = i - 128;
    return t < 32 ? 0 : t < 64 ? t - 32 + 32000 : t - 64 + 64000;
  });
}

TEST(Clusters, CtasByTheirPlace) {
  Machine machine(Arch::kSm90a);
  DeviceTensor y = machine.output(int32, {8, 4});
  machine.run(
      [](Ptr<int32> y_ptr) {
        grid(4, 2);
        cluster(2, 2);
        require(cluster_size() == 4 && cluster_dim(1) == 2, "a cluster of four");
        const ClusterIndices at = cluster_idx();
        Int32 cta = block_idx.y * 4 + block_idx.x;
        auto column = register_tensor(int32, {4}, [&](auto i) {
          return select(i == 0, at.x, select(i == 1, at.y, select(i == 2, at.z, cluster_rank())));
        });
        store_global(global_view(y_ptr, {8, 4})[cta], column, {0});
        cluster_sync();
      },
      y);
  expect_elements(y, [](int64_t cta, int64_t i) {
    const int64_t x = cta % 4 % 2, row = cta / 4;
    return i == 0 ? x : i == 1 ? row : i == 2 ? 0 : row * 2 + x;
  });
}

TEST(Barriers, BytesAnnouncedByManyThreadsAndToMany) {
  // Every thread of a warp announces what it brings; then one thread announces to the CTAs that a run-time mask names.
  Machine machine(Arch::kSm90a);
  DeviceTensor x = machine.random(float32, {32, 32}), y = machine.output(float32, {4, 32, 32});
  machine.run(
      [](Int32 mask, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(4);
        cluster(4);
        auto g_x = global_view(x_ptr, {32, 32});
        auto tile = shared_tensor(float32, {32, 32});
        auto ready = mbarrier::alloc(32), told = mbarrier::alloc(1);
        cluster_sync();
        if (auto warp = single_warp(0)) {
          mbarrier::arrive_and_expect_tx(ready, 32 * 4, {.each_thread = true});
          tma::global_to_shared(g_x, tile, {0, 0}, ready);
        }
        mbarrier::wait(ready, 0);
        if (auto first = when(cluster_rank() == 0)) {
          if (auto one = single_thread()) arrive_and_expect_tx_multicast(told, 0, mask);
        }
        if (auto named = when((mask >> cluster_rank() & 1) != 0)) {
          mbarrier::wait(told, 0);
          store_global(global_view(y_ptr, {4, 32, 32})[cluster_rank()], load_shared(tile), {0, 0});
        }
        if (auto others = otherwise()) {
          store_global(global_view(y_ptr, {4, 32, 32})[cluster_rank()], zeros(float32, {32, 32}), {0, 0});
        }
        cluster_sync();
      },
      0b1011, x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t c, int64_t i, int64_t j) { return c == 2 ? 0.0 : in[i * 32 + j]; });
}

}  // namespace
}  // namespace imbrex::testing
