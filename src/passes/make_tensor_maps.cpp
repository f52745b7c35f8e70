// SPDX-License-Identifier: Apache-2.0
#include "passes/make_tensor_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "imbrex/core/error.h"
#include "layout/descriptors.h"
#include "passes/describe.h"
#include "passes/rewrite.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

constexpr int64_t kUnit = 16;        // bytes that addresses, strides and inner coordinates are multiples of
constexpr int64_t kPaddedUnit = 32;  // of elements that lie 16 to 16 bytes in shared memory,
constexpr int64_t kPaddedExtent = 128;  // whose coordinates and extents are such multiples
constexpr size_t kMaxRank = 5;          // of a tensor map
constexpr int64_t kNoDim = -1;          // a dimension of extent 1 that reshape() made

/// A view of global memory, down to the global_view it is taken of.
struct GlobalSource {
  Op* root = nullptr;
  std::vector<std::vector<Value*>> offsets;  // of each dimension of the root; they add up
  std::vector<int64_t> dims;                 // which of those each dimension of the view is

  int64_t rank() const { return root->int_attr("rank"); }
  Value* extent(int64_t d) const { return root->operands[static_cast<size_t>(1 + d)]; }
  Value* stride(int64_t d) const { return root->operands[static_cast<size_t>(1 + rank() + d)]; }
};

[[noreturn]] void fail(const Op& op, std::string message, std::vector<std::string> facts = {},
                       std::string help = "") {
  throw CompileError(Diagnostic{op.where, fmt::format("{}: {}", op.info().mnemonic, message),
                                std::move(facts), std::move(help)});
}

GlobalSource source_of(Value* value) {
  Op& op = *value->def;
  if (op.code == Opcode::kGlobalView) {
    GlobalSource source{&op, {}, {}};
    source.offsets.resize(static_cast<size_t>(source.rank()));
    for (int64_t d = 0; d < source.rank(); ++d) source.dims.push_back(d);
    return source;
  }
  GlobalSource source = source_of(op.operands[0]);
  const auto move = [&](size_t d, Value* by) {
    if (source.dims[d] != kNoDim) source.offsets[static_cast<size_t>(source.dims[d])].push_back(by);
  };
  switch (op.code) {
    case Opcode::kIndex:
      move(0, op.operands[1]);
      source.dims.erase(source.dims.begin());
      return source;
    case Opcode::kSlice:
      for (size_t d = 0; d + 1 < op.operands.size(); ++d) move(d, op.operands[1 + d]);
      return source;
    case Opcode::kPermute: {
      const std::vector<int64_t> dims = source.dims;
      for (size_t d = 0; d < dims.size(); ++d)
        source.dims[d] = dims[static_cast<size_t>(op.ints_attr("dims")[d])];
      return source;
    }
    case Opcode::kReshape: {  // extents of 1 come and go
      std::vector<int64_t> kept;
      for (size_t d = 0; d < source.dims.size(); ++d)
        if (op.operands[0]->type.shape[d] != 1) kept.push_back(source.dims[d]);
      source.dims.clear();
      size_t next = 0;
      for (int64_t extent : op.ints_attr("shape"))
        source.dims.push_back(extent == 1 || next == kept.size() ? kNoDim : kept[next++]);
      return source;
    }
    default:
      throw InternalError(fmt::format("make_tensor_maps: {} is not a view", op.info().mnemonic));
  }
}

/// A copy's operands by their roles.
struct Copy {
  explicit Copy(Op& op) : op(op), is_load(op.code == Opcode::kTmaGlobalToShared) {}
  Value*& global() { return op.operands[is_load ? 0 : 1]; }
  const Value* tile() const { return op.operands[is_load ? 1 : 0]; }
  size_t first_offset() const { return is_load ? 3 : 2; }
  Op& op;
  bool is_load;
};

class MapMaker {
 public:
  explicit MapMaker(ir::Function& function) : function_(function), builder_(function) {}

  void run() { block(function_.body); }

 private:
  void block(Block& block) {
    rebuild(block, [&](Op& op, Block& to) {
      if (op.code == Opcode::kTmaGlobalToShared || op.code == Opcode::kTmaSharedToGlobal) {
        Copy copy(op);
        rewrite(copy, to);
      }
      append(to, op);
      for (auto& region : op.regions) this->block(*region);
    });
  }

  void rewrite(Copy& copy, Block& to) {
    const Op& op = copy.op;
    const GlobalSource source = source_of(copy.global());
    const std::vector<int64_t> dims = op.ints_attr("dims");
    const int64_t inner = inner_dim(op, source);
    int inner_tile_dim = -1;
    for (size_t t = 0; t < dims.size(); ++t)
      if (source.dims[static_cast<size_t>(dims[t])] == inner) inner_tile_dim = static_cast<int>(t);
    if (inner_tile_dim < 0)
      fail(op,
           fmt::format("no dimension of the tile runs along dimension {} of {}, the contiguous one", inner,
                       ir::print(*source.root->result())),
           {tensor_text(*source.root->result()), tensor_text(*copy.tile())},
           "a copy moves whole rows of at least 16 bytes");

    const auto boxes = layout::describe_tma_boxes(*copy.tile()->type.layout, inner_tile_dim);
    if (!boxes) throw InternalError("make_tensor_maps: " + boxes.error);
    // Dimensions of the map: those of the tile as they are nested in shared memory, then the others.
    std::vector<int64_t> order;  // dimension of the root for each of the map
    std::vector<int64_t> box = boxes->box, map_dims(dims.size());
    for (size_t j = 0; j < boxes->dims.size(); ++j) {
      const auto tile_dim = static_cast<size_t>(boxes->dims[j]);
      order.push_back(source.dims[static_cast<size_t>(dims[tile_dim])]);
      map_dims[tile_dim] = static_cast<int64_t>(j);
      if (order.back() == kNoDim)
        fail(op,
             fmt::format("dimension {} of the tile runs along an extent of 1 that reshape() made", tile_dim),
             {tensor_text(*copy.tile())}, "make another global_view with this dimension");
    }
    for (int64_t d = source.rank(); d-- > 0;)
      if (std::find(order.begin(), order.end(), d) == order.end()) order.push_back(d);
    if (order.size() > kMaxRank)
      fail(
          op,
          fmt::format("the global tensor has {} dimensions, a tensor map at most {}", order.size(), kMaxRank),
          {tensor_text(*source.root->result())});
    box.resize(order.size(), 1);
    const bool is_four_rows = op.bool_attr("four_rows", false);
    if (is_four_rows) {
      if (source.rank() != 2 || map_dims != std::vector<int64_t>{1, 0})
        fail(op, "rows that are contiguous, of a tensor of two dimensions, are what four of can be copied",
             {tensor_text(*source.root->result()), tensor_text(*copy.tile())},
             "make a global_view of [rows, columns]");
      box[1] = 1;  // a box of one row, four times
    }

    builder_.set_location(op.where);
    builder_.set_insertion_point(to);
    std::vector<Value*> coordinates;
    coordinates.push_back(coordinate(copy, source, order[0], is_four_rows ? 3 : 0));
    for (size_t i = 0; is_four_rows && i < 4; ++i)
      coordinates.push_back(coordinate(copy, source, order[1], i));
    for (size_t j = 1; !is_four_rows && j < order.size(); ++j)
      coordinates.push_back(coordinate(copy, source, order[j]));
    const bool is_padded = copy.tile()->type.dtype.bits() < copy.tile()->type.layout->element_bits();
    check_inner_coordinate(op, source, *coordinates.front(), is_padded);
    if (op.bool_attr("masked", false)) coordinates.push_back(op.operands.back());
    copy.global() = map(op, source, order, box, boxes->swizzle, is_padded);
    copy.op.operands.resize(copy.first_offset());
    copy.op.operands.insert(copy.op.operands.end(), coordinates.begin(), coordinates.end());
    copy.op.set_attr("dims", map_dims);
  }

  /// The dimension of the root with stride 1.
  static int64_t inner_dim(const Op& op, const GlobalSource& source) {
    for (int64_t d = source.rank(); d-- > 0;)
      if (ir::constant_int(source.stride(d)) == 1) return d;
    fail(op, fmt::format("no dimension of {} is known to be contiguous", ir::print(*source.root->result())),
         {tensor_text(*source.root->result())}, "give one of the strides as the C++ number 1");
  }

  /// The sum of the offsets along a dimension of the root, as 32 bits. The copy's own stands `later` places further than
  /// its dimension's.
  Value* coordinate(Copy& copy, const GlobalSource& source, int64_t root_dim, size_t later = 0) {
    std::vector<Value*> parts = source.offsets[static_cast<size_t>(root_dim)];
    for (size_t d = 0; d < source.dims.size(); ++d)
      if (source.dims[d] == root_dim) parts.push_back(copy.op.operands[copy.first_offset() + d + later]);
    Value* sum = nullptr;
    int64_t constant = 0;
    for (Value* part : parts) {
      if (const auto known = ir::constant_int(part)) {
        constant += *known;
        continue;
      }
      if (part->type.dtype != int32)
        part =
            builder_.create(Opcode::kCast, {part}, {ir::Type::scalar(int32)}, {{"dtype", int32}})->result();
      sum = sum ? builder_.binary(Opcode::kAdd, sum, part) : part;
    }
    if (!sum) return builder_.constant(int32, constant);
    return constant == 0 ? sum : builder_.binary(Opcode::kAdd, sum, builder_.constant(int32, constant));
  }

  static void check_inner_coordinate(const Op& op, const GlobalSource& source, const Value& coordinate,
                                     bool is_padded) {
    const auto known = ir::constant_int(&coordinate);
    const int64_t bits = source.root->result()->type.dtype.bits();
    if (!known) return;
    if (is_padded && *known % kPaddedExtent != 0)
      fail(op,
           fmt::format("the offset {} along the contiguous dimension is not a multiple of {}", *known,
                       kPaddedExtent),
           {tensor_text(*source.root->result())}, "copy such elements in rows of 128");
    if (is_padded || *known * bits % (8 * kUnit) == 0) return;
    fail(op,
         fmt::format("the offset {} along the contiguous dimension is {} bytes, not a multiple of {}", *known,
                     static_cast<double>(*known * bits) / 8, kUnit),
         {tensor_text(*source.root->result())}, "start copies at multiples of 16 bytes");
  }

  // --- the map ---

  /// Stores write whole units of 16 bytes: what lies behind a shorter row would be overwritten.
  static void check_stored_rows(const Op& op, const Value& tensor, const Value* extent) {
    const auto known = ir::constant_int(extent);
    const int64_t bits = tensor.type.dtype.bits();
    if (!known || *known * bits % (8 * kUnit) == 0) return;
    fail(op,
         fmt::format(
             "rows of {} are {} bytes; TMA stores multiples of {}, and would overwrite what is behind them",
             ir::print(tensor), static_cast<double>(*known * bits) / 8, kUnit),
         {tensor_text(tensor)}, "use store_global, or give the tensor longer rows");
  }

  Value* map(const Op& op, const GlobalSource& source, const std::vector<int64_t>& order,
             const std::vector<int64_t>& box, layout::Swizzle swizzle, bool is_padded) {
    const Value& tensor = *source.root->result();
    const bool is_store = op.code == Opcode::kTmaSharedToGlobal;
    if (is_store) check_stored_rows(op, tensor, source.extent(order.front()));
    Value*& made = maps_[{source.root, order, box, swizzle.mode, is_padded}];
    if (made) {
      if (is_store) made->def->set_attr("stored", true);
      return made;
    }
    Value* base = source.root->operands[0];
    if (base->def) fail(op, "the tensor's base is not a parameter of the kernel", {tensor_text(tensor)});
    std::vector<Value*> operands{base};
    for (int64_t d : order)
      operands.push_back(on_host(op, source, source.extent(d), fmt::format("extent {}", d)));
    if (const auto known = ir::constant_int(source.extent(order.front()));
        known && is_padded && *known % kPaddedExtent != 0)
      fail(op,
           fmt::format("extent {} of {} is {}, not a multiple of {}", order.front(), ir::print(tensor),
                       *known, kPaddedExtent),
           {tensor_text(tensor)},
           "elements that lie 16 to 16 bytes in shared memory need such rows: pad them");
    const int64_t unit = is_padded ? kPaddedUnit : kUnit, bits = tensor.type.dtype.bits();
    for (size_t j = 1; j < order.size(); ++j) {
      Value* stride = source.stride(order[j]);
      if (const auto known = ir::constant_int(stride); known && *known * bits % (8 * unit) != 0)
        fail(op,
             fmt::format("stride {} of {} is {} bytes, not a multiple of {}", order[j], ir::print(tensor),
                         static_cast<double>(*known * bits) / 8, unit),
             {tensor_text(tensor)}, "pad the rows of the tensor in memory, or use load_global or copy_async");
      operands.push_back(on_host(op, source, stride, fmt::format("stride {}", order[j])));
    }
    builder_.set_insertion_point(function_.host);
    made = builder_
               .create(Opcode::kTensorMap, std::move(operands), {{ir::TypeKind::kTensorMap, uint8, {}, {}}},
                       {{"dtype", tensor.type.dtype}, {"box", box}, {"swizzle", std::string(swizzle.name())}})
               ->result();
    if (is_padded) made->def->set_attr("padded", true);
    if (is_store) made->def->set_attr("stored", true);
    if (!tensor.name.empty()) function_.set_name(*made, tensor.name + "_map");
    return made;
  }

  /// The value as the host block may use it.
  Value* on_host(const Op& op, const GlobalSource& source, Value* value, const std::string& role) {
    if (const auto known = ir::constant_int(value)) {
      Value*& number = numbers_[{value->type.dtype.code, *known}];
      if (!number) {
        builder_.set_insertion_point(function_.host);
        number = builder_.constant(value->type.dtype, *known);
      }
      return number;
    }
    const bool is_param =
        std::find(function_.params.begin(), function_.params.end(), value) != function_.params.end();
    if (is_param || (value->def && value->def->parent == &function_.host)) return value;
    std::string fact = fmt::format("it is {}", ir::print(*value));
    if (value->def) fact += fmt::format(", made by {}", op_text(*value->def));
    fail(op, fmt::format("{} of {} is not known at launch", role, ir::print(*source.root->result())),
         {tensor_text(*source.root->result()), fact},
         "compute extents and strides of views that TMA copies from the kernel's parameters");
  }

  ir::Function& function_;
  ir::Builder builder_;
  std::map<std::tuple<Op*, std::vector<int64_t>, std::vector<int64_t>, int, bool>, Value*> maps_;
  std::map<std::pair<int, int64_t>, Value*> numbers_;
};

}  // namespace

void make_tensor_maps(ir::Function& function) { MapMaker(function).run(); }

}  // namespace imbrex::passes
