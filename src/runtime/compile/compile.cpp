// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/compile.h"

#include "passes/checks/check_registers.h"
#include "passes/pipeline.h"
#include "runtime/assemble/ptxas_log.h"

namespace imbrex::runtime {

codegen::CompiledKernel compile(ir::Function& function, const codegen::Options& options) {
  passes::run_pipeline(function);
  if (!AssemblerTolerance::from_environment().spills) passes::check_registers(function);
  return codegen::generate(function, options);
}

bool is_compiled_as_usual() {
  const passes::PipelineOptions options = passes::PipelineOptions::from_environment();
  return options.dump_after.empty() && options.stop_after.empty() && options.skip.empty() &&
         !options.verify && !options.time;
}

}  // namespace imbrex::runtime
