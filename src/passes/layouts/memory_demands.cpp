// SPDX-License-Identifier: Apache-2.0
// What each instruction demands of tensors in shared and tensor memory. An instruction group adds a function
// here.
#include <fmt/format.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "ir/tcgen05_kinds.h"
#include "layout/descriptors.h"
#include "layout/memory.h"
#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {
namespace {

using ir::Opcode;
using ir::TypeKind;
using layout::Layout;
using layout::Swizzle;

/// The operand [mn, k] (or [k, mn]) is read by matrix descriptors, mn_step rows and 32 bytes of k at a time.
/// `element_bits` from one element to the next (0: the type's); where mn is contiguous, mn_step must be a
/// multiple of `mn_multiple`.
MemoryDemand matrix_operand(const Use& use, std::string_view name, bool is_k_first, int64_t mn_step,
                            int element_bits = 0, int64_t mn_multiple = 1) {
  ir::Value* view = use.op->operands[use.operand];
  const int bits = view->type.dtype.bits();
  if (element_bits == 0) element_bits = bits;
  auto refusal = [=](const Layout& found) -> std::string {
    if (found.element_bits() != element_bits)
      return fmt::format("elements are {} bits apart, the instruction reads them {} bits apart",
                         found.element_bits(), element_bits);
    const Layout operand = is_k_first ? found.transpose() : found;
    const auto description = layout::describe_matrix_operand(operand, mn_step, 256 / element_bits);
    if (!description) return description.error;
    const bool wide_atoms = description->swizzle.mode == Swizzle::k128BAtom32B;
    if (description->major == layout::Major::kMN && (bits < 8 || (bits == 32) != wide_atoms))
      return bits == 32 ? "it is MN-major, and 32-bit elements are then read with swizzle 128B/32B only"
                        : fmt::format("it is MN-major with swizzle {}, which is not read for {}-bit elements",
                                      description->swizzle.name(), bits);
    if (description->major == layout::Major::kMN && mn_step % mn_multiple != 0)
      return fmt::format("it is MN-major, and {}-bit elements then come in multiples of {} columns", bits,
                         mn_multiple);
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

MemoryDemand tcgen05_mma_demand(const Use& use) {
  const ir::Op& op = *use.op;
  const ir::Type& type = op.operands[use.operand]->type;
  const int64_t group = op.int_attr("cta_group", 1);
  const ir::MmaKindFacts* kind = ir::mma_kind(op);
  if (!kind) throw InternalError("layout inference: a product of no kind");
  const ir::MmaTile tile = ir::mma_tile(op, *kind);
  const int bits = kind->element_bits(type.dtype);
  if (type.kind == TypeKind::kShared) {
    const int64_t narrow = type.dtype.bits() == 8 ? 16 : 8;  // both CTAs' halves take as much
    if (use.operand == 0) return matrix_operand(use, "a", false, tile.m, bits);
    return matrix_operand(use, "b", true, tile.n / group, bits, narrow);
  }
  std::string what;
  try {
    switch (use.operand) {
      case 2:
        what = "accumulator d as the tensor core writes it";
        return exact(use, what,
                     layout::accumulator_of_cta(type.shape[0], type.shape[1], type.dtype.bits(), group));
      case 4:
      case 5:
        what = "scale factors as the tensor core reads them";
        return exact(use, what, layout::scale_factors(type.shape[0], type.shape[1]));
      default:
        what = "operand a as the tensor core reads it from tensor memory";
        return exact(use, what, layout::operand_a_of_cta(type.shape[0], type.shape[1], bits, group));
    }
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

/// The lane a copy to tensor memory starts at: four rows go to the last lane of every 32.
int64_t first_copy_lane(const ir::Type& dst) { return dst.shape[0] == 4 ? 31 : 0; }

/// Tensor memory is laid out first, for a shape of tcgen05.cp; shared memory then as that shape reads it.
MemoryDemand tcgen05_copy_demand(const Use& use) {
  const ir::Value* dst = use.op->operands[1];
  const int64_t lane = first_copy_lane(dst->type);
  if (use.operand == 1)
    return {use.op, use.op->operands[1], "dst as tcgen05.cp writes it",
            [lane](const Layout& found) { return layout::tensor_copy_refusal(found, lane); }};
  auto refusal = [dst, lane](const Layout& found) -> std::string {
    if (!dst->type.layout) return "";
    const auto copies = layout::describe_tensor_copies(found, *dst->type.layout, lane);
    return copies ? "" : copies.error;
  };
  return {use.op, use.op->operands[0], "src as tcgen05.cp reads it", refusal, true};
}

/// Elements of less than a byte lie without gaps where threads move them.
MemoryDemand plain_elements(const Use& use) {
  ir::Value* view = use.op->operands[use.operand];
  const int bits = view->type.dtype.bits();
  auto refusal = [bits](const Layout& found) {
    return found.element_bits() == bits
               ? ""
               : "its elements lie 16 to 16 bytes, which TMA, tcgen05_mma and tcgen05_copy alone read";
  };
  return {use.op, view, "elements without gaps", refusal};
}

/// cp.async moves 4, 8 or 16 bytes that are neighbours in global and in shared memory.
MemoryDemand copy_async_demand(const Use& use) {
  const ir::Op& op = *use.op;
  const int bits = op.operands[1]->type.dtype.bits();
  const int tile_dim = contiguous_tile_dim(*op.operands[0], op.ints_attr("dims"));
  auto refusal = [bits, tile_dim](const Layout& found) -> std::string {
    if (bits >= 32) return "";
    const layout::Run run = layout::contiguous_run(found, layout::Axis::kAddress);
    if (run.dim == tile_dim && run.length * bits % 32 == 0 && run.alignment * bits % 32 == 0) return "";
    return fmt::format(
        "fewer than 4 bytes along dimension {}, contiguous in global memory, would be neighbours in {}",
        tile_dim, found.to_string());
  };
  return {use.op, op.operands[1], "dst in runs of at least 4 bytes", refusal};
}

/// What maps of types of less than a byte take beside that.
std::string narrow_tma_refusal(const layout::TmaBoxes& boxes, const Layout& found, DataType dtype,
                               bool is_load) {
  if (dtype.bits() >= 8) return "";
  const bool is_padded = found.element_bits() == 8;
  if (!is_load && (is_padded || dtype.bits() == 6))
    return fmt::format("stores take {}",
                       dtype.bits() == 6 ? "no 6-bit elements" : "4-bit elements without gaps");
  if (!is_padded)
    return dtype.bits() == 4 ? "" : "6-bit elements are loaded 16 to 16 bytes only, in rows of 128";
  if (boxes.box.front() != 128)
    return fmt::format("elements that lie 16 to 16 bytes are loaded in rows of 128, not of {}",
                       boxes.box.front());
  return "";
}

/// TMA copies boxes that are dense in shared memory, in rows along what is contiguous in global memory.
MemoryDemand tma_demand(const Use& use, size_t global) {
  const ir::Op& op = *use.op;
  const int tile_dim = contiguous_tile_dim(*op.operands[global], op.ints_attr("dims"));
  const DataType dtype = op.operands[use.operand]->type.dtype;
  const bool is_load = op.code == Opcode::kTmaGlobalToShared;
  auto refusal = [=](const Layout& found) -> std::string {
    const int64_t row = found.shape()[static_cast<size_t>(tile_dim)];
    if (row * found.element_bits() % 128 != 0)
      return fmt::format("rows of {} elements along dimension {} are not a multiple of 16 bytes", row,
                         tile_dim);
    const auto boxes = layout::describe_tma_boxes(found, tile_dim);
    return boxes ? narrow_tma_refusal(*boxes, found, dtype, is_load) : boxes.error;
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
    case Opcode::kTcgen05ScaledMma:
      return {tcgen05_mma_demand(use)};
    case Opcode::kWgmmaMma:
      if (use.operand < 2) return {wgmma_demand(use)};
      return {};
    case Opcode::kTcgen05Copy:
      return {tcgen05_copy_demand(use)};
    case Opcode::kLoadShared:
    case Opcode::kStoreShared:
    case Opcode::kTcgen05Load:
    case Opcode::kTcgen05Store:
      if (use.operand > 0 || use.op->operands[0]->type.dtype.bits() >= 8) return {};
      return {plain_elements(use)};
    case Opcode::kCopyAsync:
    case Opcode::kCopyAsyncGather:
      if (use.operand != 1) return {};
      if (use.op->operands[1]->type.dtype.bits() >= 8) return {copy_async_demand(use)};
      return {copy_async_demand(use), plain_elements(use)};
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
