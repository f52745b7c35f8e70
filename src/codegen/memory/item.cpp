// SPDX-License-Identifier: Apache-2.0
// Scalars from memory and from register tensors. Every thread loads a scalar in memory by itself, from the same address.
// An element of a register tensor that not all threads hold goes through shared memory, where its holder puts it.
#include "codegen/memory/item.h"

#include "codegen/memory/shared_memory.h"
#include "codegen/threads.h"
#include "codegen/tile.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

namespace {

/// How ld and st name a scalar in memory, and the class of its register.
struct ScalarAccess {
  ScalarType word, reg;
};
ScalarAccess scalar_access(DataType dtype) {
  const ScalarType reg = register_type(dtype);
  switch (dtype.bits()) {
    case 8:
      return {dtype.is_integer() && dtype.is_signed() ? ScalarType::s8 : ScalarType::u8, ScalarType::b32};
    case 16:
      if (reg == ScalarType::b16) return {ScalarType::b16, reg};
      return {dtype.is_signed() ? ScalarType::s16 : ScalarType::u16, ScalarType::b32};
    case 32:
      return {ScalarType::b32, reg};
    case 64:
      return {ScalarType::b64, reg};
    default:
      throw InternalError("codegen: no scalar access of " + std::string(dtype.name()));
  }
}

std::vector<Suffix> access_words(std::span<const Suffix> before, Mod space, ScalarType word) {
  std::vector<Suffix> words(before.begin(), before.end());
  words.push_back(space);
  words.push_back(word);
  return words;
}

/// A bool as the byte that stands for it in memory.
Operand byte_of(Generator& g, const Operand& value) {
  if (value.is_immediate()) return value;
  return g.e().make(ScalarType::b32, Op::selp, {ScalarType::b32}, {1, 0, value});
}

std::vector<Integer> indices(Generator& g, const ir::Op& op) {
  std::vector<Integer> index;
  for (size_t i = 1; i < op.operands.size(); ++i) index.push_back(g.integer(op.operands[i]));
  return index;
}

}  // namespace

ElementAddress element_address(Generator& g, const ir::Op& op, std::span<const Integer> index) {
  Integers& ints = g.ints();
  if (op.operands[0]->type.kind == ir::TypeKind::kShared) {
    SharedView view = g.get<SharedView>(op.operands[0]);
    view.dtype = memory_type(view.dtype);
    std::vector<Integer> narrow;
    for (const Integer& i : index) narrow.push_back(ints.narrow(i));
    return {Mod::shared, shared_address(g, view, narrow)};
  }
  const GlobalView& view = g.get<GlobalView>(op.operands[0]);
  std::vector<Integer> starts;
  for (const GlobalDim& d : view.dims) starts.push_back(d.offset);
  for (size_t v = 0; v < index.size(); ++v)
    if (const int root = view.view_dims[v]; root >= 0) starts[root] = ints.add(starts[root], index[v]);
  const int64_t bytes = memory_type(view.dtype).bits() / 8;
  Integer sum = view.address;
  int64_t constant = 0;
  for (size_t d = 0; d < starts.size(); ++d) {
    const Integer elements = ints.wide_mul(starts[d], view.dims[d].stride);
    if (elements.is_constant())
      constant += elements.constant() * bytes;
    else
      sum = ints.add(sum, ints.mul(elements, Integers::constant(bytes)));
  }
  if (constant != static_cast<int32_t>(constant)) {
    sum = ints.add(sum, Integers::constant(constant));
    constant = 0;
  }
  return {Mod::global, ptx::address(sum.value.reg(), constant)};
}

ElementAddress only_element(Generator& g, const ir::Op& op) {
  return element_address(g, op,
                         std::vector<Integer>(op.operands[0]->type.shape.size(), Integers::constant(0)));
}

Operand load_scalar(Generator& g, DataType dtype, const ElementAddress& at, std::span<const Suffix> words) {
  const ScalarAccess access = scalar_access(dtype);
  const Reg r = g.e().reg(access.reg == ScalarType::pred ? ScalarType::b32 : access.reg);
  const Operand operands[] = {r, at.address};
  g.e().emit(Op::ld, access_words(words, at.space, access.word), operands);
  if (!dtype.is_bool()) return r;
  return g.e().make(ScalarType::pred, Op::setp, {Mod::ne, ScalarType::u32}, {r, 0});
}

void store_scalar(Generator& g, DataType dtype, const ElementAddress& at, const Operand& value,
                  std::span<const Suffix> words) {
  const ScalarAccess access = scalar_access(dtype);
  const Operand stored = dtype.is_bool() ? byte_of(g, value) : value;
  const ScalarType reg = access.reg == ScalarType::pred ? ScalarType::b32 : access.reg;
  const Operand operands[] = {at.address, g.e().to_register(reg, stored)};
  g.e().emit(Op::st, access_words(words, at.space, access.word), operands);
}

Operand is_first_thread(Generator& g) {
  if (g.group().threads == 1) return 1;
  return g.ints().less(g.thread_index(g.group()), Integers::constant(1));
}

int64_t item_scratch(const ir::Op& op, const Group& group) {
  constexpr int64_t kBytes = 8;
  return op.code == ir::Opcode::kAtomicItem && group.is_in_one_warp() ? 0 : kBytes;
}

namespace {

/// The lanes of a group inside one warp.
int64_t lanes_of(const Group& group) {
  const uint32_t lanes = group.threads == 32 ? ~0u : ((1u << group.threads) - 1) << (group.begin % 32);
  return static_cast<int32_t>(lanes);
}

Operand from_lane(Generator& g, DataType dtype, const Operand& value, int64_t lane) {
  Emitter& e = g.e();
  const ScalarType reg = register_type(dtype);
  const auto shuffle = [&](Operand word) {
    return e.make(ScalarType::b32, Op::shfl_sync, {Mod::idx, ScalarType::b32},
                  {e.to_register(ScalarType::b32, word), lane, 31, lanes_of(g.group())});
  };
  if (dtype.is_bool())
    return e.make(ScalarType::pred, Op::setp, {Mod::ne, ScalarType::u32}, {shuffle(byte_of(g, value)), 0});
  if (reg == ScalarType::b16) {
    const Reg wide = e.make(ScalarType::b32, Op::cvt, {ScalarType::u32, ScalarType::u16},
                            {e.to_register(ScalarType::b16, value)});
    return e.make(ScalarType::b16, Op::cvt, {ScalarType::u16, ScalarType::u32}, {shuffle(wide)});
  }
  if (dtype.bits() < 64) {
    const Reg word = e.reg(reg);
    e.emit(Op::shfl_sync, {Mod::idx, ScalarType::b32},
           {word, e.to_register(reg, value), lane, 31, lanes_of(g.group())});
    return word;
  }
  const Reg low = e.reg(ScalarType::b32), high = e.reg(ScalarType::b32), both = e.reg(reg);
  e.emit(Op::mov, {ScalarType::b64}, {e.builder().vec({low, high}), e.to_register(reg, value)});
  const Operand other_low = shuffle(low), other_high = shuffle(high);
  e.emit(Op::mov, {ScalarType::b64}, {both, e.builder().vec({other_low, other_high})});
  return both;
}

ElementAddress scratch_item(Generator& g) {
  return {Mod::shared, g.shared_operand({}, g.scratch_offset(g.group()))};
}

/// Runs `store` in the threads where the predicate holds, after all have left the scratch space and before all read it.
template <class F>
Operand through_scratch(Generator& g, const ir::Op& op, DataType dtype, F&& store) {
  g.synchronize(g.group(), op);
  store(scratch_item(g));
  g.synchronize(g.group(), op);
  return load_scalar(g, dtype, scratch_item(g));
}

void store_where(Generator& g, DataType dtype, const Operand& predicate, const ElementAddress& at,
                 const Operand& value) {
  if (predicate.is_immediate() && predicate.value == 0) return;
  Emitter& e = g.e();
  const ptx::LabelId end = e.label("item_end");
  if (predicate.is_reg()) e.branch_unless(predicate.reg(), end);
  store_scalar(g, dtype, at, value);
  e.bind(end);
}

/// The one register that holds the element in every thread of the group; nothing where some thread lacks it.
std::optional<int64_t> held_by_all(const Tile& tile, std::span<const Integer> index, const Operand& holds) {
  if (!holds.is_immediate()) return std::nullopt;
  for (const Integer& i : index)
    if (!i.is_constant()) return std::nullopt;
  for (int d = 0; d < tile.layout().rank(); ++d)
    if (tile.digits().thread_reach(d) > 0) return std::nullopt;
  for (int64_t r = 0; r < tile.layout().registers(); ++r) {
    const std::optional<layout::Index>& at = tile.register_index(r);
    bool is_it = at.has_value();
    for (size_t d = 0; is_it && d < index.size(); ++d) is_it = (*at)[d] == index[d].constant();
    if (is_it) return r;
  }
  return std::nullopt;
}

/// True in threads whose register `reg` holds the element at the index.
Operand is_at(Generator& g, const Tile& tile, int64_t reg, std::span<const Integer> index,
              const Operand& holds) {
  Integers& ints = g.ints();
  Operand is_it = holds;
  for (size_t d = 0; d < index.size(); ++d) {
    const Integer wanted =
        ints.sub(ints.narrow(index[d]), Integers::constant((*tile.register_index(reg))[d]));
    const Integer has = tile.thread_index(static_cast<int>(d));
    if (has.is_constant() && wanted.is_constant()) {
      if (has.constant() != wanted.constant()) return 0;
      continue;
    }
    const Reg equal = g.e().make(ScalarType::pred, Op::setp, {Mod::eq, ScalarType::s32},
                                 {g.e().to_register(ScalarType::b32, has.value), wanted.value});
    if (is_it.is_immediate())
      is_it = equal;
    else
      is_it = g.e().make(ScalarType::pred, Op::and_, {ScalarType::pred}, {is_it, equal});
  }
  return is_it;
}

}  // namespace

Operand from_first_thread(Generator& g, const ir::Op& op, DataType dtype, const Operand& value) {
  const Group& group = g.group();
  if (group.threads == 1) return value;
  if (group.is_in_one_warp()) return from_lane(g, dtype, value, group.begin % 32);
  return through_scratch(
      g, op, dtype, [&](const ElementAddress& at) { store_where(g, dtype, is_first_thread(g), at, value); });
}

void emit_LoadItem(Generator& g, const ir::Op& op) {
  const DataType dtype = op.result()->type.dtype;
  g.bind(op.result(), load_scalar(g, dtype, element_address(g, op, indices(g, op))));
}

void emit_Item(Generator& g, const ir::Op& op) {
  const RegisterTensor& tensor = g.get<RegisterTensor>(op.operands[0]);
  const DataType dtype = op.result()->type.dtype;
  const Tile tile(g, op, tensor.layout, tensor.group);
  const std::vector<Integer> index = indices(g, op);
  const Operand any_copy = holds_elements(g, tensor.group, tile.digits(), false);
  if (const std::optional<int64_t> reg = held_by_all(tile, index, any_copy))
    return g.bind(op.result(), element(g, tensor, *reg));
  if (tensor.group.begin != g.group().begin || tensor.group.threads != g.group().threads)
    g.fail(op, "the tile is spread over the threads of an enclosing group, of which only some come here", {},
           "take the element before the thread group opens");
  const Operand holds = holds_elements(g, tensor.group, tile.digits(), true);
  const Operand value = through_scratch(g, op, dtype, [&](const ElementAddress& at) {
    for (int64_t r = 0; r < tensor.layout.registers(); ++r)
      if (tile.register_index(r))
        store_where(g, dtype, is_at(g, tile, r, index, holds), at, element(g, tensor, r));
  });
  g.bind(op.result(), value);
}

}  // namespace imbrex::codegen
