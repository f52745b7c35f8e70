// SPDX-License-Identifier: Apache-2.0
// Kernels of HopperGroupedMatmul and HopperFewRows with several tiles: the model of matmul() says which one a call gets.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "library_kernel.h"
#include "matmul/matmul_choice.h"

namespace imbrex {

/// A tile of HopperGroupedMatmul as the model knows it.
constexpr MatmulChoice grouped_tile(int block_m, int block_n, int stages, int consumers, int cluster_m,
                                    int cluster_n, int store_stages) {
  return {.block_m = block_m,
          .block_n = block_n,
          .stages = stages,
          .consumers = consumers,
          .store_stages = store_stages,
          .cluster_m = cluster_m,
          .cluster_n = cluster_n};
}

/// K with a tile, for operands of so many bits.
template <class K>
K with_tile(const MatmulChoice& tile, int bits) {
  K kernel;
  kernel.block_m = tile.block_m;
  kernel.block_n = tile.block_n;
  kernel.block_k = 1024 / bits;
  kernel.stages = tile.stages;
  kernel.cluster_n = tile.cluster_n;
  if constexpr (requires { kernel.split_k; }) kernel.split_k = tile.split_k;
  if constexpr (requires { kernel.consumers; }) {
    kernel.consumers = tile.consumers;
    kernel.cluster_m = tile.cluster_m;
    kernel.store_stages = tile.store_stages;
  }
  if constexpr (requires { kernel.takes_turns; }) {
    kernel.swap_ab = tile.swap_ab;
    kernel.takes_turns = tile.takes_turns;
  }
  return kernel;
}

/// Kernels of type K, made on the first call that needs them and kept with their devices. `Steps`: what of a call, beside
/// its sizes, decides which registers a kernel needs. Any thread may call it.
template <class K, class Steps>
class TiledKernels {
 public:
  /// Calls use(kernel, sizes) with the fastest of `tiles` for m x n x k, where steps leave it the registers it needs; else
  /// with the next best. `n`: columns that tiles cover, of both products of a gated one.
  template <class Use>
  auto run(const Device& device, std::span<const MatmulChoice> tiles, int64_t m, int64_t n, int64_t k,
           int bits, const Steps& steps, const Use& use) {
    const Call call{&device.backend(), tiles.data(), tiles.size(), bits, steps};
    for (;;) {
      const MatmulChoice tile = choose(call, tiles, m, n, (k * bits + 15) / 16, device.multiprocessors());
      try {
        return use(kernel(device, tile, bits), with_tile<K>(tile, bits));
      } catch (const CompileError&) {
        if (!refuse(call, tile)) throw;
      }
    }
  }

 private:
  using Call =
      std::tuple<const void*, const MatmulChoice*, size_t, int, Steps>;  // the device, the tiles, ...

  /// `k`: of elements of 16 bits.
  MatmulChoice choose(const Call& call, std::span<const MatmulChoice> tiles, int64_t m, int64_t n, int64_t k,
                      int multiprocessors) {
    const std::lock_guard lock(turn_);
    constexpr size_t kMost = 4096;
    if (chosen_.size() > kMost) chosen_.clear();
    const auto [known, is_new] = chosen_.try_emplace({call, m, n, k});
    if (is_new) {
      const std::vector<MatmulChoice>& refused = refused_[call];
      std::vector<MatmulChoice> left;
      for (const MatmulChoice& tile : tiles)
        if (std::ranges::find(refused, tile) == refused.end()) left.push_back(tile);
      known->second = fastest_of(left, m, n, k, multiprocessors);
    }
    return known->second;
  }
  /// False if no other tile is left; the last one is tried again by the next call.
  bool refuse(const Call& call, const MatmulChoice& tile) {
    const std::lock_guard lock(turn_);
    std::vector<MatmulChoice>& refused = refused_[call];
    if (std::ranges::find(refused, tile) != refused.end()) return true;  // by another thread meanwhile
    if (refused.size() + 1 == std::get<2>(call)) return false;
    refused.push_back(tile);
    chosen_.clear();
    return true;
  }
  Kernel<K>& kernel(const Device& device, const MatmulChoice& tile, int bits) {
    const std::lock_guard lock(turn_);
    std::unique_ptr<Kernel<K>>& kernel = kernels_[{&device.backend(), bits, tile}];
    if (!kernel) kernel = std::make_unique<Kernel<K>>(library_kernel(with_tile<K>(tile, bits), device));
    return *kernel;
  }

  std::mutex turn_;
  std::map<std::tuple<const void*, int, MatmulChoice>, std::unique_ptr<Kernel<K>>> kernels_;
  std::map<std::tuple<Call, int64_t, int64_t, int64_t>, MatmulChoice> chosen_;
  std::map<Call, std::vector<MatmulChoice>> refused_;
};

}  // namespace imbrex
