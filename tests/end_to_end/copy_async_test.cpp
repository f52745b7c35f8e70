// SPDX-License-Identifier: Apache-2.0
// cp.async copies: every width, edges inside and between vectors, groups in flight, and what the virtual GPU
// says of a wait that is missing.
#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

struct Problem {
  DataType type;
  int64_t m, n;           // of the tensor
  int64_t rows, columns;  // of the tile

  friend std::ostream& operator<<(std::ostream& out, const Problem& p) {
    return out << p.type.name() << " " << p.m << "x" << p.n << " by " << p.rows << "x" << p.columns;
  }
};

class Copies : public ::testing::TestWithParam<Problem> {};

TEST_P(Copies, ArriveWithZerosOutside) {
  const Problem p = GetParam();
  for (Arch arch : kAllArchs)
    for (uint64_t seed : {0, 1, 2}) {
      Machine machine(arch, seed);
      DeviceTensor x = machine.random(p.type, {p.m, p.n}), y = machine.output(p.type, {p.m + 3, p.n + 5});
      machine.run(
          [p](Int32 m, Ptr<> x_ptr, Ptr<> y_ptr) {
            // The output is larger than the input, so that what lies outside is seen too.
            grid(cdiv(m + 3, p.rows), cdiv(p.n + 5, p.columns));
            Int32 i = p.rows * block_idx.x, j = p.columns * block_idx.y;
            auto box = shared_tensor(p.type, {p.rows, p.columns});
            copy_async(global_view(x_ptr, p.type, {m, p.n}), box, {i, j});
            copy_async_wait_all();
            sync();
            store_global(global_view(y_ptr, p.type, {m + 3, p.n + 5}), load_shared(box), {i, j});
          },
          p.m, x, y);
      const std::vector<double> in = x.to_host().to_doubles();
      expect_elements(y, [&](int64_t i, int64_t j) { return i < p.m && j < p.n ? in[i * p.n + j] : 0; });
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Copies,
                         ::testing::Values(Problem{float16, 64, 64, 32, 32},  // 16 bytes
                                           Problem{float16, 37, 40, 16, 64},  // 16 bytes, ragged
                                           Problem{float16, 37, 44, 16, 32},  // 8 bytes
                                           Problem{float16, 5, 42, 8, 16},    // 4 bytes
                                           Problem{float32, 19, 23, 16,
                                                   16},  // 4 bytes, every column ends a copy
                                           Problem{float32, 33, 100, 8, 64},  //
                                           Problem{int8, 20, 48, 16, 32},     //
                                           Problem{int8, 20, 52, 16, 32},     // 4 bytes
                                           Problem{int64, 9, 13, 4, 8},       // 8 bytes
                                           Problem{bfloat16, 130, 136, 128, 64}),
                         ParamName());

TEST(CopyAsync, RingOfGroupsInFlight) {
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (int64_t rounds : {1, 2, 3, 10}) {
      Machine machine(Arch::kSm80, seed);
      DeviceTensor x = machine.random(float32, {rounds * 16, 32}), y = machine.output(float32, {16, 32});
      machine.run(
          [](Int32 rounds, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
            grid(1);
            constexpr int kStages = 3;
            auto g_x = global_view(x_ptr, {rounds * 16, 32});
            auto ring = shared_tensor(float32, {kStages, 16, 32});
            for (int i = 0; i < kStages - 1; ++i) {
              copy_async(g_x, ring[i], {i * 16, 0});
              copy_async_commit_group();
            }
            RegisterTensor total = zeros(float32, {16, 32});
            Int32 stage = 0;
            for (Int32 i : range(rounds)) {
              copy_async_wait_group(kStages - 2);
              sync();
              total += load_shared(ring[stage]) * i;
              Int32 next = (stage + kStages - 1) % kStages;
              copy_async(g_x, ring[next], {(i + kStages - 1) * 16, 0});
              copy_async_commit_group();
              stage = (stage + 1) % kStages;
            }
            copy_async_wait_all();
            store_global(global_view(y_ptr, {16, 32}), total, {0, 0});
          },
          rounds, x, y);
      const std::vector<double> in = x.to_host().to_doubles();
      expect_elements(
          y,
          [&](int64_t i, int64_t j) {
            double sum = 0;
            for (int64_t r = 0; r < rounds; ++r) sum += in[(r * 16 + i) * 32 + j] * static_cast<double>(r);
            return sum;
          },
          1e-6, 10);
    }
}

TEST(CopyAsync, TilesOfDimensionsAndStages) {
  Machine machine;
  DeviceTensor x = machine.iota(float32, {3, 20, 24}), y = machine.output(float32, {3, 20, 24});
  machine.run(
      [](Int32 a, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(20);
        auto g_x = global_view(x_ptr, {a, 20, 24});
        auto box = shared_tensor(float32, {2, 3, 24});
        Int32 j = block_idx.x;
        copy_async(g_x, box[1], {0, j, 0}, {.dims = {0, 2}});
        copy_async_wait_all();
        sync();
        store_global(global_view(y_ptr, {a, 20, 24}), load_shared(box[1]), {0, j, 0}, {.dims = {0, 2}});
      },
      3, x, y);
  expect_elements(y, [](int64_t i, int64_t j, int64_t k) { return ((i * 20 + j) * 24 + k) % 256; });
}

/// All warps copy a tile and one reads it; `wait` stands in between.
template <class F>
vgpu::Report report_of(uint64_t seed, const F& wait) {
  Machine machine(Arch::kSm80, seed);
  DeviceTensor x = machine.iota(float32, {64, 64}), y = machine.output(float32, {64, 64});
  return machine
      .launch(
          [wait](Int32 m, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
            grid(1);
            auto box = shared_tensor(float32, {64, 64});
            store_shared(box, zeros(float32, {64, 64}));  // something older to read
            sync();
            copy_async(global_view(x_ptr, {m, 64}), box, {0, 0});
            copy_async_commit_group();
            wait();
            if (auto reader = single_warp(3))
              store_global(global_view(y_ptr, {m, 64}), load_shared(box), {0, 0});
            copy_async_wait_all();
          },
          64, x, y)
      .virtual_report;
}

TEST(CopyAsync, AMissingWaitIsFound) {
  for (uint64_t seed : {0, 1, 2}) {
    const vgpu::Report report = report_of(seed, [] { sync(); });
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings[0].kind, vgpu::FindingKind::kRace) << report.format();
  }
}

TEST(CopyAsync, AMissingSyncIsFound) {
  for (uint64_t seed : {0, 1, 2}) {
    const vgpu::Report report = report_of(seed, [] { copy_async_wait_all(); });
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings[0].kind, vgpu::FindingKind::kRace) << report.format();
  }
}

TEST(CopyAsync, WaitAndSyncAreEnough) {
  for (uint64_t seed : {0, 1, 2}) {
    const vgpu::Report report = report_of(seed, [] {
      copy_async_wait_group(0);
      sync();
    });
    EXPECT_TRUE(report.clean()) << report.format();
  }
}

}  // namespace
}  // namespace imbrex::testing
