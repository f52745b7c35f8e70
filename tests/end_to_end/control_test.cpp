// SPDX-License-Identifier: Apache-2.0
// Run-time control flow against the same flow in C++.
#include <numeric>

#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

constexpr int64_t kLog = 64;

/// A list in global memory that one CTA appends to, behind its length at [0].
struct Log {
  GlobalTensor memory;
  Int32 length = 0;

  explicit Log(const Ptr<int32>& pointer) : memory(global_view(pointer, {kLog})) {}
  void add(const ScalarArg& value) {
    length += 1;
    store_global(memory, full(int32, {1}, value), {length});
  }
  void close() { store_global(memory, full(int32, {1}, length), {0}); }
};

/// Runs `body(log, a, b, c)` in a kernel; what it logged.
template <class Body>
std::vector<int32_t> logged(const Body& body, int32_t a = 0, int32_t b = 0, int32_t c = 0) {
  Machine machine;
  DeviceTensor out = machine.output(int32, {kLog});
  machine.run(
      [=](Int32 x, Int32 y, Int32 z, Ptr<int32> out_ptr) {
        grid(1);
        Log log(out_ptr);
        body(log, x, y, z);
        log.close();
      },
      a, b, c, out);
  const std::vector<int32_t> all = values<int32_t>(out);
  EXPECT_GE(all[0], 0);
  EXPECT_LT(all[0], kLog);
  return {all.begin() + 1, all.begin() + 1 + all[0]};
}

struct Steps {
  int32_t begin, end, step;

  friend std::ostream& operator<<(std::ostream& out, const Steps& s) {
    return out << "from " << s.begin << " to " << s.end << " by " << s.step;
  }
};

std::vector<int32_t> steps_in_cpp(const Steps& s) {
  std::vector<int32_t> visited;
  for (int32_t i = s.begin; s.step > 0 ? i < s.end : i > s.end; i += s.step) visited.push_back(i);
  return visited;
}

class Ranges : public ::testing::TestWithParam<Steps> {};

TEST_P(Ranges, VisitWhatAForLoopVisits) {
  const Steps s = GetParam();
  const std::vector<int32_t> expected = steps_in_cpp(s);
  const auto step_of_launch = [&](int64_t unroll) {
    return logged(
        [=](Log& log, auto& begin, auto& end, auto& step) {
          for (Int32 i : range(begin, end, step, {.unroll = unroll})) log.add(i);
        },
        s.begin, s.end, s.step);
  };
  const auto bounds_of_launch = [&](int64_t unroll) {
    return logged(
        [=](Log& log, auto& begin, auto& end, auto&) {
          for (Int32 i : range(begin, end, s.step, {.unroll = unroll})) log.add(i);
        },
        s.begin, s.end);
  };
  const auto bounds_of_kernel = [&](int64_t unroll) {
    return logged([=](Log& log, auto&, auto&, auto&) {
      for (Int32 i : range(s.begin, s.end, s.step, {.unroll = unroll})) log.add(i);
    });
  };
  for (int64_t unroll : {1, 2, 3, 4, 7}) {
    if (s.step > 0) {  // a run-time step counts upward
      EXPECT_EQ(step_of_launch(unroll), expected) << unroll;
    }
    EXPECT_EQ(bounds_of_launch(unroll), expected) << unroll;
    EXPECT_EQ(bounds_of_kernel(unroll), expected) << unroll;
  }
  EXPECT_EQ(bounds_of_kernel(0), expected) << "unrolled completely";
}

INSTANTIATE_TEST_SUITE_P(All, Ranges,
                         ::testing::Values(Steps{0, 10, 1}, Steps{0, 1, 1}, Steps{0, 0, 1}, Steps{3, 2, 1},
                                           Steps{-5, 6, 1}, Steps{0, 10, 3}, Steps{0, 12, 4}, Steps{2, 30, 7},
                                           Steps{0, 5, 100}, Steps{10, 0, -1}, Steps{10, -1, -3},
                                           Steps{0, 10, -1}, Steps{-1, -20, -6},
                                           Steps{-1073741824, 1073741823, 536870912}),
                         ParamName());

TEST(Control, TheLoopVariableMayBeChangedInTheBody) {
  // A C++ for over a range: the body's own copy changes, the loop goes on as before.
  EXPECT_EQ(logged(
                [](Log& log, auto& n, auto&, auto&) {
                  for (Int32 i : range(n)) {
                    i *= 10;
                    log.add(i);
                  }
                },
                4),
            (std::vector<int32_t>{0, 10, 20, 30}));
}

TEST(Control, VariablesCarryAcrossNestedLoops) {
  for (int32_t n : {0, 1, 2, 5}) {
    std::vector<int32_t> expected;
    int32_t sum = 0, last = -1;
    for (int32_t i = 0; i < n; ++i) {
      for (int32_t j = i; j < n; j += 2) {
        sum += i * n + j;
        last = j;
      }
      expected.push_back(sum);
    }
    expected.push_back(last);
    for (int64_t unroll : {1, 2, 3})
      EXPECT_EQ(logged(
                    [=](Log& log, auto& size, auto&, auto&) {
                      Int32 total = 0, seen = -1;
                      for (Int32 i : range(0, size, 1, {.unroll = unroll})) {
                        for (Int32 j : range(i, size, 2, {.unroll = unroll})) {
                          total += i * size + j;
                          seen = j;
                        }
                        log.add(total);
                      }
                      log.add(seen);
                    },
                    n),
                expected)
          << n << " unrolled by " << unroll;
  }
}

TEST(Control, GreatestCommonDivisorByForever) {
  for (auto [x, y] : {std::pair{48, 36}, {17, 5}, {0, 9}, {9, 0}, {270, 192}, {1, 1}})
    EXPECT_EQ(logged(
                  [](Log& log, auto& a, auto& b, auto&) {
                    Int32 u = a, v = b;
                    for (Loop loop : forever()) {
                      loop.break_if(v == 0);
                      Int32 rest = u % v;
                      u = v;
                      v = rest;
                    }
                    log.add(u);
                  },
                  x, y),
              std::vector<int32_t>{std::gcd(x, y)});
}

TEST(Control, BreaksLeaveTheLoopTheyName) {
  // The first pair (i, j) with i * j == c, and how far the search went.
  for (int32_t wanted : {0, 6, 35, 49, 1000}) {
    std::vector<int32_t> expected;
    int32_t found_i = -1, found_j = -1, tried = 0;
    for (int32_t i = 0; i < 8 && found_i < 0; ++i)
      for (int32_t j = i; j < 8; ++j) {
        ++tried;
        if (i * j == wanted) {
          found_i = i, found_j = j;
          break;
        }
      }
    expected = {found_i, found_j, tried};
    EXPECT_EQ(logged(
                  [](Log& log, auto& c, auto& n, auto&) {
                    Int32 fi = -1, fj = -1, count = 0, i = 0;
                    for (Loop outer : forever()) {
                      outer.break_if(i >= n);
                      for (Int32 j : range(i, n)) {
                        count += 1;
                        if (auto hit = when(i * j == c)) {
                          fi = i;
                          fj = j;
                          outer.break_loop();
                        }
                      }
                      i += 1;
                    }
                    log.add(fi);
                    log.add(fj);
                    log.add(count);
                  },
                  wanted, 8),
              expected)
        << wanted;
  }
}

TEST(Control, BreakIfLeavesARange) {
  EXPECT_EQ(logged(
                [](Log& log, auto& n, auto& stop, auto&) {
                  for (Int32 i : range(n)) {
                    break_if(i * i > stop);
                    log.add(i);
                  }
                },
                10, 20),
            (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(Control, ArmsRunAsIfElseChains) {
  for (int32_t x : {-7, 0, 3, 10, 50}) {
    int32_t kind = 0, value = 100;
    if (x < 0) {
      kind = 1;
      value = -x;
    } else if (x == 0) {
      kind = 2;
    } else if (x < 10) {
      kind = 3;
      if (x % 2 == 1) value += x;
    } else {
      kind = 4;
      value = x > 20 ? 1 : 2;
    }
    EXPECT_EQ(logged(
                  [](Log& log, auto& given, auto&, auto&) {
                    Int32 k = 0, v = 100;
                    if (auto arm = when(given < 0)) {
                      k = 1;
                      v = -given;
                    }
                    if (auto arm = otherwise_when(given == 0)) k = 2;
                    if (auto arm = otherwise_when(given < 10)) {
                      k = 3;
                      if (auto odd = when(given % 2 == 1)) v += given;
                    }
                    if (auto arm = otherwise()) {
                      k = 4;
                      if (auto large = when(given > 20)) v = 1;
                      if (auto large = otherwise()) v = 2;
                    }
                    log.add(k);
                    log.add(v);
                  },
                  x),
              (std::vector<int32_t>{kind, value}))
        << x;
  }
}

TEST(Control, OnlyOneArmChangesAVariableInALoop) {
  EXPECT_EQ(logged(
                [](Log& log, auto& n, auto&, auto&) {
                  Int32 even = 0, odd = 0;
                  Bool flip = false;
                  for (Int32 i : range(0, n, 1, {.unroll = 3})) {
                    if (auto arm = when(flip)) odd += i;
                    if (auto arm = otherwise()) even += i;
                    flip = !flip;
                  }
                  log.add(even);
                  log.add(odd);
                  log.add(flip);
                },
                11),
            (std::vector<int32_t>{0 + 2 + 4 + 6 + 8 + 10, 1 + 3 + 5 + 7 + 9, 1}));
}

// ---- thread groups: each thread of each group leaves the number of its group

TEST(ThreadGroups, NestAndCountFromTheirParent) {
  for (uint64_t seed : {0, 1, 2}) {
    Machine machine(Arch::kSm80, seed);
    DeviceTensor out = machine.output(int32, {8, 32});
    machine.run(
        [](Int32 ctas, Ptr<int32> out_ptr) {
          grid(ctas);
          warps(8);
          auto g_out = global_view(out_ptr, {8, 32});
          auto put = [&](int64_t row, int64_t rows, int value) {
            store_global(g_out, full(int32, {rows, 32}, value), {row, 0});
          };
          if (auto group = thread_group(0, 64)) {
            if (auto warp = single_warp(0)) put(0, 1, 10);
            if (auto warp = single_warp(1)) put(1, 1, 11);
          }
          if (auto group = warp_group(4, 4)) {
            put(4, 1, 20);
            if (auto half = warp_group(2, 2)) {
              sync();
              put(6, 1, 22);
              if (auto warp = single_warp(1)) {
                put(7, 1, 23);
                if (auto thread = single_thread(5)) store_global(g_out, full(int32, {1, 1}, 99), {5, 17});
              }
            }
          }
          if (auto warp = thread_group(64, 32)) put(2, 2, 30);
        },
        1, out);
    expect_elements(out, [](int64_t i, int64_t j) {
      const int32_t rows[] = {10, 11, 30, 30, 20, -1, 22, 23};  // -1: poisoned
      return i == 5 && j == 17 ? 99 : rows[i];
    });
  }
}

TEST(ThreadGroups, VariablesLiveAcrossThem) {
  Machine machine;
  DeviceTensor out = machine.output(int32, {128});
  machine.run(
      [](Int32 n, Ptr<int32> out_ptr) {
        grid(1);
        auto g_out = global_view(out_ptr, {128});
        Int32 total = 0;
        for (Int32 i : range(n)) {
          total += i;
          if (auto warp = single_warp(1)) {
            Int32 mine = total * 2;
            if (auto arm = when(mine > 10)) store_global(g_out, full(int32, {32}, mine), {32});
          }
          sync();
          total += 1;
        }
        if (auto warp = single_warp(0)) store_global(g_out, full(int32, {32}, total), {0});
        if (auto half = warp_group(2, 2)) store_global(g_out, full(int32, {64}, -total), {64});
      },
      6, out);
  expect_elements(out, [](int64_t i) { return i < 32 ? 21 : i < 64 ? 40 : -21; });
}

TEST(ThreadGroups, ExchangeThroughSharedMemory) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Machine machine(Arch::kSm80, seed);
    DeviceTensor out = machine.output(int32, {4, 64});
    machine.run(
        [](Int32 rounds, Ptr<int32> out_ptr) {
          grid(1);
          auto g_out = global_view(out_ptr, {4, 64});
          auto box = shared_tensor(int32, {64});
          for (Int32 i : range(rounds)) {
            if (auto producer = warp_group(0, 1))
              store_shared(box, register_tensor(int32, {64}, [&](auto j) { return i * 100 + j; }));
            sync();
            if (auto consumer = warp_group(1, 3))
              store_global(g_out, load_shared(box).reshape({1, 64}), {i, 0});
            sync();
          }
        },
        4, out);
    expect_elements(out, [](int64_t i, int64_t j) { return i * 100 + j; });
  }
}

TEST(ThreadGroups, MbarriersHandOverARingOfStages) {
  for (Arch arch : kAllArchs)
    for (uint64_t seed : {0, 1, 2, 3}) {
      Machine machine(arch, seed);
      DeviceTensor out = machine.output(float32, {11, 32});
      machine.run(
          [](Int32 rounds, Ptr<float32> out_ptr) {
            grid(1);
            warps(2);
            constexpr int kStages = 3;
            auto g_out = global_view(out_ptr, {rounds, 32});
            auto ring = shared_tensor(float32, {kStages, 32});
            auto full_barriers = mbarrier::alloc(std::vector<int64_t>(kStages, 32));
            auto empty_barriers = mbarrier::alloc(std::vector<int64_t>(kStages, 32));
            sync();
            if (auto producer = single_warp(0)) {
              Int32 stage = 0;
              UInt32 phase = mbarrier::producer_initial_phase;
              for (Int32 i : range(0, rounds, 1, {.unroll = kStages})) {
                mbarrier::wait(empty_barriers[stage], phase);
                store_shared(ring[stage], full(float32, {32}, i.to(float32) * 1.5f));
                mbarrier::arrive(full_barriers[stage]);
                stage = (stage + 1) % kStages;
                phase ^= stage == 0;
              }
            }
            if (auto consumer = single_warp(1)) {
              Int32 stage = 0;
              UInt32 phase = mbarrier::consumer_initial_phase;
              for (Int32 i : range(rounds)) {
                mbarrier::wait(full_barriers[stage], phase);
                auto got = load_shared(ring[stage]);
                store_global(g_out, got.reshape({1, 32}), {i, 0});
                mbarrier::arrive(empty_barriers[stage]);
                stage = (stage + 1) % kStages;
                phase ^= stage == 0;
              }
            }
          },
          11, out);
      expect_elements(out, [](int64_t i, int64_t) { return 1.5 * static_cast<double>(i); });
    }
}

}  // namespace
}  // namespace imbrex::testing
