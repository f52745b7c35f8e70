// SPDX-License-Identifier: Apache-2.0
// Products with weights of 1 to 8 bits. Programs that call it link imbrex_kernels.
#pragma once

#include <cstdint>

#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// Weights W [n, k] of any type of at most 8 bits but float8_e8m0, with a factor for every `group` elements of a row, on
/// a device, in the order that low_precision_matmul() reads: one packing for few rows of activations and for many
/// (kernels/low_precision/packed_weights.h says which). W[i, j] stands for weights[i, j] * scales[i, j / group], or
/// for (weights[i, j] - zero_points[i, j / group]) * scales[i, j / group].
struct LowPrecisionWeights {
  DataType type = int4;
  int64_t n = 0, k = 0, group = 0;
  DeviceTensor words;  ///< uint32: 64 rows by 256 of k after the other
  DeviceTensor
      scales;  ///< float16 or bfloat16, [ceil(n / 64), ceil(k / group), 64]; twice the groups with zero points
  bool has_zero_points = false;

  /// Packs weights [n, k] and factors [n, ceil(k / group)], and copies them to the device. A group is 16, 32, 64, 128, or
  /// a multiple of 256 (k or more: one factor per row). `zero_points`: of the shape of the factors and any type, for
  /// integers; each is a number that a weight can be. Factors of 8 bits, as MXFP4's (float4_e2m1, float8_e8m0, groups of 32)
  /// and NVFP4's (float8_e4m3, groups of 16), become `wide_type`, that of x and c, which must hold each of them; others
  /// keep theirs. LaunchError says what else does not fit.
  static LowPrecisionWeights pack(const Device& device, const HostTensor& weights, const HostTensor& scales,
                                  int64_t group, const HostTensor* zero_points = nullptr,
                                  DataType wide_type = bfloat16);
  /// Of the device's memory.
  int64_t bytes() const { return words.bytes() + scales.bytes(); }
};

struct LowPrecisionOptions {
  Stream stream;         ///< what it is launched on; Stream(): the own one of x's device
  DeviceTensor scale_x;  ///< float32, dense, [m] or [1]: what each row of x, or all, stands for. Null: 1
};

/// C = X W^T: x [m, k], c [m, n] of the type of the factors, float16 or bfloat16. x has that type, or is int8 or
/// float8_e4m3: these become the factors' type exactly, on their way to the tensor cores, and `scale_x` multiplies the
/// results. Sums in float32. Any m, n and k of 1 or more. Devices from sm_80 on; those that run sm_90a have faster kernels.
///
/// Rows of x and c may lie any distance apart; those of c are neighbours in memory. x is read where it lies if its rows begin
/// and end at multiples of 16 bytes, else copied first in the stream's order, as are rows of 8 bits on Hopper, and on
/// Blackwell where there are more than 64 of them.
///
/// Up to 32 rows on Hopper, 64 on Blackwell, and any number on other devices, weights are converted exactly, and sums of a group
/// multiplied by its factor once; above, weights are multiplied by their factors first, and rounded to the factors' type. A NaN among weights
/// of float8_e4m3 counts as 480. float7_e5m1, whose range is wider than float16's, takes bfloat16.
///
/// On Hopper with few rows the product begins to read the weights before the kernel launched ahead of it has ended: that one
/// must not write them. (pack() is no kernel.)
///
/// Returns without waiting on a CUDA GPU. The first product of each n, k, group and type compiles its kernel. It may be
/// called from several threads at once. LaunchError names the condition that a call does not meet.
LaunchReport low_precision_matmul(const DeviceTensor& x, const LowPrecisionWeights& w, const DeviceTensor& c,
                                  const LowPrecisionOptions& options = {},
                                  SourceLocation where = SourceLocation::current());

/// The same as matmul() of matmul.h with packed weights as its second operand: alpha, scale_a, bias, beta, residual (whose columns
/// are neighbours in memory) and activation apply. scale_b and b_is_kn are refused.
LaunchReport matmul(const DeviceTensor& a, const LowPrecisionWeights& b, const DeviceTensor& c,
                    const MatmulOptions& options = {}, SourceLocation where = SourceLocation::current());

}  // namespace imbrex
