// SPDX-License-Identifier: Apache-2.0
// Which kernel and which tiles imbrex::matmul takes for a product.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace imbrex {

struct MatmulChoice {
  enum class Method {
    kSkinny,   ///< HopperMatmulSkinny: few rows of A
    kLarge,    ///< HopperMatmulH7: many tiles, and rows of C that begin at multiples of 16 bytes
    kGeneral,  ///< HopperMatmulH8: anything
  };
  Method method = Method::kGeneral;
  int block_m = 0, block_n = 0, block_k = 64, stages = 0;
  int consumers = 2;           ///< kGeneral
  int store_stages = 1;        ///< kLarge
  int pair = 1;                ///< CTAs of a cluster, of tiles along wgmma's rows, that load for each other
  int across = 1;              ///< kGeneral: those of tiles along its columns
  int splits = 1;              ///< CTAs of a cluster that divide k
  bool is_transposed = false;  ///< wgmma's rows are those of B
  int ctas = 0;                ///< of the grid, but for kSkinny
  bool is_tight = false;       ///< neither registers nor shared memory are left for an epilogue's steps
  friend auto operator<=>(const MatmulChoice&, const MatmulChoice&) = default;

  /// "hopper_matmul_h8 block_m=128 ...".
  std::string text() const;
};

/// The fastest by a model, for a product of 16-bit elements. `has_tma_rows`: rows of C begin at multiples of
/// 16 bytes; `is_plain`: its elements have 16 bits, and no steps come before they are stored.
MatmulChoice choose_matmul(int64_t m, int64_t n, int64_t k, bool has_tma_rows, bool is_plain,
                           int multiprocessors);

}  // namespace imbrex
