// SPDX-License-Identifier: Apache-2.0
// From the layout of a tensor to those of its views and of the registers that load it.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "imbrex/core/error.h"
#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {

using ir::Opcode;
using layout::Axis;
using layout::Layout;
using layout::Mode;
using layout::Modes;

int64_t known_multiple(const ir::Value* value, int depth) {
  if (const std::optional<int64_t> constant = ir::constant_int(value)) return std::abs(*constant);
  if (depth == 0) return 1;
  if (value->owner && value->owner->parent && value->owner->parent->code == Opcode::kFor) {
    const ir::Op& loop = *value->owner->parent;
    return std::gcd(known_multiple(loop.operands[0], depth - 1), known_multiple(loop.operands[2], depth - 1));
  }
  if (!value->def) return 1;
  const ir::Op& op = *value->def;
  switch (op.code) {
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMin:
    case Opcode::kMax:
      return std::gcd(known_multiple(op.operands[0], depth - 1), known_multiple(op.operands[1], depth - 1));
    case Opcode::kSelect:
      return std::gcd(known_multiple(op.operands[1], depth - 1), known_multiple(op.operands[2], depth - 1));
    case Opcode::kMul: {
      const int64_t a = known_multiple(op.operands[0], depth - 1),
                    b = known_multiple(op.operands[1], depth - 1);
      return a < (int64_t{1} << 31) && b < (int64_t{1} << 31) ? a * b : 1;
    }
    case Opcode::kShl: {
      const std::optional<int64_t> shift = ir::constant_int(op.operands[1]);
      const int64_t a = known_multiple(op.operands[0], depth - 1);
      return shift && *shift >= 0 && *shift < 31 && a < (int64_t{1} << 31) ? a << *shift : 1;
    }
    case Opcode::kCast:
      return op.operands[0]->type.dtype.is_integer() ? known_multiple(op.operands[0], depth - 1) : 1;
    default:
      return 1;
  }
}

namespace {

/// The same bits of tensor memory as elements of `to` bits.
Layout reinterpreted(const Layout& of, int from, const layout::Shape& shape, int to) {
  const Modes dense = {{of.shape()[1], 1, Axis::kColumn}};
  if (of.element_bits() != from || of.modes(1) != dense)
    throw CompileError(
        Diagnostic{{}, "the elements of a row do not lie one behind another", {of.to_string()}, ""});
  return Layout(shape, {of.modes(0), {{shape[1], 1, Axis::kColumn}}}, of.replicas(), to);
}

}  // namespace

Layout view_layout(const ir::Op& view, const Layout& of) {
  switch (view.code) {
    case Opcode::kIndex:
      return of.without_leading();
    case Opcode::kSlice: {
      const layout::Shape& extents = view.ints_attr("shape");
      layout::Index starts, alignment;
      bool constant = true;
      for (size_t d = 0; d < extents.size(); ++d) {
        const ir::Value* offset = view.operands[1 + d];
        const std::optional<int64_t> value = ir::constant_int(offset);
        constant = constant && value.has_value();
        starts.push_back(value.value_or(0));
        alignment.push_back(known_multiple(offset));
      }
      return constant ? of.slice(starts, extents).layout : of.slice_at(extents, alignment);
    }
    case Opcode::kPermute: {
      std::vector<int> order;
      for (int64_t dim : view.ints_attr("dims")) order.push_back(static_cast<int>(dim));
      return of.permute(order);
    }
    case Opcode::kReshape:
      return of.reshape(view.ints_attr("shape"));
    case Opcode::kTcgen05View:
      return reinterpreted(of, view.operands[0]->type.dtype.bits(), view.ints_attr("shape"),
                           view.dtype_attr("dtype").bits());
    default:
      throw InternalError(fmt::format("{} is not a view", view.info().mnemonic));
  }
}

Layout tensor_memory_registers(const Layout& memory, int64_t threads) {
  if (threads % 128 != 0 && threads != 32)
    throw CompileError(Diagnostic{
        {},
        fmt::format("{} threads; tensor memory is accessed by one warp, or by whole warp groups of 128",
                    threads),
        {},
        "open a warp_group() of four warps, or of a multiple of four"});
  if (threads == 32 && memory.lanes() > 32)
    throw CompileError(Diagnostic{{},
                                  fmt::format("{} lanes, of which one warp reaches 32", memory.lanes()),
                                  {},
                                  "let the warp take its slice of 32 lanes, or a warp group the whole"});
  int64_t groups = std::max<int64_t>(1, threads / 128);
  // Accumulators of 64 rows take 16 of each warp's 32 lanes, which the 16-lane shapes read alone.
  const Modes half_lanes = {{4, 32, Axis::kLane}, {16, 1, Axis::kLane}};
  if (groups == 1 && memory.rank() == 2 && memory.element_bits() == 32 && memory.modes(0) == half_lanes &&
      memory.modes(1) == Modes{{memory.shape()[1], 1, Axis::kColumn}} && memory.shape()[1] % 8 == 0)
    return layout::tensor_memory_half_registers(layout::TensorMemoryShape::k16x256b, 4, memory.shape()[1]);
  std::vector<Modes> modes;
  std::vector<Mode*> columns;
  for (int d = 0; d < memory.rank(); ++d) modes.push_back(memory.modes(d));
  // The widest column mode's outer part goes to further warp groups, what is left to registers in order of
  // columns.
  for (Modes& list : modes)
    for (Mode& mode : list) {
      if (mode.axis == Axis::kLane) mode.axis = Axis::kThread;
      if (mode.axis == Axis::kColumn) columns.push_back(&mode);
    }
  std::stable_sort(columns.begin(), columns.end(), [](Mode* a, Mode* b) { return a->stride < b->stride; });
  for (Modes& list : modes)
    for (size_t i = 0; groups > 1 && !columns.empty() && i < list.size(); ++i)
      if (&list[i] == columns.back() && list[i].extent % groups == 0) {
        list[i].extent /= groups;
        list.insert(list.begin() + static_cast<int64_t>(i), {groups, 128, Axis::kThread});
        groups = 1;
      }
  if (groups > 1)
    throw CompileError(Diagnostic{
        {},
        fmt::format("{} threads cannot share the columns of {} evenly", threads, memory.to_string()),
        {},
        "use fewer warp groups, or a tile of more columns"});
  columns.clear();
  for (Modes& list : modes)
    for (Mode& mode : list)
      if (mode.axis == Axis::kColumn) columns.push_back(&mode);
  std::stable_sort(columns.begin(), columns.end(), [](Mode* a, Mode* b) { return a->stride < b->stride; });
  int64_t next = 1;
  for (Mode* mode : columns) {
    mode->axis = Axis::kRegister;
    mode->stride = next;
    next *= mode->extent;
  }
  Modes replicas = memory.replicas();
  for (Mode& mode : replicas) mode.axis = mode.axis == Axis::kLane ? Axis::kThread : mode.axis;
  return Layout(memory.shape(), std::move(modes), std::move(replicas));
}

Layout coalesced_along(const layout::Shape& shape, int contiguous, int64_t threads, DataType dtype,
                       int max_vector_bytes) {
  if (shape.empty()) return layout::coalesced(shape, threads, dtype.bits(), max_vector_bytes);
  std::vector<int> order, back(shape.size());
  for (int d = 0; d < static_cast<int>(shape.size()); ++d)
    if (d != contiguous) order.push_back(d);
  order.push_back(contiguous);
  layout::Shape permuted;
  for (size_t i = 0; i < order.size(); ++i) {
    permuted.push_back(shape[static_cast<size_t>(order[i])]);
    back[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  return layout::coalesced(permuted, threads, dtype.bits(), max_vector_bytes).permute(back);
}

VectorDim vector_dim(const Layout& memory) {
  const layout::Run run = layout::contiguous_run(memory, Axis::kAddress);
  if (run.dim < 0) return {std::max(0, memory.rank() - 1), std::max(1, memory.element_bits() / 8)};
  const int64_t bits = std::gcd(run.length, run.alignment) * memory.element_bits();
  return {run.dim, static_cast<int>(std::clamp<int64_t>(bits / 8, 1, 16))};
}

int contiguous_dim(const ir::Value& global) {
  const int last = global.type.rank() - 1;
  if (!global.def) return last;
  const ir::Op& op = *global.def;
  switch (op.code) {
    case Opcode::kGlobalView:
      for (int d = last; d >= 0; --d)
        if (ir::constant_int(op.operands[static_cast<size_t>(1 + op.int_attr("rank") + d)]) == 1) return d;
      return last;
    case Opcode::kIndex:
      return std::max(0, contiguous_dim(*op.operands[0]) - 1);
    case Opcode::kSlice:
      return contiguous_dim(*op.operands[0]);
    case Opcode::kPermute: {
      const std::vector<int64_t>& dims = op.ints_attr("dims");
      const auto at = std::find(dims.begin(), dims.end(), contiguous_dim(*op.operands[0]));
      return static_cast<int>(at - dims.begin());
    }
    default:
      return last;
  }
}

int global_access_bytes(const ir::Value& global) {
  const ir::Value* root = &global;
  while (root->def && root->def->code != Opcode::kGlobalView && !root->def->operands.empty())
    root = root->def->operands[0];
  int64_t bits = 16 * 8;
  if (!root->def || root->def->code != Opcode::kGlobalView) return 16;
  const int64_t rank = root->def->int_attr("rank"), each = root->type.dtype.bits();
  for (int64_t d = 0; d < rank; ++d)
    if (const auto stride = ir::constant_int(root->def->operands[static_cast<size_t>(1 + rank + d)]);
        stride && *stride != 1)
      bits = std::gcd(bits, *stride * each);
  return static_cast<int>(std::max<int64_t>(bits, layout::whole_byte_elements(each) * each) / 8);
}

int contiguous_tile_dim(const ir::Value& global, const std::vector<int64_t>& dims) {
  const auto at = std::find(dims.begin(), dims.end(), contiguous_dim(global));
  return static_cast<int>(at == dims.end() ? dims.size() - 1 : static_cast<size_t>(at - dims.begin()));
}

}  // namespace imbrex::passes
