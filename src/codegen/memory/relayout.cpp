// SPDX-License-Identifier: Apache-2.0
// relayout: renaming registers where every thread already holds what it needs, else through shared memory.
#include <algorithm>

#include "codegen/memory/shared_memory.h"
#include "codegen/values/words.h"
#include "layout/memory.h"
#include "layout/queries.h"

namespace imbrex::codegen {

namespace {

/// How elements lie in between: those of less than a byte each in a byte, since any thread may want any of them.
DataType staged_type(DataType dtype) { return dtype.bits() < 8 ? uint8 : dtype; }
layout::Layout staging_layout(const ir::Type& type) {
  return layout::row_major(type.shape, staged_type(memory_type(type.dtype)).bits());
}

/// The bits of each element as an element of another type of at most a byte.
RegisterTensor carried(Generator& g, const RegisterTensor& tensor, DataType dtype) {
  if (tensor.dtype == dtype) return tensor;
  const std::vector<Operand> elements = unpack(g, tensor.dtype, tensor.words, tensor.layout.registers());
  RegisterTensor result{dtype, tensor.layout, tensor.group, {}};
  const size_t per_word = elements_per_word(dtype);
  for (size_t i = 0; i < elements.size(); i += per_word)
    result.words.push_back(
        pack(g, dtype, std::span(elements).subspan(i, std::min(per_word, elements.size() - i))));
  return result;
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
    // Conversions of small elements bring them into order on the way.
    const auto& uses = g.uses().of(op.result());
    if (from.dtype.bits() <= 8 && !from.dtype.is_bool() &&
        std::ranges::all_of(uses, [](const ir::Op* use) { return use->code == ir::Opcode::kCast; }))
      return g.bind(op.result(), RegisterTensor(from));
    g.bind(op.result(), RegisterTensor{from.dtype, to, g.group(), words_in_layout(g, op, from, to)});
    return;
  }
  const DataType dtype = staged_type(from.dtype);
  const SharedView staging{dtype, staging_layout(op.result()->type), g.scratch_offset(g.group()), {}};
  g.synchronize(g.group(), op);  // whoever used the scratch space before is done
  store_shared_tile(g, op, staging, carried(g, from, dtype));
  g.synchronize(g.group(), op);
  g.bind(op.result(), carried(g, load_shared_tile(g, op, staging, to), from.dtype));
}

}  // namespace imbrex::codegen
