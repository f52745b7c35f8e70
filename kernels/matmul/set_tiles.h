// SPDX-License-Identifier: Apache-2.0
// A choice's tiles as members of a kernel.
#pragma once

#include "matmul/matmul_choice.h"

namespace imbrex {

/// What kernels of all methods have.
template <class K>
void set_tile(K& kernel, const MatmulChoice& choice) {
  kernel.block_m = choice.block_m;
  kernel.block_n = choice.block_n;
  kernel.block_k = choice.block_k;
  kernel.stages = choice.stages;
}

/// What HopperMatmulH8 has besides.
template <class K>
void set_h8(K& kernel, const MatmulChoice& choice) {
  kernel.consumers = choice.consumers;
  kernel.cluster_m = choice.cluster_m;
  kernel.cluster_n = choice.cluster_n;
  kernel.split_k = choice.split_k;
  kernel.swap_ab = choice.swap_ab;
  kernel.store_stages = choice.store_stages;
  kernel.takes_turns = choice.takes_turns;
}

}  // namespace imbrex
