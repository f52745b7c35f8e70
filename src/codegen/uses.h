// SPDX-License-Identifier: Apache-2.0
// Where values are used, and where ops stand in their blocks.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/ir.h"

namespace imbrex::codegen {

class Uses {
 public:
  explicit Uses(const ir::Function& function);
  /// The ops that have the value as an operand, in program order.
  const std::vector<const ir::Op*>& of(const ir::Value* value) const;
  /// Index of the op in its block.
  int64_t position(const ir::Op* op) const { return positions_.at(op); }

 private:
  std::unordered_map<const ir::Value*, std::vector<const ir::Op*>> uses_;
  std::unordered_map<const ir::Op*, int64_t> positions_;
};

}  // namespace imbrex::codegen
