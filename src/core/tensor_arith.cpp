// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_arith.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/scalar_float.h"

namespace imbrex::arith {

namespace {

/// What the operands of an instruction are, as far as its arithmetic goes.
enum class OperandClass { kHalf, kTf32, kF8, kF8F6F4, kF4, kOther };

OperandClass class_of(DataType a, DataType b) {
  auto is_f8 = [](DataType t) { return t == float8_e4m3 || t == float8_e5m2; };
  auto is_f8f6f4 = [&](DataType t) {
    return is_f8(t) || t == float6_e2m3 || t == float6_e3m2 || t == float4_e2m1;
  };
  if (a == b && (a == float16 || a == bfloat16)) return OperandClass::kHalf;
  if (a == b && a == tfloat32) return OperandClass::kTf32;
  if (is_f8(a) && is_f8(b)) return OperandClass::kF8;
  if (a == b && a == float4_e2m1) return OperandClass::kF4;
  if (is_f8f6f4(a) && is_f8f6f4(b)) return OperandClass::kF8F6F4;
  return OperandClass::kOther;
}

/// One line of the table. Lines are tried in order; sm is matched as a range.
struct Row {
  int first_sm, last_sm;
  TensorInstruction instruction;
  OperandClass operands;
  int kept_bits, block_length;
  int f32_floor, f16_floor;
  bool cut_to_13, split_pairs, scaled, groups;
};

using enum TensorInstruction;
using enum OperandClass;

constexpr int kAny = 1 << 20;
constexpr Row kTable[] = {
    // A100: recorded outputs. The exponent floor is from one publication, the one for f16 results by analogy.
    {80, 89, kMma, kHalf, 24, 8, -132, -20, false, false, false, false},
    {80, 89, kMma, kTf32, 24, 4, -132, -20, false, false, false, false},
    // Ada: recorded outputs.
    {89, 89, kMma, kF8, 13, 16, -133, -21, true, false, false, false},
    // Hopper: measured.
    {90, 99, kMma, kHalf, 25, 16, -133, -21, false, false, false, false},
    {90, 99, kMma, kTf32, 25, 8, -133, -21, false, false, false, false},
    {90, 99, kMma, kF8, 25, 16, -133, -21, false, true, false, false},
    {90, 99, kWgmma, kHalf, 25, 16, -133, -21, false, false, false, false},
    {90, 99, kWgmma, kTf32, 25, 8, -133, -21, false, false, false, false},
    {90, 99, kWgmma, kF8, 13, 32, -133, -21, true, false, false, false},
    // Blackwell, f16, bf16, tf32 and the emulated fp8 of mma.sync: recorded outputs of a B200.
    {100, kAny, kMma, kHalf, 25, 16, -133, -21, false, false, false, false},
    {100, kAny, kMma, kTf32, 25, 8, -133, -21, false, false, false, false},
    {100, 119, kMma, kF8, 25, 16, -133, -21, false, true, false, false},
    {100, 119, kTcgen05, kHalf, 25, 16, -133, -21, false, false, false, false},
    {100, 119, kTcgen05, kTf32, 25, 8, -133, -21, false, false, false, false},
    // Blackwell, narrow operands: one published model, not checked against recordings.
    {100, 119, kTcgen05, kF8, 25, 32, -133, -21, false, false, false, false},
    {100, 119, kTcgen05, kF4, 25, 32, -133, -21, false, false, false, false},
    {100, 119, kTcgen05, kF8F6F4, 25, 32, -133, -21, false, false, false, false},
    {120, 129, kMma, kF8, 25, 32, -133, -21, false, false, false, false},
    {120, 129, kMma, kF4, 25, 32, -133, -21, false, false, false, false},
    {120, 129, kMma, kF8F6F4, 25, 32, -133, -21, false, false, false, false},
    {100, 129, kMxf8f6f4, kF8, 25, 32, -133, -21, false, false, true, false},
    {100, 129, kMxf8f6f4, kF4, 25, 32, -133, -21, false, false, true, false},
    {100, 129, kMxf8f6f4, kF8F6F4, 25, 32, -133, -21, false, false, true, false},
    {100, 129, kMxf4, kF4, 35, 64, -133, -21, false, false, true, true},
};

}  // namespace

std::optional<TensorArith> tensor_arith(int sm, TensorInstruction instruction, DataType a, DataType b,
                                        DataType d, int64_t k, std::optional<DataType> scale,
                                        int scale_block) {
  const OperandClass operands = class_of(a, b);
  const auto* row = std::find_if(std::begin(kTable), std::end(kTable), [&](const Row& r) {
    return sm >= r.first_sm && sm <= r.last_sm && instruction == r.instruction && operands == r.operands;
  });
  if (row == std::end(kTable) || row->scaled != scale.has_value()) return std::nullopt;
  const bool f16_result = d == float16;
  if (!f16_result && d != float32) return std::nullopt;
  // bf16, tf32 and scaled operands have f32 results only.
  if (f16_result && (a == bfloat16 || a == tfloat32 || row->scaled)) return std::nullopt;

  TensorArith arith;
  arith.a_format = float_format(a);
  arith.b_format = float_format(b);
  arith.output = f16_result       ? TensorOutput::kF16Nearest
                 : row->cut_to_13 ? TensorOutput::kF32CutTo13
                                  : TensorOutput::kF32Cut;
  arith.kept_bits = row->kept_bits;
  arith.block_length = row->block_length;
  arith.exponent_floor = f16_result ? row->f16_floor : row->f32_floor;
  arith.split_pairs = row->split_pairs;
  arith.groups_of_16 = row->groups;
  if (scale) {
    if (*scale != float8_e8m0 && !(row->groups && *scale == float8_e4m3)) return std::nullopt;
    if (scale_block != 32 && !(row->groups && scale_block == 16)) return std::nullopt;
    arith.scale_format = *scale == float8_e8m0 ? kUE8M0 : kUE4M3;
    arith.scale_block = scale_block;
  }
  const int64_t step = arith.split_pairs ? 4 : arith.groups_of_16 ? 64 : arith.block_length;
  const bool short_block = k < step && !arith.split_pairs && scale_block == 0;  // as m16n8k8 of f16
  if (k <= 0 || (k % step != 0 && !short_block)) return std::nullopt;
  return arith;
}

void multiply_accumulate_int(MatrixShape shape, const int16_t* a, const int16_t* b, const int32_t* c,
                             int32_t* d, bool saturate) {
  for (int64_t m = 0; m < shape.m; ++m)
    for (int64_t n = 0; n < shape.n; ++n) {
      const int16_t* row = a + m * shape.k;
      const int16_t* column = b + n * shape.k;
      int64_t sum = c != nullptr ? c[m * shape.n + n] : 0;
      for (int64_t k = 0; k < shape.k; ++k) sum += int32_t{row[k]} * int32_t{column[k]};
      if (saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
      d[m * shape.n + n] = static_cast<int32_t>(static_cast<uint32_t>(sum));
    }
}

void multiply_accumulate_bits(MatrixShape shape, const uint32_t* a, const uint32_t* b, const int32_t* c,
                              int32_t* d, bool exclusive_or) {
  for (int64_t m = 0; m < shape.m; ++m)
    for (int64_t n = 0; n < shape.n; ++n) {
      auto sum = static_cast<uint32_t>(c != nullptr ? c[m * shape.n + n] : 0);
      for (int64_t k = 0; k < shape.k; ++k) {
        const uint32_t x = a[m * shape.k + k], y = b[n * shape.k + k];
        sum += static_cast<uint32_t>(std::popcount(exclusive_or ? x ^ y : x & y));
      }
      d[m * shape.n + n] = static_cast<int32_t>(sum);
    }
}

void multiply_accumulate_f64(MatrixShape shape, const double* a, const double* b, const double* c, double* d,
                             Rounding rounding) {
  for (int64_t m = 0; m < shape.m; ++m)
    for (int64_t n = 0; n < shape.n; ++n) {
      double sum = c != nullptr ? c[m * shape.n + n] : 0.0;
      for (int64_t k = 0; k < shape.k; ++k) sum = fma(a[m * shape.k + k], b[n * shape.k + k], sum, rounding);
      d[m * shape.n + n] = sum;
    }
}

}  // namespace imbrex::arith
