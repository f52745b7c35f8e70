// SPDX-License-Identifier: Apache-2.0
// load_shared and store_shared.
//
// Without a swizzle an address is the thread's part plus a constant per register. Swizzles XOR address bits
// into lower ones; that is linear over XOR, so where the bits of the register's part are free in the thread's
// part, swizzle(thread + register) = swizzle(thread) ^ swizzle(register), and of the latter all bits that
// are still free can be added in the instruction's offset. Only registers that differ in the remaining bits
// need an address register of their own.
#include "codegen/memory/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/memory/matrix_moves.h"
#include "codegen/memory/packed.h"
#include "codegen/threads.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"
#include "layout/queries.h"

namespace imbrex::codegen {

using layout::Axis;
using layout::Swizzle;

namespace {

/// Bits that a sum of parts may set, given those of each part.
uint64_t sum_bits(uint64_t a, uint64_t b) {
  if ((a & b) == 0) return a | b;
  const int low = std::countr_zero(a & b);  // carries go up from here
  return a | b | ~uint64_t{0} << low;
}

/// Bits that digit * stride may set for digit < extent.
uint64_t product_bits(int64_t extent, int64_t stride) {
  if (extent <= 1 || stride == 0) return 0;
  if (std::has_single_bit(static_cast<uint64_t>(stride)))
    return (std::bit_ceil(static_cast<uint64_t>(extent)) - 1) * static_cast<uint64_t>(stride);
  const uint64_t reach = std::bit_ceil(static_cast<uint64_t>((extent - 1) * stride) + 1) - 1;
  return reach & ~(static_cast<uint64_t>(stride & -stride) - 1);
}

/// What the swizzle adds to `bits`: every bit that some bit of it is XORed into.
uint64_t swizzled_bits(Swizzle swizzle, uint64_t bits) {
  uint64_t out = bits;
  for (int b = 0; b < 12; ++b)
    if (bits >> b & 1) out |= static_cast<uint64_t>(swizzle.apply(int64_t{1} << b));
  return out;
}

int64_t bytes_of(int64_t elements, DataType dtype) {
  const int64_t bits = elements * dtype.bits();
  if (bits % 8 != 0) throw InternalError("codegen: an element of shared memory starts inside a byte");
  return bits / 8;
}

}  // namespace

std::vector<ScaledInteger> linear_terms(Generator& g, const layout::Layout& layout,
                                        std::span<const Integer> index, Axis axis) {
  Integers& ints = g.ints();
  std::vector<ScaledInteger> terms;
  for (int d = 0; d < layout.rank(); ++d) {
    const layout::Modes& modes = layout.modes(d);
    int64_t weight = 1;
    for (size_t i = modes.size(); i-- > 0;) {
      Integer digit = ints.div(index[d], weight);
      if (i > 0) digit = ints.rem(digit, modes[i].extent);
      weight *= modes[i].extent;
      const bool is_zero = digit.is_constant() && digit.constant() == 0;
      if (modes[i].axis == axis && !is_zero) terms.push_back({digit, modes[i].stride});
    }
  }
  return terms;
}

Integer sum_of(Generator& g, std::span<const ScaledInteger> terms) {
  Integer sum = Integers::constant(0);
  for (const ScaledInteger& t : terms)
    sum = g.ints().add(sum, g.ints().mul(t.value, Integers::constant(t.scale)));
  return sum;
}

Integer swizzle_address(Generator& g, Swizzle swizzle, const Integer& address) {
  Integers& ints = g.ints();
  std::map<int, int64_t> moves;  // shift distance: target bits
  for (int b = 0; (int64_t{1} << b) < swizzle.period_bytes(); ++b) {
    const uint64_t targets = static_cast<uint64_t>(swizzle.apply(int64_t{1} << b)) ^ uint64_t { 1 } << b;
    for (int t = 0; t < b; ++t)
      if (targets >> t & 1) moves[b - t] |= int64_t{1} << t;
  }
  Integer result = address;
  for (const auto& [shift, mask] : moves)
    result = ints.xor_with(result, ints.and_mask(ints.shift_right(address, shift), mask));
  return result;
}

SharedTile::SharedTile(const Tile& tile, const SharedView& view)
    : tile_(tile), view_(view), terms_(memory_terms(tile.digits(), view.layout)) {
  const layout::Swizzle swizzle = view.layout.swizzle();
  base_multiple_ = power_of_two_divisor(base().known.multiple);
  for (const ScaledInteger& t : view.terms) {
    const int64_t multiple = power_of_two_divisor((t.value.known * Range::constant(t.scale)).multiple);
    base_multiple_ = std::min(base_multiple_, multiple);
    (swizzle && multiple % swizzle.period_bytes() == 0 ? late_terms_ : early_terms_).push_back(t);
  }
  if (swizzle && base_multiple_ < swizzle.period_bytes())
    thread_bits_ = static_cast<uint64_t>(swizzle.period_bytes() - base_multiple_);
  if (!terms_) return;
  for (const MemoryTerm& t : *terms_) {
    if (t.axis != Axis::kAddress) throw InternalError("codegen: a shared layout that leaves shared memory");
    if (t.digit.axis == Axis::kThread)
      thread_bits_ = sum_bits(thread_bits_, product_bits(t.digit.extent, bytes_of(t.stride, view.dtype)));
    else if (t.stride == 1)
      unit_ = t.digit;
  }
  if (!swizzle) return;
  const auto low = static_cast<uint64_t>(view.offset % swizzle.period_bytes());
  if ((low & thread_bits_) == 0) return;
  early_offset_ = static_cast<int64_t>(low);
  thread_bits_ = sum_bits(thread_bits_, low);
}

int64_t SharedTile::vector(int max_bytes) const {
  if (!unit_) return 1;
  const int64_t bits = view_.dtype.bits();
  const int64_t base = std::min(base_multiple_, power_of_two_divisor(view_.offset));
  int64_t v = std::min({power_of_two_divisor(unit_->extent), max_bytes * 8 / bits, base * 8 / bits});
  if (view_.layout.swizzle()) v = std::min(v, view_.layout.swizzle().atom_bytes() * 8 / bits);
  for (const MemoryTerm& t : *terms_)
    if (t.stride != 1 || t.digit.axis == Axis::kThread) v = std::min(v, power_of_two_divisor(t.stride));
  // A run must not reach over the end of a padded dimension.
  if (unit_->dim >= 0 && unit_->weight == 1)
    v = std::min(v, power_of_two_divisor(tile_.layout().shape()[unit_->dim]));
  else if (view_.layout.is_padded() || tile_.layout().is_padded())
    v = 1;
  return std::max<int64_t>(v, 1);
}

Integer SharedTile::base() const { return view_.remote ? *view_.remote : tile_.g().shared_base(); }

int64_t SharedTile::register_bytes(int64_t reg) const {
  int64_t elements = 0;
  for (const MemoryTerm& t : *terms_)
    if (t.digit.axis == Axis::kRegister) elements += t.digit.of(reg) * t.stride;
  return bytes_of(elements, view_.dtype);
}

Integer SharedTile::thread_address() const {
  Generator& g = tile_.g();
  std::vector<Digit> digits;
  std::vector<int64_t> strides;
  for (const MemoryTerm& t : *terms_)
    if (t.digit.axis == Axis::kThread) {
      digits.push_back(t.digit);
      strides.push_back(bytes_of(t.stride, view_.dtype));
    }
  // What exists earlier is added first, so that it is computed before loops.
  const Integer thread = g.ints().add(thread_sum(g, tile_.group(), digits, strides), base());
  return g.ints().add(thread, sum_of(g, early_terms_));
}

Operand SharedTile::address(int64_t reg) const {
  if (!terms_) return address_by_index(reg);
  if (view_.layout.swizzle()) return swizzled(reg);
  return ptx::address(thread_address().value.reg(), view_.offset + register_bytes(reg));
}

Operand SharedTile::swizzled(int64_t reg) const {
  Generator& g = tile_.g();
  Integers& ints = g.ints();
  const Swizzle swizzle = view_.layout.swizzle();
  const int64_t period = swizzle.period_bytes();
  const Integer linear = ints.add(thread_address(), Integers::constant(early_offset_));
  const int64_t part = view_.offset - early_offset_ + register_bytes(reg);
  const int64_t low = part % period;
  const int64_t rest = part - low;  // whole periods
  const Integer late = sum_of(g, late_terms_);
  if ((static_cast<uint64_t>(low) & thread_bits_) != 0) {
    const Integer whole = swizzle_address(g, swizzle, ints.add(linear, Integers::constant(low)));
    return ptx::address(ints.add(whole, late).value.reg(), rest);
  }
  const uint64_t taken = swizzled_bits(swizzle, thread_bits_);
  const uint64_t moved = static_cast<uint64_t>(swizzle.apply(low));
  const Integer base = ints.xor_with(swizzle_address(g, swizzle, linear),
                                     Integers::constant(static_cast<int64_t>(moved & taken)));
  return ptx::address(ints.add(base, late).value.reg(), rest + static_cast<int64_t>(moved & ~taken));
}

Operand SharedTile::address_by_index(int64_t reg) const {
  Generator& g = tile_.g();
  Integers& ints = g.ints();
  std::vector<Integer> index;
  for (int d = 0; d < tile_.layout().rank(); ++d)
    index.push_back(ints.add(tile_.thread_index(d), Integers::constant((*tile_.register_index(reg))[d])));
  return shared_address(g, view_, index);
}

Operand shared_address(Generator& g, const SharedView& view, std::span<const Integer> index) {
  Integers& ints = g.ints();
  const Integer elements = sum_of(g, linear_terms(g, view.layout, index, Axis::kAddress));
  const int bits = view.dtype.bits();  // below a byte, accesses start at whole ones
  const Integer bytes =
      bits < 8 ? ints.div(elements, 8 / bits) : ints.mul(elements, Integers::constant(bits / 8));
  const Integer start = ints.add(view.remote ? *view.remote : g.shared_base(), sum_of(g, view.terms));
  Integer address = ints.add(start, bytes);
  if (!view.layout.swizzle()) return ptx::address(address.value.reg(), view.offset);
  address = swizzle_address(g, view.layout.swizzle(), ints.add(address, Integers::constant(view.offset)));
  return ptx::address(address.value.reg());
}

namespace {

void check_bits(Generator& g, const ir::Op& op, DataType dtype, const SharedTile& tile) {
  if (dtype.bits() >= 8 || tile.vector(16) * dtype.bits() >= 8) return;
  g.fail(op, fmt::format("elements of {} share bytes, and no thread holds whole bytes", dtype.name()), {},
         "choose register layouts that hold neighbouring elements in one thread");
}

/// Matrices are moved within a CTA, words also to and from others of the cluster.
Mod window(const SharedView& view) { return view.remote ? Mod::shared_cluster : Mod::shared; }

std::vector<Operand> load_words(Generator& g, const ir::Op& op, const SharedView& view,
                                const layout::Layout& layout) {
  const Tile tile(g, op, layout, g.group());
  const SharedTile shared(tile, view);
  check_bits(g, op, view.dtype, shared);
  const Operand holds = holds_elements(g, g.group(), tile.digits(), false);
  WordFiller filler(g, view.dtype, layout.registers());
  for (const RegisterRun& run : tile.runs(shared.vector_digit(), shared.vector(16))) {
    const Operand predicate = g.ints().both(holds, tile.in_shape(run.first), 0);
    filler.load(window(view), run, shared.address(run.first), predicate, 0);
  }
  return filler.finish();
}

}  // namespace

RegisterTensor load_shared_tile(Generator& g, const ir::Op& op, const SharedView& view,
                                const layout::Layout& layout) {
  if (layout::crosses_bytes(view.dtype.bits())) {
    const SharedBytes bytes = shared_bytes(g, op, view);
    const layout::Layout of_bytes = register_bytes(g, op, layout, view.dtype, bytes.dim);
    return view_bits(g, load_shared_tile(g, op, bytes.view, of_bytes), view.dtype, layout);
  }
  SharedView memory = view;
  memory.dtype = memory_type(view.dtype);
  RegisterTensor result{memory.dtype, layout, g.group(), {}};
  std::optional<std::vector<Operand>> words;
  if (!view.remote) words = load_matrices(g, op, memory, layout);
  result.words = words ? *std::move(words) : load_words(g, op, memory, layout);
  if (view.dtype.is_bool()) {
    result.words = convert_words(g, op, result.words, layout.registers(), uint8, boolean);
    result.dtype = boolean;
  }
  return result;
}

void store_shared_tile(Generator& g, const ir::Op& op, const SharedView& view, const RegisterTensor& value) {
  if (layout::crosses_bytes(view.dtype.bits())) {
    const SharedBytes bytes = shared_bytes(g, op, view);
    const layout::Layout of_bytes = register_bytes(g, op, value.layout, view.dtype, bytes.dim);
    return store_shared_tile(g, op, bytes.view, view_bits(g, value, uint8, of_bytes));
  }
  RegisterTensor stored = value;
  if (value.dtype.is_bool()) {
    stored.words = convert_words(g, op, value.words, value.layout.registers(), boolean, uint8);
    stored.dtype = uint8;
  }
  SharedView memory = view;
  memory.dtype = memory_type(view.dtype);
  if (!view.remote && store_matrices(g, op, memory, stored)) return;
  const Tile tile(g, op, stored.layout, stored.group);
  const SharedTile shared(tile, memory);
  check_bits(g, op, memory.dtype, shared);
  const Operand holds = holds_elements(g, stored.group, tile.digits(), true);
  for (const RegisterRun& run : tile.runs(shared.vector_digit(), shared.vector(16))) {
    const Operand predicate = g.ints().both(holds, tile.in_shape(run.first), 0);
    store_run(g, window(memory), stored, run, shared.address(run.first), predicate);
  }
}

namespace {

/// The view of a transfer, whose operand `rank`, where it has it, says in which CTA's memory.
SharedView view_in_cluster(Generator& g, const ir::Op& op, size_t rank) {
  SharedView view = g.get<SharedView>(op.operands[0]);
  if (op.operands.size() <= rank) return view;
  g.require_arch(op, 90, "shared memory of another CTA");
  view.remote = remote_base(g, op.operands[rank]);
  return view;
}

}  // namespace

void emit_LoadShared(Generator& g, const ir::Op& op) {
  g.bind(op.result(), load_shared_tile(g, op, view_in_cluster(g, op, 1), g.layout_of(op.result())));
}

void emit_StoreShared(Generator& g, const ir::Op& op) {
  store_shared_tile(g, op, view_in_cluster(g, op, 2), g.get<RegisterTensor>(op.operands[1]));
}

}  // namespace imbrex::codegen
