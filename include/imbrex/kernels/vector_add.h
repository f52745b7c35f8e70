// SPDX-License-Identifier: Apache-2.0
// z = x + y: the smallest whole kernel. Each CTA loads a tile of both, adds, and stores; the ragged end is
// handled by the views' extents.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct VectorAdd {
  int block = 1024;

  static auto space() { return Space<VectorAdd>().choose<&VectorAdd::block>({1024, 512, 2048}); }

  void operator()(Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<float32> z_ptr) const {
    grid(cdiv(n, block));
    warps(4);
    Int32 offset = block * block_idx.x;

    auto g_x = global_view(x_ptr, {n});
    auto g_y = global_view(y_ptr, {n});
    auto g_z = global_view(z_ptr, {n});
    auto x = load_global(g_x, {offset}, {block});
    auto y = load_global(g_y, {offset}, {block});
    store_global(g_z, x + y, {offset});
  }
};

}  // namespace imbrex::kernels
