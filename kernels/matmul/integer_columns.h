// SPDX-License-Identifier: Apache-2.0
// Tiles that were chosen by products of 16 bits, made fit for integers of 8.
#pragma once

#include <algorithm>
#include <numeric>

#include "matmul/matmul_choice.h"

namespace imbrex {

/// wgmma takes 8, 24 or a multiple of 16 columns of integers: other tiles become narrower.
inline void fit_integers(MatmulChoice& choice) {
  const bool swaps =
      choice.swap_ab || choice.method == MatmulChoice::Method::kSkinny;  // A gives wgmma its columns
  int& columns = swaps ? choice.block_m : choice.block_n;
  if (columns % 16 == 0 || columns == 8 || columns == 24) return;
  const int unit =
      std::lcm(16, 8 * choice.split_k);  // the CTAs that divide k divide the columns of their sums
  columns = std::max(unit, columns / unit * unit);
}

}  // namespace imbrex
