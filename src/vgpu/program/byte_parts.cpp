// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/byte_parts.h"

#include <algorithm>

#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;
using ptx::ScalarType;

/// `count` bytes from `first` on.
uint8_t bytes_mask(int first, int count) { return static_cast<uint8_t>(((1 << count) - 1) << first); }

bool is_integer(ScalarType type) { return ptx::is_signed(type) || ptx::is_unsigned(type); }
bool is_half_pair(ScalarType type) { return type == ScalarType::f16x2 || type == ScalarType::bf16x2; }
/// Pairs of small floats that take a byte each.
bool is_byte_pair(ScalarType type) {
  return ptx::bits(type) == 16 && ptx::is_float(type) && type != ScalarType::e2m1x4 &&
         type != ScalarType::f16 && type != ScalarType::bf16;
}

class Parts {
 public:
  Parts(const FunctionLayout& layout, const ptx::Instruction& insn)
      : layout_(layout), insn_(insn), operands_(layout.function->operands_of(insn)) {}

  std::vector<BytePart> make() {
    switch (insn_.op) {
      case Op::mov:
        move();
        break;
      case Op::prmt:
        permute();
        break;
      case Op::cvt:
        convert();
        break;
      case Op::and_:
      case Op::or_:
      case Op::xor_:
      case Op::not_:
        logic();
        break;
      case Op::shl:
      case Op::shr:
        shift();
        break;
      case Op::add:
      case Op::sub:
      case Op::mul:
      case Op::fma:
      case Op::neg:
      case Op::abs:
      case Op::min:
      case Op::max:
      case Op::ex2:
      case Op::tanh:
        packed_floats();
        break;
      default:
        break;
    }
    return std::move(parts_);
  }

 private:
  /// Adds what register operand `to` gets from `from`; nothing for what is no register.
  void add(const ptx::Operand& from, uint32_t from_word, uint8_t from_bytes, const ptx::Operand& to,
           uint32_t to_word, uint8_t to_bytes, bool bytewise = false) {
    if (!to.is_reg() || !from.is_reg() || from_bytes == 0) return;
    parts_.push_back({layout_.register_numbers[from.id] + from_word,
                      layout_.register_numbers[to.id] + to_word, from_bytes, to_bytes, bytewise});
  }
  int bits_of(const ptx::Operand& o) const {
    return o.is_reg() ? ptx::bits(layout_.function->registers[o.id].type) : 0;
  }

  void move() {
    const int bits = ptx::bits(insn_.type());
    if (bits < 8 || bits > 64) return;
    const ptx::Operand &to = operands_[0], &from = operands_[1];
    if (!to.has_elements() && !from.has_elements()) {
      for (uint32_t word = 0; word < (bits == 64 ? 2u : 1u); ++word)
        add(from, word, 0xF, to, word, 0xF, true);
      return;
    }
    const bool packs = from.has_elements();
    const std::span<const ptx::Operand> elements = layout_.function->elements_of(packs ? from : to);
    const int bytes = bits / 8 / static_cast<int>(elements.size());
    if (bytes > 4) return;
    for (int i = 0; i < static_cast<int>(elements.size()); ++i) {
      const auto word = static_cast<uint32_t>(i * bytes / 4);
      const uint8_t in_whole = bytes_mask(i * bytes % 4, bytes), in_element = bytes_mask(0, bytes);
      if (packs)
        add(elements[static_cast<size_t>(i)], 0, in_element, to, word, in_whole, bytes == 4);
      else
        add(from, word, in_whole, elements[static_cast<size_t>(i)], 0, 0xF, bytes == 4);
    }
  }

  void permute() {
    const ptx::Operand& selector = operands_[3];
    if (!selector.is_immediate() || insn_.suffixes().size() != 1) return;
    for (int i = 0; i < 4; ++i) {
      const int chosen = static_cast<int>(selector.value >> (4 * i) & 7);
      add(operands_[chosen < 4 ? 1 : 2], 0, bytes_mask(chosen % 4, 1), operands_[0], 0, bytes_mask(i, 1));
    }
  }

  void convert() {
    const ScalarType to = insn_.type(0), from = insn_.type(1);
    const ptx::Operand& result = operands_[0];
    if (operands_.size() == 3) {  // packs two floats, the upper one first
      const int half = is_half_pair(to) ? 2 : is_byte_pair(to) ? 1 : 0;
      if (half == 0 || from != ScalarType::f32) return;
      add(operands_[1], 0, 0xF, result, 0, bytes_mask(half, half));
      add(operands_[2], 0, 0xF, result, 0, bytes_mask(0, half));
    } else if (operands_.size() == 2 && is_half_pair(to) && is_byte_pair(from)) {
      for (int i : {0, 1}) add(operands_[1], 0, bytes_mask(i, 1), result, 0, bytes_mask(2 * i, 2));
    } else if (operands_.size() == 2 && is_byte_pair(to) && is_half_pair(from)) {
      for (int i : {0, 1}) add(operands_[1], 0, bytes_mask(2 * i, 2), result, 0, bytes_mask(i, 1));
    } else if (operands_.size() == 2 && is_integer(to) && is_integer(from) && ptx::bits(to) <= 32 &&
               bits_of(operands_[1]) <= 32 && !insn_.has(ptx::Mod::sat)) {
      add(operands_[1], 0, bytes_mask(0, std::min(ptx::bits(to), ptx::bits(from)) / 8), result, 0, 0xF);
    }
  }

  void logic() {
    if (ptx::bits(insn_.type()) != 32 && ptx::bits(insn_.type()) != 16) return;
    uint8_t open = 0xF;  // bytes that no literal decides
    for (const ptx::Operand& o : operands_.subspan(1))
      for (int i = 0; o.is_immediate() && i < 4; ++i) {
        const auto byte = static_cast<uint8_t>(o.value >> (8 * i));
        if ((insn_.op == Op::and_ && byte == 0) || (insn_.op == Op::or_ && byte == 0xFF))
          open &= static_cast<uint8_t>(~bytes_mask(i, 1));
      }
    for (const ptx::Operand& o : operands_.subspan(1)) add(o, 0, open, operands_[0], 0, open, true);
  }

  void shift() {
    const ptx::Operand& by = operands_[2];
    if (!by.is_immediate() || by.value < 0 || by.value > 31 || ptx::bits(insn_.type()) != 32) return;
    const int left = static_cast<int>(insn_.op == Op::shl ? by.value : -by.value);
    const bool fills_with_sign = insn_.op == Op::shr && ptx::is_signed(insn_.type());
    for (int i = 0; i < 4; ++i) {
      uint8_t from = 0;
      for (int bit = 8 * i - left; bit < 8 * i - left + 8; ++bit)
        if (bit >= 0 && (bit < 32 || fills_with_sign)) from |= bytes_mask(std::min(bit, 31) / 8, 1);
      add(operands_[1], 0, from, operands_[0], 0, bytes_mask(i, 1));
    }
  }

  void packed_floats() {
    const ScalarType type = insn_.type();
    if (type == ScalarType::f32x2) {
      for (const ptx::Operand& o : operands_.subspan(1))
        for (uint32_t word : {0u, 1u}) add(o, word, 0xF, operands_[0], word, 0xF);
    } else if (is_half_pair(type)) {
      for (const ptx::Operand& o : operands_.subspan(1))
        for (int i : {0, 2}) add(o, 0, bytes_mask(i, 2), operands_[0], 0, bytes_mask(i, 2));
    }
  }

  const FunctionLayout& layout_;
  const ptx::Instruction& insn_;
  std::span<const ptx::Operand> operands_;
  std::vector<BytePart> parts_;
};

}  // namespace

std::vector<BytePart> byte_parts(const FunctionLayout& layout, const ptx::Instruction& insn) {
  return Parts(layout, insn).make();
}

}  // namespace imbrex::vgpu
