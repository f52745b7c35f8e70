// SPDX-License-Identifier: Apache-2.0
// Two walks. The first places waits for tensor-memory loads and stores, block by block. The second follows
// one thread through the kernel with a few bits of state, what it still owes, and pays before the op that
// would expose the debt. The bits only ever join at merges, so a fence may be superfluous on some path but is
// missing on none.
#include "passes/insert_fences.h"

#include <unordered_set>

#include "core/target.h"
#include "ir/tcgen05_kinds.h"
#include "passes/rewrite.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

// ------------------------------------------------------------------------------------------- what the ops
// are

/// What the thread did before is visible to whoever synchronises with it here.
bool releases(const Op& op) {
  return op.code == Opcode::kSync || op.code == Opcode::kClusterSync || op.code == Opcode::kMbarrierArrive ||
         op.code == Opcode::kMbarrierArriveExpectTx;
}
/// What others did before they synchronised is visible to the thread from here on.
bool acquires(const Op& op) {
  return op.code == Opcode::kSync || op.code == Opcode::kClusterSync || op.code == Opcode::kMbarrierWait;
}

/// Given to the tensor core, which works apart.
bool is_tensor_core_work(const Op& op) {
  return ir::is_tcgen05_mma(op) || op.code == Opcode::kTcgen05Copy || op.code == Opcode::kTcgen05Shift;
}

/// Touches tensor memory, in an order that synchronisation alone does not settle.
bool uses_tensor_memory(const Op& op) {
  return is_tensor_core_work(op) || op.code == Opcode::kTcgen05Load || op.code == Opcode::kTcgen05Store ||
         op.code == Opcode::kTcgen05Dealloc;
}

/// Reads shared memory through the async proxy, and was written by the author as one instruction.
bool reads_by_async_proxy(const Op& op) {
  return ir::is_tcgen05_mma(op) || op.code == Opcode::kTcgen05Copy || op.code == Opcode::kWgmmaMma;
}

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

// ------------------------------------------------------------------------------------- waits of tensor
// memory

/// True when data of `transfer` (a tcgen05_load or _store) must have moved before `op` runs.
bool must_wait(const Op& transfer, const Op& op) {
  const bool is_load = transfer.code == Opcode::kTcgen05Load;
  return any_inside(op, [&](const Op& inner) {
    if (releases(inner) || is_tensor_core_work(inner) || inner.code == Opcode::kTcgen05Commit ||
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
    while (at < block.ops.size() && block.ops[at]->code != wait && block.ops[at]->code != Opcode::kBreak &&
           !must_wait(op, *block.ops[at]))
      ++at;
    if (at < block.ops.size() && block.ops[at]->code == wait) continue;
    Op* made = make(function, wait, at < block.ops.size() ? block.ops[at]->where : op.where);
    made->parent = &block;
    block.ops.insert(block.ops.begin() + static_cast<std::ptrdiff_t>(at), made);
  }
}

// ------------------------------------------------------------------------------------------------------
// fences

/// What a thread owes at a point of the kernel.
struct Debts {
  bool copies = false;  // cp.async copies started, to memory the async proxy reads
  bool proxy = false;   // generic writes not yet ordered before the async proxy's reads
  bool before = false;  // tcgen05 operations not yet ordered before the next synchronisation
  bool after = false;   // synchronised since the last tcgen05 operation

  Debts& operator|=(const Debts& other) {
    copies |= other.copies;
    proxy |= other.proxy;
    before |= other.before;
    after |= other.after;
    return *this;
  }
  friend bool operator==(const Debts&, const Debts&) = default;
};

class FenceInserter {
 public:
  explicit FenceInserter(ir::Function& function) : function_(function) {
    ir::walk(function.body, [&](Op& op) {
      if (reads_by_async_proxy(op))
        for (Value* operand : op.operands) async_roots_.insert(ir::view_root(operand));
    });
  }

  void run() { block(function_.body, {}, true); }

 private:
  bool is_async(Value* memory) const { return async_roots_.count(ir::view_root(memory)) > 0; }

  /// Follows a thread through a block; inserts fences when `insert` says so. What is owed at its end.
  Debts block(Block& block, Debts debts, bool insert) {
    std::vector<Op*> out;
    for (Op* op : block.ops) {
      pay(*op, debts, insert ? &out : nullptr);
      out.push_back(op);
      incur(*op, debts);
      enter(*op, debts, insert);
    }
    if (insert) {
      block.ops.clear();
      for (Op* op : out) append(block, *op);
    }
    return debts;
  }

  void pay(const Op& op, Debts& debts, std::vector<Op*>* out) {
    const auto fence = [&](bool& owed, Opcode code) {
      if (!owed) return;
      owed = false;
      if (!out) return;
      out->push_back(make(function_, code, op.where));
      if (code == Opcode::kFenceProxyAsync) out->back()->set_attr("space", std::string("shared"));
    };
    if (releases(op) || reads_by_async_proxy(op)) fence(debts.proxy, Opcode::kFenceProxyAsync);
    if (releases(op)) fence(debts.before, Opcode::kTcgen05FenceBefore);
    if (uses_tensor_memory(op)) fence(debts.after, Opcode::kTcgen05FenceAfter);
  }

  void incur(const Op& op, Debts& debts) {
    if (acquires(op)) debts.after = true;
    if (uses_tensor_memory(op)) debts.before = true;
    switch (op.code) {
      case Opcode::kStoreShared:
        debts.proxy |= is_async(op.operands[0]);
        break;
      case Opcode::kCopyAsync:
        debts.copies |= is_async(op.operands[1]);
        break;
      case Opcode::kCopyAsyncWait:
      case Opcode::kCopyAsyncWaitAll:
        debts.proxy |= debts.copies;
        if (op.code == Opcode::kCopyAsyncWaitAll || op.int_attr("pending") == 0) debts.copies = false;
        break;
      case Opcode::kFenceProxyAsync:
        if (op.string_attr("space") != "global") debts.proxy = false;
        break;
      case Opcode::kTcgen05FenceBefore:
      case Opcode::kTcgen05Commit:
        debts.before = false;
        break;  // a commit contains the fence
      case Opcode::kTcgen05FenceAfter:
        debts.after = false;
        break;
      case Opcode::kBreak:
        exits_.at(exits_.size() - 1 - static_cast<size_t>(op.int_attr("depth", 0))) |= debts;
        break;
      default:
        break;
    }
  }

  void enter(Op& op, Debts& debts, bool insert) {
    switch (op.code) {
      case Opcode::kIf: {
        Debts other = block(*op.regions[1], debts, insert);
        debts = block(*op.regions[0], debts, insert);
        debts |= other;
        break;
      }
      case Opcode::kThreadGroup: {  // other threads skip it
        const Debts inside = block(op.body(), debts, insert);
        debts |= inside;
        break;
      }
      case Opcode::kFor:
      case Opcode::kLoop: {
        exits_.emplace_back();
        for (Debts head = debts;; debts = head) {  // a trip starts with what the last one left
          head |= block(op.body(), head, false);
          if (head == debts) break;
        }
        const Debts end = block(op.body(), debts, insert);
        debts |= end;
        debts |= exits_.back();
        exits_.pop_back();
        break;
      }
      default:
        break;
    }
  }

  ir::Function& function_;
  std::unordered_set<const Value*> async_roots_;
  std::vector<Debts> exits_;  // of the loops around the present place: what breaks leave with
};

}  // namespace

void insert_fences(ir::Function& function) {
  const Target* target = find_target(function.target);
  if (!target || target->sm < 90) return;  // no async proxy
  insert_waits(function, function.body);
  FenceInserter(function).run();
}

}  // namespace imbrex::passes
