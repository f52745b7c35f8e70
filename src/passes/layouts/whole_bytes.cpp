// SPDX-License-Identifier: Apache-2.0
// Elements of less than a byte are loaded and stored whole bytes at a time. The layout that a use of the converted elements
// demands, of tensor cores for one, need not leave each thread with whole bytes: then it stops at the conversion. The load or
// store chooses a layout of its own, and the converted elements move between threads.
#include "imbrex/core/error.h"
#include "layout/queries.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {

using ir::Opcode;
using layout::Layout;

namespace {

/// The layout of a view of shared memory whose tensor lies row by row.
Layout plain_layout(ir::Value* memory) {
  if (memory == ir::view_root(memory))
    return layout::row_major(memory->type.shape, memory->type.dtype.bits());
  return view_layout(*memory->def, plain_layout(memory->def->operands[0]));
}

/// The dimension along which the elements of a load or store follow one another in memory; -1 where that is not known.
int memory_dim(const ir::Op& op) {
  ir::Value* memory = op.operands[0];
  if (memory->type.kind != ir::TypeKind::kShared) return contiguous_tile_dim(*memory, op.ints_attr("dims"));
  try {
    return vector_dim(plain_layout(memory)).dim;
  } catch (const CompileError&) {  // a view that such a tensor does not have
    return -1;
  }
}

bool shares_bytes(const ir::Value& value) {
  return value.type.dtype.bits() < 8 && !value.type.dtype.is_bool();
}

}  // namespace

bool RegisterInference::stops_at(const Relation& relation, bool forward, const Layout& layout) const {
  const ir::Value& from = forward ? *relation.from : *relation.to;
  const ir::Value& to = forward ? *relation.to : *relation.from;
  std::unordered_set<const ir::Value*> seen;
  return shares_bytes(to) && !shares_bytes(from) && !moves_whole_bytes(to, layout, seen);
}

bool RegisterInference::moves_whole_bytes(const ir::Value& value, const Layout& layout,
                                          std::unordered_set<const ir::Value*>& seen) const {
  if (!shares_bytes(value) || known_.count(&value) || !seen.insert(&value).second) return true;
  for (const ir::Op* op : transfers_) {
    const bool loads = op->code == Opcode::kLoadGlobal || op->code == Opcode::kLoadShared,
               stores = op->code == Opcode::kStoreGlobal || op->code == Opcode::kStoreShared;
    if (!(loads && op->result() == &value) && !(stores && op->operands[1] == &value)) continue;
    const int dim = memory_dim(*op);
    if (dim >= 0 && !layout::view_as_width(layout, value.type.dtype.bits(), 8, dim)) return false;
  }
  const auto relations = relations_of_.find(&value);
  if (relations == relations_of_.end()) return true;
  for (const size_t index : relations->second) {
    const Relation& relation = relations_[index];
    const bool forward = relation.from == &value;
    const std::optional<Layout> derived = derive(relation, forward, layout);
    if (derived && !moves_whole_bytes(forward ? *relation.to : *relation.from, *derived, seen)) return false;
  }
  return true;
}

}  // namespace imbrex::passes
