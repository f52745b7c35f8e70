// SPDX-License-Identifier: Apache-2.0
// cuBLASLt through dlopen, with prototypes of our own: the rival of our matrix products. Found where the CUDA
// toolkit or a Python package put it, or where IMBREX_CUBLASLT says.
#pragma once

#include <memory>
#include <string>

#include "imbrex/runtime/device_tensor.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex::runtime {

/// What cuBLASLt does to its product before it stores it, of 16-bit types:
/// activation(alpha A B^T + beta residual + bias).
struct CublasLtEpilogue {
  enum class Activation { kNone, kRelu, kGelu };  ///< kGelu: the tanh form
  float alpha = 1;
  float beta = 0;
  DeviceTensor residual = {};  ///< [m, n], of C's type; read where beta is not 0
  DeviceTensor bias = {};      ///< [n], of C's type; null: none
  Activation activation = Activation::kNone;
};

/// C[m, n] = A[m, k] * B[n, k]^T by cuBLASLt, row-major, accumulated in fp32 (or the type that cuBLASLt has
/// for the inputs).
class CublasLtMatmul {
 public:
  /// Null, with the reason in `why_not`, when cuBLASLt is not installed or has no algorithm for these types.
  /// `a`, `b`, `c`: tensors on a CUDA device. Of the algorithms that cuBLASLt suggests, the one is taken that
  /// `timer` finds fastest.
  static std::unique_ptr<CublasLtMatmul> make(const DeviceTensor& a, const DeviceTensor& b,
                                              const DeviceTensor& c, GpuTimer& timer, std::string* why_not,
                                              const CublasLtEpilogue& epilogue = {});
  virtual ~CublasLtMatmul() = default;
  /// "cuBLASLt 13.0.2".
  virtual std::string name() const = 0;
  /// On the device's stream, without waiting.
  virtual void launch() = 0;
};

}  // namespace imbrex::runtime
