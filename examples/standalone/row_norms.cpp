// SPDX-License-Identifier: Apache-2.0
// A kernel of one's own, registered, with the `imbrex` command for it: row_norms run row_norms --m 1000
#include <cmath>

#include "imbrex/command.h"
#include "imbrex/imbrex.h"
#include "imbrex/kernels/parts/pipeline.h"

using namespace imbrex;

namespace {

// [kernel]
/// y[i] = the Euclidean norm of row i of x [m, n], float32. One warp requests tiles of x, as far ahead as there
/// are stages; four warps sum up the squares. n is a multiple of 4, as rows that TMA reads must be.
struct RowNorms {
  static constexpr const char* target = "sm_90a";
  int rows = 64, columns = 64, stages = 3;

  static auto space() {
    return Space<RowNorms>().choose<&RowNorms::rows>({64, 32, 128}).choose<&RowNorms::stages>({3, 2, 4});
  }

  void operator()(Int32 m, Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, rows));
    warps(5);
    Int32 row = rows * block_idx.x;
    auto g_x = global_view(x_ptr, {m, n});
    auto s_x = shared_tensor(float32, {stages, rows, columns});
    kernels::Pipeline pipe(stages, 1, 4 * 32);  // full after 1 arrival (and the bytes), empty after 128
    sync_threads();

    if (auto producer = single_warp(4)) {
      for (Int32 column : range(0, n, columns)) {
        pipe.producer_acquire();
        auto stage = s_x[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
        tma::global_to_shared(g_x, stage, {row, column}, pipe.producer_barrier());
        pipe.producer_advance();
      }
    }
    if (auto consumers = warp_group(0, 4)) {
      RegisterTensor total = zeros(float32, {rows, 1});
      for (Int32 column : range(0, n, columns)) {
        pipe.consumer_acquire();
        auto x = load_shared(s_x[pipe.consumer_stage]);
        total += sum(x * x, {.axis = 1, .keep = true});
        mbarrier::arrive(pipe.consumer_barrier());
        pipe.consumer_advance();
      }
      store_global(global_view(y_ptr, {m, 1}), sqrt(total), {row, 0});
    }
  }
};
// [kernel]

// [registration]
/// What the command runs: its sizes, with defaults, a launch on random input, and the reference in float64.
const KernelRegistration<RowNorms> registration{
    {.name = "row_norms",
     .summary = "Euclidean norms of rows",
     .sizes = {{"m", 150, "rows"}, {"n", 300, "columns"}}},
    [](Case& c, Kernel<RowNorms>& kernel) {
      const int64_t m = c.size("m"), n = c.size("n");
      DeviceTensor x = c.input(float32, {m, n}), y = c.output(float32, {m});
      c.launch(kernel, m, n, x, y);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x);
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += in[i * n + j] * in[i * n + j];
          out[i] = std::sqrt(sum);
        }
      });
    }};
// [registration]

}  // namespace

// [main]
int main(int argc, char** argv) { return imbrex::command_main(argc, argv); }
// [main]
