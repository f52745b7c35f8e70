// SPDX-License-Identifier: Apache-2.0
// Register layouts. Ops relate the layouts of their register tensors; what a demand fixes spreads along the
// relations, then loads and stores choose for what is left, in program order.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "imbrex/core/error.h"
#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/describe.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {

using ir::Opcode;
using ir::TypeKind;
using layout::Layout;

namespace {

bool holds_registers(const ir::Value* value) {
  if (value->type.kind == TypeKind::kRegister) return true;
  return value->type.kind == TypeKind::kVariable && value->def &&
         value->def->operands[0]->type.kind == TypeKind::kRegister;
}

bool is_load(const ir::Op& op) {
  return op.code == Opcode::kLoadGlobal || op.code == Opcode::kLoadShared || op.code == Opcode::kGather;
}
bool is_store(const ir::Op& op) {
  return op.code == Opcode::kStoreGlobal || op.code == Opcode::kStoreShared || op.code == Opcode::kScatter ||
         op.code == Opcode::kAtomic || op.code == Opcode::kCopyAsyncGather;
}
bool is_shared(const ir::Op& op) { return op.operands[0]->type.kind == TypeKind::kShared; }
bool is_indexed(const ir::Op& op) {
  return op.code == Opcode::kGather || op.code == Opcode::kScatter || op.code == Opcode::kAtomic;
}

/// The registers that a load or store moves.
ir::Value* transferred(const ir::Op& op) {
  if (op.code == Opcode::kCopyAsyncGather) return op.operands[2];  // lies as what is copied
  return is_load(op) ? op.result() : op.operands[1];
}

}  // namespace

RegisterInference::RegisterInference(ir::Function& function, const ThreadCounts& threads)
    : function_(function), threads_(threads) {
  ir::walk(function.body, [&](ir::Op& op) {
    collect(op);
    if (is_load(op) || is_store(op)) transfers_.push_back(&op);
  });
  std::ranges::stable_sort(transfers_, std::less(), [](const ir::Op* op) {
    return std::pair(-transferred(*op)->type.elements(), is_shared(*op));
  });
}

void RegisterInference::relate(RelationKind kind, ir::Op& op, ir::Value* from, ir::Value* to) {
  if (!holds_registers(from) || !holds_registers(to)) return;
  relations_of_[from].push_back(relations_.size());
  relations_of_[to].push_back(relations_.size());
  relations_.push_back({kind, &op, from, to});
}

void RegisterInference::collect(ir::Op& op) {
  for (ir::Value* result : op.results)
    if (holds_registers(result)) values_.push_back(result);
  switch (op.code) {
    case Opcode::kVar:
    case Opcode::kRead:
      return relate(RelationKind::kSame, op, op.operands[0], op.result());
    case Opcode::kAssign:
      return relate(RelationKind::kSame, op, op.operands[1], op.operands[0]);
    case Opcode::kReduce:
      return relate(RelationKind::kReduce, op, op.operands[0], op.result());
    case Opcode::kPermute:
      return relate(RelationKind::kPermute, op, op.operands[0], op.result());
    case Opcode::kSlice:
      return relate(RelationKind::kSlice, op, op.operands[0], op.result());
    case Opcode::kReshape:
      return relate(RelationKind::kReshape, op, op.operands[0], op.result());
    case Opcode::kRelayout:
      return;
    case Opcode::kView:
      if (!op.bool_attr("rows", false)) relate(RelationKind::kView, op, op.operands[0], op.result());
      return;
    case Opcode::kMma:
    case Opcode::kMmaScaled:
      return relate(RelationKind::kSame, op, op.operands[2], op.result());
    case Opcode::kDot:
      return relate(RelationKind::kSame, op, op.operands[2], op.result());
    case Opcode::kCopyAsyncGather:
      for (size_t i = 3; i < op.operands.size(); ++i) relate_broadcast(op, op.operands[i], op.operands[2]);
      return;
    case Opcode::kScatter:  // indices and mask lie as the value
      for (size_t i = 2; i < op.operands.size(); ++i) relate_broadcast(op, op.operands[i], op.operands[1]);
      return;
    default:
      // Element-wise: whatever registers go in come out at the same place.
      if (op.results.size() != 1 || !holds_registers(op.result())) return;
      for (ir::Value* operand : op.operands) relate_broadcast(op, operand, op.result());
  }
}

void RegisterInference::relate_broadcast(ir::Op& op, ir::Value* from, ir::Value* to) {
  relate(from->type.shape == to->type.shape ? RelationKind::kSame : RelationKind::kBroadcast, op, from, to);
}

void RegisterInference::demand(ir::Value* value, Layout layout, ir::Op& origin, std::string what,
                               std::optional<size_t> operand) {
  demands_.push_back({value, {std::move(layout), &origin, std::move(what)}, &origin, operand});
}

std::optional<Layout> RegisterInference::derive(const Relation& relation, bool forward,
                                                const Layout& known) const {
  const ir::Value& target = *(forward ? relation.to : relation.from);
  try {
    switch (relation.kind) {
      case RelationKind::kSame:
        return known;
      case RelationKind::kBroadcast:
        if (forward) return std::nullopt;
        return layout::broadcast_source(known, target.type.shape);
      case RelationKind::kReduce:
        if (!forward) return std::nullopt;
        return known.reduce(static_cast<int>(relation.op->int_attr("axis")),
                            relation.op->bool_attr("keep", false));
      case RelationKind::kPermute: {
        const std::vector<int64_t>& dims = relation.op->ints_attr("dims");
        std::vector<int> order(dims.begin(), dims.end()), back(dims.size());
        for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int>(i);
        return known.permute(forward ? order : back);
      }
      case RelationKind::kSlice: {
        if (!forward) return std::nullopt;
        layout::Index starts;
        for (size_t i = 1; i < relation.op->operands.size(); ++i)
          starts.push_back(*ir::constant_int(relation.op->operands[i]));
        layout::Slice slice = known.slice(starts, target.type.shape);
        if (slice.offset[layout::Axis::kThread] != 0) return std::nullopt;  // other threads hold it
        return std::move(slice.layout);
      }
      case RelationKind::kReshape:
        return known.reshape(target.type.shape);
      case RelationKind::kView: {
        const int from = relation.from->type.dtype.bits(), to = relation.to->type.dtype.bits();
        return forward ? layout::view_as_width(known, from, to) : layout::view_as_width(known, to, from);
      }
    }
  } catch (const CompileError&) {  // a reshape that cuts through modes; check() explains
  }
  return std::nullopt;
}

void RegisterInference::set(ir::Value* value, Known known) {
  known_.emplace(value, std::move(known));
  spread(value);
}

void RegisterInference::spread(ir::Value* value) {
  std::vector<ir::Value*> work{value};
  while (!work.empty()) {
    ir::Value* at = work.back();
    work.pop_back();
    const Known origin = known_.at(at);
    at->type.layout = origin.layout;
    for (size_t index : relations_of_[at]) {
      const Relation& relation = relations_[index];
      const bool forward = relation.from == at;
      ir::Value* other = forward ? relation.to : relation.from;
      if (known_.count(other)) continue;
      if (std::optional<Layout> derived = derive(relation, forward);
          derived && !stops_at(relation, forward, *derived)) {
        known_.emplace(other, Known{*derived, origin.origin, origin.what});
        work.push_back(other);
      }
    }
  }
}

/// What one of the shapes of tcgen05.ld and .st moves between a warp group's registers and tensor memory.
static bool is_transfer_layout(const Layout& registers) {
  using enum layout::TensorMemoryShape;
  if (registers.rank() != 2) return false;
  const int64_t rows = registers.shape()[0], columns = registers.shape()[1];
  for (auto shape : {k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2})
    for (int per_register : {1, 2, 4}) try {
        if (rows == 128 && registers == layout::tensor_memory_registers(shape, 4, columns, per_register))
          return true;
        if (rows == 32 && registers == layout::tensor_memory_registers(shape, 1, columns, per_register))
          return true;
        if (rows == 64 && registers == layout::tensor_memory_half_registers(shape, 4, columns, per_register))
          return true;
      } catch (const CompileError&) {  // not with so many columns
      }
  return false;
}

void RegisterInference::propagate_demands() {
  // What is given is taken first: annotations, explicit layouts, then instructions.
  const auto given = [&](const ir::Op& op) {
    const Layout& layout = std::get<Layout>(*op.attr("layout"));
    if (const int64_t threads = threads_.at(&op); layout.threads() > threads)
      throw CompileError(Diagnostic{op.where,
                                    fmt::format("{}: the layout has {} threads, this group {}",
                                                op.info().mnemonic, layout.threads(), threads),
                                    {"layout  " + layout.to_string()},
                                    "give each thread more elements, or the kernel more warps()"});
    return layout;
  };
  ir::walk(function_.body, [&](ir::Op& op) {
    if (op.code == Opcode::kAnnotateLayout && holds_registers(op.operands[0]))
      demand(op.operands[0], given(op), op, "the annotated layout");
    if (op.code == Opcode::kRelayout && op.attr("layout"))
      demand(op.result(), given(op), op, "the layout asked for");
    if (op.code == Opcode::kView) demand_rows(op);
  });
  ir::walk(function_.body, [&](ir::Op& op) {
    if (op.code == Opcode::kMma || op.code == Opcode::kMmaScaled) {
      const layout::MmaFragments layouts = mma_layouts(op, threads_.at(&op));
      if (op.code == Opcode::kMmaScaled) {
        const layout::Shape& c = op.result()->type.shape;
        const layout::MmaScales scales = layout::mma_scales(c[0], c[1], op.operands[3]->type.shape[1],
                                                            op.int_attr("warps_m"), op.int_attr("warps_n"));
        demand(op.operands[3], scales.a, op, "scales of a of mma.sync", 3);
        demand(op.operands[4], scales.b, op, "scales of b of mma.sync", 4);
      }
      demand(op.operands[0], layouts.a, op, "a fragments of mma.sync", 0);
      demand(op.operands[1], layouts.b, op, "b fragments of mma.sync", 1);
      demand(op.operands[2], layouts.c, op, "accumulators of mma.sync", 2);
      demand(op.result(), layouts.c, op, "accumulators of mma.sync");
      return;
    }
    if (op.code == Opcode::kDot) return demand_product(op);
    const bool load = op.code == Opcode::kTcgen05Load, store = op.code == Opcode::kTcgen05Store;
    if (!load && !store) return;
    ir::Value* value = load ? op.result() : op.operands[1];
    // Other shapes of the instruction are for the author to ask for.
    for (const Demand& given : demands_)
      if (given.value == value && is_transfer_layout(given.known.layout)) return;
    try {
      demand(value, tensor_memory_registers(*op.operands[0]->type.layout, threads_.at(&op)), op,
             "one tensor-memory lane for each thread");
    } catch (const CompileError& error) {
      throw CompileError(
          Diagnostic{op.where,
                     fmt::format("{}: {}", op.info().mnemonic, error.diagnostics().front().message),
                     {tensor_text(*op.operands[0])},
                     error.diagnostics().front().help});
    }
  });
  ir::walk(function_.body, [&](ir::Op& op) {
    if (op.code == Opcode::kWgmmaMma) demand_fragments(op);
  });
  for (ir::Value* value : values_)
    if (value->type.layout) demand(value, *value->type.layout, *value->def, "the layout it was made with");
  // First every demand at its own place, so that a clash shows between the places and not at one of them.
  for (const Demand& demand : demands_) known_.emplace(demand.value, demand.known);
  for (const Demand& demand : demands_) spread(demand.value);
}

void RegisterInference::demand_product(ir::Op& op) {
  const layout::Shape& shape = op.result()->type.shape;
  const Layout c = layout::thread_product_result(shape[0], shape[1], threads_.at(&op));
  const layout::ThreadProduct product = layout::thread_product(c, op.operands[0]->type.shape[1]);
  demand(op.operands[0], product.a, op, "rows of a for each thread", 0);
  demand(op.operands[1], product.b, op, "columns of b for each thread", 1);
  demand(op.operands[2], c, op, "a box of c for each thread", 2);
  demand(op.result(), c, op, "a box of c for each thread");
}

void RegisterInference::demand_rows(ir::Op& op) {
  if (op.attr("layout"))
    demand(op.result(), std::get<Layout>(*op.attr("layout")), op, "the layout asked for");
  const ir::Type& from = op.operands[0]->type;
  if (!op.bool_attr("rows", false)) return;
  if (from.shape[0] != threads_.at(&op))
    throw CompileError(Diagnostic{op.where,
                                  fmt::format("view: {} rows for {} threads, of which each holds a row",
                                              from.shape[0], threads_.at(&op)),
                                  {tensor_text(*op.operands[0])},
                                  "give the matrix as many rows as the thread group has threads"});
  demand(op.operands[0], layout::thread_rows(from.shape[0], from.shape[1]), op, "a row for each thread", 0);
}

void RegisterInference::demand_fragments(ir::Op& op) {
  ir::Value* a = op.operands[0];
  ir::Value* d = op.operands[2];
  const int64_t m = d->type.shape[0], n = d->type.shape[1], groups = threads_.at(&op) / 128;
  if (m % (64 * groups) != 0)
    throw CompileError(
        Diagnostic{op.where,
                   fmt::format("{}: {} rows for {} warp groups, of which each computes a multiple of 64",
                               op.info().mnemonic, m, groups),
                   {tensor_text(*d)},
                   "change m, or the number of warp groups"});
  const int64_t columns = layout::wgmma_columns(n, a->type.dtype.is_integer());
  demand(d, layout::wgmma_accumulator_tile(m, n, columns, groups), op, "accumulator d of wgmma");
  if (holds_registers(a))
    demand(a, layout::wgmma_a_tile(m, a->type.shape[1], a->type.dtype.bits(), groups), op,
           "operand a of wgmma");
}

void RegisterInference::prefer(ir::Value* value, const ir::Op& op, int contiguous, int max_vector_bytes,
                               std::string what) {
  if (known_.count(value)) return;
  // Small tiles: shorter vectors, so that every thread has something to do. (Not of elements that share
  // bytes.)
  const int64_t threads = threads_.at(&op), bits = value->type.dtype.bits();
  const int64_t bytes_each = std::max(bits / 8, value->type.elements() * bits / 8 / threads);
  const int bytes =
      bits < 8 ? max_vector_bytes : static_cast<int>(std::min<int64_t>(max_vector_bytes, bytes_each));
  set(value, {coalesced_along(value->type.shape, contiguous, threads, value->type.dtype, bytes), &op,
              std::move(what)});
}

void RegisterInference::choose_for(const ir::Op& op) {
  if (op.code == Opcode::kCopyAsyncGather) {
    ir::Value* places = transferred(op);
    if (known_.count(places)) return;
    return set(places, {coalesced_along(places->type.shape,
                                        contiguous_tile_dim(*op.operands[0], op.ints_attr("dims")),
                                        threads_.at(&op), op.operands[0]->type.dtype),
                        &op, "copies of 16 bytes"});
  }
  if (is_shared(op) && is_indexed(op))
    return prefer(transferred(op), op, std::max(0, transferred(op)->type.rank() - 1), 4, "single elements");
  if (is_shared(op)) {
    const VectorDim along = vector_dim(*op.operands[0]->type.layout);
    return prefer(transferred(op), op, along.dim, along.max_bytes, "vectorised access to shared memory");
  }
  prefer(transferred(op), op, contiguous_tile_dim(*op.operands[0], op.ints_attr("dims")),
         global_access_bytes(*op.operands[0]), "coalesced access to global memory");
}

void RegisterInference::choose_for_global() {
  for (const ir::Op* op : transfers_) {
    if (known_.count(transferred(*op))) continue;
    if (is_shared(*op)) return;
    choose_for(*op);
  }
}

void RegisterInference::complete() {
  for (const ir::Op* op : transfers_) choose_for(*op);
  for (ir::Value* value : values_)
    prefer(value, *value->def, std::max(0, value->type.rank() - 1), 16, "even work for the threads");
  check();
}

void RegisterInference::check() {
  for (const Demand& demand : demands_) {
    const Known& has = known_.at(demand.value);
    if (has.layout != demand.known.layout && !layout::register_map(has.layout, demand.known.layout) &&
        !move_for(demand))
      clash(*demand.known.origin, *demand.value, has, *demand.value, demand.known);
  }
  for (const Relation& relation : relations_) {
    const Known& from = known_.at(relation.from);
    const Known& to = known_.at(relation.to);
    Known carried = from;
    if (relation.kind != RelationKind::kBroadcast) {
      const std::optional<Layout> derived = derive(relation, true);
      if (!derived && move_for(relation)) continue;
      if (!derived)  // only a reshape, a slice or a view may fail
        throw CompileError(Diagnostic{
            relation.op->where,
            fmt::format("{}: {} cannot be {} without moving data between threads",
                        relation.op->info().mnemonic, ir::print(*relation.from),
                        relation.kind == RelationKind::kSlice  ? "cut here"
                        : relation.kind == RelationKind::kView ? "viewed so"
                                                               : "regrouped"),
            {tensor_text(*relation.from), fmt::format("its layout {} is {}, by {}", from.layout.to_string(),
                                                      from.what, op_text(*from.origin))},
            "relayout it first"});
      carried.layout = *derived;
    }
    if (carried.layout != to.layout && !layout::register_map(carried.layout, to.layout) &&
        !move_for(relation))
      clash(*relation.op, *relation.from, carried, *relation.to, to);
  }
}

void RegisterInference::clash(const ir::Op& op, const ir::Value& a, const Known& first, const ir::Value& b,
                              const Known& second) const {
  const auto line = [](const ir::Value& value, const Known& known) {
    return fmt::format("{} is {} for {}: {}", ir::print(value), known.layout.to_string(),
                       op_text(*known.origin), known.what);
  };
  const std::string fact =
      &a == &b ? fmt::format("register layouts demanded of {} differ", ir::print(a))
               : fmt::format("register layouts of {} and {} differ", ir::print(a), ir::print(b));
  throw CompileError(
      Diagnostic{op.where,
                 fmt::format("{}: {}, and data would have to move between threads", op.info().mnemonic, fact),
                 {tensor_text(a), line(a, first), line(b, second)},
                 "relayout one of them"});
}

}  // namespace imbrex::passes
