// SPDX-License-Identifier: Apache-2.0
// One matrix product of a tensor core, whichever instruction asks for it: operands as they lie in memory,
// results in place, arithmetic exact (bit for bit the chip's) or fast (fp32 SIMD).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor_arith.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "ptx/ptx.h"
#include "vgpu/memory/matrix_descriptor.h"

namespace imbrex::vgpu {

/// The type that mma.sync and wgmma multiply under this name, where it fills whole bytes.
std::optional<DataType> product_type(ptx::ScalarType type);

/// What is multiplied. Elements of a and b are patterns as core/tensor_arith.h wants them: 16- and 32-bit
/// types packed, everything narrower in a byte each.
struct ProductSpec {
  arith::TensorInstruction instruction = arith::TensorInstruction::kTcgen05;
  int sm = 100;
  DataType a = float16, b = float16;
  DataType d = float32;  // float32, float16, int32
  arith::MatrixShape shape{};
  bool negate_a = false, negate_b = false;
  bool saturate = false;  // integers
  bool sparse = false;    // a was expanded with zeros: twice as many k make one block
  int scale_input_d = 0;
  std::optional<DataType> scale;  // block scaling: float8_e8m0, or float8_e4m3 for ue4m3
  int scale_block = 0;            // products per factor
};

/// A product in three steps: operands in, then D rectangle by rectangle. Buffers belong to the host thread
/// and are used again by its next product.
class TensorProduct {
 public:
  TensorProduct(const ProductSpec& spec, TensorMath math);

  /// Why the product cannot be computed; "" when it can.
  const std::string& problem() const { return problem_; }

  /// K-major: a[m][k], b[n][k] row by row. MN-major: a[k][m], b[k][n]. A sparse a has k / 2.
  void load_a(const void* patterns, Major major);
  void load_b(const void* patterns, Major major);
  /// Of a sparse product, after load_a: where along k the elements of a belong, [m][k / 2], valid until the last
  /// multiply().
  void load_places(const uint8_t* places);
  /// Factors [m][k / scale_block] and [n][k / scale_block], valid until the last multiply().
  void load_scales(const uint8_t* a_scales, const uint8_t* b_scales);

  /// D[row ... row + rows)[column ... column + columns), whose first element is *d: one result a 32-bit cell
  /// (f16 in the low half, the upper one zero), rows `pitch` cells apart. `add`: D += A B, else D = A B.
  void multiply(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d, int64_t pitch,
                bool add);

 private:
  bool is_integer() const { return spec_.d == int32; }
  int64_t stored_k() const { return spec_.sparse ? spec_.shape.k / 2 : spec_.shape.k; }  // of a
  void add_products(int64_t row, int64_t rows, int64_t column, int64_t columns, float* d, int64_t pitch,
                    bool add);
  void multiply_fast(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d, int64_t pitch,
                     bool add);
  void multiply_exact(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d, int64_t pitch,
                      bool add);
  void multiply_exact_rows(int64_t row, int64_t rows, int64_t column, int64_t columns, const void* b,
                           uint32_t* d, int64_t pitch, bool add);
  void multiply_saturating(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d,
                           int64_t pitch, bool add);

  ProductSpec spec_;
  std::optional<arith::TensorArith> exact_;  // set: exact arithmetic
  const uint8_t* places_ = nullptr;
  const uint8_t* a_scales_ = nullptr;
  const uint8_t* b_scales_ = nullptr;
  std::string problem_;
};

}  // namespace imbrex::vgpu
