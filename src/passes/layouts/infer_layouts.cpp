// SPDX-License-Identifier: Apache-2.0
#include "passes/layouts/infer_layouts.h"

#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {
namespace {

void collect(ir::Block& block, int64_t threads, ThreadCounts& counts, Uses& uses) {
  for (ir::Op* op : block.ops) {
    counts[op] = threads;
    for (size_t i = 0; i < op->operands.size(); ++i)
      if (op->operands[i]) uses[op->operands[i]].push_back({op, i});
    const int64_t inside = op->code == ir::Opcode::kThreadGroup ? op->int_attr("threads") : threads;
    for (auto& region : op->regions) collect(*region, inside, counts, uses);
  }
}

}  // namespace

void infer_layouts(ir::Function& function) {
  ThreadCounts threads;
  Uses uses;
  collect(function.body, function.threads(), threads, uses);
  infer_memory_layouts(function, ir::TypeKind::kTensorMemory, uses, threads);
  RegisterInference registers(function, threads);
  registers.propagate_demands();
  registers.choose_for_global();
  infer_memory_layouts(function, ir::TypeKind::kShared, uses, threads);
  registers.complete();
}

}  // namespace imbrex::passes
