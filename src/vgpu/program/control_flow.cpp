// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/control_flow.h"

#include <algorithm>

namespace imbrex::vgpu {

namespace {

using ptx::Op;

constexpr uint32_t kNone = ~0u;

bool is_branch(Op op) { return op == Op::bra || op == Op::brx_idx; }
bool ends_thread(Op op) { return op == Op::exit || op == Op::trap; }

/// Instructions that control can go to from a branch, as indices into the body.
std::vector<uint32_t> targets(const ptx::Function& f, const ptx::Instruction& insn) {
  std::vector<uint32_t> out;
  for (const ptx::Operand& o : f.operands_of(insn)) {
    if (o.ref == ptx::Ref::label) out.push_back(f.labels[o.id].position);
    if (o.ref == ptx::Ref::target_list)
      for (uint32_t label : f.target_lists[o.id].targets) out.push_back(f.labels[label].position);
  }
  return out;
}

/// Basic blocks; the block of every instruction in `block_of` (one more than the body is long).
std::vector<Block> make_blocks(const ptx::Function& f, std::vector<uint32_t>& block_of) {
  const uint32_t size = static_cast<uint32_t>(f.body.size());
  std::vector<bool> starts(size + 1, false);
  starts[0] = starts[size] = true;
  bool has_return = false;
  for (uint32_t i = 0; i < size; ++i) {
    const Op op = f.body[i].op;
    has_return |= op == Op::ret;
    if (!is_branch(op) && op != Op::ret && !ends_thread(op)) continue;
    starts[i + 1] = true;
    for (uint32_t t : targets(f, f.body[i])) starts[t] = true;
  }
  has_return |= size == 0 || !ends_flow(f.body.back());
  std::vector<Block> blocks;
  block_of.assign(size + 1, 0);
  for (uint32_t i = 0; i <= size; ++i) {
    if (starts[i]) blocks.push_back({i, i, {}, false});
    block_of[i] = static_cast<uint32_t>(blocks.size()) - 1;
    blocks.back().end = i + 1;
  }
  for (Block& block : blocks) {
    const uint32_t last = block.end - 1;
    if (last == size) {  // the implicit return at the end
      block.returns = true;
      continue;
    }
    const ptx::Instruction& insn = f.body[last];
    for (uint32_t t : targets(f, insn)) block.successors.push_back(block_of[t]);
    if (insn.op == Op::ret || (ends_thread(insn.op) && !has_return)) block.returns = true;
    if (!ends_flow(insn)) block.successors.push_back(block_of[last + 1]);
  }
  return blocks;
}

/// Immediate post-dominators by the iteration of Cooper, Harvey and Kennedy on the reversed graph, in which
/// node `blocks.size()` stands for the way out.
class PostDominators {
 public:
  explicit PostDominators(const std::vector<Block>& blocks)
      : exit_(static_cast<uint32_t>(blocks.size())),
        order_(blocks.size() + 1, kNone),
        idom_(blocks.size() + 1, kNone) {
    std::vector<std::vector<uint32_t>> predecessors(blocks.size() + 1);
    for (uint32_t b = 0; b < blocks.size(); ++b) {
      for (uint32_t s : blocks[b].successors) predecessors[s].push_back(b);
      if (blocks[b].returns) predecessors[exit_].push_back(b);
    }
    number(predecessors);
    idom_[exit_] = exit_;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = postorder_.size(); i-- > 0;) {
        const uint32_t b = postorder_[i];
        if (b == exit_) continue;
        uint32_t meet = blocks[b].returns ? exit_ : kNone;
        for (uint32_t s : blocks[b].successors) {
          if (order_[s] == kNone || idom_[s] == kNone) continue;
          meet = meet == kNone ? s : intersect(meet, s);
        }
        if (meet != idom_[b]) {
          idom_[b] = meet;
          changed = true;
        }
      }
    }
  }
  /// The block where all paths from the end of `block` meet; kNone when that is outside of the function.
  uint32_t of(uint32_t block) const { return idom_[block] == exit_ ? kNone : idom_[block]; }

 private:
  void number(const std::vector<std::vector<uint32_t>>& predecessors) {
    std::vector<std::pair<uint32_t, size_t>> stack{{exit_, 0}};
    std::vector<bool> seen(predecessors.size(), false);
    seen[exit_] = true;
    while (!stack.empty()) {
      const uint32_t node = stack.back().first;
      const size_t next = stack.back().second++;
      if (next < predecessors[node].size()) {
        const uint32_t p = predecessors[node][next];
        if (!seen[p]) {
          seen[p] = true;
          stack.emplace_back(p, 0);
        }
        continue;
      }
      order_[node] = static_cast<uint32_t>(postorder_.size());
      postorder_.push_back(node);
      stack.pop_back();
    }
  }
  uint32_t intersect(uint32_t a, uint32_t b) const {
    while (a != b) {
      while (order_[a] < order_[b]) a = idom_[a];
      while (order_[b] < order_[a]) b = idom_[b];
    }
    return a;
  }

  uint32_t exit_;
  std::vector<uint32_t> order_, postorder_, idom_;
};

}  // namespace

bool ends_flow(const ptx::Instruction& insn) {
  if (insn.guard.is_valid()) return false;
  return is_branch(insn.op) || insn.op == Op::ret || ends_thread(insn.op);
}

std::vector<Block> basic_blocks(const ptx::Function& f) {
  std::vector<uint32_t> block_of;
  return make_blocks(f, block_of);
}

std::vector<uint32_t> meeting_points(const ptx::Function& f) {
  std::vector<uint32_t> block_of;
  const std::vector<Block> blocks = make_blocks(f, block_of);
  const PostDominators post(blocks);
  std::vector<uint32_t> out(f.body.size(), kNoMeeting);
  for (uint32_t i = 0; i < f.body.size(); ++i) {
    const bool parts = (f.body[i].op == Op::bra && f.body[i].guard.is_valid()) || f.body[i].op == Op::brx_idx;
    if (!parts) continue;
    const uint32_t meeting = post.of(block_of[i]);
    if (meeting != kNone) out[i] = blocks[meeting].begin;
  }
  return out;
}

}  // namespace imbrex::vgpu
