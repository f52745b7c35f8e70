// SPDX-License-Identifier: Apache-2.0
// Atomics on global and shared memory, scalars and tiles, and semaphores between CTAs.
#include <algorithm>
#include <numeric>
#include <set>

#include "kit.h"

namespace imbrex::testing {
namespace {

/// Each CTA draws a ticket; every thread of it must get the same one.
TEST(Atomics, OneElementOnceForTheGroup) {
  for (Arch arch : kAllArchs) {
    Machine machine(arch);
    DeviceTensor count = machine.tensor(int32, std::vector<int>{0, 0, 0}),
                 y = machine.output(int32, {8, 256});
    machine.run(
        [](Ptr<int32> count_ptr, Ptr<int32> y_ptr) {
          grid(8);
          warps(8);
          auto g_count = global_view(count_ptr, {3});
          auto g_y = global_view(y_ptr, {8, 256});
          auto ticket = atomic::add(g_count[0], 1, {.sem = Sem::kAcqRel});
          store_global(g_y, full(int32, {1, 128}, ticket), {block_idx.x, 0});
          if (auto warp = single_warp(3))
            store_global(g_y, full(int32, {1, 128}, atomic::add(g_count[1], 2)), {block_idx.x, 128});
          atomic::max(g_count[2], block_idx.x);
        },
        count, y);
    const std::vector<int32_t> counts = values<int32_t>(count), out = values<int32_t>(y);
    EXPECT_EQ(counts, (std::vector<int32_t>{8, 16, 7}));
    for (int half : {0, 1}) {
      std::set<int> tickets;
      for (int cta = 0; cta < 8; ++cta) {
        const int ticket = out[cta * 256 + half * 128];
        tickets.insert(ticket);
        for (int i = 0; i < 128; ++i) EXPECT_EQ(out[cta * 256 + half * 128 + i], ticket);
      }
      EXPECT_EQ(tickets.size(), 8u);
      EXPECT_EQ(*tickets.rbegin(), half ? 14 : 7);
    }
  }
}

/// Sums of all CTAs' tiles, of every type that adds, at an edge and with every width of vectors.
TEST(Atomics, AddTiles) {
  for (Arch arch : kAllArchs)
    for (DataType type : {int32, uint32, int64, uint64, float32, float64, float16, bfloat16})
      for (int64_t columns : {64, 60, 37}) {
        if (type == bfloat16 && arch == Arch::kSm80) continue;
        if (columns != 60 && type != float32 && type != float16) continue;
        SCOPED_TRACE(::testing::Message() << type.name() << " " << columns);
        Machine machine(arch);
        DeviceTensor x = machine.tensor(type, std::vector<int>{1, 2, 3, 4}), y = machine.tensor(type, [&] {
          std::vector<int> start(static_cast<size_t>(10 * columns));
          for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<int>(i % 50);
          return start;
        }());
        machine.run(
            [=](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) {
              grid(4);
              auto value = full(type, {16, 64}, global_view(x_ptr, type, {4})[block_idx.x]);
              auto g_y =
                  columns == 64 ? global_view(y_ptr, type, {10, columns}) : global_view(y_ptr, type, {10, n});
              atomic::add(g_y, value, {0, 0});
            },
            columns, x, y);
        expect_elements(y, [&](int64_t i) { return i % 50 + 10; });
      }
}

/// Every kind, in both memories, with and without the old values, through index tiles.
TEST(Atomics, EveryKind) {
  using Kind = RegisterValue (*)(const MemoryArg&, const NumArg&, const Offsets&);
  struct Case {
    const char* name;
    Kind update;
    int32_t (*plain)(int32_t, int32_t);
  };
  const Case cases[] = {
      {"add", [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::add(t, v, at); },
       [](int32_t a, int32_t b) { return a + b; }},
      {"min", [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::min(t, v, at); },
       [](int32_t a, int32_t b) { return std::min(a, b); }},
      {"max", [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::max(t, v, at); },
       [](int32_t a, int32_t b) { return std::max(a, b); }},
      {"bit_and",
       [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::bit_and(t, v, at); },
       [](int32_t a, int32_t b) { return a & b; }},
      {"bit_or",
       [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::bit_or(t, v, at); },
       [](int32_t a, int32_t b) { return a | b; }},
      {"bit_xor",
       [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::bit_xor(t, v, at); },
       [](int32_t a, int32_t b) { return a ^ b; }},
      {"exch", [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::exch(t, v, at); },
       [](int32_t, int32_t b) { return b; }},
      {"cas", [](const MemoryArg& t, const NumArg& v, const Offsets& at) { return atomic::cas(t, 5, v, at); },
       [](int32_t a, int32_t b) { return a == 5 ? b : a; }},
  };
  static constexpr int kCount = 100;
  for (const Case& c : cases)
    for (bool is_shared : {false, true})
      for (bool wants_old : {false, true}) {
        SCOPED_TRACE(::testing::Message() << c.name << (is_shared ? " shared" : " global") << wants_old);
        Machine machine;
        std::vector<int> start(kCount), value(kCount), at(kCount);
        for (int i = 0; i < kCount; ++i)
          start[i] = i % 3 ? i * 31 % 77 - 20 : 5, value[i] = 40 - i, at[i] = (i * 7) % kCount;
        DeviceTensor x = machine.tensor(int32, start), v = machine.tensor(int32, value),
                     g_at = machine.tensor(int32, at), y = machine.output(int32, {kCount}),
                     old = machine.output(int32, {kCount});
        machine.run(
            [=](Ptr<int32> x_ptr, Ptr<int32> v_ptr, Ptr<int32> at_ptr, Ptr<int32> y_ptr, Ptr<int32> old_ptr) {
              grid(1);
              auto g_y = global_view(y_ptr, {kCount});
              auto s = shared_tensor(int32, {kCount});
              auto start = load_global(global_view(x_ptr, {kCount}), {0}, {kCount});
              store_shared(s, start);
              store_global(g_y, start, {0});
              sync_threads();
              auto at = load_global(global_view(at_ptr, {kCount}), {0}, {kCount});
              auto v = load_global(global_view(v_ptr, {kCount}), {0}, {kCount});
              auto before = is_shared ? c.update(s, v, {at}) : c.update(g_y, v, {at});
              if (wants_old) store_global(global_view(old_ptr, {kCount}), before, {0});
              sync_threads();
              if (is_shared) store_global(g_y, load_shared(s), {0});
            },
            x, v, g_at, y, old);
        std::vector<int> want = start;
        for (int i = 0; i < kCount; ++i) want[at[i]] = c.plain(start[at[i]], value[i]);
        expect_elements(y, [&](int64_t i) { return want[i]; });
        if (wants_old) expect_elements(old, [&](int64_t i) { return start[at[i]]; });
      }
}

/// Old values reach the threads that hold copies: a tile smaller than the group.
TEST(Atomics, OldValuesOfASmallTile) {
  Machine machine;
  DeviceTensor x = machine.iota(float32, {32}), y = machine.output(float32, {32, 32});
  machine.run(
      [](Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(1);
        auto old = atomic::add(global_view(x_ptr, {32}), full(float32, {32}, 0.5), {0});
        store_global(global_view(y_ptr, {32, 32}), old.reshape({32, 1}) + zeros(float32, {32, 32}), {0, 0});
      },
      x, y);
  expect_elements(x, [](int64_t i) { return static_cast<double>(i) + 0.5; });
  expect_elements(y, [](int64_t i, int64_t) { return i; });
}

/// A histogram in shared memory, added to the one in global memory.
TEST(Atomics, HistogramOfManyCtas) {
  static constexpr int kBins = 20, kCount = 1000;
  for (Arch arch : kAllArchs) {
    Machine machine(arch);
    std::vector<int> numbers(kCount), want(kBins);
    for (int i = 0; i < kCount; ++i) numbers[i] = i * i % 97 % kBins;
    for (int n : numbers) ++want[n];
    DeviceTensor x = machine.tensor(int32, numbers), y = machine.tensor(int32, std::vector<int>(kBins));
    machine.run(
        [](Int32 n, Ptr<int32> x_ptr, Ptr<int32> y_ptr) {
          grid(cdiv(n, 256));
          auto s_bins = shared_tensor(int32, {kBins});
          store_shared(s_bins, zeros(int32, {kBins}));
          sync_threads();
          Int32 first = 256 * block_idx.x;
          auto bins = load_global(global_view(x_ptr, {n}), {first}, {256});
          auto i = register_tensor(int32, {256}, [&](auto i) { return first + i; });
          atomic::add(s_bins, 1, {bins}, {.mask = i < n});
          sync_threads();
          atomic::add(global_view(y_ptr, {kBins}), load_shared(s_bins), {0});
        },
        kCount, x, y);
    expect_elements(y, [&](int64_t i) { return want[i]; });
  }
}

/// CTA i waits for CTA i - 1, so that sums are in order: the same bits whatever the schedule.
TEST(Semaphores, PutCtasInOrder) {
  for (Arch arch : kAllArchs)
    for (uint64_t seed : {0, 1, 2}) {
      static constexpr int kCtas = 6;
      Machine machine(arch, seed);
      DeviceTensor x = machine.random(float32, {kCtas, 128}),
                   y = machine.tensor(float32, std::vector<float>(128)),
                   turn = machine.tensor(int32, std::vector<int>{0});
      machine.run(
          [](Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<int32> turn_ptr) {
            grid(kCtas);
            auto g_y = global_view(y_ptr, {128});
            auto turn = global_view(turn_ptr, {1})[0];
            auto part = load_global(global_view(x_ptr, {kCtas, 128}), {block_idx.x, 0}, {128});
            semaphore::wait(turn, block_idx.x);
            store_global(g_y, load_global(g_y, {0}, {128}) + part, {0});
            semaphore::release(turn, select(block_idx.x == kCtas - 1, 0, block_idx.x + 1));
          },
          x, y, turn);
      const std::vector<float> in = values<float>(x);
      expect_elements(y, [&](int64_t i) {
        float sum = 0;
        for (int cta = 0; cta < kCtas; ++cta) sum += in[cta * 128 + i];
        return sum;
      });
      EXPECT_EQ(values<int32_t>(turn)[0], 0);
    }
}

/// A lock keeps CTAs apart, whatever their order.
TEST(Semaphores, LockOneAtATime) {
  Machine machine;
  DeviceTensor y = machine.tensor(int32, std::vector<int>(64)),
               lock = machine.tensor(int32, std::vector<int>{0, 0});
  machine.run(
      [](Ptr<int32> y_ptr, Ptr<int32> lock_ptr) {
        grid(5);
        warps(2);
        auto g_y = global_view(y_ptr, {64});
        auto lock = global_view(lock_ptr, {2})[1];
        semaphore::lock(lock);
        store_global(g_y, load_global(g_y, {0}, {64}) + 1, {0});
        semaphore::unlock(lock);
      },
      y, lock);
  expect_elements(y, [](int64_t) { return 5; });
}

/// Without the semaphore the same is a race.
TEST(Semaphores, ForgottenIsARace) {
  Machine machine;
  DeviceTensor y = machine.tensor(int32, std::vector<int>(64));
  const LaunchReport report = machine.launch(
      [](Ptr<int32> y_ptr) {
        grid(5);
        auto g_y = global_view(y_ptr, {64});
        store_global(g_y, load_global(g_y, {0}, {64}) + 1, {0});
      },
      y);
  ASSERT_FALSE(report.clean());
  EXPECT_NE(report.virtual_report.format().find("race"), std::string::npos) << report.virtual_report.format();
}

/// One CTA hands a number to another by a flag, whose accesses have this scope.
LaunchReport hand_over(Scope scope, int64_t ctas_of_cluster, int& received) {
  Machine machine(Arch::kSm90a);
  DeviceTensor data = machine.tensor(int32, std::vector<int>{0}),
               flag = machine.tensor(int32, std::vector<int>{0}), y = machine.output(int32, {1});
  const LaunchReport report = machine.launch(
      [=](Ptr<int32> data_ptr, Ptr<int32> flag_ptr, Ptr<int32> y_ptr) {
        grid(2);
        cluster(ctas_of_cluster);
        warps(1);
        auto g_data = global_view(data_ptr, {1});
        auto flag = global_view(flag_ptr, {1})[0];
        if (auto writer = when(block_idx.x == 0)) {
          store_global(g_data, full(int32, {1}, 7), {0});
          atomic::exch(flag, 1, {.sem = Sem::kRelease, .scope = scope});
        }
        if (auto reader = when(block_idx.x == 1)) {
          for (Loop loop : forever())
            loop.break_if(atomic::add(flag, 0, {.sem = Sem::kAcquire, .scope = scope}) == 1);
          store_global(global_view(y_ptr, {1}), load_global(g_data, {0}, {1}), {0});
        }
      },
      data, flag, y);
  received = values<int32_t>(y)[0];
  return report;
}

TEST(Atomics, OrderTheCtasOfAClusterAtItsScope) {
  int received = 0;
  for (const Scope scope : {Scope::kCluster, Scope::kGpu, Scope::kSystem}) {
    const LaunchReport report = hand_over(scope, 2, received);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    EXPECT_EQ(received, 7);
  }
}

TEST(Atomics, TheScopeOfAClusterOrdersNoOtherCluster) {
  int received = 0;
  const LaunchReport wide = hand_over(Scope::kGpu, 1, received);
  EXPECT_TRUE(wide.clean()) << wide.virtual_report.format();
  const LaunchReport narrow = hand_over(Scope::kCluster, 1, received);
  ASSERT_FALSE(narrow.clean());
  EXPECT_NE(narrow.virtual_report.format().find("race"), std::string::npos) << narrow.virtual_report.format();
}

template <class F>
std::string compile_error(const F& kernel) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {64});
  return error_of<CompileError>([&] { machine.launch(kernel, x); });
}

TEST(Atomics, ErrorsSayWhatToDo) {
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              atomic::max(global_view(x_ptr, {64}), full(float32, {64}, 1), {0});
            }).find("max works on 32- and 64-bit integers, not on float32"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              atomic::add(global_view(x_ptr, {64}), 1);
            }).find("a tensor of [64] elements where one is wanted"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              atomic::add(global_view(x_ptr, {64}), 1, {0});
            }).find("neither the value nor an offset is a tile"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              semaphore::wait(global_view(x_ptr, {64})[0], 1);
            }).find("a semaphore is an int32 or uint32, not a float32"),
            std::string::npos);
  EXPECT_NE(compile_error([](Ptr<float32> x_ptr) {
              grid(1);
              atomic::add(global_view(x_ptr, {64})[0], 1, {.scope = Scope::kCluster});
            }).find("sm_90"),
            std::string::npos);
}

}  // namespace
}  // namespace imbrex::testing
