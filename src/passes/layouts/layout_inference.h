// SPDX-License-Identifier: Apache-2.0
// What the files of layout inference share.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/ir.h"
#include "layout/layout.h"
#include "layout/registers.h"

namespace imbrex::passes {

/// Threads of the group that executes each op together.
using ThreadCounts = std::unordered_map<const ir::Op*, int64_t>;
/// Operand positions at which each value is used.
struct Use {
  ir::Op* op;
  size_t operand;
};
using Uses = std::unordered_map<const ir::Value*, std::vector<Use>>;

/// What an op wants of a tensor (or view) in shared or tensor memory.
struct MemoryDemand {
  const ir::Op* op;
  ir::Value* view;
  std::string what;  ///< "operand a as matrix descriptors read it"
  /// Why a layout of the view does not meet the demand; empty when it does.
  std::function<std::string(const layout::Layout&)> refusal;
  bool of_matrix_unit = false;  ///< by tensor cores or TMA, which work best with swizzled tiles
};
/// What this use of a memory tensor demands; nothing for uses that take any layout.
std::vector<MemoryDemand> memory_demands(const Use& use);

/// Layouts for a tensor in shared or tensor memory, in order of preference; `for_matrices` puts swizzled
/// tiles in front.
std::vector<layout::Layout> memory_candidates(const ir::Value& root, bool for_matrices);

/// The layout of a view op's result, given that of its operand. Throws CompileError (no location) when there
/// is none.
layout::Layout view_layout(const ir::Op& view, const layout::Layout& of);

/// Registers of threads that take one tensor-memory lane each, warps in turn, columns in order. With more
/// than 128 threads, the columns are split between the warp groups. Throws CompileError when they cannot be.
layout::Layout tensor_memory_registers(const layout::Layout& memory, int64_t threads);

/// The layouts of an mma op's operands for this many threads. Chooses the grid of warps where the op does not
/// say, and notes it there.
layout::MmaFragments mma_layouts(ir::Op& op, int64_t threads);

/// `coalesced` with dimension `contiguous` in the role of the last one.
layout::Layout coalesced_along(const layout::Shape& shape, int contiguous, int64_t threads, DataType dtype,
                               int max_vector_bytes = 16);
/// The dimension along which memory is contiguous in vectors, and how long those are at most, in bytes.
struct VectorDim {
  int dim = 0;
  int max_bytes = 16;
};
VectorDim vector_dim(const layout::Layout& memory);
/// The dimension of a global tensor that is contiguous as far as is known (the last, when nothing is).
int contiguous_dim(const ir::Value& global);
/// The dimension of a tile with these `dims` that runs along the contiguous one of `global`; the last when
/// none does.
int contiguous_tile_dim(const ir::Value& global, const std::vector<int64_t>& dims);

/// The most bytes, up to 16, that one access along the contiguous dimension may move wherever it starts on a
/// multiple of them: no more than rows of a constant stride are apart by a multiple of.
int global_access_bytes(const ir::Value& global);

/// Shared-memory wavefronts of one warp that moves its registers to or from memory: lower is better.
int64_t shared_access_cost(const layout::Layout& registers, const layout::Layout& memory);

/// The same where ldmatrix or stmatrix may move what they can.
int64_t matrix_access_cost(const layout::Layout& registers, const layout::Layout& memory);

/// A number known to divide an integer value (0 for the constant 0).
int64_t known_multiple(const ir::Value* value, int depth = 8);

/// Sets the layouts of all allocations of one kind (kShared or kTensorMemory) and their views. Register
/// layouts that are set already count in the choice between candidates.
void infer_memory_layouts(ir::Function& function, ir::TypeKind kind, const Uses& uses,
                          const ThreadCounts& threads);

/// Register layouts, in two steps around the shared ones: what demands fix, and the rest.
class RegisterInference {
 public:
  RegisterInference(ir::Function& function, const ThreadCounts& threads);
  /// Sets the layouts that follow from demands. Tensor memory must have its layouts.
  void propagate_demands();
  /// Chooses for the transfers of global memory that no larger one of shared memory has a say in, so that
  /// shared memory can be laid out for them.
  void choose_for_global();
  /// Chooses the rest, and inserts relayouts where layouts disagree. Throws where data cannot move. Shared memory must
  /// have its layouts.
  void complete();

 private:
  struct Known {
    layout::Layout layout;
    const ir::Op* origin;
    std::string what;
  };
  enum class RelationKind : uint8_t { kSame, kBroadcast, kReduce, kPermute, kSlice, kReshape, kView };
  struct Relation {
    RelationKind kind;
    ir::Op* op;
    ir::Value* from;
    ir::Value* to;
  };
  struct Demand {
    ir::Value* value;
    Known known;
    ir::Op* origin;
    std::optional<size_t>
        operand;  // of the origin; otherwise the value is its result, or all operands are meant
  };

  void collect(ir::Op& op);
  void relate(RelationKind kind, ir::Op& op, ir::Value* from, ir::Value* to);
  /// `from` lies as the elements of `to` that it is used with.
  void relate_broadcast(ir::Op& op, ir::Value* from, ir::Value* to);
  void demand(ir::Value* value, layout::Layout layout, ir::Op& origin, std::string what,
              std::optional<size_t> operand = std::nullopt);
  /// What dot demands of its operands.
  void demand_product(ir::Op& op);
  /// What a view of bits demands: of a matrix, a row for each thread.
  void demand_rows(ir::Op& op);
  /// What wgmma demands of its accumulator, and of A in registers.
  void demand_fragments(ir::Op& op);
  /// Sets a value's layout, and those that follow from it.
  void set(ir::Value* value, Known known);
  /// Sets the layouts that follow from that of a value.
  void spread(ir::Value* value);
  /// The layout of the other side of a relation, of which `forward` says the side that is known, and `known` its layout.
  std::optional<layout::Layout> derive(const Relation& relation, bool forward,
                                       const layout::Layout& known) const;
  std::optional<layout::Layout> derive(const Relation& relation, bool forward) const {
    return derive(relation, forward, known_.at(forward ? relation.from : relation.to).layout);
  }
  /// True where a layout does not spread from elements that fill bytes to those that share them (whole_bytes.cpp).
  bool stops_at(const Relation& relation, bool forward, const layout::Layout& layout) const;
  /// Whether in this layout of a value every thread moves whole bytes, be it the value or a view of it that is in memory.
  bool moves_whole_bytes(const ir::Value& value, const layout::Layout& layout,
                         std::unordered_set<const ir::Value*>& seen) const;
  void prefer(ir::Value* value, const ir::Op& op, int contiguous, int max_vector_bytes, std::string what);
  void choose_for(const ir::Op& op);
  /// Whether a value can be moved between the threads that execute `at`.
  bool can_move(const ir::Value& value, const ir::Op& at) const;
  /// Lets the op read a relayout of its operand, in one position or wherever it reads it.
  bool move_operand(ir::Op& op, ir::Value* operand, const layout::Layout& wanted,
                    std::optional<size_t> position = std::nullopt);
  /// Lets the op make its result in another layout, from which a relayout takes it.
  bool move_result(ir::Op& op, const layout::Layout& made);
  /// Insert what makes them hold; false where that cannot be.
  bool move_for(const Demand& demand);
  bool move_for(const Relation& relation);
  /// Inserts relayouts where demands and relations do not hold.
  void check();
  [[noreturn]] void clash(const ir::Op& op, const ir::Value& a, const Known& first, const ir::Value& b,
                          const Known& second) const;

  ir::Function& function_;
  const ThreadCounts& threads_;
  std::vector<ir::Value*> values_;  // register tensors and variables of them, in program order
  /// Loads and stores in the order in which they choose. The largest first: a row or column that is broadcast
  /// against one adapts without harm. Of tiles as large, those of global memory first: shared memory is laid
  /// out for its accesses.
  std::vector<const ir::Op*> transfers_;
  std::vector<Relation> relations_;
  std::unordered_map<const ir::Value*, std::vector<size_t>> relations_of_;
  std::vector<Demand> demands_;
  std::unordered_map<const ir::Value*, Known> known_;
  std::unordered_map<const ir::Value*, std::vector<ir::Value*>> moved_;  // their relayouts
};

}  // namespace imbrex::passes
