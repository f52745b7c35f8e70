// SPDX-License-Identifier: Apache-2.0
// Every family of micro-kernels, one file each (NAME_forms.cpp).
#pragma once

#include <vector>

#include "kernel.h"

namespace imbrex::conformance {

using Kernels = std::vector<MicroKernel>;

void add_matrix_moves(Kernels& out);   // ldmatrix, stmatrix, movmatrix
void add_mma(Kernels& out);            // mma.sync
void add_tensor_copies(Kernels& out);  // cp.async.bulk.tensor, its reductions and prefetches
void add_im2col(Kernels& out);
void add_tensor_maps(Kernels& out);  // multicast, tensormap.replace
void add_wgmma(Kernels& out);
void add_wmma(Kernels& out);
void add_sparse_products(Kernels& out);  // mma.sp, wgmma.mma_async.sp
void add_cp_async(Kernels& out);
void add_mbarrier(Kernels& out);
void add_collectives(Kernels& out);
void add_atomics(Kernels& out);
void add_bulk_copies(Kernels& out);
void add_clusters(Kernels& out);
void add_barriers_and_fences(Kernels& out);
void add_memory(Kernels& out);
void add_control(Kernels& out);

void add_scalars(Kernels& out, int64_t values);  // scalar_forms.cpp

/// All of them; scalar forms run on `scalar_values` operands each.
Kernels all_kernels(int64_t scalar_values);

}  // namespace imbrex::conformance
