// SPDX-License-Identifier: Apache-2.0
// Looking at a traced kernel: its IR before, between and after the passes, and its PTX.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/core/source_location.h"
#include "imbrex/inspect/occupancy.h"
#include "imbrex/runtime/cache.h"

namespace imbrex {

namespace ir {
struct Function;
}

/// The IR as text.
std::string print_ir(const ir::Function& function);

/// Names of the passes, in the order they first run.
std::vector<std::string> pass_names();

/// Runs the passes up to and including `last` ("" for all; "trace" for none) and gives the IR as text. Throws
/// CompileError, and LaunchError for an unknown pass.
std::string ir_after(ir::Function& function, const std::string& last);

/// Runs every pass and gives the PTX text.
std::string emit_ptx(ir::Function& function);

/// What a compiled kernel asks of an SM, known before anything is assembled.
struct KernelResources {
  std::string target;
  CtaResources cta;  ///< registers_per_thread is an estimate of what ptxas gives, from what is live in the
                     ///< PTX; 255 where that is more and the assembler must do with fewer
  SourceLocation pressure;  ///< where the most is live
  std::string ptx;
};
/// Runs every pass. Throws CompileError.
KernelResources kernel_resources(ir::Function& function);

/// What ptxas makes of a kernel.
struct AssembledResources {
  std::string assembler;  ///< "ptxas 13.0.88"
  int64_t registers_per_thread = 0;
  int64_t spill_bytes = 0;       ///< stored a thread
  std::vector<Diagnostic> slow;  ///< what a launch refuses: spills, and tensor core products one at a time
};
/// Runs every pass and ptxas, or takes what the cache has of that. The PTX is the kernel's own target's, the
/// machine code `target`'s, which must run such PTX; "": the same. Throws CompileError, and LaunchError where
/// there is no ptxas.
AssembledResources assembled_resources(ir::Function& function, const std::string& target = "");

/// Threads of the CTA that a kernel gives a part of its own: the outermost thread_group, single_warp,
/// warp_group or single_thread of a freshly traced kernel; those inside of a warp group that sets its
/// registers (setmaxnreg) and then only parts.
struct ThreadGroup {
  int64_t first_thread = 0, threads = 0;
  SourceLocation where;
};
std::vector<ThreadGroup> thread_groups(const ir::Function& function);

}  // namespace imbrex
