// SPDX-License-Identifier: Apache-2.0
// What each instruction demands of tensors in shared and tensor memory. An instruction group adds a function
// here.
#include <fmt/format.h>

#include <algorithm>

#include "imbrex/error.h"
#include "layout/descriptors.h"
#include "layout/memory.h"
#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/layout_inference.h"

namespace imbrex::passes {
namespace {

using ir::Opcode;
using ir::TypeKind;
using layout::Layout;
using layout::Swizzle;

/// The operand [mn, k] (or [k, mn]) is read by matrix descriptors, mn_step rows and 32 bytes of k at a time.
MemoryDemand matrix_operand(const Use& use, std::string_view name, bool is_k_first, int64_t mn_step) {
  ir::Value* view = use.op->operands[use.operand];
  const int bits = view->type.dtype.bits();
  auto refusal = [is_k_first, mn_step, bits](const Layout& found) -> std::string {
    const Layout operand = is_k_first ? found.transpose() : found;
    const auto description = layout::describe_matrix_operand(operand, mn_step, 256 / bits);
    if (!description) return description.error;
    const bool wide_atoms = description->swizzle.mode == Swizzle::k128BAtom32B;
    if (description->major == layout::Major::kMN && (bits < 8 || (bits == 32) != wide_atoms))
      return bits == 32 ? "it is MN-major, and 32-bit elements are then read with swizzle 128B/32B only"
                        : fmt::format("it is MN-major with swizzle {}, which is not read for {}-bit elements",
                                      description->swizzle.name(), bits);
    return "";
  };
  return {use.op, view, fmt::format("operand {} as matrix descriptors read it", name), refusal, true};
}

/// The view lies exactly as `wanted`.
MemoryDemand exact(const Use& use, std::string what, Layout wanted) {
  ir::Value* view = use.op->operands[use.operand];
  auto refusal = [wanted](const Layout& found) {
    return found == wanted
               ? ""
               : fmt::format("it would lie as {}, not as {}", found.to_string(), wanted.to_string());
  };
  return {use.op, view, std::move(what), refusal};
}

MemoryDemand impossible(const Use& use, std::string what, std::string why) {
  return {use.op, use.op->operands[use.operand], std::move(what), [why](const Layout&) { return why; }};
}

/// The part of an accumulator that one CTA holds; rows is m, or m / 2 of a pair.
Layout accumulator_of_cta(int64_t rows, int64_t n, int bits, int64_t cta_group) {
  using layout::AccumulatorLayout;
  if (rows == 128) return layout::accumulator(AccumulatorLayout::kD, n, bits);
  if (rows == 64)  // of a pair: two halves of the columns above one another, as E has them in one CTA
    return layout::accumulator(cta_group == 2 ? AccumulatorLayout::kE : AccumulatorLayout::kF, n, bits);
  throw CompileError(Diagnostic{{},
                                fmt::format("{} rows; an accumulator has 64 or 128 in each CTA", rows),
                                {},
                                "change m, or split the product"});
}

Layout operand_a_of_cta(int64_t rows, int64_t k, int bits, int64_t cta_group) {
  if (rows == 64 && cta_group == 2)  // both lane halves hold the rows
    return Layout({64, k}, {{{64, 1, layout::Axis::kLane}}, {{k, 1, layout::Axis::kColumn}}},
                  {{2, 64, layout::Axis::kLane}}, bits);
  return layout::tensor_memory_a(rows, k, bits);
}

MemoryDemand tcgen05_mma_demand(const Use& use) {
  const ir::Op& op = *use.op;
  const ir::Type& type = op.operands[use.operand]->type;
  const int64_t group = op.int_attr("cta_group", 1);
  const int bits = type.dtype.bits();
  if (use.operand == 2) {
    const std::string what = "accumulator d as the tensor core writes it";
    try {
      return exact(use, what, accumulator_of_cta(type.shape[0], type.shape[1], bits, group));
    } catch (const CompileError& error) {
      return impossible(use, what, error.diagnostics().front().message);
    }
  }
  if (type.kind == TypeKind::kShared) {
    if (use.operand == 0) return matrix_operand(use, "a", false, std::min<int64_t>(type.shape[0], 128));
    return matrix_operand(use, "b", true, type.shape[1]);
  }
  const std::string what = "operand a as the tensor core reads it from tensor memory";
  try {
    return exact(use, what, operand_a_of_cta(type.shape[0], type.shape[1], bits, group));
  } catch (const CompileError& error) {
    return impossible(use, what, error.diagnostics().front().message);
  }
}

/// As tcgen05's, but MN-major for 16-bit elements only, and A in blocks of 64 rows.
MemoryDemand wgmma_demand(const Use& use) {
  const ir::Type& type = use.op->operands[use.operand]->type;
  const bool is_b = use.operand == 1;
  const int64_t rows = is_b ? layout::wgmma_columns(type.shape[1], type.dtype.is_integer()) : 64;
  MemoryDemand demand = matrix_operand(use, is_b ? "b" : "a", is_b, rows);
  const int bits = type.dtype.bits();
  demand.refusal = [general = demand.refusal, is_b, rows, bits](const Layout& found) -> std::string {
    if (std::string refusal = general(found); !refusal.empty()) return refusal;
    const auto description =
        layout::describe_matrix_operand(is_b ? found.transpose() : found, rows, 256 / bits);
    if (description->major == layout::Major::kMN && bits != 16)
      return fmt::format("it is MN-major, which wgmma reads for 16-bit elements only, not {}-bit ones", bits);
    return "";
  };
  return demand;
}

/// cp.async moves 4, 8 or 16 bytes that are neighbours in global and in shared memory.
MemoryDemand copy_async_demand(const Use& use) {
  const ir::Op& op = *use.op;
  const int bits = op.operands[1]->type.dtype.bits();
  const int tile_dim = contiguous_tile_dim(*op.operands[0], op.ints_attr("dims"));
  auto refusal = [bits, tile_dim](const Layout& found) -> std::string {
    if (bits >= 32) return "";
    const layout::Run run = layout::contiguous_run(found, layout::Axis::kAddress);
    if (run.dim == tile_dim && run.length % (32 / bits) == 0 && run.alignment % (32 / bits) == 0) return "";
    return fmt::format(
        "fewer than 4 bytes along dimension {}, contiguous in global memory, would be neighbours in {}",
        tile_dim, found.to_string());
  };
  return {use.op, op.operands[1], "dst in runs of at least 4 bytes", refusal};
}

/// TMA copies boxes that are dense in shared memory, in rows along what is contiguous in global memory.
MemoryDemand tma_demand(const Use& use, size_t global) {
  const ir::Op& op = *use.op;
  const int tile_dim = contiguous_tile_dim(*op.operands[global], op.ints_attr("dims"));
  auto refusal = [tile_dim](const Layout& found) -> std::string {
    const int64_t row = found.shape()[static_cast<size_t>(tile_dim)];
    if (row * found.element_bits() % 128 != 0)
      return fmt::format("rows of {} elements along dimension {} are no multiple of 16 bytes", row, tile_dim);
    const auto boxes = layout::describe_tma_boxes(found, tile_dim);
    return boxes ? "" : boxes.error;
  };
  const std::string role(op.info().operands[use.operand].name);
  return {use.op, op.operands[use.operand], role + " as boxes of a tensor map", refusal, true};
}

}  // namespace

std::vector<MemoryDemand> memory_demands(const Use& use) {
  switch (use.op->code) {
    case Opcode::kAnnotateLayout: {
      Layout wanted = std::get<Layout>(*use.op->attr("layout"));
      if (wanted.element_bits() == 0)
        wanted = wanted.with_element_bits(use.op->operands[0]->type.dtype.bits());
      return {exact(use, "exactly " + wanted.to_string(), wanted)};
    }
    case Opcode::kTcgen05Mma:
      return {tcgen05_mma_demand(use)};
    case Opcode::kWgmmaMma:
      if (use.operand < 2) return {wgmma_demand(use)};
      return {};
    case Opcode::kCopyAsync:
      if (use.operand == 1) return {copy_async_demand(use)};
      return {};
    case Opcode::kClcTryCancel:
    case Opcode::kClcQuery:
      if (use.operand > 0) return {};
      return {
          exact(use, "16 bytes in order",
                layout::row_major(use.op->operands[0]->type.shape, use.op->operands[0]->type.dtype.bits()))};
    case Opcode::kTmaGlobalToShared:
      if (use.operand == 1) return {tma_demand(use, 0)};
      return {};
    case Opcode::kTmaSharedToGlobal:
      if (use.operand == 0) return {tma_demand(use, 1)};
      return {};
    default:
      return {};
  }
}

}  // namespace imbrex::passes
