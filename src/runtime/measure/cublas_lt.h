// SPDX-License-Identifier: Apache-2.0
// cuBLASLt through dlopen, with prototypes of our own: what matrix products are compared with. It is looked
// for where the dynamic loader looks, in /usr/local/cuda/lib64, and first where IMBREX_CUBLASLT says.
#pragma once

#include <memory>
#include <string>

#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex::runtime {

/// What cuBLASLt does to a product of 16-bit types before it stores it:
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
  /// `a`, `b`, `c`: tensors on a CUDA device. All algorithms that cuBLASLt suggests are timed, with a cold
  /// L2, and the fastest is taken. Time it anew beside others: the measurement by which it won flatters it.
  static std::unique_ptr<CublasLtMatmul> make(const DeviceTensor& a, const DeviceTensor& b,
                                              const DeviceTensor& c, GpuTimer& timer, std::string* why_not,
                                              const CublasLtEpilogue& epilogue = {});
  virtual ~CublasLtMatmul() = default;
  /// "cuBLASLt 13.0.2".
  virtual std::string name() const = 0;
  /// Multiplies the tensors of make(), on the device's stream, without waiting.
  virtual void launch() = 0;
  /// The same for other tensors of the same types, shapes and device; on a stream of it, which may be captured.
  virtual void launch(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                      const Stream& stream = {}) = 0;
};

}  // namespace imbrex::runtime
