// SPDX-License-Identifier: Apache-2.0
// A lane gives the address of one 16-byte row of a matrix. In terms of layouts: it accesses the tensor as a
// thread of MatrixMove::rows would, in vectors of 16 bytes, so that addresses, swizzles and their hoisting
// are those of any other access.
#include "codegen/memory/matrix_moves.h"

#include <algorithm>

#include "layout/registers.h"

namespace imbrex::codegen {

using layout::Axis;
using layout::MatrixMove;

namespace {

constexpr int kRowBytes = 16;

/// Calls emit(address, registers) for every instruction of the first way that the memory allows; registers
/// are word numbers of the tensor. False when there is none.
template <class Emit>
bool for_each_move(Generator& g, const ir::Op& op, const SharedView& view, const layout::Layout& layout,
                   const Group& group, const Emit& emit) {
  if (!group.is_whole_warps() || layout.threads() != group.threads) return false;
  const int bits = view.dtype.bits();
  for (const MatrixMove& move : layout::matrix_moves(layout, bits)) {
    const Tile tile(g, op, move.rows, group);
    const SharedTile shared(tile, view);
    const int64_t per_row = kRowBytes * 8 / bits, per_word = 32 / bits;
    const Digit* along = shared.vector_digit();
    if (!along || along->divisor != 1 || shared.vector(kRowBytes) != per_row) continue;
    for (int64_t reg = 0; reg < move.rows.registers(); reg += per_row) {
      std::vector<int64_t> words;
      for (int64_t j = 0; j < move.matrices; ++j)
        words.push_back(layout.map(*move.rows.element(8 * j, reg))[Axis::kRegister] / per_word);
      emit(move, shared.address(reg), words);
    }
    return true;
  }
  return false;
}

void emit_move(Generator& g, Op op, const MatrixMove& move, std::initializer_list<Operand> operands) {
  const Mod count = move.matrices == 4 ? Mod::x4 : move.matrices == 2 ? Mod::x2 : Mod::x1;
  if (move.transposed)
    g.e().emit(op, {Mod::sync, Mod::aligned, Mod::m8n8, count, Mod::trans, Mod::shared, ScalarType::b16},
               operands);
  else
    g.e().emit(op, {Mod::sync, Mod::aligned, Mod::m8n8, count, Mod::shared, ScalarType::b16}, operands);
}

}  // namespace

std::optional<std::vector<Operand>> load_matrices(Generator& g, const ir::Op& op, const SharedView& view,
                                                  const layout::Layout& layout) {
  Emitter& e = g.e();
  std::vector<Operand> words(static_cast<size_t>(layout.registers() * view.dtype.bits() / 32), ptx::sink());
  const bool done =
      for_each_move(g, op, view, layout, g.group(),
                    [&](const MatrixMove& move, const Operand& address, std::span<const int64_t> targets) {
                      std::vector<Operand> loaded;
                      for (size_t j = 0; j < targets.size(); ++j) loaded.push_back(e.reg(ScalarType::b32));
                      emit_move(g, Op::ldmatrix, move, {e.builder().vec(loaded), address});
                      for (size_t j = 0; j < targets.size(); ++j) {
                        Operand& word = words[static_cast<size_t>(targets[j])];
                        word = loaded[j];
                        const ScalarType type = word_type(view.dtype);
                        if (type != ScalarType::b32)
                          word = e.make(type, Op::mov, {ScalarType::b32}, {loaded[j]});
                      }
                    });
  if (!done) return std::nullopt;
  return words;
}

bool store_matrices(Generator& g, const ir::Op& op, const SharedView& view, const RegisterTensor& value) {
  if (g.arch() < 90 || !value.layout.replicas().empty()) return false;
  Emitter& e = g.e();
  return for_each_move(
      g, op, view, value.layout, value.group,
      [&](const MatrixMove& move, const Operand& address, std::span<const int64_t> sources) {
        std::vector<Operand> stored;
        for (int64_t word : sources) {
          const Operand& source = value.words[static_cast<size_t>(word)];
          const bool is_bits = word_type(value.dtype) == ScalarType::b32;
          stored.push_back(is_bits ? e.to_register(ScalarType::b32, source)
                                   : e.make(ScalarType::b32, Op::mov, {ScalarType::b32}, {source}));
        }
        emit_move(g, Op::stmatrix, move, {address, e.builder().vec(stored)});
      });
}

}  // namespace imbrex::codegen
