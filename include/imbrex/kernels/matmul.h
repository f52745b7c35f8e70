// SPDX-License-Identifier: Apache-2.0
// Matrix products by the kernel library, which chooses kernel and tiles. Programs that call it link
// imbrex_kernels.
#pragma once

#include <string>

#include "imbrex/kernels/activation.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// What is done to the product before it is stored, in registers:
///
///   c = activation(alpha * scale_a * scale_b * A B^T + bias + beta * residual)
///
/// Null tensors, and numbers that change nothing (alpha 1, beta 0), cost nothing.
struct MatmulOptions {
  bool a_is_km = false;  ///< a is [k, m] in memory, not [m, k]; 16-bit types, m a multiple of 8
  bool b_is_kn = false;  ///< b is [k, n] in memory, not [n, k]; 16-bit types, n a multiple of 8
  float alpha = 1;
  DeviceTensor scale_a, scale_b;  ///< float32, one element each: of quantised operands
  DeviceTensor bias;              ///< [n], one per column, or [m, 1], one per row; of c's type or float32
  float beta = 0;                 ///< 0: `residual` is not read
  DeviceTensor residual;          ///< [m, n], of c's type; null: c itself, as it was
  Activation activation = Activation::kNone;
  Stream stream;  ///< what it is launched on; Stream(): the own one of a's device
};

/// C = A B^T with options: a [m, k], b [n, k], c [m, n], row-major, sums in float32. a and b are both
/// float16, both bfloat16 or both float8_e4m3; c is float16, bfloat16 or float32, whatever they are. Any m
/// and n; k (of operands that have k first: m, n) is a multiple of 16 bytes, as TMA's rows are. Devices that
/// run sm_90a. The tensor cores' own sums of float8 products keep about 14 bits.
///
/// On a CUDA GPU it returns without waiting. The first product of each n, k, types and set of options
/// compiles its kernel, which takes up to seconds; later ones, of any m for which the same tiles are best and
/// of any alpha and beta other than 1 and 0, find it ready. It may be called from several threads at once.
/// LaunchError names the condition that a call does not meet.
LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options = {});

/// Compiles and loads what matmul() of these arguments launches, and launches nothing, so that the call can be captured
/// into a CUDA graph. Errors as matmul().
void prepare_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options = {});

/// What matmul() runs for a product of this size of 16-bit types: "hopper_matmul_h7 block_m=128 ...".
/// `multiprocessors`: how many the device has.
std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors);

}  // namespace imbrex
