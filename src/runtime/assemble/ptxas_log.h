// SPDX-License-Identifier: Apache-2.0
// What ptxas (or the driver's copy of it) says about a kernel, read and mapped back to the kernel's lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/compiled_kernel.h"
#include "imbrex/core/error.h"

namespace imbrex::runtime {

/// A remark such as "(C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized ...".
struct AssemblerRemark {
  int code = 0;      ///< 7514; 0 for a warning without a code
  int ptx_line = 0;  ///< where it says so, else 0
  std::string text;
};

struct AssemblerLog {
  int registers = 0;                                                     ///< per thread, at the entry
  int64_t spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;  ///< per thread
  std::vector<AssemblerRemark> remarks;                                  ///< C75xx, C76xx, and warnings
};

/// The facts of the text that ptxas -v or the driver's assembler writes.
AssemblerLog read_assembler_log(std::string_view log);

/// What a caller accepts although it makes a kernel slow.
struct AssemblerTolerance {
  bool spills = false;         ///< registers spilled to memory
  bool serialization = false;  ///< remarks C75xx and C76xx
  /// By IMBREX_ALLOW, words separated by commas: spills, serialization. Throws LaunchError for other words.
  static AssemblerTolerance from_environment();
};

/// What makes `kernel` slow and is not tolerated: each spill and each C75xx/C76xx remark at the kernel's
/// line, with what to change. Empty when there is nothing.
std::vector<Diagnostic> performance_errors(const codegen::CompiledKernel& kernel, const AssemblerLog& log,
                                           const AssemblerTolerance& tolerance);

/// A kernel that was assembled, but into slow code: the diagnostics of performance_errors(), and the log that
/// they were made of.
class PerformanceError : public CompileError {
 public:
  PerformanceError(std::vector<Diagnostic> diagnostics, AssemblerLog log)
      : CompileError(std::move(diagnostics)), log_(std::move(log)) {}
  const AssemblerLog& log() const { return log_; }

 private:
  AssemblerLog log_;
};

}  // namespace imbrex::runtime
