// SPDX-License-Identifier: Apache-2.0
// copy_async_gather: cp.async from places that index tiles give. The threads copy what they hold of the index tile.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/memory/indexed.h"
#include "codegen/memory/shared_memory.h"
#include "codegen/threads.h"

namespace imbrex::codegen {

void emit_CopyAsyncGather(Generator& g, const ir::Op& op) {
  constexpr int64_t kLeastBytes = 4;
  const SharedView& to = g.get<SharedView>(op.operands[1]);
  const int64_t bits = to.dtype.bits();
  const Tile tile(g, op, g.layout_of(op.operands[2]), g.group());
  const IndexedTile places(tile, 3);
  const SharedTile shared(tile, to);
  const Operand holds = holds_elements(g, g.group(), tile.digits(), true);
  places.check_indices(holds);
  const Digit *from = places.vector_digit(), *into = shared.vector_digit();
  const bool is_same = from && into && from->divisor == into->divisor;
  const int64_t most = is_same ? shared.vector(16) : 1;
  places.with_vectors(most, true, [&](int64_t vector, bool test_along) {
    const int64_t bytes = vector * bits / 8;
    if (bytes < kLeastBytes)
      g.fail(
          op,
          fmt::format("{} neighbouring bytes have the same index and lie together in source and destination; "
                      "cp.async copies 4, 8 or 16",
                      bytes),
          {fmt::format("destination {} {}", to.dtype.name(), to.layout.to_string())},
          "give one index for each row, and make strides, extents and offsets multiples of 16 bytes; or use "
          "gather() "
          "and store_shared()");
    places.rely_on_alignment(bytes);
    for (const RegisterRun& run : tile.runs(into, vector)) {
      const Operand guard = g.ints().both(holds, tile.in_shape(run.first), 0);
      if (guard.is_immediate() && guard.value == 0) continue;
      const Operand inside = places.is_inside(run.first, test_along);
      Operand size = bytes;
      if (inside.is_immediate())
        size = inside.value ? bytes : 0;
      else
        size = g.e().make(ScalarType::b32, Op::selp, {ScalarType::b32}, {bytes, 0, inside});
      ptx::Instruction& copy =
          g.e().emit(Op::cp_async, {bytes == 16 ? Mod::cg : Mod::ca, Mod::shared, Mod::global},
                     {shared.address(run.first), places.address(run.first), bytes, size});
      if (guard.is_reg()) copy.when(guard.reg());
    }
  });
}

}  // namespace imbrex::codegen
