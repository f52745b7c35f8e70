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
  bool a_is_km = false;  ///< a is [k, m], not [m, k]
  bool b_is_kn = false;  ///< b is [k, n], not [n, k]
  float alpha = 1;
  DeviceTensor scale_a, scale_b;  ///< float32, one element each: of quantised operands
  DeviceTensor bias;              ///< [n], one per column, or [m, 1], one per row; of c's type or float32
  float beta = 0;                 ///< 0: `residual` is not read
  DeviceTensor residual;  ///< as c, or [m, n] for all of a batch, of c's type; null: c itself, as it was
  Activation activation = Activation::kNone;
  Stream stream;  ///< what it is launched on; Stream(): the own one of a's device
};

/// C = A B^T with options: a [m, k], b [n, k], c [m, n], sums in float32. a and b are both float16, both bfloat16 or
/// both float8_e4m3; c is float16, bfloat16 or float32, whatever they are. Any m, n and k of 1 or more. Devices that run
/// sm_90a. The tensor cores' own sums of float8 products keep about 14 bits.
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
/// On a CUDA GPU it returns without waiting. The first product of each n, k, types and set of options
/// compiles its kernel, which takes up to seconds; later ones, of any m and batch for which the same tiles are best, of
/// any strides that begin rows at multiples of 16 bytes, and of any alpha and beta other than 1 and 0, find it ready. It
/// may be called from several threads at once. LaunchError names the condition that a call does not meet.
LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Compiles and loads what matmul() of these arguments launches, and launches nothing, so that the call can be captured
/// into a CUDA graph. Errors as matmul().
void prepare_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options = {});

/// What matmul() runs for a product of this size of 16-bit types: "hopper_matmul_h7 block_m=128 ...".
/// `multiprocessors`: how many the device has.
std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors);

}  // namespace imbrex
