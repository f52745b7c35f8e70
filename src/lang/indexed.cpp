// SPDX-License-Identifier: Apache-2.0
// gather, scatter, atomics and semaphores.
#include <fmt/format.h>

#include "imbrex/lang/atomic.h"
#include "lang/tiles.h"

namespace imbrex {

using lang::Instruction;

namespace {

/// `value` with as many dimensions as a tile of `rank`, extents of 1 in front.
ir::Value* padded(const Instruction& at, ir::Value* value, size_t rank) {
  if (value->type.is_scalar() || value->type.shape.size() >= rank) return value;
  Shape shape(rank - value->type.shape.size(), 1);
  shape.insert(shape.end(), value->type.shape.begin(), value->type.shape.end());
  return at
      .emit(ir::Opcode::kReshape, {value}, {lang::register_type(value->type.dtype, shape)},
            {{"shape", shape}})
      ->result();
}

/// An offset: a scalar as elsewhere, or a tile of indices.
ir::Value* offset_value(const Instruction& at, const NumArg& offset, size_t rank) {
  if (!offset.is_tile) return lang::index_value(at, offset.scalar);
  ir::Value* tile = at.read(offset.handle);
  if (!tile->type.dtype.is_integer())
    at.fail(fmt::format("an index tile holds {}, not integers", tile->type.dtype.name()),
            {Instruction::describe("it", tile)}, "convert with .to(int32)");
  return padded(at, lang::convert(at, tile, lang::promote(tile->type.dtype)), rank);
}

/// The tile's dimensions aligned with the tensor's last ones; -1 where an index tile gives the place, and where the
/// tile has more dimensions than the tensor.
Shape default_dims(const ir::Value* tensor, const std::vector<ir::Value*>& offsets, size_t tile_rank) {
  Shape dims;
  for (size_t i = 0; i < tile_rank; ++i) {
    const int64_t dim = tensor->type.rank() - static_cast<int64_t>(tile_rank - i);
    const bool is_scalar = dim >= 0 && dim < static_cast<int64_t>(offsets.size()) &&
                           offsets[static_cast<size_t>(dim)]->type.is_scalar();
    dims.push_back(is_scalar ? dim : -1);
  }
  return dims;
}

/// Offsets and mask as the last operands of an op, and the attributes that go with them.
struct Places {
  std::vector<ir::Value*> operands;
  std::vector<ir::Attr> attrs;
};

Places places(const Instruction& at, const ir::Value* tensor, const Offsets& offsets, size_t tile_rank,
              const Shape& dims, const std::optional<TileArg>& mask) {
  Places result;
  for (const NumArg& offset : offsets) result.operands.push_back(offset_value(at, offset, tile_rank));
  result.attrs.push_back({"dims", dims.empty() ? default_dims(tensor, result.operands, tile_rank) : dims});
  if (mask) {
    ir::Value* tile = lang::tile(at, *mask);
    if (!tile->type.dtype.is_bool())
      at.fail(fmt::format("the mask holds {}, not bool", tile->type.dtype.name()),
              {Instruction::describe("it", tile)}, "compare it, as in x != 0");
    result.operands.push_back(padded(at, tile, tile_rank));
    result.attrs.push_back({"masked", true});
  }
  return result;
}

void append(std::vector<ir::Value*>& operands, const Places& places) {
  operands.insert(operands.end(), places.operands.begin(), places.operands.end());
}

/// The shape of an update whose value may be a scalar: what value and index tiles broadcast to.
Shape update_shape(const Instruction& at, const NumArg& value, const NumArg* compare,
                   const Offsets& offsets) {
  Shape shape;
  const auto join = [&](const NumArg& arg) {
    if (!arg.is_tile) return;
    const ir::Value* tile = at.use(arg.handle);
    const std::optional<Shape> all = lang::broadcast_shape(shape, tile->type.shape);
    if (!all)
      at.fail(fmt::format("shapes {} and {} do not broadcast", lang::shape_text(shape),
                          lang::shape_text(tile->type.shape)),
              {Instruction::describe("it", tile)},
              "extents, aligned at the last dimension, must be equal or 1");
    shape = *all;
  };
  join(value);
  if (compare) join(*compare);
  for (const NumArg& offset : offsets) join(offset);
  if (shape.empty())
    at.fail("neither the value nor an offset is a tile", {}, "to update one element, index it, as in g[i]");
  return shape;
}

ir::Value* update_value(const Instruction& at, const NumArg& value, DataType dtype, const Shape& shape) {
  ir::Value* v = value.is_tile ? lang::convert(at, at.read(value.handle), dtype)
                               : lang::materialize(at, value.scalar, dtype);
  return lang::broadcast(at, v, shape);
}

constexpr const char* kScopes[] = {"", "cta", "cluster", "gpu", "sys"};

std::vector<ir::Attr> order(Sem sem, Scope scope) {
  static constexpr const char* kSems[] = {"relaxed", "relaxed", "acquire", "release", "acq_rel"};
  std::vector<ir::Attr> attrs;
  if (sem != Sem::kDefault) attrs.push_back({"sem", std::string(kSems[static_cast<int>(sem)])});
  if (scope != Scope::kDefault) attrs.push_back({"scope", std::string(kScopes[static_cast<int>(scope)])});
  return attrs;
}

struct AtomicName {
  const char* function;
  const char* kind;
};
AtomicName name_of(detail::Atomic kind) {
  static constexpr AtomicName kNames[] = {
      {"atomic::add", "add"},     {"atomic::min", "min"},   {"atomic::max", "max"},
      {"atomic::bit_and", "and"}, {"atomic::bit_or", "or"}, {"atomic::bit_xor", "xor"},
      {"atomic::exch", "exch"},   {"atomic::cas", "cas"},
  };
  return kNames[static_cast<int>(kind)];
}

void one_element(const Instruction& at, const ir::Value* tensor) {
  for (int64_t extent : tensor->type.shape)
    if (extent != 1)
      at.fail(
          fmt::format("a tensor of {} elements where one is wanted", lang::shape_text(tensor->type.shape)),
          {Instruction::describe("it", tensor)}, "index it, as in g[i], or give offsets");
}

}  // namespace

RegisterValue gather(const MemoryArg& src, const Offsets& offsets, const Shape& shape,
                     const GatherOptions& options, SourceLocation where) {
  const Instruction at("gather", where);
  ir::Value* tensor = at.use(src.handle);
  lang::check_shape(at, shape);
  Places to = places(at, tensor, offsets, shape.size(), options.dims, options.mask);
  std::vector<ir::Value*> operands{tensor};
  append(operands, to);
  to.attrs.insert(to.attrs.begin(), {"shape", shape});
  if (options.other != 0) to.attrs.push_back({"other", options.other});
  return lang::result(at, at.emit(ir::Opcode::kGather, std::move(operands),
                                  {lang::register_type(tensor->type.dtype, shape)}, std::move(to.attrs)));
}

void scatter(const MemoryArg& dst, const TileArg& value, const Offsets& offsets,
             const ScatterOptions& options, SourceLocation where) {
  const Instruction at("scatter", where);
  ir::Value* tensor = at.use(dst.handle);
  ir::Value* tile = lang::tile(at, value);
  Places to = places(at, tensor, offsets, tile->type.shape.size(), options.dims, options.mask);
  std::vector<ir::Value*> operands{tensor, tile};
  append(operands, to);
  at.emit(ir::Opcode::kScatter, std::move(operands), {}, std::move(to.attrs));
}

void copy_async_gather(const GlobalTensor& src, const SharedTensor& dst, const Offsets& offsets,
                       const Shape& dims, const std::optional<TileArg>& mask, SourceLocation where) {
  const Instruction at("copy_async_gather", where);
  ir::Value *from = at.use(src.handle()), *to = at.use(dst.handle());
  const Shape& shape = to->type.shape;
  Places places = ::imbrex::places(at, from, offsets, shape.size(), dims, mask);
  // The threads copy what they hold of this one.
  ir::Value* whole = nullptr;
  for (ir::Value*& operand : places.operands) {
    if (operand->type.is_scalar() || whole) continue;
    whole = operand = lang::broadcast(at, operand, shape);
  }
  if (!whole) at.fail("no offset is a tile of indices", {}, "use copy_async()");
  std::vector<ir::Value*> operands{from, to, whole};
  append(operands, places);
  at.emit(ir::Opcode::kCopyAsyncGather, std::move(operands), {}, std::move(places.attrs));
}

namespace detail {

Expr atomic_element(Atomic kind, const MemoryArg& element, const ScalarOperand* compare,
                    const ScalarOperand& value, const atomic::Options& options, SourceLocation where) {
  const AtomicName name = name_of(kind);
  const Instruction at(name.function, where);
  ir::Value* tensor = at.use(element.handle);
  one_element(at, tensor);
  const DataType dtype = tensor->type.dtype;
  std::vector<ir::Value*> operands{tensor, lang::materialize(at, value, dtype)};
  if (compare) operands.push_back(lang::materialize(at, *compare, dtype));
  std::vector<ir::Attr> attrs = order(options.sem, options.scope);
  attrs.insert(attrs.begin(), {"kind", std::string(name.kind)});
  ir::Value* old =
      at.emit(ir::Opcode::kAtomicItem, std::move(operands), {ir::Type::scalar(dtype)}, std::move(attrs))
          ->result();
  return Expr(at.handle(old), dtype);
}

RegisterValue atomic_tile(Atomic kind, const MemoryArg& dst, const NumArg* compare, const NumArg& value,
                          const Offsets* offsets, const atomic::Options& options, SourceLocation where) {
  const AtomicName name = name_of(kind);
  const Instruction at(name.function, where);
  ir::Value* tensor = at.use(dst.handle);
  const DataType dtype = tensor->type.dtype;
  Shape shape = offsets ? update_shape(at, value, compare, *offsets) : tensor->type.shape;
  for (int64_t extent : shape)
    if (extent == ir::kDynamic)
      at.fail("the extents of the tensor are known only at run time", {Instruction::describe("it", tensor)},
              "say where the tile lies: give offsets");
  const Offsets origin(offsets ? 0 : shape.size(), NumArg(0, where));
  ir::Value* tile = update_value(at, value, dtype, shape);
  Places to = places(at, tensor, offsets ? *offsets : origin, shape.size(), options.dims, options.mask);
  std::vector<ir::Value*> operands{tensor, tile};
  if (compare) operands.push_back(update_value(at, *compare, dtype, shape));
  append(operands, to);
  std::vector<ir::Attr> attrs = order(options.sem, options.scope);
  attrs.insert(attrs.begin(), to.attrs.begin(), to.attrs.end());
  attrs.insert(attrs.begin(), {"kind", std::string(name.kind)});
  return lang::result(at, at.emit(ir::Opcode::kAtomic, std::move(operands),
                                  {lang::register_type(dtype, shape)}, std::move(attrs)));
}

}  // namespace detail

namespace semaphore {

namespace {

void emit(std::string_view name, ir::Opcode code, const char* mode, const GlobalTensor& element,
          const ScalarArg& value, const Options& options, SourceLocation where) {
  const Instruction at(name, where);
  ir::Value* tensor = at.use(element.handle());
  one_element(at, tensor);
  std::vector<ir::Attr> attrs;
  if (mode) attrs.push_back({"mode", std::string(mode)});
  if (options.scope != Scope::kDefault)
    attrs.push_back({"scope", std::string(kScopes[static_cast<int>(options.scope)])});
  at.emit(code, {tensor, lang::materialize(at, value, tensor->type.dtype)}, {}, std::move(attrs));
}

}  // namespace

void wait(const GlobalTensor& element, const ScalarArg& value, const Options& options, SourceLocation where) {
  emit("semaphore::wait", ir::Opcode::kSemaphoreWait, "equal", element, value, options, where);
}
void wait_at_least(const GlobalTensor& element, const ScalarArg& value, const Options& options,
                   SourceLocation where) {
  emit("semaphore::wait_at_least", ir::Opcode::kSemaphoreWait, "at_least", element, value, options, where);
}
void release(const GlobalTensor& element, const ScalarArg& value, const Options& options,
             SourceLocation where) {
  emit("semaphore::release", ir::Opcode::kSemaphoreRelease, nullptr, element, value, options, where);
}
void lock(const GlobalTensor& element, const Options& options, SourceLocation where) {
  emit("semaphore::lock", ir::Opcode::kSemaphoreWait, "lock", element, ScalarArg(1, where), options, where);
}
void unlock(const GlobalTensor& element, const Options& options, SourceLocation where) {
  emit("semaphore::unlock", ir::Opcode::kSemaphoreRelease, nullptr, element, ScalarArg(0, where), options,
       where);
}

}  // namespace semaphore
}  // namespace imbrex
