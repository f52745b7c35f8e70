// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/compile.h"

#include "passes/pipeline.h"

namespace imbrex::runtime {

codegen::CompiledKernel compile(ir::Function& function, const codegen::Options& options) {
  passes::run_pipeline(function);
  return codegen::generate(function, options);
}

}  // namespace imbrex::runtime
