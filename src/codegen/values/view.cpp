// SPDX-License-Identifier: Apache-2.0
// view: the bits that each thread holds as elements of another type. Where a word holds as many bits of elements as it
// has, nothing is emitted but moves between register classes; elements of 3, 5, 6 or 7 bits are spread over bytes.
#include <fmt/format.h>

#include "codegen/values/words.h"
#include "imbrex/core/error.h"
#include "layout/queries.h"
#include "layout/registers.h"

namespace imbrex::codegen {

namespace {

/// True when the elements of a word follow one another without gaps.
bool is_dense(DataType type) { return type.bits() >= 32 || elements_per_word(type) * type.bits() == 32; }

/// The bits of a thread's elements as 32-bit words.
std::vector<Operand> bits_of(Generator& g, const RegisterTensor& tensor, int64_t count) {
  Emitter& e = g.e();
  using enum ScalarType;
  std::vector<Operand> bits;
  if (!is_dense(tensor.dtype)) {
    const int width = tensor.dtype.bits();
    bits.assign((count * width + 31) / 32, Operand(0));
    for (int64_t i = 0; i < count; ++i) {
      const Operand value = e.make(b32, Op::and_, {b32},
                                   {e.to_register(b32, element(g, tensor, i)), (int64_t{1} << width) - 1});
      const int64_t word = i * width / 32, from = i * width % 32;
      bits[word] = e.make(b32, Op::bfi, {b32}, {value, bits[word], from, width});
      if (from + width > 32) bits[word + 1] = e.make(b32, Op::shr, {u32}, {value, 32 - from});
    }
    return bits;
  }
  for (const Operand& word : tensor.words) {
    const ScalarType type = word_type(tensor.dtype);
    if (tensor.dtype.bits() == 64) {
      const Reg low = e.reg(b32), high = e.reg(b32);
      e.emit(Op::mov, {b64}, {e.builder().vec({low, high}), e.to_register(type, word)});
      bits.insert(bits.end(), {low, high});
    } else if (type != b32) {
      bits.push_back(e.make(b32, Op::mov, {b32}, {e.to_register(type, word)}));
    } else {
      bits.push_back(word);
    }
  }
  return bits;
}

/// `count` elements out of these words.
std::vector<Operand> words_of(Generator& g, DataType dtype, std::span<const Operand> bits, int64_t count) {
  Emitter& e = g.e();
  using enum ScalarType;
  const int width = dtype.bits();
  const ScalarType type = word_type(dtype);
  std::vector<Operand> words;
  if (!is_dense(dtype)) {
    std::vector<Operand> elements;
    const bool sign = dtype.is_integer() && dtype.is_signed();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t word = i * width / 32, from = i * width % 32;
      Operand value = e.to_register(b32, bits[word]);
      int64_t at = from;
      if (from + width > 32) {
        value =
            e.make(b32, Op::shf, {Mod::r, Mod::wrap, b32}, {value, e.to_register(b32, bits[word + 1]), from});
        at = 0;
      }
      elements.push_back(e.make(b32, Op::bfe, {sign ? s32 : u32}, {value, at, width}));
    }
    const int64_t per_word = elements_per_word(dtype);
    for (int64_t i = 0; i < count; i += per_word)
      words.push_back(pack(g, dtype, std::span(elements).subspan(i, std::min(per_word, count - i))));
    return words;
  }
  if (width == 64) {
    for (size_t i = 0; i < bits.size(); i += 2) {
      const Reg whole = e.reg(type);
      e.emit(Op::mov, {b64},
             {whole, e.builder().vec({e.to_register(b32, bits[i]), e.to_register(b32, bits[i + 1])})});
      words.push_back(whole);
    }
    return words;
  }
  for (const Operand& word : bits)
    words.push_back(type == b32 ? word : e.make(type, Op::mov, {b32}, {e.to_register(b32, word)}));
  return words;
}

}  // namespace

RegisterTensor view_bits(Generator& g, const RegisterTensor& tensor, DataType dtype,
                         const layout::Layout& layout) {
  const std::vector<Operand> bits = bits_of(g, tensor, tensor.layout.registers());
  return {dtype, layout, tensor.group, words_of(g, dtype, bits, layout.registers())};
}

void emit_View(Generator& g, const ir::Op& op) {
  RegisterTensor from = g.get<RegisterTensor>(op.operands[0]);
  const ir::Type& type = op.result()->type;
  const layout::Layout& wanted = g.layout_of(op.result());
  layout::Layout given = wanted;  // of the result, register by register as the bits lie
  if (!op.bool_attr("rows", false)) {
    const auto as_wide = layout::view_as_width(from.layout, from.dtype.bits(), type.dtype.bits());
    if (!as_wide) throw InternalError("codegen: view without a layout");
    given = *as_wide;
  } else {
    const auto& shape = op.operands[0]->type.shape;
    const layout::Layout rows = layout::thread_rows(shape[0], shape[1]);
    from.words = words_in_layout(g, op, from, rows);
    from.layout = rows;
    if (wanted.threads() != shape[0] ||
        wanted.registers() * type.dtype.bits() != shape[1] * from.dtype.bits())
      g.fail(op,
             fmt::format("a thread holds {} bits, and {} of the view", shape[1] * from.dtype.bits(),
                         wanted.registers() * type.dtype.bits()),
             {fmt::format("{} threads, {} rows", wanted.threads(), shape[0]),
              "layout of the view  " + wanted.to_string()},
             "choose the number of rows and columns by the layout that the view is used in");
  }
  g.bind(op.result(), in_layout(g, op, view_bits(g, from, type.dtype, given), wanted));
}

}  // namespace imbrex::codegen
