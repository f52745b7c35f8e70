// SPDX-License-Identifier: Apache-2.0
// From a product with its choice to a launch. Dense operands have kernels of their own, which know nothing of strides.
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/parts/batch.h"
#include "imbrex/kernels/parts/steps/linear.h"
#include "matmul/matmul_choice.h"

namespace imbrex {

enum class Until { kCompiled, kLaunched };

/// What a kernel computes: options and operands of a call, brought into an order that kernels have.
struct Product {
  int64_t m, n, k;
  DataType dtype, c_type;
  uint64_t a, b, c;  // addresses
  bool a_is_km, b_is_kn;
  float alpha;
  kernels::Factors scales_a, scales_b;
  uint64_t scale_a, scale_b;  // addresses, where there are
  DeviceTensor bias;          // dense, or null
  bool is_column_bias;
  float beta;
  uint64_t residual;  // c itself, or another
  Activation activation;
  /// Strides, where the operands are not dense matrices.
  struct Strides {
    kernels::BatchArguments batch;
    kernels::MatrixStridesArguments residual;
  };
  std::optional<Strides> strides;
  int ctas = 0;   // of the grid, at most
  int parts = 1;  // of k, where they are launched on their own
};

/// A choice, and the orders of the operands.
struct Variant {
  MatmulChoice choice;
  bool a_is_km = false, b_is_kn = false, has_strides = false;
  friend auto operator<=>(const Variant&, const Variant&) = default;
};

/// Whether a bias is per column, [n] or [1, n]; else it is per row, [m, 1].
bool is_column_bias(const DeviceTensor& bias, int64_t n);

/// What the factors of an operand belong to: everything, or what there are `several` of.
kernels::Factors factors_of(const DeviceTensor& t, kernels::Factors several);

/// A kernel, for what depends on a product.
struct Launch {
  /// Compiles, or launches on a stream.
  std::function<LaunchReport(Until, const Product&, const Stream&)> run;
  /// What that compiles.
  std::function<std::vector<std::shared_ptr<ir::Function>>(const Product&)> trace;
  /// Makes machine code of that, to be shipped.
  std::function<void(const Product&, Cache&)> ship;
};

/// The kernel of a variant: for products with strides or for those without. Without a device it can only be traced.
Launch make_dense_launch(const Variant& variant, const std::optional<Device>& device);
Launch make_batch_launch(const Variant& variant, const std::optional<Device>& device);

}  // namespace imbrex
