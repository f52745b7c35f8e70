// SPDX-License-Identifier: Apache-2.0
// Tensor-core arithmetic, bit for bit.
//
// A tensor core does not round after every product. It takes a block of products and the addend, shifts all
// of them to the exponent of the largest (at least a floor), cuts each to `kept_bits` places below that, adds
// what is left exactly and rounds once. Blocks are chained: the result of one is the addend of the next. The
// parameters differ between architectures and instructions; tensor_arith() is the table of them.
//
// Measured on an H200 for Hopper's instructions (0 mismatches in 65 536 random outputs of each); recorded
// outputs of an A100 and a B200 for f16, bf16 and tf32 there. What rests on a single published model is
// marked in the table (tensor_arith.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "core/float_formats.h"
#include "imbrex/core/dtype.h"

namespace imbrex::arith {

/// The instruction families with arithmetic of their own.
enum class TensorInstruction : uint8_t {
  kMma,       ///< mma.sync, wmma
  kWgmma,     ///< wgmma.mma_async
  kTcgen05,   ///< tcgen05.mma, kinds f16, tf32, f8f6f4
  kMxf8f6f4,  ///< tcgen05.mma and mma.sync, kind mxf8f6f4: a scale for every 32 products
  kMxf4,      ///< the same, kinds mxf4 and mxf4nvf4
};

/// How the sum of a block is rounded.
enum class TensorOutput : uint8_t {
  kF32Cut,      ///< to f32, toward zero
  kF32CutTo13,  ///< to f32, toward zero to 13 fraction bits
  kF16Nearest,  ///< to f16, nearest even
};

/// The arithmetic of one instruction: what selects the model in multiply_accumulate.
struct TensorArith {
  FloatFormat a_format, b_format;
  TensorOutput output = TensorOutput::kF32Cut;
  int kept_bits = 25;         ///< F: places kept below the largest term's exponent
  int block_length = 16;      ///< products summed in one go; the whole k if the instruction has less
  int exponent_floor = -133;  ///< the largest exponent counts as at least this
  /// Hopper's emulation of fp8 mma.sync: of every four k, the first two go into one block and the others into
  /// a second chained on it, starting from zero; the addend is added at the end, rounded to nearest.
  bool split_pairs = false;
  /// Block scaling: products per scale factor (0: none) and the factors' format.
  int scale_block = 0;
  FloatFormat scale_format;
  /// mxf4 and nvf4: 16 products are summed exactly and scaled before they enter the block as one term.
  bool groups_of_16 = false;

  /// Bytes of an element of c and d: 2 for f16, else 4.
  int result_bytes() const { return output == TensorOutput::kF16Nearest ? 2 : 4; }
};

/// The arithmetic of an instruction on `sm` (80, 89, 90, 100, 103, ...; the newest one known that is not
/// newer is taken) with operands a and b, result d (float32 or float16) and depth k. `scale` is the type of
/// the scale factors of a block-scaled instruction (float8_e8m0, or float8_e4m3 for the unsigned ue4m3) and
/// scale_block the number of products that share one. Empty when there is no model for the combination.
std::optional<TensorArith> tensor_arith(int sm, TensorInstruction instruction, DataType a, DataType b,
                                        DataType d, int64_t k, std::optional<DataType> scale = std::nullopt,
                                        int scale_block = 0);

/// The extent of a product: d[m][n] = a[m][k] * b[n][k] + c[m][n].
struct MatrixShape {
  int64_t m, n, k;
};

/// What goes into a product beside the matrices.
struct TensorModifiers {
  bool negate_a = false, negate_b = false;
  int scale_input_d = 0;  ///< c is first multiplied by 2^-scale_input_d (exactly; what underflows is cut)
  /// Scale factors of a block-scaled instruction, row-major [m][k / scale_block] and [n][k / scale_block].
  const uint8_t* a_scales = nullptr;
  const uint8_t* b_scales = nullptr;
  int64_t pitch = 0;  ///< elements from one row of c and d to the next; 0: they are dense
};

/// d = a b^T + c. Matrices are dense (but for modifiers.pitch) and row-major; b has its k contiguous, like a. Elements of a and b are
/// patterns of their format: a byte each up to 8 bits, uint16_t for 16, uint32_t for tf32. c and d are f32
/// patterns (uint32_t), or f16 (uint16_t) for TensorOutput::kF16Nearest. c may be null, which is +0, and may
/// be d. Every result is exact to the model. Large shapes are cheap: operands are taken apart once.
void multiply_accumulate(const TensorArith& arith, MatrixShape shape, const void* a, const void* b,
                         const void* c, void* d, const TensorModifiers& modifiers = {});

/// One output by the plain definition, without any shortcut: the reference of multiply_accumulate. `a`, `b`
/// are k patterns, scales k / scale_block factors each; c and the result are f32 or f16 patterns.
uint32_t dot_accumulate(const TensorArith& arith, int64_t k, const uint32_t* a, const uint32_t* b, uint32_t c,
                        const TensorModifiers& modifiers = {});

/// Integer products: c plus all products exactly, then reduced modulo 2^32 or, with `saturate`, clamped once.
/// Operands are widened by the caller: signed or unsigned 8 or 4 bits all fit. c may be null or d.
void multiply_accumulate_int(MatrixShape shape, const int16_t* a, const int16_t* b, const int32_t* c,
                             int32_t* d, bool saturate);

/// Single-bit products: c + popc(a op b) modulo 2^32, op is `and` or `xor`; k counts 32-bit words.
void multiply_accumulate_bits(MatrixShape shape, const uint32_t* a, const uint32_t* b, const int32_t* c,
                              int32_t* d, bool exclusive_or);

/// f64: a chain of fused multiply-adds over k ascending, starting from c.
void multiply_accumulate_f64(MatrixShape shape, const double* a, const double* b, const double* c, double* d,
                             Rounding rounding = Rounding::kNearestEven);

}  // namespace imbrex::arith
