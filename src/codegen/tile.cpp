// SPDX-License-Identifier: Apache-2.0
#include "codegen/tile.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/threads.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

std::vector<int64_t> RegisterRun::registers() const {
  std::vector<int64_t> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = first + i * step;
  return out;
}

Tile::Tile(Generator& g, const ir::Op& op, const layout::Layout& layout, const Group& group)
    : g_(&g), op_(&op), layout_(layout), group_(group), digits_(digits_or_fail(g, op, layout)) {
  if (digits_.thread_extent > group.threads)
    throw InternalError(fmt::format("codegen: {}: a layout for {} threads in a group of {}",
                                    op.info().mnemonic, digits_.thread_extent, group.threads));
  const int64_t registers = layout.registers();
  indices_.reserve(registers);
  for (int64_t r = 0; r < registers; ++r) indices_.push_back(digits_.register_index(r));
}

Integer Tile::thread_index(int dim) const {
  std::vector<Digit> digits;
  std::vector<int64_t> weights;
  for (const Digit& d : digits_.threads)
    if (d.dim == dim) {
      digits.push_back(d);
      weights.push_back(d.weight);
    }
  Integer index = thread_sum(*g_, group_, digits, weights);
  index.known.lo = std::max<int64_t>(index.known.lo, 0);
  index.known.hi = std::min(index.known.hi, digits_.thread_reach(dim));
  return index;
}

const Digit* Tile::unit_digit(int dim) const {
  for (const Digit& d : digits_.registers)
    if (d.dim == dim && d.weight == 1) return &d;
  return nullptr;
}

std::vector<RegisterRun> Tile::runs(const Digit* digit, int64_t count) const {
  std::vector<RegisterRun> out;
  for (int64_t r = 0; r < static_cast<int64_t>(indices_.size()); ++r) {
    if (!indices_[r] || (digit && digit->of(r) % count != 0)) continue;
    out.push_back({r, digit ? digit->divisor : 1, digit ? count : 1});
  }
  return out;
}

Operand Tile::in_shape(int64_t reg) const {
  Operand inside = 1;
  for (int d = 0; d < layout_.rank(); ++d) {
    const int64_t base = (*indices_[reg])[d];
    if (digits_.thread_reach(d) + base < layout_.shape()[d]) continue;
    const Operand p = g_->ints().less(thread_index(d), Integers::constant(layout_.shape()[d] - base));
    inside = g_->ints().both(inside, p, 0);
  }
  return inside;
}

namespace {

/// The instruction that moves `bits` bits at once.
struct Access {
  ScalarType word;  // type word of ld and st
  ScalarType reg;   // class of each register
  int registers;    // 1, 2 or 4
};

Access access_of(DataType dtype, int64_t count) {
  const int64_t bits = count * dtype.bits();
  if (dtype.bits() == 64) return {ScalarType::b64, word_type(dtype), static_cast<int>(count)};
  if (bits >= 32) return {ScalarType::b32, word_type(dtype), static_cast<int>(bits / 32)};
  if (bits == 16) {
    if (register_type(dtype) == ScalarType::b16) return {ScalarType::b16, ScalarType::b16, 1};
    return {ScalarType::u16, ScalarType::b32, 1};
  }
  if (bits == 8) return {ScalarType::u8, ScalarType::b32, 1};
  throw InternalError(fmt::format("codegen: no access of {} bits", bits));
}

Operand operand_of(Emitter& e, std::span<const Operand> registers) {
  return registers.size() == 1 ? registers[0] : e.builder().vec(registers);
}

void emit_access(Emitter& e, Op op, Mod space, const Access& access, std::initializer_list<Operand> operands,
                 const Operand& predicate, const CacheHints& hints) {
  std::array<Suffix, 5> words{space};
  size_t count = 1;
  const auto add = [&](Suffix word) { words[count++] = word; };
  if (hints.l1) add(*hints.l1);
  if (hints.policy) add(Mod::L2_cache_hint);
  if (access.registers > 1) add(access.registers == 2 ? Mod::v2 : Mod::v4);
  add(access.word);
  std::array<Operand, 3> all{operands.begin()[0], operands.begin()[1], ptx::sink()};
  if (hints.policy) all[2] = *hints.policy;
  ptx::Instruction& i =
      e.emit(op, std::span(words.data(), count), std::span(all.data(), hints.policy ? 3 : 2));
  if (predicate.is_reg()) i.when(predicate.reg());
}

}  // namespace

namespace {

/// An element given by its bits, as an operand of its class.
Operand constant_element(DataType dtype, uint64_t bits) {
  if (register_type(dtype) == ScalarType::f32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (register_type(dtype) == ScalarType::f64) return std::bit_cast<double>(bits);
  return static_cast<int64_t>(bits);
}

}  // namespace

WordFiller::WordFiller(Generator& g, DataType dtype, int64_t registers, std::span<const Operand> targets)
    : g_(g), dtype_(dtype), targets_(targets.begin(), targets.end()), elements_(registers, ptx::sink()) {
  const int per_word = elements_per_word(dtype);
  words_.assign((registers + per_word - 1) / per_word, ptx::sink());
}

void WordFiller::load(Mod space, const RegisterRun& run, const Operand& address, const Operand& predicate,
                      uint64_t other, const CacheHints& hints) {
  Emitter& e = g_.e();
  if (predicate.is_immediate() && predicate.value == 0) {
    for (int64_t r : run.registers()) elements_[r] = constant_element(dtype_, other);
    return;
  }
  const Access access = access_of(dtype_, run.count);
  const int per_word = elements_per_word(dtype_);
  uint64_t pattern = other;  // of a whole register
  for (int64_t bits = dtype_.bits(); bits < std::min<int64_t>(32, run.count * dtype_.bits()); bits *= 2)
    pattern |= pattern << bits;
  const bool in_order = run.step == 1 && run.first % per_word == 0 && run.count % per_word == 0;
  std::vector<Operand> registers;
  for (int i = 0; i < access.registers; ++i) {
    const bool is_final = in_order && !targets_.empty();
    const Reg r = is_final ? targets_[run.first / per_word + i].reg() : e.reg(access.reg);
    if (predicate.is_reg()) {
      const ScalarType type = access.reg == ScalarType::f32   ? ScalarType::b32
                              : access.reg == ScalarType::f64 ? ScalarType::b64
                                                              : access.reg;
      e.emit(Op::mov, {type}, {r, static_cast<int64_t>(pattern)});
    }
    registers.push_back(r);
  }
  emit_access(e, Op::ld, space, access, {operand_of(e, registers), address}, predicate, hints);

  if (in_order) {
    for (size_t i = 0; i < registers.size(); ++i) words_[run.first / per_word + i] = registers[i];
    return;
  }
  const std::vector<int64_t> targets = run.registers();
  const bool is_scalar = per_word == 1 || access.reg == ScalarType::b16 || run.count == 1;
  const std::vector<Operand> loaded = is_scalar ? registers : unpack(g_, dtype_, registers, run.count);
  for (size_t i = 0; i < targets.size(); ++i) {
    elements_[targets[i]] = loaded[i];
  }
}

std::vector<Operand> WordFiller::finish() {
  const int per_word = elements_per_word(dtype_);
  const int64_t count = static_cast<int64_t>(elements_.size());
  for (size_t w = 0; w < words_.size(); ++w) {
    if (words_[w].kind != ptx::OperandKind::sink) continue;
    const int64_t first = static_cast<int64_t>(w) * per_word;
    const std::span<const Operand> elements =
        std::span(elements_).subspan(first, std::min<int64_t>(per_word, count - first));
    const bool any = std::any_of(elements.begin(), elements.end(),
                                 [](const Operand& o) { return o.kind != ptx::OperandKind::sink; });
    words_[w] = any ? pack(g_, dtype_, elements) : constant_element(dtype_, 0);
    if (targets_.empty()) continue;
    g_.e().move(word_type(dtype_), targets_[w].reg(), words_[w]);
    words_[w] = targets_[w];
  }
  return std::move(words_);
}

void store_run(Generator& g, Mod space, const RegisterTensor& tensor, const RegisterRun& run,
               const Operand& address, const Operand& predicate, const CacheHints& hints) {
  if (predicate.is_immediate() && predicate.value == 0) return;
  Emitter& e = g.e();
  const Access access = access_of(tensor.dtype, run.count);
  std::vector<Operand> values;
  if (run.count == 1) {
    values = {element(g, tensor, run.first)};
  } else {
    values = gather_words(g, tensor, run.registers());
  }
  for (Operand& v : values) v = e.to_register(access.reg, v);
  emit_access(e, Op::st, space, access, {address, operand_of(e, values)}, predicate, hints);
}

}  // namespace imbrex::codegen
