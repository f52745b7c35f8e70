// SPDX-License-Identifier: Apache-2.0
// Two walks. The first places waits for tensor-memory loads and stores, block by block. The second is a forward
// data-flow analysis of one thread: a few bits say what is pending, that is, not ordered by a fence yet, and a fence
// is inserted before the op that would expose it. Bits are united where paths merge, so a fence may be superfluous on
// some path but is missing on none.
#include "passes/insert_fences.h"

#include <unordered_set>

#include "core/target.h"
#include "ir/tcgen05_kinds.h"
#include "passes/rewrite.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Fact;
using ir::Op;
using ir::Opcode;
using ir::Value;

bool releases(const Op& op) { return ir::has(op.code, Fact::kReleases); }
bool uses_tensor_memory(const Op& op) { return ir::has(op.code, Fact::kTensorMemory); }
bool reads_by_async_proxy(const Op& op) { return ir::has(op.code, Fact::kReadsByAsyncProxy); }

/// True when the op, or one inside it, is one that `test` accepts.
template <class Test>
bool any_inside(const Op& op, const Test& test) {
  bool found = test(op);
  for (const auto& region : op.regions)
    ir::walk(static_cast<const Block&>(*region), [&](const Op& inner) { found |= test(inner); });
  return found;
}

Op* make(ir::Function& function, Opcode code, const SourceLocation& where) {
  Op* op = function.new_op(code);
  op->where = where;
  return op;
}

// --- waits for tensor memory ---

/// True when data of `transfer` (a tcgen05_load or _store) must have moved before `op` runs.
bool must_wait(const Op& transfer, const Op& op) {
  const bool is_load = transfer.code == Opcode::kTcgen05Load;
  return any_inside(op, [&](const Op& inner) {
    if (ir::has(inner.code, Fact::kReleases | Fact::kTensorCore) || inner.code == Opcode::kTcgen05Commit ||
        inner.code == Opcode::kTcgen05Dealloc)
      return true;
    if (!is_load) return inner.code == Opcode::kTcgen05Load;
    if (inner.code == Opcode::kTcgen05Store) return true;  // it may overwrite what is being loaded
    for (const Value* operand : inner.operands)
      if (operand == transfer.result()) return true;
    return false;
  });
}

void insert_waits(ir::Function& function, Block& block) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    Op& op = *block.ops[i];
    for (auto& region : op.regions) insert_waits(function, *region);
    if (op.code != Opcode::kTcgen05Load && op.code != Opcode::kTcgen05Store) continue;
    const Opcode wait =
        op.code == Opcode::kTcgen05Load ? Opcode::kTcgen05WaitLoad : Opcode::kTcgen05WaitStore;
    size_t at = i + 1;
    while (at < block.ops.size() && block.ops[at]->code != wait &&
           !ir::has(block.ops[at]->code, Fact::kEndsBlock) && !must_wait(op, *block.ops[at]))
      ++at;
    if (at < block.ops.size() && block.ops[at]->code == wait) continue;
    Op* made = make(function, wait, at < block.ops.size() ? block.ops[at]->where : op.where);
    made->parent = &block;
    block.ops.insert(block.ops.begin() + static_cast<std::ptrdiff_t>(at), made);
  }
}

// --- fences ---

/// What a thread has done, at a point of the kernel, that no fence has ordered yet.
struct Pending {
  bool copies = false;        // cp.async copies started, to memory the async proxy accesses
  bool writes = false;        // generic writes not yet ordered before the async proxy's accesses
  bool reads = false;         // generic reads not yet ordered before another CTA's TMA fills the memory again
  bool loads = false;         // the same, before TMA of the own CTA does
  bool synchronised = false;  // perhaps with others whose loads are not
  bool before = false;        // tcgen05 operations not yet ordered before the next synchronisation
  bool after = false;         // synchronised since the last tcgen05 operation

  Pending& operator|=(const Pending& other) {
    copies |= other.copies;
    writes |= other.writes;
    reads |= other.reads;
    loads |= other.loads;
    synchronised |= other.synchronised;
    before |= other.before;
    after |= other.after;
    return *this;
  }
  friend bool operator==(const Pending&, const Pending&) = default;
};

class FenceInserter {
 public:
  explicit FenceInserter(ir::Function& function) : function_(function) {
    ir::walk(function.body, [&](Op& op) {
      if (reads_by_async_proxy(op))
        for (Value* operand : op.operands) async_roots_.insert(ir::view_root(operand));
      if (op.code == Opcode::kTmaGlobalToShared)
        (op.attr("multicast_mask") || op.attr("masked") ? filled_by_others_ : filled_)
            .insert(ir::view_root(op.operands[1]));
      if (loads(op)) read_.insert(ir::view_root(op.operands[0]));
    });
  }

  void run() {
    block(function_.body, {}, false);  // finds has_unfenced_loads_
    block(function_.body, {}, true);
  }

 private:
  using Roots = std::unordered_set<const Value*>;
  static bool is_in(const Roots& roots, Value* memory) { return roots.count(ir::view_root(memory)) > 0; }
  static bool loads(const Op& op) {
    return op.code == Opcode::kLoadShared || op.code == Opcode::kLoadItem || op.code == Opcode::kGather;
  }
  /// A load from another CTA's memory, which that CTA has filled.
  static bool is_remote(const Op& op) { return op.code == Opcode::kLoadShared && op.operands.size() > 1; }
  bool is_filled(Value* memory) const { return is_in(filled_, memory) || is_in(filled_by_others_, memory); }
  bool is_async(Value* memory) const { return is_in(async_roots_, memory) || is_filled(memory); }
  /// Has it TMA fill what threads read? Their loads may still be on their way when they have arrived: an H200
  /// returned words of the next tile. One fence of the thread that fills costs nothing that was measured, one of
  /// each reader up to a tenth; but it holds back its own CTA's loads alone.
  bool refills(const Op& op) const {
    return op.code == Opcode::kTmaGlobalToShared && is_in(read_, op.operands[1]);
  }

  /// Follows a thread through a block; inserts fences when `insert` says so. Returns what is pending at its end.
  Pending block(Block& block, Pending pending, bool insert) {
    std::vector<Op*> out;
    for (Op* op : block.ops) {
      fence_before(*op, pending, insert ? &out : nullptr);
      out.push_back(op);
      update(*op, pending);
      enter(*op, pending, insert);
    }
    if (insert) {
      block.ops.clear();
      for (Op* op : out) append(block, *op);
    }
    return pending;
  }

  /// The fences that `op` needs before it.
  void fence_before(const Op& op, Pending& pending, std::vector<Op*>* out) {
    const auto add = [&](Opcode code) {
      if (out == nullptr) return;
      out->push_back(make(function_, code, op.where));
      if (code == Opcode::kFenceProxyAsync) out->back()->set_attr("space", std::string("shared"));
    };
    const bool fills = op.code == Opcode::kTmaGlobalToShared;
    if (releases(op)) has_unfenced_loads_ |= pending.loads;
    if ((pending.writes && (releases(op) || fills || reads_by_async_proxy(op))) ||
        (pending.reads && (releases(op) || fills)) || (pending.loads && fills) ||
        (pending.synchronised && has_unfenced_loads_ && refills(op))) {
      pending.writes = pending.reads = pending.loads = pending.synchronised = false;
      add(Opcode::kFenceProxyAsync);
    }
    if (pending.before && releases(op)) {
      pending.before = false;
      add(Opcode::kTcgen05FenceBefore);
    }
    if (pending.after && uses_tensor_memory(op)) {
      pending.after = false;
      add(Opcode::kTcgen05FenceAfter);
    }
  }

  /// What is pending after `op`.
  void update(const Op& op, Pending& pending) {
    if (ir::has(op.code, Fact::kAcquires)) pending.after = pending.synchronised = true;
    if (uses_tensor_memory(op)) pending.before = true;
    switch (op.code) {
      case Opcode::kLoadShared:
      case Opcode::kLoadItem:
      case Opcode::kGather:
        pending.reads |=
            is_in(filled_by_others_, op.operands[0]) || (is_remote(op) && is_filled(op.operands[0]));
        pending.loads |= is_in(filled_, op.operands[0]);
        break;
      case Opcode::kStoreShared:
      case Opcode::kScatter:
      case Opcode::kAtomic:
      case Opcode::kAtomicItem:
        pending.writes |= op.operands[0]->type.kind == ir::TypeKind::kShared && is_async(op.operands[0]);
        break;
      case Opcode::kCopyAsync:
      case Opcode::kCopyAsyncGather:
        pending.copies |= is_async(op.operands[1]);
        break;
      case Opcode::kCopyAsyncWait:
      case Opcode::kCopyAsyncWaitAll:
        pending.writes |= pending.copies;
        if (op.code == Opcode::kCopyAsyncWaitAll || op.int_attr("pending") == 0) pending.copies = false;
        break;
      case Opcode::kFenceProxyAsync:
        if (op.string_attr("space") != "global")
          pending.writes = pending.reads = pending.loads = pending.synchronised = false;
        break;
      case Opcode::kTcgen05FenceBefore:
      case Opcode::kTcgen05Commit:
        pending.before = false;
        break;  // a commit contains the fence
      case Opcode::kTcgen05FenceAfter:
        pending.after = false;
        break;
      case Opcode::kBreak:
        exits_.at(exits_.size() - 1 - static_cast<size_t>(op.int_attr("depth", 0))) |= pending;
        break;
      default:
        break;
    }
  }

  void enter(Op& op, Pending& pending, bool insert) {
    switch (op.code) {
      case Opcode::kIf: {
        Pending other = block(*op.regions[1], pending, insert);
        pending = block(*op.regions[0], pending, insert);
        pending |= other;
        break;
      }
      case Opcode::kThreadGroup: {  // other threads skip it
        const Pending inside = block(op.body(), pending, insert);
        pending |= inside;
        break;
      }
      case Opcode::kFor:
      case Opcode::kLoop: {
        exits_.emplace_back();
        for (Pending head = pending;; pending = head) {  // a trip starts with what the last one left
          head |= block(op.body(), head, false);
          if (head == pending) break;
        }
        const Pending end = block(op.body(), pending, insert);
        pending |= end;
        pending |= exits_.back();
        exits_.pop_back();
        break;
      }
      default:
        break;
    }
  }

  ir::Function& function_;
  Roots async_roots_;                // read by the async proxy
  Roots filled_, filled_by_others_;  // filled by it: by TMA of the own CTA, of any of the cluster
  Roots read_;                       // read by threads
  bool has_unfenced_loads_ = false;  // some thread gives back what TMA fills, and has read it
  std::vector<Pending> exits_;  // of the enclosing loops, innermost last: what is pending at their breaks
};

}  // namespace

void insert_fences(ir::Function& function) {
  const Target* target = find_target(function.target);
  if (!target || target->sm < 90) return;  // no async proxy
  insert_waits(function, function.body);
  FenceInserter(function).run();
}

}  // namespace imbrex::passes
