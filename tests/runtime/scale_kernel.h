// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {

/// y = factor * x, compiled once per factor.
struct Scale {
  int block = 128;
  void operator()(Int32 n, int factor, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(n, block));
    warps(4);
    Int32 offset = block * block_idx.x;
    auto g_x = global_view(x_ptr, {n});
    auto g_y = global_view(y_ptr, {n});
    store_global(g_y, load_global(g_x, {offset}, {block}) * static_cast<float>(factor), {offset});
  }
};

}  // namespace imbrex
