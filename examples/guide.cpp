// SPDX-License-Identifier: Apache-2.0
// The kernels of docs/guide.md, right and, to see what the virtual GPU says of it, wrong. `example_guide`
// checks the right ones; `example_guide wrong` prints the findings of the wrong ones.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "imbrex/imbrex.h"
#include "imbrex/kernels/parts/pipeline.h"

using namespace imbrex;

// [guide-centred]
struct CentredRows {
  int rows = 4;

  void operator()(Int32 m, int n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, rows));
    warps(4);
    Int32 row = rows * block_idx.x;
    auto x = load_global(global_view(x_ptr, {m, n}), {row, 0}, {rows, n});
    auto mean = sum(x, {.axis = 1, .keep = true}) / n;             // [rows, 1]
    store_global(global_view(y_ptr, {m, n}), x - mean, {row, 0});  // broadcast over the columns
  }
};
// [guide-centred]

// [guide-transpose]
struct Transpose {
  int tile = 64;
  bool forget_sync = false;

  void operator()(Int32 m, int n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, tile), cdiv(n, tile));
    warps(4);
    Int32 row = tile * block_idx.x, column = tile * block_idx.y;
    auto staged = shared_tensor(float32, {tile, tile});
    store_shared(staged, load_global(global_view(x_ptr, {m, n}), {row, column}, {tile, tile}));
    if (!forget_sync) sync_threads();
    store_global(global_view(y_ptr, {n, m}), load_shared(staged.transpose()), {column, row});
  }
};
// [guide-transpose]

// [guide-rowsums]
struct RowSums {
  static constexpr const char* target = "sm_90a";
  int rows = 64, columns = 64, stages = 3;
  bool forget_arrival = false;

  void operator()(Int32 m, int n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, rows));
    warps(5);
    Int32 row = rows * block_idx.x;
    auto g_x = global_view(x_ptr, {m, n});
    auto s_x = shared_tensor(float32, {stages, rows, columns});
    kernels::Pipeline pipe(stages, 1, 4 * 32);  // a stage is full after 1 arrival, empty after 128
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
        total += sum(load_shared(s_x[pipe.consumer_stage]), {.axis = 1, .keep = true});
        if (!forget_arrival) mbarrier::arrive(pipe.consumer_barrier());
        pipe.consumer_advance();
      }
      store_global(global_view(y_ptr, {m, 1}), total, {row, 0});
    }
  }
};
// [guide-rowsums]

namespace {

constexpr int kM = 150, kN = 300;

/// Runs the kernel on random [kM, kN] numbers; the largest difference of y from reference(x, i, j).
template <class K, class Reference>
double error_of(K kernel, const Shape& y_shape, Reference reference) {
  Device device = Device::open("virtual", kernel_target<K>());
  DeviceTensor x = DeviceTensor::random(device, float32, {kM, kN}, 1);
  DeviceTensor y = DeviceTensor::empty(device, float32, y_shape);
  Kernel<K>(kernel, device)(kM, kN, x, y).expect_clean();
  const HostTensor x_host = x.to_host(), y_host = y.to_host();
  const auto at = [&](int64_t i, int64_t j) { return x_host.get(i * kN + j); };
  double worst = 0;
  for (int64_t i = 0; i < y_shape[0]; ++i)
    for (int64_t j = 0; j < y_shape[1]; ++j)
      worst = std::fmax(worst, std::fabs(y_host.get(i * y_shape[1] + j) - reference(at, i, j)));
  return worst;
}

double row_sum(const auto& x, int64_t i) {
  double sum = 0;
  for (int64_t j = 0; j < kN; ++j) sum += x(i, j);
  return sum;
}

/// True if the virtual GPU had something to say, which it prints.
template <class K>
bool is_found(K kernel, const Shape& y_shape) {
  Device device = Device::open("virtual", kernel_target<K>());
  DeviceTensor x = DeviceTensor::random(device, float32, {kM, kN}, 1);
  DeviceTensor y = DeviceTensor::empty(device, float32, y_shape);
  try {
    Kernel<K>(kernel, device)(kM, kN, x, y).expect_clean();
  } catch (const Error& error) {
    std::printf("%s\n\n", error.what());
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "wrong") == 0) {
    const bool race = is_found(Transpose{.forget_sync = true}, {kN, kM});
    const bool deadlock = is_found(RowSums{.forget_arrival = true}, {kM, 1});
    return race && deadlock ? 0 : 1;
  }
  const double centred = error_of(CentredRows{}, {kM, kN}, [](const auto& x, int64_t i, int64_t j) {
    return x(i, j) - row_sum(x, i) / kN;
  });
  const double transposed =
      error_of(Transpose{}, {kN, kM}, [](const auto& x, int64_t i, int64_t j) { return x(j, i); });
  const double sums =
      error_of(RowSums{}, {kM, 1}, [](const auto& x, int64_t i, int64_t) { return row_sum(x, i); });
  std::printf("largest errors: %.2g, %.2g, %.2g\n", centred, transposed, sums);
  return centred < 1e-5 && transposed == 0 && sums < 1e-4 ? 0 : 1;
}
