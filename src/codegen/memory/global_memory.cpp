// SPDX-License-Identifier: Apache-2.0
// load_global and store_global: vectors as wide as alignment allows, tests only where an edge can be crossed.
#include "codegen/memory/global_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "codegen/memory/cache_hints.h"
#include "codegen/memory/packed.h"
#include "codegen/threads.h"
#include "codegen/values/words.h"
#include "core/float_formats.h"
#include "imbrex/core/error.h"
#include "layout/queries.h"

namespace imbrex::codegen {

GlobalTile::GlobalTile(const Tile& tile, const GlobalView& view, std::span<const int64_t> dims,
                       std::span<const Integer> offsets)
    : tile_(tile), view_(view) {
  Integers& ints = tile.g().ints();
  for (const GlobalDim& d : view.dims) {
    Dim dim;
    dim.start = d.offset;
    dim.extent = d.extent;
    dim.stride = d.stride;
    dims_.push_back(dim);
  }
  for (size_t v = 0; v < offsets.size(); ++v)
    if (const int root = view.view_dims[v]; root >= 0)
      dims_[root].start = ints.add(dims_[root].start, offsets[v]);
  for (size_t t = 0; t < dims.size(); ++t) {
    const int root = dims[t] < 0 ? -1 : view.view_dims[dims[t]];
    if (root < 0) continue;
    dims_[root].tile_dim = static_cast<int>(t);
    dims_[root].last = tile.layout().shape()[t] - 1;
  }
  for (size_t i = 0; i < dims_.size(); ++i) {
    Dim& d = dims_[i];
    const bool is_unit = d.stride.is_constant() && d.stride.constant() == 1;
    if (is_unit && d.tile_dim >= 0 && (unit_root_ < 0 || d.last > dims_[unit_root_].last)) {
      unit_root_ = static_cast<int>(i);
      unit_dim_ = d.tile_dim;
    }
  }
}

int64_t GlobalTile::row_alignment() const {
  const int64_t bits = view_.dtype.bits();
  int64_t bytes = power_of_two_divisor(view_.address.known.multiple);
  int64_t elements = bytes * 8 / bits;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (static_cast<int>(i) == unit_root_) continue;
    const Dim& d = dims_[i];
    if (!d.is_indexed && d.last == 0 && d.start.is_constant() && d.start.constant() == 0) continue;
    elements = std::min(elements, power_of_two_divisor(d.stride.known.multiple));
  }
  return std::max<int64_t>(1, elements);
}

int64_t GlobalTile::aligned_vector(int max_bytes) const {
  const Digit* digit = vector_digit();
  if (!digit) return 1;
  const int64_t bits = view_.dtype.bits();
  int64_t v = std::min({power_of_two_divisor(digit->extent), row_alignment(), max_bytes * 8 / bits,
                        power_of_two_divisor(dims_[unit_root_].start.known.multiple),
                        power_of_two_divisor(tile_.layout().shape()[unit_dim_])});
  for (const Digit& d : tile_.digits().threads)
    if (d.dim == unit_dim_) v = std::min(v, power_of_two_divisor(d.weight));
  return v;
}

bool GlobalTile::needs_test_along_unit_dim() const {
  const Dim& d = dims_[unit_root_];
  return d.start.known.lo < 0 || d.start.known.hi > d.extent.known.lo - 1 - d.last;
}

int64_t GlobalTile::masked_vector(int64_t aligned) const {
  if (unit_root_ < 0 || !needs_test_along_unit_dim()) return aligned;
  return std::min(aligned, power_of_two_divisor(dims_[unit_root_].extent.known.multiple));
}

void GlobalTile::rely_on_alignment(int64_t bytes) const {
  if (view_.argument < 0) return;
  int32_t& alignment = tile_.g().kernel().arguments[view_.argument].alignment;
  alignment = std::max(alignment, static_cast<int32_t>(bytes));
}

/// Where the thread's register 0 is in the tensor.
Integer GlobalTile::position(const Dim& dim) const {
  if (dim.tile_dim < 0) return dim.start;
  return tile_.g().ints().add(dim.start, tile_.thread_index(dim.tile_dim));
}

int64_t GlobalTile::register_part(const Dim& dim, int64_t reg) const {
  return dim.tile_dim < 0 ? 0 : (*tile_.register_index(reg))[dim.tile_dim];
}

/// Bytes to element `index` of a dimension: whole ones, where whole_bytes() holds.
Integer GlobalTile::bytes_to(const Integer& index, const Integer& stride) const {
  Integers& ints = tile_.g().ints();
  const int64_t bits = view_.dtype.bits();
  if (bits >= 8) {
    if (stride.is_constant()) return ints.wide_mul(index, Integers::constant(stride.constant() * bits / 8));
    return ints.mul(ints.wide_mul(index, stride), Integers::constant(bits / 8));
  }
  const int64_t in_byte = 8 / bits;
  if (stride.known.is_multiple_of(in_byte)) return ints.wide_mul(index, ints.div(stride, in_byte));
  return ints.wide_mul(ints.div(index, in_byte), stride);
}

std::string GlobalTile::not_whole_bytes() const {
  const int64_t bits = view_.dtype.bits();
  if (8 % bits != 0) return fmt::format("elements of {} bits do not", bits);
  const int64_t in_byte = 8 / bits;
  if (masked_vector(aligned_vector(16)) < in_byte)
    return "the tile, its edges or what a thread holds of it do not";
  for (size_t i = 0; i < dims_.size(); ++i) {
    const Dim& d = dims_[i];
    const bool is_rows = d.stride.known.is_multiple_of(in_byte) && !d.stride.is_wide;
    const bool is_unit = d.start.known.is_multiple_of(in_byte) && d.start.known.lo >= 0 && !d.start.is_wide;
    if (static_cast<int>(i) == unit_root_ ? !is_unit : !is_rows)
      return fmt::format("offsets along dimension {} are not known to", i);
  }
  return "";
}

/// Where the thread's register 0 would be. Terms that exist earlier are added first, so that as much as
/// possible is computed before loops.
Integer GlobalTile::base_address() const {
  Generator& g = tile_.g();
  Integers& ints = g.ints();
  const int64_t bits = view_.dtype.bits();
  std::vector<Integer> terms;
  std::vector<Digit> digits;
  std::vector<int64_t> strides;
  int64_t reach = 0;
  for (const Dim& d : dims_) {
    if (d.stride.is_constant()) {
      terms.push_back(bytes_to(d.start, d.stride));
      if (d.tile_dim < 0) continue;
      for (const Digit& digit : tile_.digits().threads)
        if (digit.dim == d.tile_dim) {
          digits.push_back(digit);
          strides.push_back(digit.weight * d.stride.constant() * bits / 8);
          reach += (digit.extent - 1) * strides.back();
        }
    } else {
      terms.push_back(bytes_to(d.start, d.stride));
      if (d.tile_dim >= 0) terms.push_back(bytes_to(tile_.thread_index(d.tile_dim), d.stride));
    }
  }
  if (reach > Range::of_type(int32).hi) g.fail(tile_.op(), "the tile spans more than 2 GiB of global memory");
  terms.push_back(ints.widen(thread_sum(g, tile_.group(), digits, strides)));
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Integer& a, const Integer& b) { return a.depth < b.depth; });
  Integer sum = view_.address;
  for (const Integer& t : terms) sum = ints.add(sum, t);
  return sum;
}

GlobalTile::Place GlobalTile::place(int64_t reg) const {
  Integers& ints = tile_.g().ints();
  Integer base = base_address();
  int64_t constant = 0;
  for (const Dim& d : dims_) {
    const int64_t part = register_part(d, reg);
    if (part == 0) continue;
    if (d.stride.is_constant())
      constant += part * d.stride.constant() * view_.dtype.bits() / 8;
    else
      base = ints.add(base, bytes_to(Integers::constant(part), d.stride));
  }
  if (constant != static_cast<int32_t>(constant)) {
    base = ints.add(base, Integers::constant(constant));
    constant = 0;
  }
  return {base, constant};
}

Condition GlobalTile::inside(const Dim& dim, int64_t reg) const {
  if (dim.is_indexed) return {};
  Integers& ints = tile_.g().ints();
  const int64_t part = register_part(dim, reg);
  const int64_t reach = dim.tile_dim < 0 ? 0 : tile_.digits().thread_reach(dim.tile_dim);
  Condition inside;
  if (dim.start.known.lo + part < 0)
    inside = {ints.less(Integers::constant(-part - 1), position(dim)), dim.start.depth};
  const bool is_below = dim.start.known.hi <= dim.extent.known.lo - 1 - reach - part;
  if (!is_below) {
    inside.depth = std::max(dim.extent.depth, dim.start.depth);
    const Operand below = ints.less(Integers::constant(part), ints.sub(dim.extent, position(dim)));
    inside.value = ints.both(inside.value, below, inside.depth);
  }
  return inside;
}

Condition GlobalTile::in_bounds(int64_t reg, bool along_unit_dim) const {
  Condition all{tile_.in_shape(reg), 0};
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (!along_unit_dim && static_cast<int>(i) == unit_root_) continue;
    const Condition one = inside(dims_[i], reg);
    all.depth = std::max(all.depth, one.depth);
    all.value = tile_.g().ints().both(all.value, one.value, all.depth);
  }
  return all;
}

Operand GlobalTile::whole_along_unit_dim() const {
  Integers& ints = tile_.g().ints();
  const Dim& d = dims_[unit_root_];
  Operand whole = ints.less(Integers::constant(d.last), ints.sub(d.extent, d.start));
  if (d.start.known.lo < 0)
    whole =
        ints.both(ints.less(Integers::constant(-1), d.start), whole, std::max(d.extent.depth, d.start.depth));
  return whole;
}

Integer GlobalTile::remaining_along_unit_dim(int64_t reg) const {
  Integers& ints = tile_.g().ints();
  const Dim& d = dims_[unit_root_];
  return ints.sub(ints.sub(d.extent, position(d)), Integers::constant(register_part(d, reg)));
}

uint64_t bits_of(DataType dtype, double value) {
  if (dtype.is_float()) return arith::encode(arith::float_format(dtype), value);
  const uint64_t mask = dtype.bits() == 64 ? ~uint64_t{0} : (uint64_t{1} << dtype.bits()) - 1;
  return static_cast<uint64_t>(static_cast<int64_t>(value)) & mask;
}

namespace {

std::vector<Integer> offsets_of(Generator& g, const ir::Op& op, size_t first) {
  std::vector<Integer> offsets;
  for (size_t i = first; i < op.operands.size(); ++i) offsets.push_back(g.integer(op.operands[i]));
  return offsets;
}

/// Elements of less than a byte are moved in whole bytes.
void check_bytes(Generator& g, const ir::Op& op, const GlobalTile& global, DataType dtype) {
  if (dtype.bits() >= 8) return;
  if (const std::string why = global.not_whole_bytes(); !why.empty())
    g.fail(op, fmt::format("elements of {} share bytes, and {} fall on whole ones", dtype.name(), why), {},
           "use offsets and extents of whole bytes along the contiguous dimension, or view() words in "
           "registers");
}

/// The tile in this layout; elements outside have the bits `other`.
RegisterTensor load_tile(Generator& g, const ir::Op& op, const GlobalView& view,
                         std::span<const Integer> offsets, const layout::Layout& layout, uint64_t other) {
  const Tile tile(g, op, layout, g.group());
  const GlobalTile global(tile, view, op.ints_attr("dims"), offsets);
  check_bytes(g, op, global, view.dtype);
  const DataType stored = memory_type(view.dtype);
  const Operand holds = holds_elements(g, g.group(), tile.digits(), false);
  const CacheHints hints = cache_hints(g, op);

  // Two paths must leave the elements in the same registers.
  const int64_t aligned = global.aligned_vector(16);
  const bool has_two_paths = global.masked_vector(aligned) != aligned;
  RegisterTensor result{stored, layout, g.group(), {}};
  if (has_two_paths) result = g.new_tensor(stored, layout);
  with_vectors(g, global, kAnyVector, [&](int64_t vector, bool test_along) {
    global.rely_on_alignment(vector * stored.bits() / 8);
    WordFiller filler(g, stored, layout.registers(),
                      has_two_paths ? std::span(result.words) : std::span<Operand>());
    for (const RegisterRun& run : tile.runs(global.vector_digit(), vector)) {
      const Condition inside = global.in_bounds(run.first, test_along);
      const Operand predicate = g.ints().both(holds, inside.value, inside.depth);
      filler.load(Mod::global, run, global.address(run.first), predicate, other, hints);
    }
    result.words = filler.finish();
  });
  return result;
}

void store_tile(Generator& g, const ir::Op& op, const GlobalView& view, std::span<const Integer> offsets,
                const RegisterTensor& value) {
  const Tile tile(g, op, value.layout, value.group);
  const GlobalTile global(tile, view, op.ints_attr("dims"), offsets);
  check_bytes(g, op, global, view.dtype);
  const Operand holds = holds_elements(g, value.group, tile.digits(), true);
  const CacheHints hints = cache_hints(g, op);
  with_vectors(g, global, kAnyVector, [&](int64_t vector, bool test_along) {
    global.rely_on_alignment(vector * value.dtype.bits() / 8);
    for (const RegisterRun& run : tile.runs(global.vector_digit(), vector)) {
      const Condition inside = global.in_bounds(run.first, test_along);
      const Operand predicate = g.ints().both(holds, inside.value, inside.depth);
      store_run(g, Mod::global, value, run, global.address(run.first), predicate, hints);
    }
  });
}

}  // namespace

void emit_LoadGlobal(Generator& g, const ir::Op& op) {
  const GlobalView& view = g.get<GlobalView>(op.operands[0]);
  const layout::Layout& layout = g.layout_of(op.result());
  const std::vector<Integer> offsets = offsets_of(g, op, 1);
  const uint64_t other = bits_of(memory_type(view.dtype), op.attr("other") ? op.float_attr("other") : 0.0);
  if (layout::crosses_bytes(view.dtype.bits())) {
    if (other != 0) g.fail(op, fmt::format("what is outside of {} becomes 0 only", view.dtype.name()));
    const GlobalBytes bytes = global_bytes(g, op, view, op.ints_attr("dims"), offsets);
    const layout::Layout of_bytes = register_bytes(g, op, layout, view.dtype, bytes.tile_dim);
    const RegisterTensor loaded = load_tile(g, op, bytes.view, bytes.offsets, of_bytes, 0);
    return g.bind(op.result(), view_bits(g, loaded, view.dtype, layout));
  }
  RegisterTensor result = load_tile(g, op, view, offsets, layout, other);
  if (view.dtype.is_bool()) {
    result.words = convert_words(g, op, result.words, layout.registers(), uint8, boolean);
    result.dtype = boolean;
  }
  g.bind(op.result(), std::move(result));
}

void emit_StoreGlobal(Generator& g, const ir::Op& op) {
  const GlobalView& view = g.get<GlobalView>(op.operands[0]);
  RegisterTensor value = g.get<RegisterTensor>(op.operands[1]);
  const std::vector<Integer> offsets = offsets_of(g, op, 2);
  if (value.dtype.is_bool()) {
    value.words = convert_words(g, op, value.words, value.layout.registers(), boolean, uint8);
    value.dtype = uint8;
  }
  if (!layout::crosses_bytes(view.dtype.bits())) return store_tile(g, op, view, offsets, value);
  const GlobalBytes bytes = global_bytes(g, op, view, op.ints_attr("dims"), offsets);
  const layout::Layout of_bytes = register_bytes(g, op, value.layout, view.dtype, bytes.tile_dim);
  store_tile(g, op, bytes.view, bytes.offsets, view_bits(g, value, uint8, of_bytes));
}

}  // namespace imbrex::codegen
