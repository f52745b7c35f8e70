// SPDX-License-Identifier: Apache-2.0
// The kernels of docs/coming-from.md, which stand there beside the same ones in Tilus, Triton and CuTe.
// `example_coming_from` checks them; `example_coming_from wrong` shows what the virtual GPU says of a relaxed
// wait.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "imbrex/imbrex.h"

using namespace imbrex;

/// y = factor * x, through shared memory: beside Tilus.
struct ScaledTiles {
  static constexpr const char* target = "sm_90a";
  int rows = 64, columns = 64;
  bool relaxed_wait = false;

  void operator()(Int32 m, int n, Float32 factor, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, rows), cdiv(n, columns));
    warps(4);
    Int32 row = rows * block_idx.x;
    Int32 column = columns * block_idx.y;

    auto g_x = global_view(x_ptr, {m, n});
    auto g_y = global_view(y_ptr, {m, n});
    auto s_x = shared_tensor(float32, {rows, columns});
    auto loaded = mbarrier::alloc(1);
    sync_threads();

    if (auto warp = single_warp()) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(loaded, s_x.nbytes());
      tma::global_to_shared(g_x, s_x, {row, column}, loaded);
    }
    mbarrier::wait(loaded, 0, {.sem = relaxed_wait ? Sem::kRelaxed : Sem::kAcquire});
    store_global(g_y, factor * load_shared(s_x), {row, column});
  }
};

/// y = x / sqrt(mean of x^2 along the row + epsilon) * weight: beside Triton.
struct RmsNormRows {
  int rows = 4;

  void operator()(Int32 m, int n, Float32 epsilon, Ptr<float16> x_ptr, Ptr<float16> weight_ptr,
                  Ptr<float16> y_ptr) const {
    grid(cdiv(m, rows));
    warps(4);
    Int32 row = rows * block_idx.x;
    auto x = load_global(global_view(x_ptr, {m, n}), {row, 0}, {rows, n}).to(float32);
    auto weight = load_global(global_view(weight_ptr, {n}), {0}, {n}).to(float32);
    auto mean = sum(x * x, {.axis = 1, .keep = true}) / n;  // [rows, 1]
    auto y = x * rsqrt(mean + epsilon) * weight;
    store_global(global_view(y_ptr, {m, n}), y.to(float16), {row, 0});
  }
};

/// C = A B^T by mma.sync: beside CuTe.
struct TileProduct {
  int block = 64, block_k = 32;

  void operator()(Int32 m, int n, int k, Ptr<float16> a_ptr, Ptr<float16> b_ptr, Ptr<float32> c_ptr) const {
    grid(cdiv(m, block), cdiv(n, block));
    warps(4);
    Int32 row = block * block_idx.x;
    Int32 column = block * block_idx.y;

    auto g_a = global_view(a_ptr, {m, k});
    auto g_b = global_view(b_ptr, {n, k});
    auto g_c = global_view(c_ptr, {m, n});
    auto s_a = shared_tensor(float16, {block, block_k});
    auto s_b = shared_tensor(float16, {block, block_k});

    RegisterTensor acc = zeros(float32, {block, block});
    for (Int32 offset_k : range(0, k, block_k)) {
      copy_async(g_a, s_a, {row, offset_k});
      copy_async(g_b, s_b, {column, offset_k});
      copy_async_wait_all();
      sync_threads();
      acc = mma(load_shared(s_a), load_shared(s_b).transpose(), acc);
      sync_threads();
    }
    store_global(g_c, acc, {row, column});
  }
};

namespace {

constexpr int kM = 150, kN = 304, kK = 200;

double error_of_scaled_tiles(bool relaxed_wait) {
  Device device = Device::open("virtual", ScaledTiles::target);
  DeviceTensor x = DeviceTensor::random(device, float32, {kM, kN}, 1);
  DeviceTensor y = DeviceTensor::empty(device, float32, {kM, kN});
  Kernel<ScaledTiles>({.relaxed_wait = relaxed_wait}, device)(kM, kN, 0.5f, x, y).expect_clean();
  const HostTensor x_host = x.to_host(), y_host = y.to_host();
  double worst = 0;
  for (int64_t i = 0; i < kM * kN; ++i)
    worst = std::fmax(worst, std::fabs(y_host.get(i) - 0.5 * x_host.get(i)));
  return worst;
}

double error_of_rms_norm() {
  constexpr double kEpsilon = 1e-5;
  Device device = Device::open("virtual", "sm_80");
  DeviceTensor x = DeviceTensor::random(device, float16, {kM, kN}, 1);
  DeviceTensor weight = DeviceTensor::random(device, float16, {kN}, 2);
  DeviceTensor y = DeviceTensor::empty(device, float16, {kM, kN});
  Kernel<RmsNormRows>({}, device)(kM, kN, static_cast<float>(kEpsilon), x, weight, y).expect_clean();
  const HostTensor x_host = x.to_host(), weight_host = weight.to_host(), y_host = y.to_host();
  double worst = 0;
  for (int64_t i = 0; i < kM; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < kN; ++j) squares += x_host.get(i * kN + j) * x_host.get(i * kN + j);
    for (int64_t j = 0; j < kN; ++j) {
      const double right = x_host.get(i * kN + j) / std::sqrt(squares / kN + kEpsilon) * weight_host.get(j);
      worst = std::fmax(worst, std::fabs(y_host.get(i * kN + j) - right));
    }
  }
  return worst;
}

double error_of_tile_product() {
  Device device = Device::open("virtual", "sm_80");
  DeviceTensor a = DeviceTensor::random(device, float16, {kM, kK}, 1);
  DeviceTensor b = DeviceTensor::random(device, float16, {kN, kK}, 2);
  DeviceTensor c = DeviceTensor::empty(device, float32, {kM, kN});
  Kernel<TileProduct>({}, device)(kM, kN, kK, a, b, c).expect_clean();
  const HostTensor a_host = a.to_host(), b_host = b.to_host(), c_host = c.to_host();
  double worst = 0;
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t j = 0; j < kN; ++j) {
      double right = 0;
      for (int64_t k = 0; k < kK; ++k) right += a_host.get(i * kK + k) * b_host.get(j * kK + k);
      worst = std::fmax(worst, std::fabs(c_host.get(i * kN + j) - right));
    }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "wrong") == 0) {
    try {
      error_of_scaled_tiles(true);
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
      return 0;
    }
    return 1;  // nothing was found
  }
  const double scaled = error_of_scaled_tiles(false), norm = error_of_rms_norm(),
               product = error_of_tile_product();
  std::printf("largest errors: %.2g, %.2g, %.2g\n", scaled, norm, product);
  return scaled == 0 && norm < 4e-3 && product < 1e-4 ? 0 : 1;
}
