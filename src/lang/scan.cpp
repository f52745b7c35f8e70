// SPDX-License-Identifier: Apache-2.0
// Scans, and sorting as a network of exchanges.
#include "imbrex/lang/scan.h"

#include <fmt/format.h>

#include <bit>

#include "lang/tiles.h"

namespace imbrex {

using lang::Instruction;

namespace {

int64_t checked_axis(const Instruction& at, const ir::Value* value, int axis) {
  const int64_t rank = value->type.rank(), from_start = axis < 0 ? axis + rank : axis;
  if (from_start < 0 || from_start >= rank)
    at.fail(fmt::format("axis {} of a tensor of {} dimensions", axis, rank),
            {Instruction::describe("it", value)});
  return from_start;
}

RegisterValue scan_as(std::string_view name, const TileArg& a, Combine by, const ScanOptions& options) {
  static constexpr const char* kKinds[] = {"sum", "product", "min", "max", "and", "or", "xor"};
  const Instruction at(name, a.where);
  ir::Value* value = lang::tile(at, a);
  std::vector<ir::Attr> attrs = {{"axis", checked_axis(at, value, options.axis)},
                                 {"kind", std::string(kKinds[static_cast<int>(by)])}};
  if (options.exclusive) attrs.push_back({"exclusive", true});
  return lang::result(
      at, at.emit(ir::Opcode::kScan, {value}, {lang::register_type(value->type.dtype, value->type.shape)},
                  std::move(attrs)));
}

ir::Value* exchanged(const Instruction& at, ir::Value* value, int64_t axis, int64_t mask) {
  return at
      .emit(ir::Opcode::kExchange, {value}, {lang::register_type(value->type.dtype, value->type.shape)},
            {{"axis", axis}, {"mask", mask}})
      ->result();
}

/// A bitonic network over one axis. Elements, and their places where they are wanted, are compared with those whose
/// index differs in one bit.
class Network {
 public:
  Network(const Instruction& at, ir::Value* values, int64_t axis, bool descending, bool with_places)
      : at_(at), axis_(axis), descending_(descending), values_(values) {
    const DataType dtype = values->type.dtype;
    if (dtype.is_bool() || dtype.bits() < 8 || (dtype.is_float() && dtype.bits() < 16))
      at.fail(fmt::format("does not order {}", dtype.name()), {Instruction::describe("it", values)},
              "cast first");
    extent_ = values->type.shape[static_cast<size_t>(axis)];
    if (!std::has_single_bit(static_cast<uint64_t>(extent_)))
      at.fail(fmt::format("the extent along axis {} is {}, not a power of two", axis, extent_),
              {Instruction::describe("it", values)},
              fmt::format("load a tile of {}, with {} for what is outside",
                          std::bit_ceil(static_cast<uint64_t>(extent_)),
                          descending ? "the smallest number" : "the largest number"));
    index_ = indices();
    if (with_places) places_ = index_;
  }

  void run() {
    for (int64_t size = 2; size <= extent_; size *= 2)
      for (int64_t distance = size / 2; distance > 0; distance /= 2) step(size, distance);
  }

  ir::Value* values() const { return values_; }
  ir::Value* places() const { return places_; }

 private:
  ir::Value* emit(ir::Opcode code, std::vector<ir::Value*> operands, DataType dtype) const {
    return at_.emit(code, std::move(operands), {lang::register_type(dtype, values_->type.shape)})->result();
  }
  ir::Value* number(int64_t n) const { return at_.constant(int32, n); }

  /// Each element's index along the axis.
  ir::Value* indices() const {
    const ir::Type type = lang::register_type(int32, values_->type.shape);
    ir::Op* op =
        at_.emit(ir::Opcode::kTabulate, {}, {type}, {{"dtype", int32}, {"shape", values_->type.shape}});
    for (size_t d = 0; d < values_->type.shape.size(); ++d)
      at_.trace().function().add_argument(op->body(), ir::Type::scalar(int32));
    ir::Builder& builder = at_.trace().builder();
    builder.set_insertion_point(op->body());
    builder.create(ir::Opcode::kYield, {op->body().args[static_cast<size_t>(axis_)]}, {});
    builder.set_insertion_point(*at_.trace().scope().block);
    return op->result();
  }

  ir::Value* bit_is_set(int64_t bit) const {
    ir::Value* masked = emit(ir::Opcode::kAnd, {index_, number(bit)}, int32);
    return emit(ir::Opcode::kNe, {masked, number(0)}, boolean);
  }

  /// True where (x, i) comes before (y, j): by the values, then by the places.
  ir::Value* is_before(ir::Value* x, ir::Value* i, ir::Value* y, ir::Value* j) const {
    ir::Value* before = emit(descending_ ? ir::Opcode::kGt : ir::Opcode::kLt, {x, y}, boolean);
    if (!i) return before;
    ir::Value* ties =
        emit(ir::Opcode::kAnd,
             {emit(ir::Opcode::kEq, {x, y}, boolean), emit(ir::Opcode::kLt, {i, j}, boolean)}, boolean);
    return emit(ir::Opcode::kOr, {before, ties}, boolean);
  }

  /// Both of a pair ask the same question of the same two numbers, so that none is lost, whatever compares to what.
  void step(int64_t size, int64_t distance) {
    ir::Value* other = exchanged(at_, values_, axis_, distance);
    ir::Value* other_place = places_ ? exchanged(at_, places_, axis_, distance) : nullptr;
    ir::Value* wants_first = emit(ir::Opcode::kNot, {bit_is_set(distance)}, boolean);
    // Blocks of `size` alternate in direction, so that two of them make one that rises and falls.
    if (size < extent_) wants_first = emit(ir::Opcode::kNe, {wants_first, bit_is_set(size)}, boolean);
    ir::Value* takes = emit(ir::Opcode::kSelect,
                            {wants_first, is_before(other, other_place, values_, places_),
                             is_before(values_, places_, other, other_place)},
                            boolean);
    values_ = emit(ir::Opcode::kSelect, {takes, other, values_}, values_->type.dtype);
    if (places_) places_ = emit(ir::Opcode::kSelect, {takes, other_place, places_}, int32);
  }

  const Instruction& at_;
  int64_t axis_, extent_ = 0;
  bool descending_;
  ir::Value* values_;
  ir::Value* index_ = nullptr;
  ir::Value* places_ = nullptr;
};

RegisterValue handle_of(const Instruction& at, ir::Value* value) { return RegisterValue(at.handle(value)); }

}  // namespace

RegisterValue scan(const TileArg& a, Combine by, const ScanOptions& options) {
  return scan_as("scan", a, by, options);
}
RegisterValue cumsum(const TileArg& a, const ScanOptions& options) {
  return scan_as("cumsum", a, Combine::kSum, options);
}
RegisterValue cumprod(const TileArg& a, const ScanOptions& options) {
  return scan_as("cumprod", a, Combine::kProduct, options);
}

RegisterValue exchange(const TileArg& a, int axis, int64_t mask) {
  const Instruction at("exchange", a.where);
  ir::Value* value = lang::tile(at, a);
  return handle_of(at, exchanged(at, value, checked_axis(at, value, axis), mask));
}

RegisterValue sort(const TileArg& a, const SortOptions& options) {
  const Instruction at("sort", a.where);
  ir::Value* value = lang::tile(at, a);
  Network network(at, value, checked_axis(at, value, options.axis), options.descending, false);
  network.run();
  return handle_of(at, network.values());
}

Sorted sort_with_indices(const TileArg& a, const SortOptions& options) {
  const Instruction at("sort_with_indices", a.where);
  ir::Value* value = lang::tile(at, a);
  Network network(at, value, checked_axis(at, value, options.axis), options.descending, true);
  network.run();
  return {handle_of(at, network.values()), handle_of(at, network.places())};
}

Sorted top_k(const TileArg& a, int64_t k, const TopKOptions& options) {
  const Instruction at("top_k", a.where);
  ir::Value* value = lang::tile(at, a);
  const int64_t axis = checked_axis(at, value, options.axis);
  Shape shape = value->type.shape;
  int64_t& extent = shape[static_cast<size_t>(axis)];
  if (k < 1 || k > extent || extent % k != 0)
    at.fail(fmt::format("{} of {} elements along axis {}; it must divide them", k, extent, axis),
            {Instruction::describe("it", value)},
            k > extent ? fmt::format("take at most {}", extent) : "take more and leave some out");
  Network network(at, value, axis, true, true);
  network.run();
  extent = k;
  const Shape start(shape.size(), 0);
  const auto first = [&](ir::Value* of) { return handle_of(at, of).slice(start, shape, a.where); };
  return {first(network.values()), first(network.places())};
}

}  // namespace imbrex
