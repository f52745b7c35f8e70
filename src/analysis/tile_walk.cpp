// SPDX-License-Identifier: Apache-2.0
#include "analysis/tile_walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "imbrex/core/error.h"

namespace imbrex::analysis {

using ir::Op;
using ir::Opcode;
using ir::TypeKind;
using passes::Constant;

namespace {

/// More would take minutes.
constexpr int64_t kMostSteps = 400'000'000;

}  // namespace

TileWalk::TileWalk(const ir::Function& function, std::span<const int64_t> arguments) : function_(function) {
  groups_.push_back({0, function.threads(), 0});
  size_t next = 0;
  for (const ir::Value* param : function.params) {
    const ir::Type& type = param->type;
    if (!type.is_scalar() || type.dtype.is_float()) continue;
    if (next == arguments.size())
      throw LaunchError(
          Diagnostic{function.where, fmt::format("the value of {} is missing", ir::print(*param)), {}, ""});
    scalars_[param] = Constant::integer(type.dtype, arguments[next++]);
  }
  set_constants(function.host);
  set_constants(function.body);
  walk(function.host);
  for (size_t axis = 0; axis < function.grid.size(); ++axis) {
    const std::optional<int64_t> extent = integer(function.grid[axis]);
    if (!extent) throw InternalError("analysis: the grid is not known from the arguments");
    grid_[axis] = *extent;
  }
}

void TileWalk::set_constants(const ir::Block& block) {
  ir::walk(block, [&](const Op& op) {
    if (op.code == Opcode::kConst)
      if (const std::optional<Constant> value = passes::constant_of(op.result()))
        scalars_[op.result()] = *value;
  });
}

void TileWalk::run(const Visit& visit) {
  visit_ = &visit;
  const std::vector<int64_t>& cluster = function_.cluster;
  for (block_[2] = 0; block_[2] < grid_[2]; ++block_[2])
    for (block_[1] = 0; block_[1] < grid_[1]; ++block_[1])
      for (block_[0] = 0; block_[0] < grid_[0]; ++block_[0]) {
        rank_ = block_[0] % cluster[0] +
                cluster[0] * (block_[1] % cluster[1] + cluster[1] * (block_[2] % cluster[2]));
        walk(function_.body);
      }
}

std::optional<int64_t> TileWalk::integer(const ir::Value* value) const {
  const auto found = scalars_.find(value);
  if (found == scalars_.end()) return std::nullopt;
  return found->second.i;
}

std::optional<int64_t> TileWalk::shared_offset(const ir::Value* value) const {
  const auto found = offsets_.find(value);
  if (found == offsets_.end()) return std::nullopt;
  return found->second;
}

const GlobalPlace* TileWalk::global(const ir::Value* value) const {
  const auto found = places_.find(value);
  return found == places_.end() ? nullptr : &found->second;
}

void TileWalk::note_unknown(const Op& op, const std::string& what) {
  if (unknown_.empty())
    unknown_ = fmt::format("{}:{}: {} {}", op.where.file, op.where.line, op.info().mnemonic, what);
}

void TileWalk::set(const ir::Value* value, int64_t integer) {
  scalars_[value] = Constant::integer(value->type.dtype, integer);
}

void TileWalk::forget(const Op& op) {
  for (const ir::Value* result : op.results) {
    scalars_.erase(result);
    offsets_.erase(result);
    places_.erase(result);
  }
}

int TileWalk::walk(const ir::Block& block) {
  for (const Op* op : block.ops)
    if (const int left = execute(*op); left != kNoBreak) return left;
  return kNoBreak;
}

int TileWalk::for_loop(const Op& op) {
  const auto begin = integer(op.operands[0]), end = integer(op.operands[1]), step = integer(op.operands[2]);
  if (!begin || !end || !step || *step == 0) {
    note_unknown(op, "has bounds that depend on data");
    return kNoBreak;
  }
  for (int64_t i = *begin; *step > 0 ? i < *end : i > *end; i += *step) {
    set(op.body().args[0], i);
    if (const int left = walk(op.body()); left != kNoBreak) return left - 1;
  }
  return kNoBreak;
}

int TileWalk::loop(const Op& op) {
  for (;;) {
    const int64_t before = steps_;
    if (const int left = walk(op.body()); left != kNoBreak) return left - 1;
    if (!unknown_.empty() || steps_ == before) return kNoBreak;  // what would end it is not known
  }
}

int TileWalk::execute(const Op& op) {
  if (++steps_ > kMostSteps)
    throw LaunchError(Diagnostic{op.where,
                                 fmt::format("{} executes too many statements to be counted", function_.name),
                                 {},
                                 "choose smaller sizes"});
  switch (op.code) {
    case Opcode::kConst:
      return kNoBreak;
    case Opcode::kFor:
      return for_loop(op);
    case Opcode::kLoop:
      return loop(op);
    case Opcode::kReturn:
      return kReturn;
    case Opcode::kBreak:
      return static_cast<int>(op.int_attr("depth", 0));
    case Opcode::kIf: {
      const std::optional<int64_t> condition = integer(op.operands[0]);
      if (!condition) note_unknown(op, "depends on data");
      return condition ? walk(*op.regions[*condition != 0 ? 0 : 1]) : kNoBreak;
    }
    case Opcode::kThreadGroup: {
      const codegen::Group& outer = groups_.back();
      groups_.push_back({outer.begin + op.int_attr("begin"), op.int_attr("threads"), 0});
      const int left = walk(op.body());
      groups_.pop_back();
      return left;
    }
    case Opcode::kGlobalView:
    case Opcode::kSharedAlloc:
    case Opcode::kIndex:
    case Opcode::kSlice:
    case Opcode::kPermute:
    case Opcode::kReshape:
      view(op);
      return kNoBreak;
    default:
      scalar(op);
      return kNoBreak;
  }
}

void TileWalk::scalar(const Op& op) {
  switch (op.code) {
    case Opcode::kBlockIdx:
      return set(op.result(), block_[op.int_attr("axis")]);
    case Opcode::kGridDim:
      return set(op.result(), grid_[static_cast<size_t>(op.int_attr("axis"))]);
    case Opcode::kClusterRank:
      return set(op.result(), rank_);
    case Opcode::kFastDivmod: {
      const auto a = integer(op.operands[0]), b = integer(op.operands[1]);
      if (!a || !b || *b == 0) return forget(op);
      set(op.results[0], *a / *b);
      return set(op.results[1], *a % *b);
    }
    case Opcode::kClcQuery:  // every CTA keeps its own tile
      for (const ir::Value* result : op.results) set(result, 0);
      if (visit_ != nullptr) (*visit_)(op);
      return;
    case Opcode::kVar:
    case Opcode::kRead:
    case Opcode::kAssign: {
      const ir::Value* from = op.operands[op.code == Opcode::kAssign ? 1 : 0];
      const ir::Value* to = op.code == Opcode::kAssign ? op.operands[0] : op.result();
      const auto found = scalars_.find(from);
      if (found == scalars_.end())
        scalars_.erase(to);
      else
        scalars_[to] = Constant(found->second);
      return;
    }
    default:
      break;
  }
  const bool is_scalar = op.results.size() == 1 && op.result()->type.is_scalar();
  if (!is_scalar || op.info().effect != ir::Effect::kPure) {
    if (is_scalar) forget(op);  // an element of memory
    if (visit_ != nullptr) (*visit_)(op);
    return;
  }
  operands_.clear();
  for (const ir::Value* operand : op.operands) {
    const auto found = scalars_.find(operand);
    if (found == scalars_.end()) return forget(op);
    operands_.push_back(found->second);
  }
  if (const std::optional<Constant> value = passes::evaluate(op, operands_))
    scalars_[op.result()] = *value;
  else
    forget(op);
}

void TileWalk::view(const Op& op) {
  if (op.code == Opcode::kSharedAlloc) {
    offsets_[op.result()] = op.int_attr("offset");
    return;
  }
  if (op.code == Opcode::kGlobalView) {
    GlobalPlace place;
    const auto rank = static_cast<size_t>(op.int_attr("rank"));
    for (size_t d = 0; d < rank; ++d) {
      const std::optional<int64_t> extent = integer(op.operands[1 + d]);
      if (!extent) return forget(op);
      place.dims.push_back({*extent, 0});
      place.view_dims.push_back(static_cast<int>(d));
    }
    places_[op.result()] = std::move(place);
    return;
  }
  const ir::Value* from = op.operands[0];
  // Where the view starts in the viewed tensor.
  std::vector<int64_t> start(from->type.shape.size(), 0);
  if (op.code == Opcode::kIndex || op.code == Opcode::kSlice)
    for (size_t d = 1; d < op.operands.size(); ++d) {
      const std::optional<int64_t> at = integer(op.operands[d]);
      if (!at) return forget(op);
      start[d - 1] = *at;
    }
  if (from->type.kind == TypeKind::kShared) {
    const std::optional<int64_t> base = shared_offset(from);
    if (!base) return forget(op);
    const layout::Layout& layout = *from->type.layout;
    offsets_[op.result()] = *base + layout.linear(start)[layout::Axis::kAddress] * layout.element_bits() / 8;
    return;
  }
  if (from->type.kind != TypeKind::kGlobal) return;
  const GlobalPlace* known = global(from);
  if (known == nullptr) return forget(op);
  GlobalPlace place = *known;
  if (op.code == Opcode::kPermute) {
    const std::vector<int64_t>& order = op.ints_attr("dims");
    for (size_t d = 0; d < order.size(); ++d)
      place.view_dims[d] = known->view_dims[static_cast<size_t>(order[d])];
  } else if (op.code == Opcode::kReshape) {
    std::vector<int> kept;
    for (size_t d = 0; d < known->view_dims.size(); ++d)
      if (from->type.shape[d] != 1) kept.push_back(known->view_dims[d]);
    place.view_dims.clear();
    size_t next = 0;
    for (int64_t extent : op.ints_attr("shape"))
      place.view_dims.push_back(extent == 1 || next == kept.size() ? -1 : kept[next++]);
  } else {
    for (size_t d = 0; d < start.size(); ++d)
      if (place.view_dims[d] >= 0) place.dims[static_cast<size_t>(place.view_dims[d])].start += start[d];
    if (op.code == Opcode::kIndex) place.view_dims.erase(place.view_dims.begin());
  }
  places_[op.result()] = std::move(place);
}

}  // namespace imbrex::analysis
