// SPDX-License-Identifier: Apache-2.0
// Which kernel and which tiles imbrex::matmul takes for a product.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>

namespace imbrex {

struct MatmulChoice {
  enum class Method {
    kSkinny,   ///< HopperMatmulSkinny: few rows of A
    kStreamK,  ///< HopperMatmulStreamK: tiles that do not fill a wave, with a long k
    kParts,    ///< HopperMatmulH8 for parts of k, and SumOfKParts
    kGeneral,  ///< HopperMatmulH8: anything
  };
  Method method = Method::kGeneral;
  int block_m = 0, block_n = 0, block_k = 64, stages = 0;
  int consumers = 2;                 ///< kGeneral, kStreamK: warp groups that multiply
  int store_stages = 1;              ///< kGeneral: slices of a tile that are being stored at once
  int cluster_m = 1, cluster_n = 1;  ///< CTAs of a cluster that load B, and A, for each other
  int split_k = 1;                   ///< CTAs of a cluster that divide k
  bool takes_turns = false;          ///< kGeneral: each of two consumers computes every other tile
  bool swap_ab = false;              ///< B gives wgmma its rows, A its columns
  int ctas = 0;                      ///< of the grid; not of kSkinny
  int parts = 1;                     ///< kParts: of k
  bool is_tight = false;             ///< neither registers nor shared memory are left for an epilogue's steps
  friend auto operator<=>(const MatmulChoice&, const MatmulChoice&) = default;

  /// "hopper_matmul_h8 block_m=128 ...".
  std::string text() const;
};

/// Whether registers suffice for operands that do not lie with k contiguous.
bool takes_any_order(const MatmulChoice& choice);

/// All that choose_matmul() chooses from.
std::span<const MatmulChoice> matmul_candidates();

/// The fastest by a model, for `matrices` products of 16-bit elements in one launch. `is_plain`: the result's elements have
/// 16 bits, and no steps come before they are stored. `without`: candidates that are passed over; not all of them.
/// `any_order`: one that takes_any_order().
MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool is_plain, int multiprocessors,
                           int64_t matrices = 1, std::span<const MatmulChoice> without = {},
                           bool any_order = false);

/// The fastest candidate whose sums go through memory, of one part of k or several, by the model.
MatmulChoice choose_in_parts(int64_t m, int64_t n, int64_t k, int multiprocessors);

/// The fastest of `tiles`, all for the general method, by the estimate alone (the correction
/// has not seen their kernels) and without conditions.
MatmulChoice fastest_of(std::span<const MatmulChoice> tiles, int64_t m, int64_t n, int64_t k,
                        int multiprocessors);

}  // namespace imbrex
