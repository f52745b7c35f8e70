// SPDX-License-Identifier: Apache-2.0
// tcgen05.cp and tcgen05.shift: shared memory to tensor memory, and tensor memory along its lanes.
#include <fmt/format.h>

#include "codegen/tensor_cores/matrix_descriptor.h"
#include "codegen/tensor_cores/tcgen05.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

namespace {

std::vector<Suffix> copy_words(layout::TensorCopyShape shape) {
  using enum layout::TensorCopyShape;
  switch (shape) {
    case k128x256b:
      return {Mod::_128x256b};
    case k128x128b:
      return {Mod::_128x128b};
    case k64x128b02_13:
      return {Mod::_64x128b, Mod::warpx2_02_13};
    case k64x128b01_23:
      return {Mod::_64x128b, Mod::warpx2_01_23};
    case k32x128b:
      return {Mod::_32x128b, Mod::warpx4};
    case k4x256b:
      return {Mod::_4x256b};
  }
  throw InternalError("codegen: unknown shape of tcgen05.cp");
}

/// The lane that a copy of this many rows starts at: four go to the last of every 32.
int64_t first_lane(const TensorMemoryView& to) { return to.layout.shape()[0] == 4 ? 31 : 0; }

}  // namespace

void emit_Tcgen05Copy(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  const SharedView& from = g.get<SharedView>(op.operands[0]);
  const TensorMemoryView& to = g.get<TensorMemoryView>(op.operands[1]);
  const auto copies = layout::describe_tensor_copies(from.layout, to.layout, first_lane(to));
  const auto refuse = [&](const std::string& why) {
    g.fail(op, why, {"src  " + from.layout.to_string(), "dst  " + to.layout.to_string()},
           "let the layouts be inferred");
  };
  if (!copies) refuse(copies.error);
  if (to.lane != first_lane(to))
    refuse(fmt::format("dst starts at lane {}, {} rows are copied to lanes from {} on", to.lane,
                       to.layout.shape()[0], first_lane(to)));
  if (!starts_at_multiple(from, 16)) refuse("src does not start at a multiple of 16 bytes of shared memory");

  std::vector<Suffix> words{cta_group_word(op)};
  for (const Suffix& word : copy_words(copies->shape)) words.push_back(word);
  if (to.layout.element_bits() > to.dtype.bits()) {  // 16 elements of 16 bytes become 16 bytes
    words.push_back(ScalarType::b8x16);
    words.push_back(to.dtype.bits() == 4 ? ScalarType::b4x16_p64 : ScalarType::b6x16_p32);
  }
  Emitter& e = g.e();
  const Reg elected = g.elected();
  for (const layout::TensorCopyStep& step : copies->steps) {
    const Integer base = descriptor_base(g, from, step.source, tcgen05_descriptor_bits(step.source.swizzle));
    e.emit(Op::tcgen05_cp, words,
           std::array<Operand, 2>{ptx::address(to.base.value.reg(), to.column + step.column),
                                  descriptor_at(g, base, from.offset + step.offset_bytes)})
        .when(elected);
  }
}

void emit_Tcgen05Shift(Generator& g, const ir::Op& op) {
  g.require_arch(op, 100, "tcgen05");
  constexpr int64_t kColumns = 8;  // that one instruction moves
  const TensorMemoryView& t = g.get<TensorMemoryView>(op.operands[0]);
  const bool has_lanes = t.layout.modes(0) == layout::Modes{{128, 1, layout::Axis::kLane}};
  if (!has_lanes || t.lane != 0 || t.layout.columns() % kColumns != 0)
    g.fail(op, "moves whole lanes, a row in each", {"tensor memory  " + t.layout.to_string()});
  const Reg elected = g.elected();
  for (int64_t column = 0; column < t.layout.columns(); column += kColumns)
    g.e()
        .emit(Op::tcgen05_shift, {cta_group_word(op), Mod::down},
              {ptx::address(t.base.value.reg(), t.column + column)})
        .when(elected);
}

}  // namespace imbrex::codegen
