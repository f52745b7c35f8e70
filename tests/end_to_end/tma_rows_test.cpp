// SPDX-License-Identifier: Apache-2.0
// TMA of four rows wherever they lie (gather4, scatter4): tiles of several groups, edges, swizzles, views, multicast-free
// targets, and what is refused.
#include <gmock/gmock.h>

#include "../ptxas.h"
#include "codegen/codegen.h"
#include "ir/ir.h"
#include "kit.h"
#include "lang/trace.h"
#include "passes/pipeline.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

/// y[i, :] = x[rows[i], column ...], for the 8 rows that `rows` names; rows outside x are zeros.
struct GatherRows {
  int64_t width, column;
  DataType type;
  void operator()(Int32 m, Int32 n, Ptr<> x_ptr, Ptr<int32> rows_ptr, Ptr<> y_ptr) const {
    grid(1);
    auto g_x = global_view(x_ptr, type, {m, 256});
    auto g_rows = global_view(rows_ptr, {8});
    auto tile = shared_tensor(type, {8, width});
    auto barrier = mbarrier::alloc(1);
    sync();
    if (auto warp = single_warp()) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
      for (int i = 0; i < 2; ++i)
        tma::gather4(g_x, tile.slice({4 * i, 0}, {4, width}),
                     {g_rows[4 * i], g_rows[4 * i + 1], g_rows[4 * i + 2], g_rows[4 * i + 3]}, column,
                     barrier);
    }
    mbarrier::wait(barrier, 0);
    store_global(global_view(y_ptr, type, {8, width}), load_shared(tile), {0, 0});
    (void)n;
  }
};

TEST(GatherRows, TakesRowsInAnyOrderAndZerosForThoseOutside) {
  const std::vector<int64_t> rows = {7, 39, 0, 40, 12, 12, -1, 3};
  for (Arch arch : {Arch::kSm100a, Arch::kSm120a})
    for (DataType type : {DataType(float16), DataType(float32), DataType(uint8)})
      for (int64_t width : {16, 64, 128}) {
        if (4 * width * type.bytes() % 128 != 0)
          continue;  // the second four rows do not begin where TMA can write
        SCOPED_TRACE(fmt::format("{} {} {}", target_name(arch), type.name(), width));
        Machine machine(arch);
        const int64_t m = 40, column = 16;
        DeviceTensor x = machine.random(type, {m, 256}), y = machine.output(type, {8, width});
        DeviceTensor g_rows = machine.tensor(int32, rows);
        const GatherRows kernel{width, column, type};
        machine.run([kernel](Int32 m, Int32 n, Ptr<> x, Ptr<int32> r, Ptr<> y) { kernel(m, n, x, r, y); }, m,
                    0, x, g_rows, y);
        const std::vector<double> in = x.to_host().to_doubles();
        expect_elements(y, [&](int64_t i, int64_t j) {
          const int64_t row = rows[static_cast<size_t>(i)];
          return row < 0 || row >= m ? 0.0 : in[static_cast<size_t>(row * 256 + column + j)];
        });
      }
}

TEST(ScatterRows, WritesRowsInAnyOrderAndLeavesOutThoseOutside) {
  const std::vector<int64_t> rows = {7, 39, 0, 40};
  Machine machine(Arch::kSm100a);
  const int64_t m = 40, width = 64;
  DeviceTensor x = machine.random(float16, {4, width}), g_rows = machine.tensor(int32, rows);
  DeviceTensor y = DeviceTensor::from_host(machine.device(), HostTensor::iota(float16, {m, 128}));
  const std::vector<double> before = y.to_host().to_doubles();
  machine.run(
      [=](Int32 m, Ptr<float16> x_ptr, Ptr<int32> rows_ptr, Ptr<float16> y_ptr) {
        grid(1);
        auto g_rows = global_view(rows_ptr, {4});
        auto tile = shared_tensor(float16, {4, width});
        store_shared(tile, load_global(global_view(x_ptr, {4, width}), {0, 0}, {4, width}));
        fence::proxy_async();
        sync();
        if (auto warp = single_warp()) {
          tma::scatter4(tile, global_view(y_ptr, {m, 128}), {g_rows[0], g_rows[1], g_rows[2], g_rows[3]}, 64,
                        {.cache_policy = tma::CachePolicy::kEvictFirst});
          tma::commit_group();
          tma::wait_group(0);
        }
      },
      m, x, g_rows, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) {
    for (size_t r = 0; r < rows.size(); ++r)
      if (rows[r] == i && j >= 64) return in[r * static_cast<size_t>(width) + static_cast<size_t>(j - 64)];
    return before[static_cast<size_t>(i * 128 + j)];
  });
}

/// The PTX of a copy of four rows, or why there is none.
std::string text_of(const char* target, bool is_scatter, int64_t tile_rows = 4,
                    tma::LoadOptions options = {}) {
  try {
    const auto traced = lang::trace(RetargetedLambda([=](Ptr<float16> p) {
                                      grid(2);
                                      if (options.multicast_mask.integer != 0) cluster(2);
                                      auto g = global_view(p, {64, 64});
                                      auto tile = shared_tensor(float16, {tile_rows, 64});
                                      auto barrier = mbarrier::alloc(1);
                                      sync();
                                      if (auto warp = single_warp()) {
                                        if (is_scatter) {
                                          tma::scatter4(tile, g, {1, 2, 3, 4}, 0);
                                          tma::commit_group();
                                          tma::wait_group(0);
                                        } else {
                                          if (auto thread = single_thread())
                                            mbarrier::arrive_and_expect_tx(barrier, tile.nbytes());
                                          tma::gather4(g, tile, {1, 2, 3, 4}, 0, barrier, options);
                                        }
                                      }
                                      if (!is_scatter) mbarrier::wait(barrier, 0);
                                    }),
                                    {}, target);
    passes::run_pipeline(*traced, {});
    return codegen::generate(*traced, {}).ptx;
  } catch (const CompileError& error) {
    return error.what();
  }
}

TEST(GatherRows, AssemblesOnEveryTargetThatHasIt) {
  IMBREX_NEEDS_PTXAS();
  for (const char* target : {"sm_100", "sm_100a", "sm_103a", "sm_110a", "sm_120", "sm_120a"})
    EXPECT_EQ(ptxas_says(text_of(target, false), fmt::format("-arch={}", target)), "") << target;
  EXPECT_EQ(ptxas_says(text_of("sm_100a", false, 4, {.multicast_mask = 3}), "-arch=sm_100a"), "");
  for (const char* target : {"sm_100a", "sm_100f", "sm_103a", "sm_110a"})
    EXPECT_EQ(ptxas_says(text_of(target, true), fmt::format("-arch={}", target)), "") << target;
}

TEST(GatherRows, SaysWhatItDoesNotTake) {
  EXPECT_THAT(text_of("sm_90a", false), HasSubstr("gather4"));
  EXPECT_THAT(text_of("sm_120a", true), HasSubstr("scatter4 needs sm_100a, the kernel is for sm_120a"));
  EXPECT_THAT(text_of("sm_120a", false, 4, {.multicast_mask = 3}),
              HasSubstr("gather4 for several CTAs needs sm_100a"));
  EXPECT_THAT(text_of("sm_100a", false, 8), HasSubstr("copies four rows of a matrix"));
  EXPECT_THAT(text_of("sm_100a", false, 4, {.dims = {0, 1}}), HasSubstr("leave out dims"));
}

}  // namespace
}  // namespace imbrex::testing
