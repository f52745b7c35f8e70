// SPDX-License-Identifier: Apache-2.0
// Machine code of kernels as modules of a CUDA context: what was shipped or is cached, else assembled.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "codegen/compiled_kernel.h"
#include "runtime/assemble/assembler.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {

/// Threads may load at once, with the context current.
class ModuleLoader {
 public:
  explicit ModuleLoader(const CudaDriver& driver) : driver_(driver) {}

  /// Loads machine code that was shipped or is in the cache, by the SHA-256 of its PTX, which `kernel` need not have. False
  /// where there is none that the driver takes.
  bool load_at_hand(const codegen::CompiledKernel& kernel, const std::string& ptx_digest,
                    const std::string& target, CUmodule& module);
  /// Assembles and loads. Throws as assemble_cached().
  void assemble(const codegen::CompiledKernel& kernel, const std::string& target, CUmodule& module);

 private:
  /// ptxas, unless it is newer than the driver or IMBREX_ASSEMBLER asks for the driver's own assembler.
  const Assembler* usable_ptxas() const;
  const Assembler& own_assembler();

  const CudaDriver& driver_;
  std::once_flag own_assembler_once_;
  std::unique_ptr<Assembler> own_assembler_;
};

}  // namespace imbrex::runtime
