// SPDX-License-Identifier: Apache-2.0
// tcgen05.cp (shared to tensor memory) and tcgen05.shift: carried out by the tensor core in the order of
// issue.
#include <fmt/format.h>

#include <cstring>

#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/chunk_expansion.h"
#include "vgpu/tensor_cores/operand_reader.h"
#include "vgpu/tensor_cores/tensor_unit.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr const char* kUnit = "tensor core";

enum class CopyShape : uint8_t { k128x256b, k128x128b, k64x128b02_13, k64x128b01_23, k32x128b, k4x256b };

struct CopyShapeFacts {
  uint32_t rows, columns;
  uint32_t copies;  // lanes that each row goes to
};

constexpr CopyShapeFacts facts(CopyShape shape) {
  switch (shape) {
    case CopyShape::k128x256b:
      return {128, 8, 1};
    case CopyShape::k128x128b:
      return {128, 4, 1};
    case CopyShape::k64x128b02_13:
    case CopyShape::k64x128b01_23:
      return {64, 4, 2};
    case CopyShape::k32x128b:
      return {32, 4, 4};
    case CopyShape::k4x256b:
      return {4, 8, 1};
  }
  return {};
}

// The lane of copy c of a row. 4x256b refreshes the last lane of each quarter (unconfirmed on hardware).
constexpr uint32_t lane_of(CopyShape shape, uint32_t row, uint32_t c) {
  switch (shape) {
    case CopyShape::k64x128b02_13:
      return row + 64 * c;
    case CopyShape::k64x128b01_23:
      return row % 32 + 64 * (row / 32) + 32 * c;
    case CopyShape::k32x128b:
      return row + 32 * c;
    case CopyShape::k4x256b:
      return 32 * row + 31;
    default:
      return row;
  }
}

struct CopyForm {
  AddressSource to;
  Slot descriptor;
  CopyShape shape;
  ChunkPadding padding;
  int cta_group;
};

class Copy : public AsyncOp {
 public:
  Copy(Who who, Cta& cta, const CopyForm& form, TensorAddress to, uint64_t descriptor)
      : AsyncOp(who), cta_(&cta), form_(&form), to_(to), descriptor_(descriptor) {}

  bool run(Cluster& cluster) override {
    CtaPair ctas;
    if (resolve_pair(cluster, who, *cta_, form_->cta_group, ctas)) {
      copy(cluster, *ctas.even);
      if (ctas.odd != nullptr) copy(cluster, *ctas.odd);
    }
    cluster.note_progress();
    return true;
  }
  std::string describe() const override {
    return fmt::format("tcgen05.cp of {} rows to tensor memory column {}", facts(form_->shape).rows,
                       to_.column);
  }
  WorkDemand demand() const override {
    const CopyShapeFacts shape = facts(form_->shape);
    return {.kind = WorkDemand::Kind::kTensorCopy, .bytes = int64_t{shape.rows} * shape.columns * 4};
  }
  Completion completion() const override { return {CompletedBy::kCommit}; }

 private:
  void copy(Cluster& cluster, Cta& cta) {
    const DecodedDescriptor decoded = decode_tcgen05_descriptor(descriptor_);
    if (!decoded.problem.empty()) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0,
                           fmt::format("tcgen05.cp: descriptor {:#x}: {}", descriptor_, decoded.problem));
      return;
    }
    const CopyShapeFacts shape = facts(form_->shape);
    if (!check_allocated(cluster, who, cta, to_.column, shape.columns)) return;
    const uint32_t chunks = shape.columns / 4;
    std::vector<uint8_t> rows(size_t{shape.rows} * chunks * 16);
    const OperandAddresses addresses(decoded.descriptor, Major::kK);
    if (!read_operand(cluster, who, cta, addresses, shape.rows, chunks, "source of tcgen05.cp", rows.data()))
      return;
    if (form_->padding != ChunkPadding::kNone)
      for (size_t at = 0; at < rows.size(); at += 16) {
        uint8_t expanded[16];
        expand_chunk(form_->padding, rows.data() + at, expanded);
        std::memcpy(rows.data() + at, expanded, 16);
      }
    TensorMemory& memory = tensor_unit(cta).memory;
    for (uint32_t row = 0; row < shape.rows; ++row)
      for (uint32_t c = 0; c < shape.copies; ++c) {
        const uint32_t lane = lane_of(form_->shape, row, c);
        std::memcpy(memory.row(lane) + to_.column, rows.data() + size_t{row} * chunks * 16, chunks * 16);
        memory.define(lane, to_.column, shape.columns);
      }
    memory.set_result(to_.column, shape.columns, {});
    const uint32_t lanes =
        form_->shape == CopyShape::k4x256b ? TensorMemory::kLanes : shape.rows * shape.copies;
    cluster.observe().tensor_touched(who, cta, 0, lanes, to_.column, shape.columns, TensorAccess::kWrite);
    cluster.statistics().tensor_memory_bytes += static_cast<int64_t>(rows.size());
  }

  Cta* cta_;
  const CopyForm* form_;
  TensorAddress to_;
  uint64_t descriptor_;
};

struct ShiftForm {
  AddressSource at;
  int cta_group;
};

/// Moves 8 columns by one lane: each lane of a quarter takes the next one's cells, the last keeps its own.
class Shift : public AsyncOp {
 public:
  Shift(Who who, Cta& cta, int cta_group, TensorAddress at)
      : AsyncOp(who), cta_(&cta), cta_group_(cta_group), at_(at) {}

  bool run(Cluster& cluster) override {
    CtaPair ctas;
    if (resolve_pair(cluster, who, *cta_, cta_group_, ctas)) {
      shift(cluster, *ctas.even);
      if (ctas.odd != nullptr) shift(cluster, *ctas.odd);
    }
    cluster.note_progress();
    return true;
  }
  std::string describe() const override {
    return fmt::format("tcgen05.shift of tensor memory column {}", at_.column);
  }
  WorkDemand demand() const override {
    return {.kind = WorkDemand::Kind::kTensorCopy, .bytes = int64_t{TensorMemory::kLanes} * kColumns * 4};
  }
  Completion completion() const override { return {CompletedBy::kCommit}; }

 private:
  static constexpr uint32_t kColumns = 8;

  void shift(Cluster& cluster, Cta& cta) {
    if (at_.lane % 32 != 0) {
      cluster.report_fatal(
          FindingKind::kTensorMemory, who, at_.bits(),
          fmt::format("tcgen05.shift: lane {} of the address is not a multiple of 32", at_.lane));
      return;
    }
    if (!check_allocated(cluster, who, cta, at_.column, kColumns)) return;
    TensorMemory& memory = tensor_unit(cta).memory;
    for (uint32_t lane = at_.lane; lane < TensorMemory::kLanes; ++lane)
      if (lane % 32 != 31)
        std::memcpy(memory.row(lane) + at_.column, memory.row(lane + 1) + at_.column, kColumns * 4);
    cluster.observe().tensor_touched(who, cta, at_.lane, TensorMemory::kLanes - at_.lane, at_.column,
                                     kColumns, TensorAccess::kWrite);
  }

  Cta* cta_;
  int cta_group_;
  TensorAddress at_;
};

Step exec_copy(Warp& warp, const Instruction& insn, Mask active) {
  const CopyForm& form = insn.form<CopyForm>();
  for_each_lane(active, [&](int lane) {
    const auto to = TensorAddress::from_bits(static_cast<uint32_t>(warp.address(form.to, lane)));
    submit_to_tensor_core(warp.cta(),
                          std::make_unique<Copy>(warp.thread(insn, lane).as_unit(kUnit), warp.cta(), form, to,
                                                 warp.reg<uint64_t>(form.descriptor)[lane]));
  });
  return Step::kNext;
}

Step exec_shift(Warp& warp, const Instruction& insn, Mask active) {
  const ShiftForm& form = insn.form<ShiftForm>();
  for_each_lane(active, [&](int lane) {
    const auto at = TensorAddress::from_bits(static_cast<uint32_t>(warp.address(form.at, lane)));
    submit_to_tensor_core(warp.cta(), std::make_unique<Shift>(warp.thread(insn, lane).as_unit(kUnit),
                                                              warp.cta(), form.cta_group, at));
  });
  return Step::kNext;
}

CopyShape copy_shape(const Decoder& decoder) {
  switch (
      decoder.insn().one_of({Mod::_128x256b, Mod::_128x128b, Mod::_64x128b, Mod::_32x128b}, Mod::_4x256b)) {
    case Mod::_128x256b:
      return CopyShape::k128x256b;
    case Mod::_128x128b:
      return CopyShape::k128x128b;
    case Mod::_64x128b:
      if (decoder.has(Mod::warpx2_02_13)) return CopyShape::k64x128b02_13;
      if (decoder.has(Mod::warpx2_01_23)) return CopyShape::k64x128b01_23;
      decoder.refuse(".64x128b needs .warpx2::02_13 or .warpx2::01_23");
    case Mod::_32x128b:
      if (!decoder.has(Mod::warpx4)) decoder.refuse(".32x128b needs .warpx4");
      return CopyShape::k32x128b;
    default:
      return CopyShape::k4x256b;
  }
}

}  // namespace

bool decode_tcgen05_copy(Decoder& decoder, Instruction& out) {
  const int cta_group = decoder.has(Mod::cta_group_2) ? 2 : 1;
  switch (decoder.op()) {
    case Op::tcgen05_cp: {
      CopyForm form;
      form.to = decoder.address(0);
      form.descriptor = decoder.source(1, ScalarType::b64);
      form.shape = copy_shape(decoder);
      form.padding = decoder.has_type(ScalarType::b4x16_p64)   ? ChunkPadding::kPadded4
                     : decoder.has_type(ScalarType::b6x16_p32) ? ChunkPadding::kPadded6
                                                               : ChunkPadding::kNone;
      form.cta_group = cta_group;
      out.extra = decoder.keep(form);
      set_body(out, exec_copy);
      return true;
    }
    case Op::tcgen05_shift:
      out.extra = decoder.keep(ShiftForm{decoder.address(0), cta_group});
      set_body(out, exec_shift);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
