// SPDX-License-Identifier: Apache-2.0
// Elements of 1 to 7 bits in global and shared memory: moved by threads, by cp.async and by TMA, at any multiple of a
// byte, with edges; what shares a byte with others is refused or found.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "kit.h"
#include "layout/layout.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

std::vector<DataType> types_below_a_byte() {
  std::vector<DataType> types;
  for (int code = 0; code < DataType::kCount; ++code)
    if (const DataType type{static_cast<DataType::Code>(code)}; type.bits() < 8) types.push_back(type);
  return types;
}

class SmallMemory : public ::testing::TestWithParam<Arch> {};

TEST_P(SmallMemory, EveryTypeThroughEveryMemory) {
  for (const DataType type : types_below_a_byte()) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    // Of 40 rows a third of the last tile is outside, and of 160 columns half of the second.
    constexpr int64_t m = 40, n = 192, tile_m = 16, tile_n = 128;
    DeviceTensor x = machine.random(type, {m, n}), y = machine.output(type, {m, n}),
                 z = machine.output(type, {m, n}), w = machine.output(float32, {m, n});
    machine.run(
        [=](Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> z_ptr, Ptr<> w_ptr) {
          grid(cdiv(m, tile_m), cdiv(n, tile_n));
          Int32 i = tile_m * block_idx.x, j = tile_n * block_idx.y;
          auto g_x = global_view(x_ptr, type, {m, n});
          auto s = shared_tensor(type, {2, tile_m, tile_n});
          copy_async(g_x, s[1], {i, j});
          auto tile = load_global(g_x, {i, j}, {tile_m, tile_n});
          store_shared(s[0], tile);
          copy_async_wait_all();
          sync();
          store_global(global_view(y_ptr, type, {m, n}), load_shared(s[0]), {i, j});
          store_global(global_view(z_ptr, type, {m, n}), load_shared(s[1]), {i, j});
          store_global(global_view(w_ptr, float32, {m, n}), tile.to(float32), {i, j});
        },
        x, y, z, w);
    const std::vector<double> in = x.to_host().to_doubles();
    for (const DeviceTensor& out : {y, z, w})
      expect_elements(out, [&](int64_t i, int64_t j) { return in[i * n + j]; });
  }
}

/// Tensor cores hold neighbours of the other dimension: tiles move as whole bytes, and between threads once they are converted.
TEST_P(SmallMemory, OperandsOfTensorCoresWhicheverWayTheyLie) {
  for (const DataType type : types_below_a_byte()) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    constexpr int64_t size = 64;
    DeviceTensor a = machine.random(float16, {size, size}), x = machine.random(type, {size, size}),
                 y = machine.output(float32, {2, size, size}), z = machine.output(type, {size, size});
    machine.run(
        [=](Ptr<> a_ptr, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> z_ptr) {
          grid(1);
          warps(4);
          auto g_x = global_view(x_ptr, type, {size, size});
          auto tile = load_global(global_view(a_ptr, float16, {size, size}), {0, 0}, {size, size});
          auto s = shared_tensor(type, {size, size});
          copy_async(g_x, s, {0, 0});
          copy_async_wait_all();
          sync();
          RegisterTensor sums = zeros(float32, {size, size});
          sums = mma(tile, load_global(g_x, {0, 0}, {size, size}).to(float16), sums);
          sums = mma(tile, load_shared(s).to(float16), sums);
          auto others = mma(tile, load_global(g_x, {0, 0}, {size, size}).transpose().to(float16),
                            zeros(float32, {size, size}));
          auto g_y = global_view(y_ptr, float32, {2, size, size});
          store_global(g_y, sums.reshape({1, size, size}), {0, 0, 0});
          store_global(g_y, others.reshape({1, size, size}), {1, 0, 0});
          store_global(global_view(z_ptr, type, {size, size}), sums.to(type), {0, 0});
        },
        a, x, y, z);
    const std::vector<double> in_a = a.to_host().to_doubles(), in_x = x.to_host().to_doubles(),
                              got = y.to_host().to_doubles();
    const auto is_sum = [&](int64_t at, const auto& term) {
      double sum = 0, size_of_terms = 0;
      for (int64_t k = 0; k < size; ++k) {
        sum += term(k);
        size_of_terms += std::abs(term(k));
      }
      return std::abs(got[static_cast<size_t>(at)] - sum) <= 1e-5 * size_of_terms;
    };
    HostTensor converted(type, {size, size});
    int wrong = 0;
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < size; ++j) {
        wrong +=
            !is_sum(i * size + j, [&](int64_t k) { return 2 * in_a[i * size + k] * in_x[k * size + j]; });
        wrong += !is_sum((size + i) * size + j,
                         [&](int64_t k) { return in_a[i * size + k] * in_x[j * size + k]; });
        converted.set(i * size + j, got[i * size + j]);
      }
    EXPECT_EQ(wrong, 0);
    expect_elements(z, [&](int64_t i, int64_t j) { return converted.get(i * size + j); });
  }
}

TEST_P(SmallMemory, TilesBeginAtAnyByte) {
  for (const DataType type : types_below_a_byte()) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    constexpr int64_t m = 6, n = 104;  // rows of 13 bytes for each bit
    DeviceTensor x = machine.random(type, {m, n}), y = machine.output(type, {m, n});
    machine.run(
        [=](Ptr<> x_ptr, Ptr<> y_ptr) {  // groups of 8 columns, each by a CTA, in reverse order
          grid(n / 8);
          warps(1);
          auto g_x = global_view(x_ptr, type, {m, n});
          auto tile = load_global(g_x, {0, 8 * (n / 8 - 1 - block_idx.x)}, {m, 8});
          store_global(global_view(y_ptr, type, {m, n}), tile, {0, 8 * block_idx.x});
        },
        x, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[i * n + (n / 8 - 1 - j / 8) * 8 + j % 8]; });
  }
}

TEST_P(SmallMemory, StoresLeaveWhatIsBesideThem) {
  for (const DataType type : types_below_a_byte()) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    DeviceTensor x = machine.random(type, {8, 64}), y = machine.random(type, {8, 64});
    const std::vector<double> in = x.to_host().to_doubles(), before = y.to_host().to_doubles();
    machine.run(
        [=](Ptr<> x_ptr, Ptr<> y_ptr) {
          grid(1);
          warps(1);
          auto tile = load_global(global_view(x_ptr, type, {8, 64}), {0, 0}, {8, 64});
          store_global(global_view(y_ptr, type, {8, 64}).slice({2, 16}, {4, 24}), tile, {0, 0});
        },
        x, y);
    expect_elements(y, [&](int64_t i, int64_t j) {
      return i >= 2 && i < 8 && j >= 16 ? in[(i - 2) * 64 + j - 16] : before[i * 64 + j];
    });
  }
}

TEST_P(SmallMemory, OtherLayoutsItemsAndBools) {
  for (const DataType type : types_below_a_byte()) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    DeviceTensor x = machine.random(type, {32, 32}), y = machine.output(float32, {32, 32}),
                 z = machine.output(float32, {3}), b = machine.output(int32, {32, 32});
    machine.run(
        [=](Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> z_ptr, Ptr<> b_ptr) {
          grid(1);
          warps(1);
          auto tile = load_global(global_view(x_ptr, type, {32, 32}), {0, 0}, {32, 32});
          // Neighbours of a row come to different threads.
          auto turned = relayout(tile.transpose());
          annotate_layout(turned, layout::Layout::parse("[32: 32r1, 32: 32t1]"));
          store_global(global_view(y_ptr, float32, {32, 32}), turned.to(float32), {0, 0});
          auto g_z = global_view(z_ptr, float32, {3});
          for (int i = 0; i < 3; ++i)
            store_global(g_z, full(float32, {1}, tile.item({i, 5}).to(float32)), {i});
          store_global(global_view(b_ptr, int32, {32, 32}), tile.to(boolean).to(int32), {0, 0});
        },
        x, y, z, b);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[j * 32 + i]; });
    expect_elements(z, [&](int64_t i) { return in[i * 32 + 5]; });
    expect_elements(b, [&](int64_t i, int64_t j) { return in[i * 32 + j] != 0 ? 1 : 0; });
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, SmallMemory, ::testing::ValuesIn(kAllArchs),
                         [](const auto& info) { return std::string(target_name(info.param)); });

TEST(SmallMemoryTma, CopiesPackedTilesAsBytes) {
  for (const DataType type : types_below_a_byte()) {
    SCOPED_TRACE(type.name());
    Machine machine(Arch::kSm90a);
    const int64_t m = 50, n = 128, bytes = n * type.bits() / 8;
    DeviceTensor x = machine.random(type, {m, n}), y = machine.output(float32, {m, n});
    DeviceTensor x_bytes = DeviceTensor::view(machine.device(), x.address(), uint8, {m, bytes});
    machine.run(
        [=](Ptr<uint8> x_ptr, Ptr<float32> y_ptr) {
          grid(cdiv(m, 32));
          warps(1);
          Int32 i = 32 * block_idx.x;
          auto s = shared_tensor(uint8, {32, bytes});
          auto full = mbarrier::alloc(1);
          sync();
          if (auto thread = single_thread()) {
            mbarrier::arrive_and_expect_tx(full, 32 * bytes);
            tma::global_to_shared(global_view(x_ptr, {m, bytes}), s, {i, 0}, full);
          }
          mbarrier::wait(full, 0);
          auto rows = layout::Layout::parse(fmt::format("[32: 32t1, {}: {}r1]", bytes, bytes));
          auto packed = load_shared(s);
          annotate_layout(packed, rows);
          store_global(global_view(y_ptr, {m, n}), view(packed, type).to(float32), {i, 0});
        },
        x_bytes, y);
    const std::vector<double> in = x.to_host().to_doubles();
    expect_elements(y, [&](int64_t i, int64_t j) { return in[i * n + j]; });
  }
}

/// What the compiler says of a kernel of one tensor of 64 x 64 elements and a number.
template <class F>
std::string refusal(DataType type, const F& kernel, Arch arch = Arch::kSm80) {
  Machine machine(arch);
  DeviceTensor x = machine.output(type, {64, 64});
  return error_of<CompileError>([&] { machine.launch(kernel, 3, x); });
}

TEST(SmallMemoryMisuse, WhatBeginsOrEndsInsideAByteIsRefused) {
  for (const DataType type : {int4, int3, float6_e2m3}) {
    SCOPED_TRACE(type.name());
    // A store at an odd place would have to keep the rest of a byte.
    EXPECT_THAT(refusal(type,
                        [=](Int32 j, Ptr<> x) {
                          grid(1);
                          auto g = global_view(x, type, {64, 64});
                          store_global(g, load_global(g, {0, 0}, {8, 32}), {0, j});
                        }),
                AllOf(HasSubstr("store_global"), HasSubstr(std::string(type.name())), HasSubstr("whole")));
    // So would one that ends where the tensor ends, inside a byte.
    EXPECT_THAT(refusal(type,
                        [=](Int32 n, Ptr<> x) {
                          grid(1);
                          auto g = global_view(x, type, {64, n});
                          store_global(g, full(float32, {8, 32}, 1).to(type), {0, 0});
                        }),
                AllOf(HasSubstr("store_global"), HasSubstr("whole")));
    // Every other element in another thread.
    EXPECT_THAT(refusal(type,
                        [=](Int32, Ptr<> x) {
                          grid(1);
                          warps(1);
                          auto tile = load_global(global_view(x, type, {64, 64}), {0, 0}, {8, 32});
                          annotate_layout(tile, layout::Layout::parse("[8: 8r1, 32: 32t1]"));
                          store_shared(shared_tensor(type, {8, 32}), tile);
                        }),
                HasSubstr("whole"));
    EXPECT_THAT(refusal(type,
                        [=](Int32 j, Ptr<> x) {
                          grid(1);
                          printf("%d\n", global_view(x, type, {64, 64}).item({0, j}).to(int32));
                        }),
                AllOf(HasSubstr("shares its byte"), HasSubstr("item()")));
  }
}

TEST(SmallMemoryMisuse, TensorMapsAreOfBytesBeforeBlackwell) {
  const auto by_tma = [](DataType type) {
    return [=](Int32, Ptr<> x) {
      grid(1);
      warps(1);
      auto s = shared_tensor(type, {8, 64});
      auto full = mbarrier::alloc(1);
      if (auto thread = single_thread())
        tma::global_to_shared(global_view(x, type, {64, 64}), s, {0, 0}, full);
    };
  };
  EXPECT_THAT(refusal(int4, by_tma(int4), Arch::kSm90a), HasSubstr("before sm_100"));
  EXPECT_THAT(refusal(int4, by_tma(int4), Arch::kSm90a), HasSubstr("view() what load_shared() gives"));
  EXPECT_EQ(refusal(int4, by_tma(int4), Arch::kSm100a), "");
}

/// Threads that each change their half of a byte: one of two changes is lost, whatever the order.
TEST(SmallMemoryMisuse, TwoHalvesOfAByteByTwoThreadsAreARace) {
  Machine machine;
  DeviceTensor x = machine.iota(uint8, {16});
  const LaunchReport report = machine.launch(
      [](Ptr<uint8> x_ptr) {
        grid(1);
        warps(1);
        auto g = global_view(x_ptr, {16});
        auto thread = register_tensor(int32, {32}, [](auto i) { return i; });
        auto bytes = gather(g, {thread / 2}, {32});
        auto shift = (thread % 2 * 4).to(uint8);
        auto changed = (bytes.to(int32) & ~(15 << shift.to(int32))) | (5 << shift.to(int32));
        scatter(g, changed.to(uint8), {thread / 2});
      },
      x);
  EXPECT_FALSE(report.clean());
  EXPECT_THAT(report.virtual_report.format(), HasSubstr("race"));
}

}  // namespace
}  // namespace imbrex::testing
