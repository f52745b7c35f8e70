// SPDX-License-Identifier: Apache-2.0
// What passes do to functions: replace values, copy ops, take ops out.
#pragma once

#include <functional>
#include <unordered_map>

#include "ir/ir.h"

namespace imbrex::passes {

/// Values and what stands in for them.
class ValueMap {
 public:
  void set(const ir::Value* from, ir::Value* to) {
    if (from != to) map_[from] = to;
  }
  bool empty() const { return map_.empty(); }
  /// What stands for `value` in the end; itself when nothing does.
  ir::Value* operator()(ir::Value* value) const;
  /// Replaces the operands of an op (not of its regions).
  void apply(ir::Op& op) const;
  /// Replaces operands in a block and everything inside it.
  void apply(ir::Block& block) const;

 private:
  std::unordered_map<const ir::Value*, ir::Value*> map_;
};

/// Appends a copy of `op`, regions included, to `to`. `map` gives the operands and learns the results.
ir::Op* clone(ir::Function& function, const ir::Op& op, ir::Block& to, ValueMap& map);
/// Moves every op of `from` to the end of `to`.
void splice(ir::Block& from, ir::Block& to);
/// Takes each block of `block` apart and puts it together again: `visit(op, block)` appends to the (emptied)
/// block what shall stand in the op's place, usually the op itself. Regions are the visitor's to enter.
void rebuild(ir::Block& block, const std::function<void(ir::Op&, ir::Block&)>& visit);
/// Appends an op to a block.
void append(ir::Block& block, ir::Op& op);

/// True when the block, or a region in it, has a break that leaves the loop whose body the block is.
bool has_break(const ir::Block& body);
/// Adds `delta` to the depth of every break that leaves the loop whose body `block` is, or a loop around it.
void deepen_breaks(ir::Block& block, int delta);

}  // namespace imbrex::passes
