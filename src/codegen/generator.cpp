// SPDX-License-Identifier: Apache-2.0
// Values, blocks and dispatch.
#include "codegen/generator.h"

#include <fmt/format.h>

#include "core/float_formats.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using ir::Opcode;

void Generator::emit_block(const ir::Block& block) {
  for (const ir::Op* op : block.ops) emit_op(*op);
}

void Generator::emit_op(const ir::Op& op) {
  emitter_.set_location(op.where);
  if (emitter_.wants_comments() && op.code != Opcode::kConst) {
    std::string text = ir::print(op);
    if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
    emitter_.set_comment(std::move(text));
  }
  switch (op.code) {
#define IR_OP(id, ...)                               \
  case Opcode::k##id:                                \
    if constexpr (ir::is_elementwise(Opcode::k##id)) \
      emit_elementwise(*this, op);                   \
    else                                             \
      emit_##id(*this, op);                          \
    break;
#include "ir/ops.def"
#undef IR_OP
    case Opcode::kCount:
      throw InternalError("codegen: not an op");
  }
}

Operand Generator::scalar(const ir::Value* value) {
  if (auto it = scalars_.find(value); it != scalars_.end()) return it->second.value;
  const ir::Op* constant = ir::defined_by(value, Opcode::kConst);
  if (!constant) throw InternalError("codegen: " + ir::print(*value) + " is used before it is made");
  const DataType type = value->type.dtype;
  if (constant->attr("int")) return constant->int_attr("int");
  const double number = constant->float_attr("float");
  if (type == float32) return static_cast<float>(number);
  if (type == float64) return number;
  const auto bits = static_cast<int64_t>(arith::encode(arith::float_format(type), number));
  if (type == tfloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (register_type(type) != ScalarType::b16) return bits;
  // 16-bit arithmetic takes no immediates.
  return emitter_.hoisted(integers_.name(kConstantLeaf, bits), 0, [&] {
    return Operand(emitter_.make(ScalarType::b16, Op::mov, {ScalarType::b16}, {bits}));
  });
}

Reg Generator::scalar_register(const ir::Value* value) {
  return emitter_.to_register(register_type(value->type.dtype), scalar(value));
}

Integer Generator::integer(const ir::Value* value) {
  if (const std::optional<int64_t> c = ir::constant_int(value)) return Integers::constant(*c);
  auto it = scalars_.find(value);
  if (it == scalars_.end())
    throw InternalError("codegen: " + ir::print(*value) + " is used before it is made");
  const Scalar& s = it->second;
  const Range known = value->type.kind == ir::TypeKind::kPointer ? Range{} : ranges_.of(value);
  const bool is_wide =
      register_type(value->type.dtype) == ScalarType::b64 || value->type.kind == ir::TypeKind::kPointer;
  // A register is written once, variables apart, whose reads are values of their own: so the value and the
  // scope identify what it holds.
  const int64_t source = static_cast<int64_t>(s.number);
  Integer leaf = integers_.leaf(kValueLeaf, source, s.value, is_wide, known, s.depth);
  if (value->type.is_scalar() && value->type.dtype == uint32 && known.hi > Range::of_type(int32).hi) {
    leaf.value = emitter_.hoisted(integers_.name(kWideLeaf, source), s.depth, [&] {
      return Operand(emitter_.make(ScalarType::b64, Op::cvt, {ScalarType::u64, ScalarType::u32}, {s.value}));
    });
    leaf.id = integers_.name(kWideLeaf, source);
    leaf.is_wide = true;
  }
  return leaf;
}

const layout::Layout& Generator::layout_of(const ir::Value* value) const {
  if (!value->type.layout)
    throw InternalError(
        fmt::format("codegen: {} has no layout: {}", ir::print(*value), value->type.to_string()));
  return *value->type.layout;
}

RegisterTensor Generator::new_tensor(const ir::Value* value) {
  return new_tensor(value->type.dtype, layout_of(value));
}

RegisterTensor Generator::new_tensor(DataType dtype, const layout::Layout& layout) {
  RegisterTensor tensor{dtype, layout, group(), {}};
  const int per_word = elements_per_word(dtype);
  const int64_t words = (layout.registers() + per_word - 1) / per_word;
  const ScalarType type = word_type(dtype);
  for (int64_t i = 0; i < words; ++i) tensor.words.push_back(emitter_.reg(type));
  return tensor;
}

void emit_Const(Generator&, const ir::Op&) {}  // made where it is used

// Nothing is emitted for promises and demands: ranges.cpp reads the one, layout inference the other.
void emit_AnnotateLayout(Generator&, const ir::Op&) {}

}  // namespace imbrex::codegen
