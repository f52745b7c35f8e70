// SPDX-License-Identifier: Apache-2.0
// The element updates of bulk reductions (cp.reduce.async.bulk, tensor reductions, red.async).
#pragma once

#include <cstddef>
#include <cstdint>

namespace imbrex::vgpu {

/// kNone: no reduction, the values are stored.
enum class ReduceOp : uint8_t { kNone, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };
enum class ReduceType : uint8_t { kU32, kS32, kU64, kS64, kF16, kBF16, kF32, kF32Ftz, kF64 };

/// Bytes of one element.
int64_t bytes_of(ReduceType type);
/// Whether `op` exists for `type` (bit operations take the unsigned types of their width).
bool is_reduction(ReduceOp op, ReduceType type);

/// memory[i] = memory[i] op values[i] for `count` elements; in global memory, the cluster has its turn. f32
/// keeps subnormals unless the type is kF32Ftz.
void reduce_elements(ReduceOp op, ReduceType type, std::byte* memory, const std::byte* values, int64_t count);

}  // namespace imbrex::vgpu
