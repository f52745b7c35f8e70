// SPDX-License-Identifier: Apache-2.0
#include "passes/allocate_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "passes/describe.h"

namespace imbrex::passes {
namespace {

using ir::Op;
using ir::Opcode;

constexpr int64_t kBarrierBytes = 8;
constexpr int64_t kAddressBytes = 4;      // where tcgen05.alloc writes what it allocated
constexpr int64_t kVectorAlignment = 16;  // the widest vector access, and cp.async
constexpr int64_t kBulkAlignment = 128;   // destinations of TMA copies
constexpr int64_t kMinColumns = 32;       // of one tensor-memory allocation, and powers of two

int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

struct Piece {
  Op* op;
  int64_t bytes;
  int64_t alignment;
};

int64_t dense_bytes(const ir::Type& type) { return (type.elements() * type.dtype.bits() + 7) / 8; }

/// The part of shared memory that an op needs; zero bytes when it needs none.
Piece shared_piece(Op& op, const Target& target) {
  switch (op.code) {
    case Opcode::kSharedAlloc: {
      const ir::Type& type = op.result()->type;
      int64_t alignment = target.sm >= 90 ? kBulkAlignment : kVectorAlignment;
      if (!type.layout) return {&op, dense_bytes(type), alignment};
      if (type.layout->swizzle()) alignment = std::max(alignment, type.layout->swizzle().period_bytes());
      return {&op, type.layout->bytes(), alignment};
    }
    case Opcode::kMbarrierAlloc:
      return {&op, kBarrierBytes * static_cast<int64_t>(op.ints_attr("counts").size()), kBarrierBytes};
    case Opcode::kTcgen05Alloc:
      return {&op, kAddressBytes, kAddressBytes};
    default:
      return {&op, 0, 1};
  }
}

/// 32-bit columns of an allocation, as the hardware allocates them.
int64_t allocated_columns(const Op& alloc) {
  const ir::Type& type = alloc.result()->type;
  int64_t columns = 0;
  if (type.layout) {
    columns = type.layout->columns();
  } else {  // all dimensions but the lanes, densely
    columns = (type.elements() / type.shape[type.shape.size() - 2] * type.dtype.bits() + 31) / 32;
  }
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(columns, kMinColumns))));
}

/// The ops between which a tensor has its memory, as numbers in the order of the text; the CTA's end where nothing
/// frees it.
struct Lifetime {
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  bool meets(const Lifetime& other) const { return begin < other.end && other.begin < end; }
};

/// Follows the text: who frees what, and that nobody uses it any more.
class Lifetimes {
 public:
  explicit Lifetimes(ir::Function& function) {
    number(function.body);
    ir::walk(function.body, [&](Op& op) {
      if (op.code == Opcode::kSharedFree) free(op);
    });
    if (!ends_.empty()) ir::walk(function.body, [&](Op& op) { check(op); });
  }

  Lifetime of(const Op& alloc) const {
    const auto end = ends_.find(&alloc);
    return {numbers_.at(&alloc), end == ends_.end() ? Lifetime().end : end->second.number};
  }

 private:
  struct End {
    int64_t number;
    const Op* free;
  };

  void number(ir::Block& block) {
    for (Op* op : block.ops) {
      numbers_[op] = next_++;
      for (auto& region : op->regions) number(*region);
      last_inside_[op] = next_++;
    }
  }

  void free(Op& op) {
    const Op* alloc = op.operands[0]->def;
    // Freed in a loop, a branch or by some threads: free when that is over.
    int64_t end = numbers_.at(&op);
    for (const Op* at = &op; at && at->parent != alloc->parent;
         at = at->parent ? at->parent->parent : nullptr)
      if (const Op* outer = at->parent->parent) end = last_inside_.at(outer);
    const auto [known, is_new] = ends_.try_emplace(alloc, End{end, &op});
    if (!is_new && end > known->second.number)
      known->second = {end, &op};  // of an unrolled loop, the last copy
  }

  void check(Op& op) const {
    for (ir::Value* operand : op.operands) {
      if (!operand || operand->type.kind != ir::TypeKind::kShared || op.code == Opcode::kSharedFree) continue;
      const Op* alloc = ir::view_root(operand)->def;
      const auto end = alloc ? ends_.find(alloc) : ends_.end();
      if (end == ends_.end() || numbers_.at(&op) < end->second.number) continue;
      throw CompileError(Diagnostic{
          op.where,
          fmt::format("{}: uses {} after it was freed", op.info().mnemonic, ir::print(*alloc->result())),
          {tensor_text(*alloc->result()), "freed by " + op_text(*end->second.free)},
          "free it after its last use"});
    }
  }

  std::unordered_map<const Op*, int64_t> numbers_, last_inside_;
  std::unordered_map<const Op*, End> ends_;
  int64_t next_ = 0;
};

/// Pieces at places that no other piece has at the same time.
class Places {
 public:
  /// The lowest place above everything that lives at the same time; where something of the past lies below, the lowest
  /// gap.
  int64_t place(int64_t bytes, int64_t alignment, const Lifetime& lifetime) {
    std::vector<Placed> living;
    for (const Placed& p : placed_)
      if (p.lifetime.meets(lifetime)) living.push_back(p);
    int64_t offset = 0;
    if (living.size() == placed_.size()) {
      for (const Placed& p : living) offset = std::max(offset, round_up(p.end, alignment));
    } else {
      std::ranges::sort(living, {}, &Placed::begin);
      for (const Placed& p : living)
        if (offset + bytes > p.begin) offset = std::max(offset, round_up(p.end, alignment));
    }
    placed_.push_back({offset, offset + bytes, lifetime});
    end_ = std::max(end_, offset + bytes);
    return offset;
  }
  int64_t end() const { return end_; }

 private:
  struct Placed {
    int64_t begin, end;
    Lifetime lifetime;
  };
  std::vector<Placed> placed_;
  int64_t end_ = 0;
};

std::string describe(const Op& op, int64_t amount, std::string_view unit) {
  const ir::Value& value = *op.result();
  std::string out = fmt::format("{:>8} {}  {} {}", amount, unit, ir::print(value), value.type.dtype.name());
  out += op.code == Opcode::kMbarrierAlloc ? fmt::format(" barriers") : ir::shape_text(value.type.shape);
  if (op.where.is_known()) out += fmt::format("  made at {}:{}", op.where.file, op.where.line);
  return out;
}

void place_shared(ir::Function& function, const Target& target) {
  std::vector<Piece> pieces;
  ir::walk(function.body, [&](Op& op) {
    if (Piece piece = shared_piece(op, target); piece.bytes > 0) pieces.push_back(piece);
  });
  // Strictest alignment first leaves the fewest gaps; otherwise the author's order.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.alignment > b.alignment; });
  const Lifetimes lifetimes(function);
  Places places;
  for (const Piece& piece : pieces)
    piece.op->set_attr("offset", places.place(piece.bytes, piece.alignment, lifetimes.of(*piece.op)));
  const int64_t end = places.end();
  function.shared_bytes = end;
  if (end <= target.max_shared_bytes) return;
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
  Diagnostic diagnostic;
  diagnostic.where = function.where;
  diagnostic.message = fmt::format("kernel {}: needs {} bytes of shared memory, {} has {} for a CTA",
                                   function.name, end, function.target, target.max_shared_bytes);
  for (const Piece& piece : pieces) diagnostic.facts.push_back(describe(*piece.op, piece.bytes, "bytes"));
  diagnostic.help = "use smaller tiles or fewer stages, or free_shared() what is not used any more";
  if (const Target* larger = find_target("sm_90"); target.sm < larger->sm && end <= larger->max_shared_bytes)
    diagnostic.help +=
        fmt::format("; {} has {}: a kernel for it says static constexpr const char* target = \"{}\"",
                    larger->name, larger->max_shared_bytes, larger->name);
  throw CompileError(std::move(diagnostic));
}

/// Follows allocations in the order of the text, which is that of their execution outside of loops.
class TensorMemory {
 public:
  TensorMemory(ir::Function& function, const Target& target) : function_(function), target_(target) {}

  void run() {
    order(function_.body);
    ir::walk(function_.body, [&](Op& op) {
      if (op.code == Opcode::kTcgen05Alloc) allocate(op);
      if (op.code == Opcode::kTcgen05Dealloc) std::erase(live_, op.operands[0]->def);
    });
    function_.tensor_memory_columns = peak_;
  }

 private:
  /// The hardware wants the larger allocations first. Those of a block that nothing is freed between move up to the
  /// first of them where they are in another order: they depend on nothing.
  static void order(ir::Block& block) {
    std::vector<Op*> allocs;
    for (size_t i = 0; i < block.ops.size(); ++i) {
      Op* op = block.ops[i];
      for (auto& region : op->regions) order(*region);
      if (op->code == Opcode::kTcgen05Alloc) allocs.push_back(op);
      if (op->code == Opcode::kTcgen05Dealloc || i + 1 == block.ops.size()) {
        sort(block, allocs);
        allocs.clear();
      }
    }
  }

  static void sort(ir::Block& block, std::vector<Op*> allocs) {
    const auto larger_first = [](const Op* a, const Op* b) {
      return allocated_columns(*a) > allocated_columns(*b);
    };
    if (std::ranges::is_sorted(allocs, larger_first)) return;
    const auto first = std::ranges::find(block.ops, allocs.front()) - block.ops.begin();
    std::erase_if(block.ops, [&](const Op* op) { return std::ranges::count(allocs, op) > 0; });
    std::ranges::stable_sort(allocs, larger_first);
    block.ops.insert(block.ops.begin() + first, allocs.begin(), allocs.end());
  }

  void allocate(Op& op) {
    const int64_t columns = allocated_columns(op);
    op.set_attr("columns", columns);
    if (previous_ && columns > previous_->int_attr("columns"))
      throw CompileError(Diagnostic{
          op.where,
          "tcgen05_alloc: an allocation must not be larger than the one before it",
          {describe(*previous_, previous_->int_attr("columns"), "columns"), describe(op, columns, "columns")},
          "allocate the larger tensor first, or both in one block: there the compiler orders them"});
    previous_ = &op;
    live_.push_back(&op);
    int64_t total = 0;
    for (const Op* alloc : live_) total += alloc->int_attr("columns");
    peak_ = std::max(peak_, total);
    if (total <= target_.tensor_memory_columns) return;
    Diagnostic diagnostic;
    diagnostic.where = op.where;
    diagnostic.message = fmt::format("tcgen05_alloc: needs {} columns of tensor memory in all, {} has {}",
                                     total, function_.target, target_.tensor_memory_columns);
    for (const Op* alloc : live_)
      diagnostic.facts.push_back(describe(*alloc, alloc->int_attr("columns"), "columns"));
    diagnostic.help =
        "use a smaller accumulator or fewer of them; columns are allocated in powers of two, 32 at least";
    throw CompileError(std::move(diagnostic));
  }

  ir::Function& function_;
  const Target& target_;
  std::vector<const Op*> live_;
  const Op* previous_ = nullptr;
  int64_t peak_ = 0;
};

}  // namespace

void allocate_memory(ir::Function& function) {
  const Target* target = find_target(function.target);
  if (!target) throw InternalError("allocate_memory: unknown target " + function.target);
  TensorMemory(function, *target).run();
  place_shared(function, *target);
}

}  // namespace imbrex::passes
