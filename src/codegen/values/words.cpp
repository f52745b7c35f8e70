// SPDX-License-Identifier: Apache-2.0
// Packed registers: taking elements out of words and putting them together.
#include "codegen/values/words.h"

#include "imbrex/core/error.h"
#include "layout/queries.h"

namespace imbrex::codegen {

int elements_per_word(DataType type) {
  if (type.is_bool()) return 1;
  if (type.bits() >= 32) return 1;
  return 32 % type.bits() == 0 ? 32 / type.bits() : 4;  // elements of 3, 5, 6 and 7 bits have a byte each
}

ScalarType word_type(DataType type) {
  if (type.is_bool()) return ScalarType::pred;
  return type.bits() >= 32 ? register_type(type) : ScalarType::b32;
}

namespace {

/// Both halves of a word.
std::array<Operand, 2> halves(Generator& g, const Operand& word) {
  if (word.is_immediate()) return {Operand(word.value & 0xffff), Operand(word.value >> 16 & 0xffff)};
  const Reg low = g.e().reg(ScalarType::b16), high = g.e().reg(ScalarType::b16);
  g.e().emit(Op::mov, {ScalarType::b32}, {g.e().builder().vec({low, high}), word});
  return {low, high};
}

bool is_small_integer(DataType type) { return type.is_integer() && type.bits() < 32; }

}  // namespace

Operand extract(Generator& g, DataType dtype, const Operand& word, int position) {
  Emitter& e = g.e();
  const int per_word = elements_per_word(dtype);
  if (per_word == 1) return word;
  if (register_type(dtype) == ScalarType::b16) {
    const Operand half = halves(g, word)[position];
    return half.is_immediate() ? Operand(e.to_register(ScalarType::b16, half)) : half;
  }
  const int width = 32 / per_word;
  if (word.is_immediate()) {
    const int64_t bits = word.value >> (position * width) & ((int64_t{1} << width) - 1);
    const bool negative = dtype.is_integer() && dtype.is_signed() && bits >> (width - 1) != 0;
    return negative ? bits - (int64_t{1} << width) : bits;
  }
  const bool sign = is_small_integer(dtype) && dtype.is_signed();
  return e.make(ScalarType::b32, Op::bfe, {sign ? ScalarType::s32 : ScalarType::u32},
                {word, position * width, width});
}

Operand pack(Generator& g, DataType dtype, std::span<const Operand> elements) {
  Emitter& e = g.e();
  const int per_word = elements_per_word(dtype);
  if (per_word == 1) return elements[0];
  auto given = [&](size_t i) { return i < elements.size() && elements[i].kind != ptx::OperandKind::sink; };
  if (register_type(dtype) == ScalarType::b16) {
    const Operand low = given(0) ? elements[0] : Operand(0);
    const Operand high = given(1) ? elements[1] : Operand(0);
    const Reg word = e.reg(ScalarType::b32);
    e.emit(
        Op::mov, {ScalarType::b32},
        {word, e.builder().vec({e.to_register(ScalarType::b16, low), e.to_register(ScalarType::b16, high)})});
    return word;
  }
  const int width = 32 / per_word;
  const int64_t mask = (int64_t{1} << width) - 1;
  int64_t constant = 0;
  Operand word = 0;
  for (int i = 0; i < per_word; ++i) {
    if (!given(i)) continue;
    if (elements[i].is_immediate()) {
      constant |= (elements[i].value & mask) << (i * width);
      continue;
    }
    if (word.is_immediate())
      word = i == 0 ? e.make(ScalarType::b32, Op::and_, {ScalarType::b32}, {elements[i], mask})
                    : e.make(ScalarType::b32, Op::bfi, {ScalarType::b32}, {elements[i], 0, i * width, width});
    else
      word = e.make(ScalarType::b32, Op::bfi, {ScalarType::b32}, {elements[i], word, i * width, width});
  }
  if (word.is_immediate()) return static_cast<int64_t>(static_cast<uint32_t>(constant));
  if (constant != 0) word = e.make(ScalarType::b32, Op::or_, {ScalarType::b32}, {word, constant});
  return word;
}

std::vector<Operand> unpack(Generator& g, DataType dtype, std::span<const Operand> words, int64_t count) {
  const int per_word = elements_per_word(dtype);
  std::vector<Operand> out;
  out.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const bool is_pair =
        register_type(dtype) == ScalarType::b16 && i + 1 < count && !words[i / 2].is_immediate();
    if (is_pair) {
      const std::array<Operand, 2> both = halves(g, words[i / 2]);
      out.insert(out.end(), both.begin(), both.end());
      ++i;
    } else {
      out.push_back(extract(g, dtype, words[i / per_word], static_cast<int>(i % per_word)));
    }
  }
  return out;
}

Operand element(Generator& g, const RegisterTensor& tensor, int64_t reg) {
  const int per_word = elements_per_word(tensor.dtype);
  return extract(g, tensor.dtype, tensor.words[reg / per_word], static_cast<int>(reg % per_word));
}

std::vector<Operand> gather_words(Generator& g, const RegisterTensor& tensor, std::span<const int64_t> map) {
  const int per_word = elements_per_word(tensor.dtype);
  std::vector<Operand> words;
  for (size_t first = 0; first < map.size(); first += per_word) {
    const size_t count = std::min<size_t>(per_word, map.size() - first);
    // Whole words in order are taken as they are.
    bool is_word = true;
    int64_t source = -1;
    for (size_t i = 0; i < count; ++i) {
      const int64_t m = map[first + i];
      if (m < 0) continue;
      if (source < 0) source = m / per_word;
      is_word &= m / per_word == source && m % per_word == static_cast<int64_t>(i);
    }
    if (is_word && source >= 0) {
      words.push_back(tensor.words[source]);
      continue;
    }
    std::vector<Operand> elements(count, ptx::sink());
    for (size_t i = 0; i < count; ++i)
      if (map[first + i] >= 0) elements[i] = element(g, tensor, map[first + i]);
    if (source < 0)  // nothing lives here; any value will do
      words.push_back(tensor.dtype.is_bool() ? Operand(0) : tensor.words.at(0));
    else
      words.push_back(pack(g, tensor.dtype, elements));
  }
  return words;
}

std::vector<Operand> words_in_layout(Generator& g, const ir::Op& op, const RegisterTensor& tensor,
                                     const layout::Layout& layout) {
  if (tensor.layout == layout) return tensor.words;
  const std::optional<std::vector<int64_t>> map = layout::register_map(tensor.layout, layout);
  if (!map)
    throw InternalError("codegen: " + std::string(op.info().mnemonic) +
                        " would have to move data from layout " + tensor.layout.to_string() + " to " +
                        layout.to_string());
  return gather_words(g, tensor, *map);
}

RegisterTensor in_layout(Generator& g, const ir::Op& op, RegisterTensor tensor,
                         const layout::Layout& layout) {
  tensor.words = words_in_layout(g, op, tensor, layout);
  tensor.layout = layout;
  return tensor;
}

}  // namespace imbrex::codegen
