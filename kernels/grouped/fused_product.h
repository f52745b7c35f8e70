// SPDX-License-Identifier: Apache-2.0
// A call of gated_matmul() or quantised_matmul(), as kernels take it.
#pragma once

#include <cstdint>
#include <tuple>

#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/parts/steps/linear.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {

/// What a kernel computes. Addresses that it does not use are c's, and not read.
struct FusedProduct {
  int64_t m, n, k;
  DataType dtype, c_type;
  uint64_t a, b, c;
  bool is_gated;
  uint64_t up;
  Activation activation;
  kernels::Factors scales_a, scales_b;
  uint64_t scale_a, scale_b;
  bool quantises;
  uint64_t scale_c;
  int64_t scale_c_stride;  // between its rows
  int multiprocessors;

  /// What of it, beside its sizes, decides which registers a kernel needs.
  auto steps() const { return std::tuple(c_type.code, is_gated, scales_a, scales_b, activation); }
  int64_t columns() const { return is_gated ? 2 * n : n; }
};

/// What a kernel takes for its steps goes to `use`.
template <class Use>
auto with_steps(const FusedProduct& p, const Use& use) {
  return use(static_cast<int>(p.scales_a), p.scale_a, static_cast<int>(p.scales_b), p.scale_b, p.is_gated,
             p.activation, p.up, p.quantises, p.scale_c, p.scale_c_stride,
             p.is_gated ? Activation::kNone : p.activation, p.c_type);
}

}  // namespace imbrex
