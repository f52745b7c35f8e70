// SPDX-License-Identifier: Apache-2.0
// tabulate: the region once for every element a thread holds.
#include "codegen/tile.h"
#include "codegen/values/words.h"

namespace imbrex::codegen {

void emit_Tabulate(Generator& g, const ir::Op& op) {
  const layout::Layout& layout = g.layout_of(op.result());
  const Tile tile(g, op, layout, g.group());
  const DataType dtype = op.result()->type.dtype;
  const int64_t count = layout.registers();
  std::vector<Operand> elements(count, ptx::sink());
  for (int64_t r = 0; r < count; ++r) {
    const std::optional<layout::Index>& index = tile.register_index(r);
    if (!index) continue;
    g.e().enter_scope();
    for (int d = 0; d < layout.rank(); ++d)
      g.bind(op.body().args[d], g.ints().add(tile.thread_index(d), Integers::constant((*index)[d])).value);
    g.emit_block(op.body());
    elements[r] = g.yielded;
    g.e().leave_scope();
  }
  RegisterTensor result{dtype, layout, g.group(), {}};
  const int per_word = elements_per_word(dtype);
  for (int64_t r = 0; r < count; r += per_word) {
    const auto part = std::span(elements).subspan(r, std::min<int64_t>(per_word, count - r));
    // A register that holds nothing still is one.
    if (part[0].kind == ptx::OperandKind::sink) part[0] = Operand(0);
    result.words.push_back(pack(g, dtype, part));
  }
  g.bind(op.result(), std::move(result));
}

}  // namespace imbrex::codegen
