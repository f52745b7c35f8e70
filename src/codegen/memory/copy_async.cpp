// SPDX-License-Identifier: Apache-2.0
// copy_async: cp.async of 16, 8 or 4 bytes, whichever global and shared memory both allow.
//
// No registers hold the tile, so the distribution over threads is chosen here: vectors along the dimension
// that is contiguous in both memories, consecutive vectors in consecutive threads.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "codegen/memory/cache_hints.h"
#include "codegen/memory/global_memory.h"
#include "codegen/memory/packed.h"
#include "codegen/memory/shared_memory.h"
#include "codegen/threads.h"
#include "layout/registers.h"

namespace imbrex::codegen {

using layout::Layout;

namespace {

/// `shape` distributed over threads in vectors of `vector` elements along `dim`.
Layout copy_layout(const layout::Shape& shape, int dim, int64_t vector, int64_t threads) {
  const int rank = static_cast<int>(shape.size());
  std::vector<int> order;  // the vectors' dimension last
  for (int d = 0; d < rank; ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  layout::Shape vectors, one(rank, 1);
  for (int d : order) vectors.push_back(shape[d]);
  vectors.back() /= vector;
  one.back() = vector;
  const Layout ordered = layout::coalesced(vectors, threads, 128) * layout::local(one);
  std::vector<int> back(rank);
  for (int i = 0; i < rank; ++i) back[order[i]] = i;
  return ordered.permute(back);
}

class CopyAsync {
 public:
  CopyAsync(Generator& g, const ir::Op& op)
      : g_(g),
        op_(op),
        from_(g.get<GlobalView>(op.operands[0])),
        to_(g.get<SharedView>(op.operands[1])),
        dims_(op.ints_attr("dims")) {
    for (size_t i = 2; i < op.operands.size(); ++i) offsets_.push_back(g.integer(op.operands[i]));
    if (from_.dtype.bits() >= 8) return;
    GlobalBytes bytes = global_bytes(g, op, from_, dims_, offsets_);
    from_ = std::move(bytes.view);
    offsets_ = std::move(bytes.offsets);
    to_ = shared_bytes(g, op, to_).view;
  }

  void run() {
    const layout::Shape& shape = to_.layout.shape();
    const int64_t bits = from_.dtype.bits();
    for (int bytes : {16, 8, 4}) {
      const int64_t vector = bytes * 8 / bits;
      if (vector == 0) continue;
      for (int dim = static_cast<int>(shape.size()) - 1; dim >= 0; --dim) {
        const int root = from_.view_dims[dims_[dim]];
        if (root < 0 || shape[dim] % vector != 0) continue;
        const Integer& stride = from_.dims[root].stride;
        if (!stride.is_constant() || stride.constant() != 1) continue;
        const Tile tile(g_, op_, copy_layout(shape, dim, vector, g_.group().threads), g_.group());
        const GlobalTile global(tile, from_, dims_, offsets_);
        const SharedTile shared(tile, to_);
        if (global.unit_dim() != dim || global.aligned_vector(bytes) < vector ||
            (vector > 1 && !same_digit(global, shared)) || shared.vector(bytes) < vector)
          continue;
        return copy(tile, global, shared, vector, bytes);
      }
    }
    refuse();
  }

 private:
  static bool same_digit(const GlobalTile& global, const SharedTile& shared) {
    const Digit *a = global.vector_digit(), *b = shared.vector_digit();
    return a && b && a->divisor == b->divisor;
  }

  void copy(const Tile& tile, const GlobalTile& global, const SharedTile& shared, int64_t vector, int bytes) {
    global.rely_on_alignment(bytes);
    Emitter& e = g_.e();
    const Operand holds = holds_elements(g_, g_.group(), tile.digits(), true);
    const CacheHints hints = cache_hints(g_, op_);
    const bool cut = global.masked_vector(vector) < vector;  // an edge may lie inside a vector
    for (const RegisterRun& run : tile.runs(shared.vector_digit(), vector)) {
      const Operand guard = g_.ints().both(holds, tile.in_shape(run.first), 0);
      if (guard.is_immediate() && guard.value == 0) continue;
      const Operand size = source_bytes(global, run.first, bytes, cut);
      const Operand from = global.address(run.first);
      Operand to = shared.address(run.first);
      if (hints.policy) to = without_uniform_part(to);
      std::vector<Suffix> words{bytes == 16 ? Mod::cg : Mod::ca, Mod::shared, Mod::global};
      std::vector<Operand> operands{to, from, bytes};
      if (!size.is_immediate() || size.value != bytes) operands.push_back(size);
      if (hints.policy) {
        words.push_back(Mod::L2_cache_hint);
        operands.push_back(*hints.policy);
      }
      ptx::Instruction& i = e.emit(Op::cp_async, words, operands);
      if (guard.is_reg()) i.when(guard.reg());
    }
  }

  /// The address in a register that ptxas does not take apart. For chips from sm_90 on ptxas 13.0 may add a uniform register, the
  /// beginning of shared memory, in the copy itself; with a policy, which is in uniform registers too, it writes numbers of them
  /// that do not exist, and the chip finds an illegal instruction (docs/measurements/2026-11-23-cache-hints.md).
  Operand without_uniform_part(const Operand& address) {
    const auto [known, is_new] = plain_.try_emplace(address.id);
    if (is_new)  // addresses of shared memory have fewer bits
      known->second = g_.e().make(ScalarType::b32, Op::min, {ScalarType::u32},
                                  {ptx::Reg{address.id}, std::numeric_limits<int32_t>::max()});
    return ptx::address(known->second, address.value);
  }

  /// Bytes of a vector that lie inside the tensor; the rest of it becomes zero.
  Operand source_bytes(const GlobalTile& global, int64_t reg, int bytes, bool cut) {
    Integers& ints = g_.ints();
    Emitter& e = g_.e();
    const Condition inside = global.in_bounds(reg, !cut);
    Operand size = bytes;
    size_t depth = inside.depth;
    // Copies of other widths may have the same conditions.
    const int64_t kind = kSourceBytes + (int64_t{bytes} << 32);
    if (cut) {
      const Integer left = global.remaining_along_unit_dim(reg);
      depth = std::max(depth, left.depth);
      const int64_t vector = bytes / from_.dtype.bytes();
      const int64_t key = ints.name(kind + (int64_t{from_.dtype.bytes()} << 40), left.id);
      size = e.hoisted(key, left.depth, [&] {
        const Reg low = e.make(ScalarType::b32, Op::max, {ScalarType::s32}, {narrow(left), 0});
        const Reg elements = e.make(ScalarType::b32, Op::min, {ScalarType::s32}, {low, vector});
        if (from_.dtype.bytes() == 1) return Operand(elements);
        return Operand(
            e.make(ScalarType::b32, Op::mul, {Mod::lo, ScalarType::s32}, {elements, from_.dtype.bytes()}));
      });
    }
    if (inside.value.is_immediate()) return inside.value.value ? size : Operand(0);
    const int64_t key = ints.name(
        kind, (int64_t{1} << 40) + (int64_t{inside.value.id} << 20) + (size.is_reg() ? size.id : 0));
    return e.hoisted(key, depth, [&] {
      return Operand(e.make(ScalarType::b32, Op::selp, {ScalarType::b32}, {size, 0, inside.value}));
    });
  }

  Operand narrow(const Integer& x) {
    if (!x.is_wide) return x.value;
    // What is left may not fit 32 bits: it is clamped to a vector anyway.
    const Reg low = g_.e().make(ScalarType::b64, Op::max, {ScalarType::s64}, {x.value, 0});
    const Reg high = g_.e().make(ScalarType::b64, Op::min, {ScalarType::s64}, {low, 16});
    return g_.e().make(ScalarType::b32, Op::cvt, {ScalarType::u32, ScalarType::u64}, {high});
  }

  [[noreturn]] void refuse() {
    const int64_t bits = from_.dtype.bits();
    std::vector<std::string> facts;
    bool has_unit = false;
    for (size_t t = 0; t < dims_.size(); ++t) {
      const int root = from_.view_dims[dims_[t]];
      if (root < 0) continue;
      const GlobalDim& d = from_.dims[root];
      const bool unit = d.stride.is_constant() && d.stride.constant() == 1;
      has_unit |= unit;
      facts.push_back(fmt::format(
          "source dimension {}: {}, tile offset known to be a multiple of {}, stride {}", dims_[t],
          unit ? "contiguous" : "not contiguous", std::max<int64_t>(1, offsets_[dims_[t]].known.multiple),
          d.stride.is_constant() ? std::to_string(d.stride.constant())
                                 : fmt::format("known to be a multiple of {}", d.stride.known.multiple)));
    }
    facts.push_back(fmt::format("destination {} {}", from_.dtype.name(), to_.layout.to_string()));
    const int64_t least = std::max<int64_t>(1, 32 / bits);
    g_.fail(op_,
            has_unit
                ? fmt::format("no {} bytes of a row are aligned alike in the source and the destination; "
                              "cp.async copies 4, 8 or 16 aligned bytes",
                              4)
                : "no dimension of the source is contiguous (stride 1)",
            std::move(facts),
            fmt::format("make strides and offsets multiples of {} elements (best {}), or use load_global and "
                        "store_shared",
                        least, std::max<int64_t>(1, 128 / bits)));
  }

  Generator& g_;
  const ir::Op& op_;
  GlobalView from_;  // elements of less than a byte are copied as bytes
  SharedView to_;
  const std::vector<int64_t>& dims_;
  std::vector<Integer> offsets_;
  std::map<uint32_t, ptx::Reg> plain_;  // by without_uniform_part()
};

}  // namespace

void emit_CopyAsync(Generator& g, const ir::Op& op) { CopyAsync(g, op).run(); }

void emit_CopyAsyncCommit(Generator& g, const ir::Op&) { g.e().emit(Op::cp_async_commit_group, {}, {}); }

void emit_CopyAsyncWait(Generator& g, const ir::Op& op) {
  g.e().emit(Op::cp_async_wait_group, {}, {op.int_attr("pending")});
}

void emit_CopyAsyncWaitAll(Generator& g, const ir::Op&) { g.e().emit(Op::cp_async_wait_all, {}, {}); }

}  // namespace imbrex::codegen
