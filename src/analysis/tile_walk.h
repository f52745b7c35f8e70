// SPDX-License-Identifier: Apache-2.0
// Walks a kernel's IR as its CTAs would execute it: scalars, loops, branches and views, no elements.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/generator.h"
#include "ir/ir.h"
#include "passes/evaluate.h"

namespace imbrex::analysis {

/// A view of a tensor in global memory.
struct GlobalPlace {
  struct Dim {
    int64_t extent = 0, start = 0;
  };
  std::vector<Dim> dims;       ///< of the whole tensor
  std::vector<int> view_dims;  ///< dimension d of the view is dims[view_dims[d]]; -1: extent 1
};

class TileWalk {
 public:
  /// Called for every op that is neither scalar arithmetic nor control flow, each time it is executed.
  using Visit = std::function<void(const ir::Op&)>;

  /// `function` has been through the passes; `arguments` are its integer parameters, in order.
  TileWalk(const ir::Function& function, std::span<const int64_t> arguments);
  /// Walks every CTA.
  void run(const Visit& visit);

  const ir::Function& function() const { return function_; }
  std::span<const int64_t> grid() const { return grid_; }
  /// The threads that execute the op being visited.
  const codegen::Group& group() const { return groups_.back(); }
  /// An integer scalar; nothing when it depends on data.
  std::optional<int64_t> integer(const ir::Value* value) const;
  /// Byte offset of a view of shared memory, before swizzling; nothing when it depends on data.
  std::optional<int64_t> shared_offset(const ir::Value* value) const;
  /// Null when the place depends on data.
  const GlobalPlace* global(const ir::Value* value) const;

  /// The op cannot be followed or counted: noted once.
  void note_unknown(const ir::Op& op, const std::string& what);
  const std::string& unknown() const { return unknown_; }

 private:
  static constexpr int kNoBreak = -1, kReturn = 1 << 30;  // leaves more loops than there are
  void set_constants(const ir::Block& block);
  /// Loops that a break leaves, or kNoBreak.
  int walk(const ir::Block& block);
  int execute(const ir::Op& op);
  int for_loop(const ir::Op& op);
  int loop(const ir::Op& op);
  void scalar(const ir::Op& op);
  void view(const ir::Op& op);
  void set(const ir::Value* value, int64_t integer);
  void forget(const ir::Op& op);

  const ir::Function& function_;
  const Visit* visit_ = nullptr;
  std::vector<int64_t> grid_ = {1, 1, 1};
  int64_t block_[3] = {0, 0, 0}, rank_ = 0;
  std::vector<codegen::Group> groups_;
  std::unordered_map<const ir::Value*, passes::Constant> scalars_;
  std::unordered_map<const ir::Value*, int64_t> offsets_;
  std::unordered_map<const ir::Value*, GlobalPlace> places_;
  std::vector<passes::Constant> operands_;  // of the op being computed
  int64_t steps_ = 0;
  std::string unknown_;
};

}  // namespace imbrex::analysis
