// SPDX-License-Identifier: Apache-2.0
// Which columns of tensor memory the values of registers come from, as far as the PTX says so by itself:
// through instructions that compute each result from one element, and through packing. What threads stage for
// a tensor store is compared with it.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ptx.h"
#include "vgpu/program/instruction.h"

namespace imbrex::vgpu {

class TensorOrigins {
 public:
  explicit TensorOrigins(const ptx::Function& f);

  /// The columns that a 16-byte vector store to shared memory writes, if they are known and follow each
  /// other.
  LoadedColumns stored_by(const ptx::Instruction& store);

 private:
  /// Of a value: nothing of it is loaded from tensor memory; a known column; or more than that.
  enum class Kind : uint8_t { kUnasked, kAsking, kPlain, kColumns, kMixed };
  struct Origin {
    Kind kind = Kind::kUnasked;
    LoadedColumns columns = {};
    friend bool operator==(const Origin&, const Origin&) = default;
  };
  static const Origin kPlain, kMixed;

  Origin of(const ptx::Operand& operand);
  Origin of_register(uint32_t reg);
  Origin of_result(const ptx::Instruction& insn, uint32_t reg);
  /// Of what is computed from values that are plain or of one column.
  template <class Operands>
  Origin computed_from(const Operands& operands);
  /// Of values put side by side, lowest first: the columns follow each other, or all are plain.
  template <class Operands>
  Origin packed_of(const Operands& operands);

  const ptx::Function& f_;
  std::vector<std::vector<uint32_t>> definitions_;  // by register: positions
  std::vector<Origin> origins_;
};

}  // namespace imbrex::vgpu
