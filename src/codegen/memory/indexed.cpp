// SPDX-License-Identifier: Apache-2.0
// gather and scatter. In global memory, vectors run along the contiguous dimension where no index tile changes along it.
#include "codegen/memory/indexed.h"

#include <fmt/format.h>

#include "codegen/memory/shared_memory.h"
#include "codegen/print.h"
#include "codegen/threads.h"
#include "codegen/values/words.h"

namespace imbrex::codegen {

namespace {

/// Whether the elements of a tile are the same all along a dimension.
bool repeats_along(const ir::Value* tile, int dim) {
  const auto is_copy = [&] {
    return tile->def &&
           (tile->def->code == ir::Opcode::kRelayout || tile->def->code == ir::Opcode::kBroadcast) &&
           tile->def->operands[0]->type.rank() == tile->type.rank();
  };
  while (tile->type.shape[static_cast<size_t>(dim)] != 1 && is_copy()) tile = tile->def->operands[0];
  return tile->type.shape[static_cast<size_t>(dim)] == 1;
}

}  // namespace

IndexedTile::IndexedTile(const Tile& tile, size_t first) : tile_(tile), dims_(tile.op().ints_attr("dims")) {
  Generator& g = tile.g();
  const ir::Op& op = tile.op();
  const ir::Value* memory = op.operands[0];
  const auto tile_operand = [&](const ir::Value* value) {
    return in_layout(g, op, g.get<RegisterTensor>(value), tile.layout());
  };
  const size_t rank = memory->type.shape.size();
  std::vector<const ir::Value*> varying;
  for (size_t d = 0; d < rank; ++d) {
    const ir::Value* offset = op.operands[first + d];
    const bool is_tile = !offset->type.is_scalar();
    offsets_.push_back(is_tile ? Integers::constant(0) : g.integer(offset));
    tiles_.push_back(is_tile ? std::optional(tile_operand(offset)) : std::nullopt);
    if (is_tile) varying.push_back(offset);
  }
  if (op.bool_attr("masked", false)) {
    mask_ = tile_operand(op.operands.back());
    varying.push_back(op.operands.back());
  }
  if (memory->type.kind == ir::TypeKind::kShared) {
    shared_ = &g.get<SharedView>(memory);
    return;
  }
  global_.emplace(tile, g.get<GlobalView>(memory), dims_, offsets_);
  for (size_t d = 0; d < rank; ++d)
    if (tiles_[d]) global_->take_indices_along(static_cast<int>(d));
  for (const ir::Value* value : varying)
    shares_indices_ &= global_->unit_dim() >= 0 && repeats_along(value, global_->unit_dim());
}

Integer IndexedTile::index(size_t dim, int64_t reg) const {
  Generator& g = tile_.g();
  const RegisterTensor& tile = *tiles_[dim];
  Operand value = element(g, tile, reg);
  if (value.is_immediate()) return Integers::constant(value.value);
  const bool is_wide = tile.dtype.bits() == 64;
  const Range known =
      Range::between(0, Range::of_type(is_wide ? int64 : int32).hi);  // what the author promises
  return g.ints().leaf(kElementLeaf, value.reg().id, value, is_wide, known, g.e().depth());
}

Integer IndexedTile::shared_position(size_t dim, int64_t reg) const {
  Integers& ints = tile_.g().ints();
  if (tiles_[dim]) return ints.narrow(index(dim, reg));
  Integer at = ints.narrow(offsets_[dim]);
  for (size_t t = 0; t < dims_.size(); ++t)
    if (dims_[t] == static_cast<int64_t>(dim))
      at = ints.add(at, ints.add(tile_.thread_index(static_cast<int>(t)),
                                 Integers::constant((*tile_.register_index(reg))[t])));
  return at;
}

Operand IndexedTile::address(int64_t reg) const {
  Generator& g = tile_.g();
  if (shared_) {
    SharedView view = *shared_;
    view.dtype = memory_type(view.dtype);
    std::vector<Integer> at;
    for (size_t d = 0; d < offsets_.size(); ++d) at.push_back(shared_position(d, reg));
    return shared_address(g, view, at);
  }
  GlobalTile::Place at = global_->place(reg);
  for (size_t d = 0; d < tiles_.size(); ++d)
    if (tiles_[d]) at.base = g.ints().add(at.base, global_->bytes_along(static_cast<int>(d), index(d, reg)));
  return ptx::address(at.base.value.reg(), at.constant);
}

Operand IndexedTile::is_inside(int64_t reg, bool along_unit_dim) const {
  Integers& ints = tile_.g().ints();
  Operand inside = tile_.in_shape(reg);
  size_t depth = 0;
  const auto require = [&](const Operand& p, size_t since) {
    depth = std::max(depth, since);
    inside = ints.both(inside, p, depth);
  };
  if (shared_) {
    for (size_t d = 0; d < offsets_.size(); ++d) {
      if (tiles_[d]) continue;
      const Integer at = shared_position(d, reg);
      const int64_t extent = tile_.op().operands[0]->type.shape[d];
      if (at.known.lo < 0) require(ints.less(Integers::constant(-1), at), at.depth);
      if (at.known.hi >= extent) require(ints.less(at, Integers::constant(extent)), at.depth);
    }
  } else {
    const Condition bounds = global_->in_bounds(reg, along_unit_dim);
    require(bounds.value, bounds.depth);
  }
  if (mask_) require(element(tile_.g(), *mask_, reg), tile_.g().e().depth());
  return inside;
}

void IndexedTile::check_indices(const Operand& holds) const {
  Generator& g = tile_.g();
  if (!g.options().check_assumptions) return;
  Emitter& e = g.e();
  for (size_t d = 0; d < tiles_.size(); ++d) {
    if (!tiles_[d]) continue;
    Integer extent;
    if (shared_) {
      extent = Integers::constant(tile_.op().operands[0]->type.shape[d]);
    } else {
      const GlobalView& view = g.get<GlobalView>(tile_.op().operands[0]);
      const int root = view.view_dims[d];
      extent =
          root < 0 ? Integers::constant(1) : g.ints().sub(view.dims[root].extent, view.dims[root].offset);
    }
    // Compared without a sign: a negative index is too large.
    Operand outside = 0, found = 0;  // whether there is one, and the last of them
    for (int64_t r = 0; r < tile_.layout().registers(); ++r) {
      if (!tile_.register_index(r)) continue;
      const Operand counts = g.ints().both(holds, is_inside(r, true), e.depth());
      if (counts.is_immediate() && counts.value == 0) continue;
      Integer at = index(d, r);
      const bool is_wide = at.is_wide || extent.is_wide;
      if (is_wide) at = g.ints().widen(at);
      const Integer limit = is_wide ? g.ints().widen(extent) : extent;
      const ScalarType bits = is_wide ? ScalarType::b64 : ScalarType::b32;
      const ScalarType type = is_wide ? ScalarType::u64 : ScalarType::u32;
      Operand is_out = e.make(ScalarType::pred, Op::setp, {Mod::ge, type},
                              {e.to_register(bits, at.value), e.to_register(bits, limit.value)});
      if (counts.is_reg()) is_out = e.make(ScalarType::pred, Op::and_, {ScalarType::pred}, {is_out, counts});
      const Operand number = e.to_register(ScalarType::b64, g.ints().widen(at).value);
      found = found.is_immediate()
                  ? number
                  : Operand(e.make(ScalarType::b64, Op::selp, {ScalarType::b64}, {number, found, is_out}));
      outside = outside.is_immediate()
                    ? is_out
                    : Operand(e.make(ScalarType::pred, Op::or_, {ScalarType::pred}, {outside, is_out}));
    }
    if (outside.is_immediate()) continue;
    const Reg inside = e.make(ScalarType::pred, Op::not_, {ScalarType::pred}, {outside});
    const Operand numbers[] = {found, g.ints().widen(extent).value};
    trap_unless(g, tile_.op(), inside,
                fmt::format("{}: index %lld along dimension {} is outside the tensor, which has %lld there",
                            tile_.op().info().mnemonic, d),
                numbers);
  }
}

void emit_Gather(Generator& g, const ir::Op& op) {
  const layout::Layout& layout = g.layout_of(op.result());
  const Tile tile(g, op, layout, g.group());
  const IndexedTile places(tile, 1);
  const DataType stored = memory_type(op.result()->type.dtype);
  const uint64_t other = bits_of(stored, op.attr("other") ? op.float_attr("other") : 0.0);
  const Operand holds = holds_elements(g, g.group(), tile.digits(), false);
  places.check_indices(holds);
  RegisterTensor result = g.new_tensor(stored, layout);
  places.with_vectors(kAnyVector, false, [&](int64_t vector, bool test_along) {
    places.rely_on_alignment(vector * stored.bits() / 8);
    WordFiller filler(g, stored, layout.registers(), std::span(result.words));
    for (const RegisterRun& run : tile.runs(places.vector_digit(), vector)) {
      const Operand predicate = g.ints().both(holds, places.is_inside(run.first, test_along), g.e().depth());
      filler.load(places.space(), run, places.address(run.first), predicate, other);
    }
    filler.finish();
  });
  if (op.result()->type.dtype.is_bool()) {
    result.words = convert_words(g, op, result.words, layout.registers(), uint8, boolean);
    result.dtype = boolean;
  }
  g.bind(op.result(), std::move(result));
}

void emit_Scatter(Generator& g, const ir::Op& op) {
  RegisterTensor value = g.get<RegisterTensor>(op.operands[1]);
  if (value.dtype.is_bool()) {
    value.words = convert_words(g, op, value.words, value.layout.registers(), boolean, uint8);
    value.dtype = uint8;
  }
  const Tile tile(g, op, value.layout, value.group);
  const IndexedTile places(tile, 2);
  const Operand holds = holds_elements(g, value.group, tile.digits(), true);
  places.check_indices(holds);
  places.with_vectors(kAnyVector, false, [&](int64_t vector, bool test_along) {
    places.rely_on_alignment(vector * value.dtype.bits() / 8);
    for (const RegisterRun& run : tile.runs(places.vector_digit(), vector)) {
      const Operand predicate = g.ints().both(holds, places.is_inside(run.first, test_along), g.e().depth());
      store_run(g, places.space(), value, run, places.address(run.first), predicate);
    }
  });
}

}  // namespace imbrex::codegen
