// SPDX-License-Identifier: Apache-2.0
// Products whose results need more than their own elements, in one kernel: gated ones, and results quantised to float8.
#pragma once

#include "imbrex/kernels/activation.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

struct FusedMatmulOptions {
  /// Of the gate; of an ungated product, of the product itself.
  Activation activation = Activation::kNone;
  /// float32, dense: one element, or one per row of a, [m]. A normalisation of a's rows is such a factor: rms_factors()
  /// makes them, and the norm's weights are multiplied into those of the product beforehand.
  DeviceTensor scale_a;
  /// float32, dense: one element, or one per column of a product: [n], and [2, n] of a gated one, those of b first.
  DeviceTensor scale_b;
  /// float32, where c is float8_e4m3, and only then: [n / 128, m], quotients rounded up, rows of which begin any distance
  /// apart. It gets the scale of each row of each 128 columns: the largest magnitude there / 448, and 1 where that is 0. Or
  /// dense [m], one of each whole row; no tile has all of it, so that the result is rounded to bfloat16, goes through
  /// memory, and is quantised by a second launch. So are gated results of 512 rows and more, which is faster.
  DeviceTensor scale_c;
  Stream stream;
};

/// c = activation(scale_a scale_b a b^T) * (scale_a scale_b a up^T), SwiGLU's two products with Activation::kSilu: a
/// [m, k], b and up [n, k], c [m, n] (b and up may be the halves of one tensor, sliced). a, b and up all float16, bfloat16 or
/// float8_e4m3; c float16, bfloat16 or float8_e4m3, dense and at a multiple of 16. n is a multiple of 8, for c of float8 of 16.
/// c shares no memory with them. An operand that is not dense, or whose rows do not begin and end at multiples of 16 bytes, is
/// copied first, in the stream's order. Sums, scales and activation are float32; nothing is rounded before c is, but where scale_c says so.
/// Devices that run sm_90a. On a CUDA GPU it returns without waiting. Nothing is compiled for m, n and k; which tile a call
/// gets is chosen as in matmul(), for few rows by measurements, and machine code for bfloat16 with Activation::kSilu is
/// shipped as for that, the second launch's too. LaunchError names the condition that a call does not meet.
LaunchReport gated_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& up,
                          const DeviceTensor& c, const FusedMatmulOptions& options = {Activation::kSilu},
                          SourceLocation where = SourceLocation::current());

/// c = activation(scale_a scale_b a b^T) in float8_e4m3, with its scales in options.scale_c. Otherwise as gated_matmul().
LaunchReport quantised_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                              const FusedMatmulOptions& options,
                              SourceLocation where = SourceLocation::current());

}  // namespace imbrex
