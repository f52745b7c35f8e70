// SPDX-License-Identifier: Apache-2.0
// Tensor handles: what they say about themselves, and views.
#include "imbrex/lang/tensor.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "lang/tiles.h"

namespace imbrex {
namespace lang {

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == ir::kDynamic ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

void check_shape(const Instruction& at, const Shape& shape) {
  for (int64_t extent : shape)
    if (extent <= 0)
      at.fail(fmt::format("the shape {} has an extent that is not positive", shape_text(shape)));
}

std::vector<ir::Value*> index_values(const Instruction& at, const Scalars& offsets) {
  std::vector<ir::Value*> values;
  for (const ScalarArg& offset : offsets) values.push_back(index_value(at, offset));
  return values;
}

ir::Value* multicast_mask(const Instruction& at, const ScalarArg& mask, std::vector<ir::Attr>& attrs) {
  const std::optional<int64_t> known = number(mask);
  if (!known) return index_value(at, mask);
  if (*known < 0 || *known > 0xffff)
    at.fail(fmt::format("multicast_mask is {}; it has one bit for each of 16 CTAs", *known));
  if (*known != 0) attrs.push_back({"multicast_mask", *known});
  return nullptr;
}

Shape tile_dims(const ir::Value* tensor, size_t tile_rank, const Shape& dims) {
  if (!dims.empty()) return dims;
  Shape result;
  for (size_t i = 0; i < tile_rank; ++i)
    result.push_back(tensor->type.rank() - static_cast<int64_t>(tile_rank - i));
  return result;
}

ir::Type register_type(DataType dtype, Shape shape) {
  return ir::Type::tensor(ir::TypeKind::kRegister, dtype, std::move(shape));
}

}  // namespace lang

using lang::Instruction;

namespace {

const ir::Type& type_of(detail::Handle handle, std::string_view what) {
  // Questions about a tensor are allowed wherever its handle is; they trace nothing.
  const Instruction at(what, detail::last_location());
  return at.use(handle)->type;
}

int64_t product(const Shape& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (extent == ir::kDynamic) return ir::kDynamic;
    n *= extent;
  }
  return n;
}

detail::Handle emit_permute(const Instruction& at, ir::Value* t, const Shape& dims) {
  const Shape& from = t->type.shape;
  Shape shape;  // dims that name no dimension are reported by the op's own rules
  for (int64_t d : dims) shape.push_back(d >= 0 && d < t->type.rank() ? from[d] : 0);
  ir::Type type = ir::Type::tensor(t->type.kind, t->type.dtype, std::move(shape));
  return at.handle(at.emit(ir::Opcode::kPermute, {t}, {std::move(type)}, {{"dims", dims}})->result());
}

}  // namespace

ir::Value* lang::only_element(const Instruction& at, ir::Value* tensor) {
  const Shape& shape = tensor->type.shape;
  if (product(shape) != 1)
    at.fail(fmt::format("a tensor of {} elements where a scalar is wanted", lang::shape_text(shape)),
            {Instruction::describe("it", tensor)},
            "take one, as in t[i] of a vector or t.item({i, j}); load_global() or load_shared() to compute "
            "with all");
  std::vector<ir::Value*> operands(1 + shape.size(), shape.empty() ? nullptr : at.constant(int32, 0));
  operands[0] = tensor;
  return at.emit(ir::Opcode::kLoadItem, std::move(operands), {ir::Type::scalar(tensor->type.dtype)})
      ->result();
}

ScalarOperand::ScalarOperand(const GlobalTensor& element, SourceLocation where)
    : where(where), kind(Kind::kElement), dtype(element.dtype()), handle(element.handle()) {}
ScalarOperand::ScalarOperand(const SharedTensor& element, SourceLocation where)
    : where(where), kind(Kind::kElement), dtype(element.dtype()), handle(element.handle()) {}

DataType Tensor::dtype() const { return type_of(handle_, "dtype").dtype; }
int Tensor::rank() const { return type_of(handle_, "rank").rank(); }

int64_t Tensor::shape(int i) const {
  const Instruction at("shape", detail::last_location());
  const ir::Value* t = at.use(handle_);
  const int rank = t->type.rank();
  const int dim = i < 0 ? i + rank : i;
  if (dim < 0 || dim >= rank)
    at.fail(fmt::format("dimension {} of a tensor of {} dimensions", i, rank),
            {Instruction::describe("it", t)});
  if (t->type.shape[dim] == ir::kDynamic)
    at.fail(fmt::format("dimension {} has an extent known only at run time", i),
            {Instruction::describe("it", t)}, "use the scalar the view was made with");
  return t->type.shape[dim];
}

Shape Tensor::shape() const {
  const int dims = rank();
  Shape shape;
  for (int i = 0; i < dims; ++i) shape.push_back(this->shape(i));
  return shape;
}

int64_t Tensor::nbytes() const { return product(shape()) * dtype().bits() / 8; }

namespace detail {

Handle permute(const Tensor& t, const Shape& dims, SourceLocation where) {
  const Instruction at("permute", where);
  return emit_permute(at, at.read(t.handle()), dims);
}

Handle transpose(const Tensor& t, SourceLocation where) {
  const Instruction at("transpose", where);
  ir::Value* value = at.read(t.handle());
  const int64_t rank = value->type.rank();
  if (rank < 2) at.fail("a tensor of fewer than two dimensions", {Instruction::describe("it", value)});
  Shape dims;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  std::swap(dims[rank - 1], dims[rank - 2]);
  return emit_permute(at, value, dims);
}

Handle reshape(const Tensor& t, const Shape& shape, SourceLocation where) {
  const Instruction at("reshape", where);
  ir::Value* value = at.read(t.handle());
  ir::Type type = ir::Type::tensor(value->type.kind, value->type.dtype, shape);
  return at.handle(at.emit(ir::Opcode::kReshape, {value}, {std::move(type)}, {{"shape", shape}})->result());
}

Handle slice(const Tensor& t, const Scalars& offsets, const Shape& shape, SourceLocation where) {
  const Instruction at("slice", where);
  ir::Value* value = at.read(t.handle());
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  operands.insert(operands.begin(), value);
  ir::Type type = ir::Type::tensor(value->type.kind, value->type.dtype, shape);
  return at.handle(
      at.emit(ir::Opcode::kSlice, std::move(operands), {std::move(type)}, {{"shape", shape}})->result());
}

Handle index(const Tensor& t, const ScalarArg& i) {
  const Instruction at("[]", i.where);
  ir::Value* value = at.use(t.handle());
  Shape shape = value->type.shape;
  if (!shape.empty()) shape.erase(shape.begin());
  ir::Type type = ir::Type::tensor(value->type.kind, value->type.dtype, std::move(shape));
  return at.handle(
      at.emit(ir::Opcode::kIndex, {value, lang::index_value(at, i)}, {std::move(type)})->result());
}

namespace {

/// Index values for item(): as many as the tensor has dimensions; none given means the only element.
std::vector<ir::Value*> item_index(const Instruction& at, ir::Value* tensor, const Scalars& index) {
  if (!index.empty()) return lang::index_values(at, index);
  const Shape& shape = tensor->type.shape;
  if (product(shape) != 1)
    at.fail(fmt::format("{} is not one element", lang::shape_text(shape)),
            {Instruction::describe("it", tensor)}, "give an index, one number per dimension");
  return std::vector<ir::Value*>(shape.size(), shape.empty() ? nullptr : at.constant(int32, 0));
}

Expr emit_item(const Instruction& at, ir::Opcode code, ir::Value* tensor, const Scalars& index) {
  std::vector<ir::Value*> operands = item_index(at, tensor, index);
  operands.insert(operands.begin(), tensor);
  ir::Value* value = at.emit(code, std::move(operands), {ir::Type::scalar(tensor->type.dtype)})->result();
  at.name_result(value);
  return Expr(at.handle(value), value->type.dtype);
}

}  // namespace

Expr memory_item(const Tensor& t, const Scalars& index, SourceLocation where) {
  const Instruction at("item", where);
  return emit_item(at, ir::Opcode::kLoadItem, at.use(t.handle()), index);
}

// --- register_tensor() ---

Tabulation::Tabulation(DataType dtype, const Shape& shape, int arity, SourceLocation where)
    : dtype_(dtype), where_(where), exceptions_(std::uncaught_exceptions()) {
  const Instruction at("register_tensor", where);
  lang::check_shape(at, shape);
  if (static_cast<int>(shape.size()) != arity)
    at.fail(fmt::format("the function takes {} indices, the shape {} has {} dimensions", arity,
                        lang::shape_text(shape), shape.size()));
  ir::Op* op = at.emit(ir::Opcode::kTabulate, {}, {lang::register_type(dtype, shape)},
                       {{"dtype", dtype}, {"shape", shape}});
  for (int i = 0; i < arity; ++i) at.trace().function().add_argument(op->body(), ir::Type::scalar(int32));
  serial_ = at.trace().open(
      {.kind = lang::ScopeKind::kTabulate, .op = op, .block = &op->body(), .where = at.where()});
}

Tabulation::~Tabulation() {
  if (lang::Trace* trace = lang::Trace::active(); trace && std::uncaught_exceptions() > exceptions_)
    trace->close(serial_, /*cut_short=*/true);
}

Expr Tabulation::index(int i) const {
  const Instruction at("register_tensor", where_);
  return Expr(at.handle(at.trace().scope().block->args[i]), int32);
}

RegisterValue Tabulation::element(const ScalarArg& value) {
  const Instruction at("register_tensor", where_);
  ir::Op* op = at.trace().scope().op;
  at.emit(ir::Opcode::kYield, {lang::materialize(at, value, dtype_)});
  at.trace().close(serial_);
  return lang::result(at, op);
}

}  // namespace detail

RegisterValue RegisterBase::slice(const Shape& offsets, const Shape& shape, SourceLocation where) const {
  return RegisterValue(detail::slice(*this, Scalars(offsets.begin(), offsets.end()), shape, where));
}
Expr RegisterBase::item(const Scalars& index, SourceLocation where) const {
  const Instruction at("item", where);
  return detail::emit_item(at, ir::Opcode::kItem, lang::without_shared_bytes(at, at.read(handle_)), index);
}
RegisterValue RegisterBase::permute(const Shape& dims, SourceLocation where) const {
  return RegisterValue(detail::permute(*this, dims, where));
}
RegisterValue RegisterBase::transpose(SourceLocation where) const {
  return RegisterValue(detail::transpose(*this, where));
}
RegisterValue RegisterBase::reshape(const Shape& shape, SourceLocation where) const {
  return RegisterValue(detail::reshape(*this, shape, where));
}

void annotate_layout(const Tensor& t, const layout::Layout& layout, SourceLocation where) {
  const Instruction at("annotate_layout", where);
  ir::Value* value = at.read(t.handle());
  at.emit(ir::Opcode::kAnnotateLayout, {value}, {}, {{"layout", layout}});
}

}  // namespace imbrex
