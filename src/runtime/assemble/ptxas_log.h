// SPDX-License-Identifier: Apache-2.0
// What ptxas (or the driver's copy of it) says about a kernel, read and mapped back to the kernel's lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
  int registers = 0;  ///< a thread's, at the entry
  int64_t spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  std::vector<AssemblerRemark> remarks;  ///< C75xx, C76xx, and warnings
};

AssemblerLog read_assembler_log(std::string_view log);

/// Which of the remarks a caller is willing to accept.
struct AssemblerTolerance {
  bool spills = false;
  bool serialization = false;  ///< C75xx and C76xx
  /// By IMBREX_ALLOW, words separated by commas: spills, serialization. Throws LaunchError for other words.
  static AssemblerTolerance from_environment();
};

/// What makes `kernel` slow and is not tolerated: each spill and each C75xx/C76xx remark at the kernel's
/// line, with what to change. Empty when there is nothing.
std::vector<Diagnostic> performance_errors(const codegen::CompiledKernel& kernel, const AssemblerLog& log,
                                           const AssemblerTolerance& tolerance);

}  // namespace imbrex::runtime
