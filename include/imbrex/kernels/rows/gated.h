// SPDX-License-Identifier: Apache-2.0
// Gated linear units: SwiGLU, GEGLU and the like, forward and backward.
#pragma once

#include "imbrex/kernels/activation.h"
#include "imbrex/kernels/parts/steps/activations.h"
#include "imbrex/kernels/rows/row_tile.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y = activation(gate) * up: SwiGLU with Activation::kSilu, GEGLU with one of the GELUs. All three [rows, columns] or
/// [batch, rows, columns], float16, bfloat16 or float32, computed in float32; columns are neighbours in memory, the other
/// strides may be any: gate and up may be the halves of one [rows, 2 columns], sliced. y may be gate or up. Otherwise as
/// rms_norm().
LaunchReport gated(const DeviceTensor& gate, const DeviceTensor& up, const DeviceTensor& y,
                   Activation activation = Activation::kSilu, const Stream& stream = {},
                   SourceLocation where = SourceLocation::current());

/// The gradients of gated() from dy, that of y: dgate = dy * up * activation'(gate), dup = dy * activation(gate). For
/// kSilu, kGelu (its tanh form), kGeluErf, kRelu and kNone. dgate and dup may be any of the other tensors.
LaunchReport gated_backward(const DeviceTensor& dy, const DeviceTensor& gate, const DeviceTensor& up,
                            const DeviceTensor& dgate, const DeviceTensor& dup,
                            Activation activation = Activation::kSilu, const Stream& stream = {},
                            SourceLocation where = SourceLocation::current());

namespace kernels {

/// activation(x) and its derivative.
struct ActivationSlope {
  RegisterTensor value, slope;

  static ActivationSlope of(const RegisterBase& x, Activation activation) {
    if (activation == Activation::kSilu) {
      auto sigmoid = 1.0f / (exp(-x) + 1.0f);
      auto value = x * sigmoid;
      return {value, sigmoid + value * (1.0f - sigmoid)};
    }
    if (activation == Activation::kGelu || activation == Activation::kGeluFast) {
      constexpr float kSlope = 2 * 0.7978845608f, kCube = 0.044715f;  // x sigmoid(kSlope (x + kCube x^3))
      auto square = x * x;
      auto sigmoid = 1.0f / (exp(x * fma(square, -kSlope * kCube, -kSlope)) + 1.0f);
      auto value = x * sigmoid;
      return {value, sigmoid + value * (1.0f - sigmoid) * fma(square, 3 * kSlope * kCube, kSlope)};
    }
    if (activation == Activation::kGeluErf) {
      auto density = exp(x * x * -0.5f) * 0.3989422804f;
      auto share = erf(x * 0.7071067812f) * 0.5f + 0.5f;
      return {x * share, share + x * density};
    }
    if (activation == Activation::kRelu)
      return {max(x, 0.0f), select(x > 0.0f, full(float32, x.shape(), 1), 0.0f)};
    return {RegisterValue(x.handle()), full(float32, x.shape(), 1)};
  }
};

struct Gated {
  int thread_bytes = 32;  // of the gate, per thread

  static auto space() { return Space<Gated>().choose<&Gated::thread_bytes>({32, 16, 64}); }

  void operator()(RowShape shape, RowOperand gate, RowOperand up, RowOperand y, Activation activation) const {
    const RowTile tile(shape, gate.dtype.bytes(), thread_bytes);
    const auto [row, matrix] = tile.place_of_cta(cdiv(shape.columns(), tile.columns));
    Int32 column = block_idx.y * tile.columns;
    const auto load = [&, &row = row, &matrix = matrix](const RowOperand& from) {
      return load_global(from.view(shape, matrix), {row, column}, {tile.rows, tile.columns}).to(float32);
    };
    auto through = Activate{activation}(load(gate), OutputTile{0, 0, float32, 0, 0});
    store_global(y.view(shape, matrix), (through * load(up)).to(y.dtype), {row, column});
  }
};

struct GatedBackward {
  int thread_bytes = 32;  // of the gate, per thread

  static auto space() { return Space<GatedBackward>().choose<&GatedBackward::thread_bytes>({32, 16, 64}); }

  void operator()(RowShape shape, RowOperand dy, RowOperand gate, RowOperand up, RowOperand dgate,
                  RowOperand dup, Activation activation) const {
    const RowTile tile(shape, gate.dtype.bytes(), thread_bytes);
    const auto [row, matrix] = tile.place_of_cta(cdiv(shape.columns(), tile.columns));
    Int32 column = block_idx.y * tile.columns;
    const auto load = [&, &row = row, &matrix = matrix](const RowOperand& from) {
      return load_global(from.view(shape, matrix), {row, column}, {tile.rows, tile.columns}).to(float32);
    };
    auto gradient = load(dy), gate_value = load(gate), up_value = load(up);
    const ActivationSlope through = ActivationSlope::of(gate_value, activation);
    store_global(dgate.view(shape, matrix), (gradient * up_value * through.slope).to(dgate.dtype),
                 {row, column});
    store_global(dup.view(shape, matrix), (gradient * through.value).to(dup.dtype), {row, column});
  }
};

}  // namespace kernels
}  // namespace imbrex
