// SPDX-License-Identifier: Apache-2.0
#include "ir/ir.h"

namespace imbrex::ir {

void Builder::set_insertion_point(Block& block) { block_ = &block; }

Op* Builder::create(Opcode code, std::vector<Value*> operands, std::vector<Type> result_types,
                    std::vector<Attr> attrs) {
  Op* op = function_->new_op(code);
  op->operands = std::move(operands);
  op->where = where_;
  op->parent = block_;
  for (Type& type : result_types) {
    Value* value = function_->new_value(std::move(type));
    value->def = op;
    op->results.push_back(value);
  }
  // Attribute names are views of the table's text, whatever the caller passed.
  for (Attr& attr : attrs) op->set_attr(attr.name, std::move(attr.value));
  block_->ops.push_back(op);
  return op;
}

Value* Builder::constant(DataType dtype, int64_t value) {
  if (dtype.is_float()) return constant(dtype, static_cast<double>(value));
  return create(Opcode::kConst, {}, {Type::scalar(dtype)}, {{"int", value}})->result();
}

Value* Builder::constant(DataType dtype, double value) {
  return create(Opcode::kConst, {}, {Type::scalar(dtype)}, {{"float", value}})->result();
}

Value* Builder::binary(Opcode code, Value* a, Value* b) {
  Type type = a->type.is_scalar() ? b->type : a->type;
  if (is_comparison(code)) type.dtype = boolean;
  return create(code, {a, b}, {type})->result();
}

}  // namespace imbrex::ir
