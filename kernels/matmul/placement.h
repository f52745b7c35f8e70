// SPDX-License-Identifier: Apache-2.0
// Operands of a product brought to where kernels can use them: as they are if their strides allow it, else as copies.
#pragma once

#include <vector>

#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/workspace.h"
#include "matmul/matmul_launch.h"

namespace imbrex {

/// The sizes of a call; `matrices` products of one size.
struct Problem {
  int64_t matrices, m, n, k;
};

/// Whether dense kernels can take the call: matrices without gaps, at addresses and with rows that are multiples of 16
/// bytes where that matters.
bool is_dense_call(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                   const MatmulOptions& options);

/// Whether they could but for rows of a [m, k] and b [n, k] that do not end at multiples of 16 bytes: of copies with zeros
/// behind each row the product is the same.
bool is_dense_but_for_k(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                        const MatmulOptions& options);

/// A product with strides. Operands that TMA cannot read, and residuals and biases that threads cannot, are copied in
/// order with the stream, into memory that is given back in its order; with kCompiled only what copies them is
/// compiled.
struct Placement {
  Placement(Until until, const Problem& problem, const DeviceTensor& a, const DeviceTensor& b,
            const DeviceTensor& c, const MatmulOptions& options);
  Product product;
  LaunchReport copies;            // of the first copy in which something was found, if any
  std::vector<Workspace> copied;  // what the product reads: kept until it is launched
};

}  // namespace imbrex
