// SPDX-License-Identifier: Apache-2.0
// dot: products by single threads. Every thread holds the rows of a and the columns of b that its box of c needs.
#include "codegen/generator.h"
#include "codegen/values/scalar.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"
#include "layout/queries.h"
#include "layout/registers.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

std::vector<Operand> elements_as(Generator& g, const ir::Op& op, const RegisterTensor& tensor,
                                 const layout::Layout& layout, DataType type) {
  const std::vector<Operand> words = words_in_layout(g, op, tensor, layout);
  std::vector<Operand> elements = unpack(g, tensor.dtype, words, layout.registers());
  for (Operand& e : elements) e = convert(g, op, e, tensor.dtype, type);
  return elements;
}

/// For each register of c, that of the same row or column where the other dimension has been reduced.
std::vector<int64_t> registers_along(const layout::Layout& c, int reduced) {
  const std::optional<std::vector<int64_t>> map = layout::register_map(c.reduce(reduced, true), c);
  if (!map) throw InternalError("codegen: dot: no register map of " + c.to_string());
  return *map;
}

}  // namespace

void emit_Dot(Generator& g, const ir::Op& op) {
  const layout::Layout& layout = g.layout_of(op.result());
  const DataType type = op.result()->type.dtype;
  const int64_t depth = op.operands[0]->type.shape[1];
  const layout::ThreadProduct product = layout::thread_product(layout, depth);
  const std::vector<Operand> a = elements_as(g, op, g.get<RegisterTensor>(op.operands[0]), product.a, type);
  const std::vector<Operand> b = elements_as(g, op, g.get<RegisterTensor>(op.operands[1]), product.b, type);
  std::vector<Operand> c = elements_as(g, op, g.get<RegisterTensor>(op.operands[2]), layout, type);
  const std::vector<int64_t> rows = registers_along(layout, 1), columns = registers_along(layout, 0);
  const int64_t column_registers = product.b.registers() / depth;
  for (int64_t k = 0; k < depth; ++k)
    for (size_t r = 0; r < c.size(); ++r) {
      if (rows[r] < 0) continue;
      const Operand factors[] = {a[rows[r] * depth + k], b[k * column_registers + columns[r]], c[r]};
      if (type.is_float()) {
        c[r] = scalar_operation(g, op, Opcode::kFma, type, factors);
        continue;
      }
      const Operand sum[] = {scalar_operation(g, op, Opcode::kMul, type, std::span(factors, 2)), c[r]};
      c[r] = scalar_operation(g, op, Opcode::kAdd, type, sum);
    }
  RegisterTensor result{type, layout, g.group(), {}};
  for (const Operand& element : c) result.words.push_back(pack(g, type, std::span(&element, 1)));
  g.bind(op.result(), std::move(result));
}

}  // namespace imbrex::codegen
