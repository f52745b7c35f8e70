// SPDX-License-Identifier: Apache-2.0
// The 32-bit instruction descriptor of tcgen05.mma: types, shape, majors; and where the shape's rows and
// columns lie in tensor memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "imbrex/core/dtype.h"
#include "vgpu/memory/matrix_descriptor.h"

namespace imbrex::vgpu {

enum class MmaKind : uint8_t { kF16, kTF32, kF8F6F4, kI8, kMxF8F6F4, kMxF4, kMxF4NvF4 };

constexpr bool is_block_scaled(MmaKind kind) { return kind >= MmaKind::kMxF8F6F4; }

/// What the mnemonic says.
struct MmaForm {
  MmaKind kind = MmaKind::kF16;
  int cta_group = 1;
  bool weight_stationary = false;  // .ws
  bool sparse = false;             // .sp
};

/// What the descriptor says.
struct MmaShape {
  DataType a = float16, b = float16, d = float32;
  bool negate_a = false, negate_b = false;
  Major a_major = Major::kK, b_major = Major::kK;
  bool saturate = false;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t sparsity_selector = 0;
  uint32_t scale_a_id = 0, scale_b_id = 0;
  bool scale_is_ue8m0 = true;  // else ue4m3
};

struct DecodedShape {
  MmaShape shape;
  std::string problem;  // why the descriptor is illegal for the form; "" when it is not
};
DecodedShape decode_instruction_descriptor(const MmaForm& form, uint32_t bits);

/// A rectangle of a matrix and where it lies: rows row ... row + rows in consecutive lanes, columns in
/// consecutive tensor-memory columns.
struct TensorSegment {
  uint32_t row = 0, rows = 0;        // of the matrix
  uint32_t column = 0, columns = 0;  // of the matrix
  uint32_t cta = 0;                  // 0: the even CTA of a pair (or the only one), 1: the odd one
  uint32_t lane = 0;
  uint32_t tensor_column = 0;  // relative to the address operand
};

/// Where D lies. `lane` is that of the address operand: 0, or 16 for the half-height layouts.
std::vector<TensorSegment> accumulator_segments(const MmaForm& form, uint32_t m, uint32_t n, uint32_t lane);
/// Where A lies when it is in tensor memory, `columns` being tensor-memory columns. Empty: no such layout is
/// known.
std::vector<TensorSegment> operand_a_segments(const MmaForm& form, uint32_t m, uint32_t columns,
                                              uint32_t lane);

}  // namespace imbrex::vgpu
