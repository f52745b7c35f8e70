// SPDX-License-Identifier: Apache-2.0
// Arithmetic ops, on scalars and element by element on register tensors.
#include <fmt/format.h>

#include "codegen/generator.h"
#include "codegen/values/scalar.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

/// The type an op computes in: that of its operands, the condition of select aside.
DataType computing_type(const ir::Op& op) {
  return op.operands[op.code == Opcode::kSelect ? 1 : 0]->type.dtype;
}

/// The words of an operand, laid out as the result; scalars repeat.
std::vector<Operand> operand_words(Generator& g, const ir::Op& op, const ir::Value* value,
                                   const layout::Layout& layout) {
  if (!value->type.is_scalar()) return words_in_layout(g, op, g.get<RegisterTensor>(value), layout);
  const DataType dtype = value->type.dtype;
  const int per_word = elements_per_word(dtype);
  const std::vector<Operand> copies(per_word, g.scalar(value));
  return std::vector<Operand>((layout.registers() + per_word - 1) / per_word, pack(g, dtype, copies));
}

void tensor_arithmetic(Generator& g, const ir::Op& op) {
  const layout::Layout& layout = g.layout_of(op.result());
  const int64_t count = layout.registers();
  const DataType dtype = computing_type(op);
  RegisterTensor result{op.result()->type.dtype, layout, g.group(), {}};
  std::vector<std::vector<Operand>> words;
  for (const ir::Value* v : op.operands) words.push_back(operand_words(g, op, v, layout));

  std::array<Operand, 3> in;
  const auto operands = [&] { return std::span<const Operand>(in.data(), words.size()); };
  if (word_type(dtype) == ScalarType::b32 && register_type(dtype) == ScalarType::b16 &&
      !ir::is_comparison(op.code) && op.code != Opcode::kSelect) {
    bool is_packed = true;
    for (size_t w = 0; w < words[0].size() && is_packed; ++w) {
      for (size_t i = 0; i < words.size(); ++i) in[i] = g.e().to_register(ScalarType::b32, words[i][w]);
      const std::optional<Operand> packed = half_arithmetic(g, op.code, dtype, true, operands());
      if (packed) result.words.push_back(*packed);
      is_packed = packed.has_value();
    }
    if (is_packed) {
      g.bind(op.result(), std::move(result));
      return;
    }
  }
  for (size_t i = 0; i < words.size(); ++i) words[i] = unpack(g, op.operands[i]->type.dtype, words[i], count);
  std::vector<Operand> elements(count);
  for (int64_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < words.size(); ++i) in[i] = words[i][r];
    elements[r] = scalar_operation(g, op, op.code, dtype, operands());
  }
  const int per_word = elements_per_word(result.dtype);
  for (int64_t r = 0; r < count; r += per_word)
    result.words.push_back(
        pack(g, result.dtype, std::span(elements).subspan(r, std::min<int64_t>(per_word, count - r))));
  g.bind(op.result(), std::move(result));
}

void cast(Generator& g, const ir::Op& op) {
  const ir::Type& from = op.operands[0]->type;
  const DataType to = op.dtype_attr("dtype");
  if (from.is_scalar()) {
    g.bind(op.result(), convert(g, op, g.scalar(op.operands[0]), from.dtype, to));
    return;
  }
  const layout::Layout& layout = g.layout_of(op.result());
  const RegisterTensor& tensor = g.get<RegisterTensor>(op.operands[0]);
  g.bind(op.result(), RegisterTensor{to, layout, g.group(), convert_tensor(g, op, tensor, layout, to)});
}

}  // namespace

void emit_elementwise(Generator& g, const ir::Op& op) {
  if (op.code == Opcode::kCast) return cast(g, op);
  if (!op.result()->type.is_scalar()) return tensor_arithmetic(g, op);
  std::array<Operand, 3> in;
  for (size_t i = 0; i < op.operands.size(); ++i) in[i] = g.scalar(op.operands[i]);
  g.bind(op.result(),
         scalar_operation(g, op, op.code, computing_type(op), std::span(in.data(), op.operands.size())));
}

void emit_Broadcast(Generator& g, const ir::Op& op) {
  const layout::Layout& layout = g.layout_of(op.result());
  g.bind(op.result(), RegisterTensor{op.result()->type.dtype, layout, g.group(),
                                     operand_words(g, op, op.operands[0], layout)});
}

}  // namespace imbrex::codegen
