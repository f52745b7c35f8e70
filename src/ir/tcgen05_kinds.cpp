// SPDX-License-Identifier: Apache-2.0
#include "ir/tcgen05_kinds.h"

#include <algorithm>

namespace imbrex::ir {
namespace {

bool contains(const std::vector<DataType>& list, DataType type) {
  return std::find(list.begin(), list.end(), type) != list.end();
}

const std::vector<MmaKindFacts>& mma_kinds() {
  static const std::vector<DataType> kSmallFloats = {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2,
                                                     float4_e2m1};
  // Where types fit several kinds, the first is meant.
  static const std::vector<MmaKindFacts> kinds = {
      {MmaKind::kF16, "f16", {float16, bfloat16}, {float32, float16}, 16, false, {}},
      {MmaKind::kTF32, "tf32", {tfloat32, float32}, {float32}, 8, false, {}},
      {MmaKind::kF8F6F4, "f8f6f4", kSmallFloats, {float32, float16}, 32, false, {}},
      {MmaKind::kI8, "i8", {int8, uint8}, {int32}, 32, false, {}},
      {MmaKind::kMxF4, "mxf4", {float4_e2m1}, {float32}, 64, true, {{float8_e8m0, 32}}},
      {MmaKind::kMxF4NvF4,
       "mxf4nvf4",
       {float4_e2m1},
       {float32},
       64,
       true,
       {{float8_ue4m3, 16}, {float8_e8m0, 16}, {float8_e8m0, 32}}},
      {MmaKind::kMxF8F6F4, "mxf8f6f4", kSmallFloats, {float32}, 32, false, {{float8_e8m0, 32}}},
  };
  return kinds;
}

}  // namespace

bool takes_scales(const Op& op, const MmaKindFacts& kind) {
  const Type& a = op.operands[0]->type;
  const Type& scale = op.operands[4]->type;
  if (a.rank() != 2 || scale.rank() != 2) return false;
  return std::any_of(kind.scales.begin(), kind.scales.end(), [&](const ScaleForm& form) {
    return form.dtype == scale.dtype && a.shape[1] == form.block * scale.shape[1];
  });
}

bool is_tcgen05_mma(const Op& op) {
  return op.code == Opcode::kTcgen05Mma || op.code == Opcode::kTcgen05ScaledMma;
}

const MmaKindFacts* mma_kind(const Op& op) {
  const bool is_scaled = op.code == Opcode::kTcgen05ScaledMma;
  for (const MmaKindFacts& kind : mma_kinds()) {
    if (kind.is_block_scaled() != is_scaled) continue;
    if (op.attr("kind")
            ? kind.name == op.string_attr("kind")
            : contains(kind.inputs, op.operands[0]->type.dtype) &&
                  contains(kind.inputs, op.operands[1]->type.dtype) && (!is_scaled || takes_scales(op, kind)))
      return &kind;
  }
  return nullptr;
}

int64_t mma_n_step(const Op& op, const MmaKindFacts& kind) {
  const bool is_pair = op.int_attr("cta_group", 1) == 2;
  const bool a_in_tensor_memory = op.operands[0]->type.kind == TypeKind::kTensorMemory;
  // What public kernels keep to with A in tensor memory is narrower than the manual.
  if (is_pair) return kind.kind == MmaKind::kI8 || a_in_tensor_memory ? 32 : 16;
  return a_in_tensor_memory && op.operands[0]->type.shape[0] % 128 == 0 ? 16 : 8;
}

MmaTile mma_tile(const Op& op, const MmaKindFacts& kind) {
  const int64_t rows = op.operands[0]->type.shape[0], columns = op.operands[2]->type.shape[1];
  const int64_t step = mma_n_step(op, kind);
  const bool is_i8 = kind.kind == MmaKind::kI8;
  MmaTile tile{0, 0};
  if (rows == 64 && !kind.is_block_scaled()) tile.m = 64;
  if (rows % 128 == 0) tile.m = 128;
  const auto exists = [&](int64_t n) {
    // Factors of 32 columns lie together.
    const bool scales_start_there = !kind.is_block_scaled() || n == columns || n % 32 == 0;
    return n % step == 0 && (!is_i8 || n % 16 == 0 || n == 8 || n == 24) && scales_start_there;
  };
  // The halves of a pair's b alternate with every instruction, so there is but one.
  if (op.int_attr("cta_group", 1) == 2) {
    if (columns <= 256 && exists(columns)) tile.n = columns;
    return tile;
  }
  for (int64_t n = std::min<int64_t>(columns, 256); n > 0 && tile.n == 0; --n)
    if (columns % n == 0 && exists(n)) tile.n = n;
  return tile;
}

}  // namespace imbrex::ir
