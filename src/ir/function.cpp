// SPDX-License-Identifier: Apache-2.0
// Ops, values and functions: creation, names, attributes.
#include <algorithm>
#include <cctype>

#include "imbrex/core/error.h"
#include "ir/ir.h"

namespace imbrex::ir {

// --- attributes ---

namespace {

template <class T>
const T& get(const Op& op, std::string_view name) {
  const AttrValue* value = op.attr(name);
  const T* typed = value ? std::get_if<T>(value) : nullptr;
  if (!typed)
    throw InternalError(std::string(op.info().mnemonic) + ": attribute '" + std::string(name) + "' is " +
                        (value ? "of another kind" : "missing"));
  return *typed;
}

}  // namespace

const AttrValue* Op::attr(std::string_view name) const {
  for (const Attr& a : attrs)
    if (a.name == name) return &a.value;
  return nullptr;
}
int64_t Op::int_attr(std::string_view name) const { return get<int64_t>(*this, name); }
int64_t Op::int_attr(std::string_view name, int64_t otherwise) const {
  return attr(name) ? int_attr(name) : otherwise;
}
bool Op::bool_attr(std::string_view name, bool otherwise) const {
  return attr(name) ? get<bool>(*this, name) : otherwise;
}
double Op::float_attr(std::string_view name) const { return get<double>(*this, name); }
const std::vector<int64_t>& Op::ints_attr(std::string_view name) const {
  return get<std::vector<int64_t>>(*this, name);
}
const std::string& Op::string_attr(std::string_view name) const { return get<std::string>(*this, name); }
DataType Op::dtype_attr(std::string_view name) const { return get<DataType>(*this, name); }

void Op::set_attr(std::string_view name, AttrValue value) {
  for (Attr& a : attrs)
    if (a.name == name) {
      a.value = std::move(value);
      return;
    }
  for (const AttrSpec& spec : info().attrs)
    if (spec.name == name) {
      attrs.push_back({spec.name, std::move(value)});
      return;
    }
  throw InternalError(std::string(info().mnemonic) + " has no attribute '" + std::string(name) + "'");
}

void Op::remove_attr(std::string_view name) {
  std::erase_if(attrs, [&](const Attr& a) { return a.name == name; });
}

// --- functions ---

namespace {

/// Names are [A-Za-z_][A-Za-z0-9_.]*, so that they read back.
std::string identifier(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '_';
  if (!name.empty() && !std::isalpha(static_cast<unsigned char>(name[0])) && name[0] != '_')
    name = "_" + name;
  return name;
}

}  // namespace

Value* Function::new_value(Type type, std::string name) {
  Value* value = &values_.emplace_back();
  value->type = std::move(type);
  value->id = next_id_++;
  set_name(*value, std::move(name));
  return value;
}

void Function::set_name(Value& value, std::string name) {
  name = identifier(std::move(name));
  if (!name.empty()) {
    const std::string stem = name;
    while (!names_.try_emplace(name, 1).second) name = stem + "_" + std::to_string(names_[stem]++);
  }
  value.name = std::move(name);
}

void Function::set_id(Value& value, int id) {
  value.id = id;
  next_id_ = std::max(next_id_, id + 1);
}

Op* Function::new_op(Opcode code) {
  Op* op = &ops_.emplace_back();
  op->code = code;
  for (int i = 0; i < info(code).regions; ++i) {
    op->regions.push_back(std::make_unique<Block>());
    op->regions.back()->parent = op;
  }
  return op;
}

Value* Function::add_param(Type type, std::string name) {
  return params.emplace_back(new_value(std::move(type), std::move(name)));
}

Value* Function::add_argument(Block& block, Type type, std::string name) {
  Value* value = new_value(std::move(type), std::move(name));
  value->owner = &block;
  return block.args.emplace_back(value);
}

// --- helpers ---

Op* defined_by(const Value* value, Opcode code) {
  return value && value->def && value->def->code == code ? value->def : nullptr;
}

std::optional<int64_t> constant_int(const Value* value) {
  const Op* op = defined_by(value, Opcode::kConst);
  const AttrValue* attr = op ? op->attr("int") : nullptr;
  if (!attr) return std::nullopt;
  return std::get<int64_t>(*attr);
}

std::optional<double> constant_float(const Value* value) {
  const Op* op = defined_by(value, Opcode::kConst);
  const AttrValue* attr = op ? op->attr("float") : nullptr;
  if (!attr) return std::nullopt;
  return std::get<double>(*attr);
}

const Value* written_variable(const Op& op) {
  if (op.info().effect != Effect::kWrites) return nullptr;
  for (const Value* operand : op.operands)
    if (operand && operand->type.kind == TypeKind::kVariable) return operand;
  return nullptr;
}

Value* view_root(Value* value) {
  while (value->def && has(value->def->code, Fact::kView)) value = value->def->operands.at(0);
  return value;
}

}  // namespace imbrex::ir
