// SPDX-License-Identifier: Apache-2.0
// The steps of an epilogue as a separate kernel, C = steps(X): fusing them into a matmul saves its time and
// its traffic.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct ApplySteps {
  int block_m = 4, block_n = 1024;  // rows that are reduced fit into one block

  void operator()(Int32 m_size, int n_size, DataType dtype, Ptr<> x_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    finish.check(n_size, block_n);
    grid(cdiv(m_size, block_m), cdiv(n_size, block_n));
    warps(4);
    Int32 row = block_m * block_idx.x;
    Int32 column = block_n * block_idx.y;
    const DataType c_type = finish.output_type(dtype);
    auto x = load_global(global_view(x_ptr, dtype, {m_size, n_size}), {row, column}, {block_m, block_n});
    store_global(global_view(c_ptr, c_type, {m_size, n_size}),
                 finish(x.to(float32), {m_size, n_size, c_type, row, column}), {row, column});
  }
};

}  // namespace imbrex::kernels
