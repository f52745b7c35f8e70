// SPDX-License-Identifier: Apache-2.0
#include "codegen/tensor_cores/matrix_descriptor.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"

namespace imbrex::codegen {

layout::MatrixOperand describe_operand(Generator& g, const ir::Op& op, std::string_view name,
                                       const ir::Value* value, const layout::Layout& operand, int64_t rows,
                                       int64_t k) {
  const layout::Described<layout::MatrixOperand> described =
      layout::describe_matrix_operand(operand, rows, k);
  if (!described)
    g.fail(op, fmt::format("no matrix descriptor reads {}: {}", name, described.error),
           {fmt::format("{}  {}", name, value->type.to_string())},
           "let the layout be inferred, or annotate an operand_tile");
  // Swizzles act on absolute addresses, so that the start need not be a multiple of their period.
  if (!starts_at_multiple(g.get<SharedView>(value), 16))
    g.fail(op, fmt::format("{} does not start at a multiple of 16 bytes of shared memory", name));
  return *described;
}

Integer descriptor_base(Generator& g, const SharedView& view, const layout::MatrixOperand& fields,
                        uint64_t constant, const Integer& block_bytes) {
  Integers& ints = g.ints();
  constant |= static_cast<uint64_t>(fields.leading_bytes >> 4 & 0x3fff) << 16 |
              static_cast<uint64_t>(fields.stride_bytes >> 4 & 0x3fff) << 32;
  const Integer start = ints.add(g.shared_base(), block_bytes);
  const Integer field = ints.widen(ints.and_mask(ints.shift_right(start, 4), 0x3fff));
  Integer descriptor = ints.add(field, Integers::constant(static_cast<int64_t>(constant)));
  for (const ScaledInteger& t : view.terms) {
    if (t.scale % 16 != 0) throw InternalError("codegen: an operand does not start at 16 bytes");
    descriptor = ints.add(descriptor, ints.wide_mul(t.value, Integers::constant(t.scale / 16)));
  }
  return descriptor;
}

}  // namespace imbrex::codegen
