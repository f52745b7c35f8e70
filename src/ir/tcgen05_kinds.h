// SPDX-License-Identifier: Apache-2.0
// The kinds of tcgen05.mma, once: what each multiplies, in which steps, and how its operands lie in memory.
// Read by the verifier, layout inference and code generation.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "ir/ir.h"

namespace imbrex::ir {

enum class MmaKind : uint8_t { kF16, kTF32, kF8F6F4, kI8, kMxF8F6F4, kMxF4, kMxF4NvF4 };

/// Scale factors that a block-scaled kind takes.
struct ScaleForm {
  DataType dtype;
  int64_t block;  ///< elements of k that share a factor
};

struct MmaKindFacts {
  MmaKind kind;
  std::string_view name;  ///< "f16", as in PTX's .kind
  std::vector<DataType> inputs;
  std::vector<DataType> accumulators;
  int64_t k;        ///< elements of K in one instruction
  bool packs_4bit;  ///< 4-bit operands fill shared memory; else elements below a byte lie in padded 16 bytes
  std::vector<ScaleForm> scales;  ///< empty: not block-scaled

  /// Bits from one element to the next in memory.
  int element_bits(DataType type) const { return packs_4bit ? type.bits() : std::max(type.bits(), 8); }
  bool is_block_scaled() const { return !scales.empty(); }
};

/// The kind of a tcgen05_mma or tcgen05_scaled_mma: the one its `kind` names, or the one that its types (and
/// block size) call for. Null when there is none.
const MmaKindFacts* mma_kind(const Op& op);

/// True when the factors of a tcgen05_scaled_mma have a type and block size of the kind.
bool takes_scales(const Op& op, const MmaKindFacts& kind);

/// True for tcgen05_mma and tcgen05_scaled_mma, whose first operands are a, b, d and enable_input_d.
bool is_tcgen05_mma(const Op& op);

/// Rows and columns of one instruction: an operation on larger tiles is several. For pairs, rows of each CTA
/// and columns of both.
struct MmaTile {
  int64_t m, n;
};
/// The largest that divides the operation's; m and n are 0 where none does.
MmaTile mma_tile(const Op& op, const MmaKindFacts& kind);
/// Multiples that n of an instruction comes in.
int64_t mma_n_step(const Op& op, const MmaKindFacts& kind);

}  // namespace imbrex::ir
