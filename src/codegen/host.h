// SPDX-License-Identifier: Apache-2.0
// The part of a kernel that the runtime evaluates once per launch (design D7).
#pragma once

#include <map>
#include <optional>
#include <unordered_map>

#include "codegen/compiled_kernel.h"
#include "ir/ir.h"

namespace imbrex::codegen {

/// Collects the steps of CompiledKernel::host.
class HostProgram {
 public:
  HostProgram(const ir::Function& function, CompiledKernel& kernel);

  /// The slot that will hold the value; nothing when it depends on more than parameters and constants.
  std::optional<int32_t> slot(const ir::Value* value);
  /// The slot of the multiplier and shift of fast division by the value in `divisor`.
  int32_t divmod_magic(int32_t divisor, const SourceLocation& where);
  /// The slot of a constant.
  int32_t constant(int64_t value);
  /// The slot of a binary operation in 64 bits.
  int32_t binary(ir::Opcode code, int32_t a, int32_t b, const SourceLocation& where);

 private:
  int32_t add(HostStep step);

  const ir::Function& function_;
  CompiledKernel& kernel_;
  std::unordered_map<const ir::Value*, std::optional<int32_t>> slots_;
  std::map<int64_t, int32_t> constants_;
  std::map<int32_t, int32_t> magics_;
};

}  // namespace imbrex::codegen
