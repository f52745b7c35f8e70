// SPDX-License-Identifier: Apache-2.0
// Matrix products by the kernel library, which chooses kernel and tiles. Programs that call it link
// imbrex_kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  bool a_is_km = false;  ///< a is [k, m], not [m, k]
  bool b_is_kn = false;  ///< b is [k, n], not [n, k]
  float alpha = 1;
  /// Of quantised operands, float32 and dense: one element, or one for each row of a (each token, [m]) and of b (each output
  /// channel, [n]). They are shared by the matrices of a batch. Or of both float8 operands one per block of 128 of k: scale_a
  /// [k / 128, m], rows of which begin any distance apart (what quantise_float8() writes to scale_a.transpose()), and scale_b
  /// [n / 128, k / 128], one per 128 rows of b, quotients rounded up. Sums of 128 products each are then scaled and added up
  /// in float32. Such operands are matrices [m, k] and [n, k], n a multiple of 8, c dense and of 16 bits;
  /// the first call of each n and k compiles. Groups of such products: grouped_matmul().
  DeviceTensor scale_a, scale_b;
  DeviceTensor bias;      ///< [n], one per column, or [m, 1], one per row; of c's type or float32
  float beta = 0;         ///< 0: `residual` is not read
  DeviceTensor residual;  ///< as c, or [m, n] for all of a batch, of c's type; null: c itself, as it was
  Activation activation = Activation::kNone;
  Stream stream;  ///< what it is launched on; Stream(): the own one of a's device
};

/// C = A B^T with options: a [m, k], b [n, k], c [m, n], sums in float32. a and b are both float16, both bfloat16,
/// both float8_e4m3 or both int8; c is float16, bfloat16 or float32, whatever they are. Any m, n and k of 1 or more. Devices
/// that run sm_90a. The tensor cores' own sums of float8 products keep about 14 bits. Those of int8 are exact in int32, where
/// they wrap, and become float32 before all else.
///
/// Batches: where c is [matrices, m, n], a and b may be batches too, and one launch computes c[i] = a[i] b[i]^T. An
/// operand of two dimensions, of one matrix, or with a stride of 0 between matrices is shared by all products; so are
/// scales and biases.
///
/// Strides (see DeviceTensor): rows may lie any distance apart, BLAS's lda, ldb and ldc, and so may matrices; views such
/// as slices and transposed tensors are taken as they are. a.transpose() is the same as a with a_is_km. Nothing is copied
/// where the tensor cores' unit of copies (TMA) reaches an operand: elements are neighbours along one of its last two
/// dimensions (of float8: along k), and its address and other strides are multiples of 16 bytes, which dense 16-bit
/// operands have where k is a multiple of 8. Other operands are copied first, in the stream's order, into memory that the
/// stream allocates and gives back; the time of a copy is that of reading and writing the operand once. C may begin at
/// any element and its rows lie any distance apart, but its rows or its columns must be neighbours (what is neither
/// would be written one element per memory sector: a dense result, and a copy by who needs it so, is faster), and none
/// of its elements may share memory. The kernel chosen depends on sizes, types and options, not on strides, except that TMA
/// stores C only where its rows begin at multiples of 16 bytes.
///
/// On a CUDA GPU it returns without waiting. Nothing is compiled for m, n, k, strides or batch: there are some
/// dozens of kernels for each combination of types, orders and options, and the first product that needs one of them finds
/// its machine code where it was shipped (`imbrex cache fill`) or in the cache, else compiles it, which takes about a
/// second. (n has an influence by whether it is a multiple of 16, 8, 4 or 2.) It may be called from several threads at
/// once. LaunchError names the condition that a call does not meet.
LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Compiles and loads what matmul() of these arguments launches, and launches nothing, so that the call can be captured
/// into a CUDA graph. Errors as matmul().
void prepare_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options = {});

/// What matmul() launches for a choice, one kernel or two, and how to trace it, without a device.
struct MatmulCode {
  std::string name;
  std::function<std::vector<std::shared_ptr<ir::Function>>()> trace;
  /// As Kernel::ship.
  std::function<void(Cache& folder)> ship;
};
/// The kernels of the products that most programs make, of all sizes: dense operands of bfloat16 in the orders of a layer
/// and its gradients, and with a bias, of float16, and of float8_e4m3 with scales. `imbrex cache fill` makes their machine
/// code, less than 64 MB.
std::vector<MatmulCode> matmul_codes();

/// What matmul() runs for a product of this size of 16-bit types: "hopper_matmul_h8 block_m=128 ...".
/// `multiprocessors`: how many the device has.
std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors);

}  // namespace imbrex
