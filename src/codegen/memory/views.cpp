// SPDX-License-Identifier: Apache-2.0
// Views of tensors: bookkeeping at compile time, a little address arithmetic for run-time offsets.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/memory/shared_memory.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using layout::Axis;
using layout::Layout;

namespace {

/// Layout errors come without a line; they get the op's.
template <class F>
auto at_op(const ir::Op& op, F&& f) {
  try {
    return f();
  } catch (const CompileError& error) {
    std::vector<Diagnostic> diagnostics = error.diagnostics();
    for (Diagnostic& d : diagnostics) {
      if (!d.where.is_known()) d.where = op.where;
      d.message = std::string(op.info().mnemonic) + ": " + d.message;
    }
    throw CompileError(std::move(diagnostics));
  }
}

/// A distance along the layout in bytes; elements may lie further apart than they are wide.
ScaledInteger in_bytes(Generator& g, ScaledInteger term, const Layout& layout) {
  int64_t bits = term.scale * layout.element_bits();
  for (; bits % 8 != 0; bits *= 2) {  // elements of less than a byte
    if (!term.value.known.is_multiple_of(2))
      throw CompileError(Diagnostic{{},
                                    "the offset is not known to be at a whole byte",
                                    {"layout  " + layout.to_string()},
                                    "compute it as a product with the elements in a byte"});
    term.value = g.ints().div(term.value, 2);
  }
  return {term.value, bits / 8};
}

/// The same memory from `index` on, under another layout.
SharedView moved(Generator& g, SharedView view, std::span<const Integer> index, Layout layout) {
  for (const ScaledInteger& elements : linear_terms(g, view.layout, index, Axis::kAddress)) {
    const ScaledInteger t = in_bytes(g, elements, view.layout);
    if (t.value.is_constant())
      view.offset += t.value.constant() * t.scale;
    else
      view.terms.push_back(t);
  }
  view.layout = std::move(layout);
  return view;
}

TensorMemoryView moved(Generator& g, TensorMemoryView view, std::span<const Integer> index, Layout layout) {
  Integers& ints = g.ints();
  const Integer lane = sum_of(g, linear_terms(g, view.layout, index, Axis::kLane));
  const Integer column = sum_of(g, linear_terms(g, view.layout, index, Axis::kColumn));
  const int per_column = std::max(1, 32 / view.layout.element_bits());
  auto columns = [&](const Integer& elements) {
    if (per_column == 1) return elements;
    if (!elements.known.is_multiple_of(per_column))
      throw CompileError(Diagnostic{
          {},
          fmt::format("the offset along columns is not known to be a multiple of {}, the elements of "
                      "{} in a 32-bit column",
                      per_column, view.dtype.name()),
          {},
          "compute it as a product with that number"});
    return ints.div(elements, per_column);
  };
  const Integer c = columns(column);
  if (lane.is_constant())
    view.lane += lane.constant();
  else
    view.base = ints.add(view.base, ints.mul(lane, Integers::constant(1 << 16)));
  if (c.is_constant())
    view.column += c.constant();
  else
    view.base = ints.add(view.base, c);
  view.layout = std::move(layout);
  return view;
}

/// Indices [i, 0, 0, ...].
std::vector<Integer> leading(const Integer& i, int rank) {
  std::vector<Integer> index(rank, Integers::constant(0));
  index[0] = i;
  return index;
}

template <class View>
void index_view(Generator& g, const ir::Op& op) {
  const View view = g.get<View>(op.operands[0]);
  const Integer i = g.ints().narrow(g.integer(op.operands[1]));
  g.bind(op.result(), at_op(op, [&] {
           Layout rest =
               i.is_constant() ? view.layout.at(i.constant()).layout : view.layout.without_leading();
           return moved(g, view, leading(i, view.layout.rank()), std::move(rest));
         }));
}

template <class View>
void slice_view(Generator& g, const ir::Op& op) {
  const View view = g.get<View>(op.operands[0]);
  const std::vector<int64_t>& extents = op.ints_attr("shape");
  std::vector<Integer> starts;
  std::vector<int64_t> alignment, constants;
  for (size_t d = 0; d < extents.size(); ++d) {
    starts.push_back(g.ints().narrow(g.integer(op.operands[1 + d])));
    const Range& known = starts.back().known;
    alignment.push_back(known.multiple == 0 ? view.layout.shape()[d] : known.multiple);
    if (starts.back().is_constant()) constants.push_back(starts.back().constant());
  }
  g.bind(op.result(), at_op(op, [&] {
           Layout box = constants.size() == extents.size() ? view.layout.slice(constants, extents).layout
                                                           : view.layout.slice_at(extents, alignment);
           return moved(g, view, starts, std::move(box));
         }));
}

std::vector<int> order_of(const ir::Op& op) {
  const std::vector<int64_t>& dims = op.ints_attr("dims");
  return {dims.begin(), dims.end()};
}

}  // namespace

namespace {

/// What the launch can check: the bytes from the pointer to the last element, and whether a tensor with strides is
/// viewed as one without. Nothing where extents or strides are not known at launch.
void check_at_launch(Generator& g, const ir::Op& op, const GlobalView& view) {
  if (view.argument < 0) return;
  HostProgram& host = g.host();
  const auto rank = static_cast<size_t>(op.int_attr("rank"));
  BufferNeed need{
      .argument = view.argument, .bytes_slot = 0, .extents = {}, .strides = {}, .where = op.where};
  int32_t last = host.constant(0);
  for (size_t d = 0; d < rank; ++d) {
    const std::optional<int32_t> extent = host.slot(op.operands[1 + d]);
    const std::optional<int32_t> stride = host.slot(op.operands[1 + rank + d]);
    if (!extent || !stride) return;
    const int32_t steps = host.binary(ir::Opcode::kSub, *extent, host.constant(1), op.where);
    last = host.binary(ir::Opcode::kAdd, last, host.binary(ir::Opcode::kMul, steps, *stride, op.where),
                       op.where);
    need.extents.push_back(*extent);
    need.strides.push_back(*stride);
  }
  const int32_t count = host.binary(ir::Opcode::kAdd, last, host.constant(1), op.where);
  const int32_t bits = host.binary(ir::Opcode::kMul, count, host.constant(view.dtype.bits()), op.where);
  need.bytes_slot = host.binary(ir::Opcode::kCeilDiv, bits, host.constant(8), op.where);
  g.kernel().buffers.push_back(std::move(need));
}

}  // namespace

void emit_GlobalView(Generator& g, const ir::Op& op) {
  const ir::Value* base = op.operands[0];
  const size_t rank = static_cast<size_t>(op.int_attr("rank"));
  GlobalView view;
  view.dtype = op.result()->type.dtype;
  view.address = g.integer(base);
  view.address.known = {0, std::numeric_limits<int64_t>::max(), kPointerAlignment};
  for (size_t i = 0; i < g.function().params.size(); ++i)
    if (g.function().params[i] == base) view.argument = static_cast<int>(i);
  for (size_t d = 0; d < rank; ++d) {
    GlobalDim dim{g.integer(op.operands[1 + d]), g.integer(op.operands[1 + rank + d]), Integers::constant(0)};
    dim.extent.known.lo = std::max<int64_t>(dim.extent.known.lo, 0);
    view.dims.push_back(dim);
    view.view_dims.push_back(static_cast<int>(d));
  }
  check_at_launch(g, op, view);
  g.bind(op.result(), std::move(view));
}

void emit_PointerAt(Generator& g, const ir::Op& op) {
  g.bind(op.result(), g.scalar_register(op.operands[0]));
}

void emit_SharedFree(Generator&, const ir::Op&) {}

void emit_Tcgen05View(Generator& g, const ir::Op& op) {
  TensorMemoryView view = g.get<TensorMemoryView>(op.operands[0]);
  view.dtype = op.dtype_attr("dtype");
  view.layout = g.layout_of(op.result());
  g.bind(op.result(), std::move(view));
}

void emit_Index(Generator& g, const ir::Op& op) {
  switch (op.operands[0]->type.kind) {
    case ir::TypeKind::kShared:
      return index_view<SharedView>(g, op);
    case ir::TypeKind::kTensorMemory:
      return index_view<TensorMemoryView>(g, op);
    default: {
      GlobalView view = g.get<GlobalView>(op.operands[0]);
      if (view.view_dims[0] >= 0) {
        GlobalDim& dim = view.dims[view.view_dims[0]];
        dim.offset = g.ints().add(dim.offset, g.integer(op.operands[1]));
      }
      view.view_dims.erase(view.view_dims.begin());
      g.bind(op.result(), std::move(view));
    }
  }
}

namespace {

/// The registers of a part: those of the whole from the part's first on, in the same distances.
void slice_registers(Generator& g, const ir::Op& op) {
  const RegisterTensor& whole = g.get<RegisterTensor>(op.operands[0]);
  std::vector<int64_t> starts;
  for (size_t i = 1; i < op.operands.size(); ++i) starts.push_back(g.integer(op.operands[i]).constant());
  const layout::Slice slice = whole.layout.slice(starts, op.ints_attr("shape"));
  std::vector<int64_t> map;
  for (int64_t i = 0; i < slice.layout.registers(); ++i) map.push_back(slice.offset[Axis::kRegister] + i);
  RegisterTensor part{whole.dtype, slice.layout, whole.group, gather_words(g, whole, map)};
  g.bind(op.result(), in_layout(g, op, std::move(part), g.layout_of(op.result())));
}

}  // namespace

void emit_Slice(Generator& g, const ir::Op& op) {
  switch (op.operands[0]->type.kind) {
    case ir::TypeKind::kRegister:
      return slice_registers(g, op);
    case ir::TypeKind::kShared:
      return slice_view<SharedView>(g, op);
    case ir::TypeKind::kTensorMemory:
      return slice_view<TensorMemoryView>(g, op);
    default: {
      GlobalView view = g.get<GlobalView>(op.operands[0]);
      for (size_t d = 0; d < view.view_dims.size(); ++d) {
        if (view.view_dims[d] < 0) continue;
        GlobalDim& dim = view.dims[view.view_dims[d]];
        dim.offset = g.ints().add(dim.offset, g.integer(op.operands[1 + d]));
      }
      g.bind(op.result(), std::move(view));
    }
  }
}

void emit_Permute(Generator& g, const ir::Op& op) {
  const ir::Value* from = op.operands[0];
  const std::vector<int> order = order_of(op);
  switch (from->type.kind) {
    case ir::TypeKind::kRegister: {
      RegisterTensor tensor = g.get<RegisterTensor>(from);
      tensor.layout = tensor.layout.permute(order);
      return g.bind(op.result(), in_layout(g, op, std::move(tensor), g.layout_of(op.result())));
    }
    case ir::TypeKind::kShared: {
      SharedView view = g.get<SharedView>(from);
      view.layout = view.layout.permute(order);
      return g.bind(op.result(), std::move(view));
    }
    case ir::TypeKind::kTensorMemory: {
      TensorMemoryView view = g.get<TensorMemoryView>(from);
      view.layout = view.layout.permute(order);
      return g.bind(op.result(), std::move(view));
    }
    default: {
      GlobalView view = g.get<GlobalView>(from);
      const std::vector<int> dims = view.view_dims;
      for (size_t d = 0; d < dims.size(); ++d) view.view_dims[d] = dims[order[d]];
      return g.bind(op.result(), std::move(view));
    }
  }
}

void emit_Reshape(Generator& g, const ir::Op& op) {
  const ir::Value* from = op.operands[0];
  const std::vector<int64_t>& shape = op.ints_attr("shape");
  switch (from->type.kind) {
    case ir::TypeKind::kRegister: {
      RegisterTensor tensor = g.get<RegisterTensor>(from);
      tensor.layout = at_op(op, [&] { return tensor.layout.reshape(shape); });
      return g.bind(op.result(), in_layout(g, op, std::move(tensor), g.layout_of(op.result())));
    }
    case ir::TypeKind::kShared: {
      SharedView view = g.get<SharedView>(from);
      view.layout = at_op(op, [&] { return view.layout.reshape(shape); });
      return g.bind(op.result(), std::move(view));
    }
    case ir::TypeKind::kTensorMemory: {
      TensorMemoryView view = g.get<TensorMemoryView>(from);
      view.layout = at_op(op, [&] { return view.layout.reshape(shape); });
      return g.bind(op.result(), std::move(view));
    }
    default: {
      // Strides are run-time numbers, so dimensions are neither merged nor split.
      GlobalView view = g.get<GlobalView>(from);
      std::vector<int> kept;
      for (size_t d = 0; d < view.view_dims.size(); ++d)
        if (from->type.shape[d] != 1) kept.push_back(view.view_dims[d]);
      view.view_dims.clear();
      size_t next = 0;
      for (int64_t extent : shape) {
        if (extent == 1)
          view.view_dims.push_back(-1);
        else if (next < kept.size())
          view.view_dims.push_back(kept[next++]);
      }
      std::vector<int64_t> before = from->type.shape, after = shape;
      std::erase(before, 1);
      std::erase(after, 1);
      if (before != after)
        g.fail(op,
               fmt::format("a view of global memory is reshaped from {} to {}",
                           ir::shape_text(from->type.shape), ir::shape_text(shape)),
               {"only extents of 1 can come and go"}, "make another global_view with these extents");
      return g.bind(op.result(), std::move(view));
    }
  }
}

void emit_SharedAlloc(Generator& g, const ir::Op& op) {
  if (!op.attr("offset")) throw InternalError("codegen: shared_alloc without an offset");
  g.bind(op.result(),
         SharedView{op.result()->type.dtype, g.layout_of(op.result()), op.int_attr("offset"), {}});
}

}  // namespace imbrex::codegen
