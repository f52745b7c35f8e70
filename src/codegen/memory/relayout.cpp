// SPDX-License-Identifier: Apache-2.0
// relayout: renaming registers where every thread already holds what it needs, else through shared memory.
#include "codegen/memory/shared_memory.h"
#include "codegen/values/words.h"
#include "layout/memory.h"
#include "layout/queries.h"

namespace imbrex::codegen {

namespace {

layout::Layout staging_layout(const ir::Type& type) {
  return layout::row_major(type.shape, memory_type(type.dtype).bits());
}

bool is_renaming(const layout::Layout& from, const layout::Layout& to) {
  return from == to || layout::register_map(from, to).has_value();
}

}  // namespace

int64_t relayout_scratch(const ir::Op& op) {
  const ir::Type& from = op.operands[0]->type;
  const ir::Type& to = op.result()->type;
  if (!from.layout || !to.layout || is_renaming(*from.layout, *to.layout)) return 0;
  return staging_layout(to).bytes();
}

void emit_Relayout(Generator& g, const ir::Op& op) {
  const RegisterTensor& from = g.get<RegisterTensor>(op.operands[0]);
  const layout::Layout& to = g.layout_of(op.result());
  if (is_renaming(from.layout, to)) {
    g.bind(op.result(), RegisterTensor{from.dtype, to, g.group(), words_in_layout(g, op, from, to)});
    return;
  }
  const SharedView staging{from.dtype, staging_layout(op.result()->type), g.scratch_offset(g.group()), {}};
  g.synchronize(g.group(), op);  // whoever used the scratch space before is done
  store_shared_tile(g, op, staging, from);
  g.synchronize(g.group(), op);
  g.bind(op.result(), load_shared_tile(g, op, staging, to));
}

}  // namespace imbrex::codegen
