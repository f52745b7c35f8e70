// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/element_reduction.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/scalar_float.h"
#include "core/scalar_half.h"
#include "imbrex/core/error.h"
#include "vgpu/memory/raced_bytes.h"

namespace imbrex::vgpu {
namespace {

template <class T>
T integer(ReduceOp op, T old, T value) {
  switch (op) {
    case ReduceOp::kNone:
      return value;
    case ReduceOp::kAdd:
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                            static_cast<std::make_unsigned_t<T>>(value));
    case ReduceOp::kMin:
      return std::min(old, value);
    case ReduceOp::kMax:
      return std::max(old, value);
    case ReduceOp::kInc:
      return old >= value ? 0 : old + 1;
    case ReduceOp::kDec:
      return old == 0 || old > value ? value : old - 1;
    case ReduceOp::kAnd:
      return old & value;
    case ReduceOp::kOr:
      return old | value;
    case ReduceOp::kXor:
      return old ^ value;
  }
  return old;
}

uint16_t half(ReduceOp op, uint16_t old, uint16_t value) {
  switch (op) {
    case ReduceOp::kMin:
      return arith::min_f16(old, value);
    case ReduceOp::kMax:
      return arith::max_f16(old, value);
    default:
      return arith::add_f16(old, value);
  }
}

uint16_t bfloat(ReduceOp op, uint16_t old, uint16_t value) {
  switch (op) {
    case ReduceOp::kMin:
      return arith::min_bf16(old, value);
    case ReduceOp::kMax:
      return arith::max_bf16(old, value);
    default:
      return arith::add_bf16(old, value);
  }
}

// Subnormals to zero of the same sign.
uint32_t flushed(uint32_t bits) { return (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits; }

uint32_t add_f32(uint32_t old, uint32_t value, bool ftz) {
  if (ftz) old = flushed(old), value = flushed(value);
  const auto sum =
      std::bit_cast<uint32_t>(arith::add(std::bit_cast<float>(old), std::bit_cast<float>(value)));
  return ftz ? flushed(sum) : sum;
}

template <class T, class Update>
void update_all(std::byte* memory, const std::byte* values, int64_t count, Update&& update) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    std::byte* element = memory + i * static_cast<int64_t>(sizeof(T));
    write_word<T>(element, update(read_word<T>(element), value));
  }
}

}  // namespace

int64_t bytes_of(ReduceType type) {
  switch (type) {
    case ReduceType::kF16:
    case ReduceType::kBF16:
      return 2;
    case ReduceType::kU64:
    case ReduceType::kS64:
    case ReduceType::kF64:
      return 8;
    default:
      return 4;
  }
}

bool is_reduction(ReduceOp op, ReduceType type) {
  switch (op) {
    case ReduceOp::kNone:
      return false;
    case ReduceOp::kAdd:
      return type != ReduceType::kS64;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return type != ReduceType::kF32 && type != ReduceType::kF32Ftz && type != ReduceType::kF64;
    case ReduceOp::kInc:
    case ReduceOp::kDec:
      return type == ReduceType::kU32;
    default:
      return type == ReduceType::kU32 || type == ReduceType::kU64;
  }
}

void reduce_elements(ReduceOp op, ReduceType type, std::byte* memory, const std::byte* values,
                     int64_t count) {
  switch (type) {
    case ReduceType::kU32:
      return update_all<uint32_t>(memory, values, count,
                                  [op](uint32_t a, uint32_t b) { return integer(op, a, b); });
    case ReduceType::kS32:
      return update_all<int32_t>(memory, values, count,
                                 [op](int32_t a, int32_t b) { return integer(op, a, b); });
    case ReduceType::kU64:
      return update_all<uint64_t>(memory, values, count,
                                  [op](uint64_t a, uint64_t b) { return integer(op, a, b); });
    case ReduceType::kS64:
      return update_all<int64_t>(memory, values, count,
                                 [op](int64_t a, int64_t b) { return integer(op, a, b); });
    case ReduceType::kF16:
      return update_all<uint16_t>(memory, values, count,
                                  [op](uint16_t a, uint16_t b) { return half(op, a, b); });
    case ReduceType::kBF16:
      return update_all<uint16_t>(memory, values, count,
                                  [op](uint16_t a, uint16_t b) { return bfloat(op, a, b); });
    case ReduceType::kF32:
      return update_all<uint32_t>(memory, values, count,
                                  [](uint32_t a, uint32_t b) { return add_f32(a, b, false); });
    case ReduceType::kF32Ftz:
      return update_all<uint32_t>(memory, values, count,
                                  [](uint32_t a, uint32_t b) { return add_f32(a, b, true); });
    case ReduceType::kF64:
      return update_all<uint64_t>(memory, values, count,
                                  [](uint64_t a, uint64_t b) { return arith::add_in_global_memory(a, b); });
  }
}

}  // namespace imbrex::vgpu
