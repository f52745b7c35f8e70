// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma: issued by one thread, carried out later by the tensor core of its CTA (or of the pair).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "vgpu/tensor_cores/tcgen05_operands.h"
#include "vgpu/tensor_cores/tensor_core.h"
#include "vgpu/tensor_cores/zero_column_mask.h"
#include "vgpu/timeline/cost_model.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr const char* kUnit = "tensor core";

// The instruction's operands as slots.
struct MmaOperands {
  MmaForm form;
  AddressSource d;
  bool a_in_tensor = false;
  AddressSource a_address;
  Slot a_descriptor = 0, b_descriptor = 0, instruction_descriptor = 0;
  AddressSource metadata;  // of a sparse A
  AddressSource scale_a, scale_b;
  std::vector<Slot> disabled_lanes;  // 4 or 8 words, or none
  PredicateSource enable_d;
  std::optional<bool> enable_d_always;  // an immediate
  int scale_input_d = 0;
  uint32_t scales_per_row = 0;
  bool shift_a = false;
  bool has_zero_mask = false;
  Slot zero_mask = 0;
};

class Mma : public AsyncOp {
 public:
  Mma(Who who, Warp& warp, const MmaOperands& operands, int lane)
      : AsyncOp(who), cta_(&warp.cta()), form_(operands.form), operands_(&operands) {
    d_ = tensor_address(warp, operands.d, lane);
    if (operands.a_in_tensor)
      a_address_ = tensor_address(warp, operands.a_address, lane);
    else
      a_descriptor_ = warp.reg<uint64_t>(operands.a_descriptor)[lane];
    b_descriptor_ = warp.reg<uint64_t>(operands.b_descriptor)[lane];
    instruction_descriptor_ = warp.reg<uint32_t>(operands.instruction_descriptor)[lane];
    if (form_.sparse) metadata_ = tensor_address(warp, operands.metadata, lane);
    if (is_block_scaled(form_.kind)) {
      scale_a_ = tensor_address(warp, operands.scale_a, lane);
      scale_b_ = tensor_address(warp, operands.scale_b, lane);
    }
    for (size_t i = 0; i < operands.disabled_lanes.size(); ++i)
      disabled_[i] = warp.reg<uint32_t>(operands.disabled_lanes[i])[lane];
    add_ = operands.enable_d_always ? *operands.enable_d_always
                                    : (warp.lanes_where(operands.enable_d) & lane_bit(lane)) != 0;
    if (operands.has_zero_mask) zero_mask_ = warp.reg<uint64_t>(operands.zero_mask)[lane];
  }

  bool run(Cluster& cluster) override {
    CtaPair ctas;
    if (resolve_pair(cluster, who, *cta_, form_.cta_group, ctas)) multiply(cluster, ctas);
    cluster.note_progress();
    return true;
  }

  std::string describe() const override {
    const MmaShape shape = decode_instruction_descriptor(form_, instruction_descriptor_).shape;
    return fmt::format("tcgen05.mma {}x{}x{} into tensor memory column {}", shape.m, shape.n, shape.k,
                       d_.column);
  }
  WorkDemand demand() const override {
    const MmaShape shape = decode_instruction_descriptor(form_, instruction_descriptor_).shape;
    const bool pair = form_.cta_group == 2;
    return {.kind = WorkDemand::Kind::kMatrix,
            .clocks = tcgen05_clocks(shape.n, pair, operands_->a_in_tensor),
            .pair = pair};
  }
  Completion completion() const override { return {CompletedBy::kCommit}; }

 private:
  static TensorAddress tensor_address(Warp& warp, const AddressSource& source, int lane) {
    return TensorAddress::from_bits(static_cast<uint32_t>(warp.address(source, lane)));
  }

  void multiply(Cluster& cluster, const CtaPair& ctas);
  uint64_t note_result_form(Cluster& cluster, const CtaPair& ctas, const MmaShape& shape);
  bool fetch_operands(Cluster& cluster, const CtaPair& ctas, const MmaShape& shape, TensorProduct& product,
                      OperandBoxes& a_boxes, OperandBoxes& b_boxes);
  void write_segment(Cluster& cluster, const CtaPair& ctas, const TensorSegment& segment,
                     TensorProduct& product);
  bool is_disabled(uint32_t cta, uint32_t lane) const {
    return (disabled_[cta * 4 + lane / 32] >> lane % 32 & 1) != 0;
  }

  Cta* cta_;
  MmaForm form_;
  const MmaOperands* operands_;
  TensorAddress d_, a_address_, metadata_, scale_a_, scale_b_;
  uint64_t a_descriptor_ = 0, b_descriptor_ = 0;
  uint32_t instruction_descriptor_ = 0;
  std::array<uint32_t, 8> disabled_{};
  bool add_ = false;
  uint64_t zero_mask_ = 0;
  std::optional<StoredPlaces> places_;
};

void Mma::multiply(Cluster& cluster, const CtaPair& ctas) {
  const DecodedShape decoded = decode_instruction_descriptor(form_, instruction_descriptor_);
  const MmaShape& shape = decoded.shape;
  if (!decoded.problem.empty()) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, 0,
        fmt::format("instruction descriptor {:#x}: {}", instruction_descriptor_, decoded.problem));
    return;
  }
  if (cluster.launch().options.tensor_math == TensorMath::kNone) {
    cluster.statistics().tensor_flops += int64_t{2} * shape.m * shape.n * shape.k;
    return;
  }
  ProductSpec spec;
  spec.instruction = !is_block_scaled(form_.kind)       ? arith::TensorInstruction::kTcgen05
                     : form_.kind == MmaKind::kMxF8F6F4 ? arith::TensorInstruction::kMxf8f6f4
                                                        : arith::TensorInstruction::kMxf4;
  spec.sm = cluster.launch().target.sm;
  spec.a = shape.a;
  spec.b = shape.b;
  spec.d = shape.d;
  spec.shape = {shape.m, shape.n, shape.k};
  spec.negate_a = shape.negate_a;
  spec.negate_b = shape.negate_b;
  spec.saturate = shape.saturate;
  spec.sparse = form_.sparse;
  spec.scale_input_d = operands_->scale_input_d;
  if (is_block_scaled(form_.kind)) {
    spec.scale = shape.scale_is_ue8m0 ? float8_e8m0 : float8_e4m3;
    spec.scale_block = static_cast<int>(shape.k / operands_->scales_per_row);
  }
  TensorProduct product(spec, cluster.launch().options.tensor_math);
  if (!product.problem().empty()) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0, product.problem());
    return;
  }
  thread_local OperandBoxes a_boxes, b_boxes;
  if (!fetch_operands(cluster, ctas, shape, product, a_boxes, b_boxes)) return;
  if (cluster.checks().layouts) note_product(who, a_boxes, b_boxes, note_result_form(cluster, ctas, shape));
  const int64_t a_bits =
      operands_->a_in_tensor ? 0 : int64_t{shape.m} * shape.k * shape.a.bits() / (form_.sparse ? 2 : 1);
  const int64_t b_bits = int64_t{shape.n} * shape.k * shape.b.bits();
  cluster.statistics().operand_bytes += (a_bits + b_bits) / 8;
  cluster.statistics().tensor_flops += int64_t{2} * shape.m * shape.n * shape.k;
  for (const TensorSegment& segment : accumulator_segments(form_, shape.m, shape.n, d_.lane))
    write_segment(cluster, ctas, segment, product);
}

/// A product that adds to another one's result must spread it over the lanes alike. Returns a number that
/// those added up have in common.
uint64_t Mma::note_result_form(Cluster& cluster, const CtaPair& ctas, const MmaShape& shape) {
  if (d_.column >= TensorMemory::kColumns) return 0;  // reported when it is written
  TensorMemory& memory = tensor_unit(ctas.at(0)).memory;
  const TensorMemory::ResultForm before = memory.result_in(d_.column);
  const TensorMemory::ResultForm now{who.insn, shape.m, form_.cta_group == 2, form_.weight_stationary,
                                     add_ && before.insn != nullptr ? before.sum : memory.new_sum()};
  if (add_ && before.insn != nullptr && !before.is_spread_like(now)) {
    const Who other = Who{who.cta, who.warp, -1, before.insn}.as_unit("tensor core");
    if (Finding* finding = cluster.log().open(FindingKind::kOperandLayout, who, d_.bits(), &other)) {
      finding->message = fmt::format(
          "accumulates a product of {} rows onto one of {} rows in tensor memory column {}: their results "
          "are "
          "spread over the lanes differently",
          shape.m, before.rows, d_.column);
      finding->hint =
          "make M (bits 28:24 or 28:27 of the instruction descriptor), the CTA group and .ws agree";
    }
  }
  uint32_t columns = 0;
  for (const TensorSegment& s : accumulator_segments(form_, shape.m, shape.n, d_.lane))
    columns = std::max(columns, s.tensor_column + s.columns);
  memory.set_result(d_.column, std::min(columns, TensorMemory::kColumns - d_.column), now);
  return now.sum;
}

bool Mma::fetch_operands(Cluster& cluster, const CtaPair& ctas, const MmaShape& shape, TensorProduct& product,
                         OperandBoxes& a_boxes, OperandBoxes& b_boxes) {
  // One buffer a host thread: an MMA is too short to allocate memory.
  thread_local OperandPatterns patterns;
  thread_local ScaleFactors scales;
  const uint32_t stored_k = form_.sparse ? shape.k / 2 : shape.k;
  if (operands_->a_in_tensor) {
    if (!fetch_tensor_operand(cluster, who, ctas, form_, a_address_, shape, operands_->shift_a, patterns))
      return false;
  } else if (!fetch_shared_operand(cluster, who, ctas, a_descriptor_, form_.kind, shape.a, shape.a_major,
                                   shape.m, stored_k, "A", patterns)) {
    return false;
  }
  product.load_a(patterns.bytes.data(), patterns.major);
  if (form_.sparse) {
    if (!fetch_metadata(cluster, who, ctas, form_, metadata_, shape, places_)) return false;
    product.load_places(places_->data());
  }
  std::swap(a_boxes, patterns.boxes);
  if (!fetch_shared_operand(cluster, who, ctas, b_descriptor_, form_.kind, shape.b, shape.b_major, shape.n,
                            shape.k, "B", patterns))
    return false;
  if (operands_->has_zero_mask)
    clear_masked_columns(zero_mask_, shape.m, shape.n, shape.k, patterns.major, patterns.bytes);
  product.load_b(patterns.bytes.data(), patterns.major);
  std::swap(b_boxes, patterns.boxes);
  if (!is_block_scaled(form_.kind)) return true;
  if (!fetch_scales(cluster, who, ctas, scale_a_, scale_b_, shape, operands_->scales_per_row, scales))
    return false;
  product.load_scales(scales.a.data(), scales.b.data());
  return true;
}

void Mma::write_segment(Cluster& cluster, const CtaPair& ctas, const TensorSegment& s,
                        TensorProduct& product) {
  Cta& cta = ctas.at(s.cta);
  const uint32_t column = d_.column + s.tensor_column;
  if (!check_allocated(cluster, who, cta, column, s.columns)) return;
  TensorMemory& memory = tensor_unit(cta).memory;
  const bool track = cluster.checks().uninitialized;
  // Runs of rows between disabled lanes; mostly the whole segment is one.
  for (uint32_t begin = 0; begin < s.rows;) {
    if (is_disabled(s.cta, s.lane + begin)) {
      ++begin;
      continue;
    }
    uint32_t end = begin + 1;
    while (end < s.rows && !is_disabled(s.cta, s.lane + end)) ++end;
    const uint32_t lane = s.lane + begin;
    if (add_ && track &&
        !check_defined(cluster, who, memory, lane, end - begin, column, s.columns, "accumulator"))
      for (uint32_t l = lane; l < s.lane + end; ++l) memory.define(l, column, s.columns);  // once is enough
    cluster.observe().tensor_touched(who, cta, lane, end - begin, column, s.columns,
                                     TensorAccess::kAccumulate);
    product.multiply(s.row + begin, end - begin, s.column, s.columns, memory.row(lane) + column,
                     TensorMemory::kPitch, add_);
    if (track)
      for (uint32_t l = lane; l < s.lane + end; ++l) memory.define(l, column, s.columns);
    begin = end;
  }
}

/// Products that different threads issue run in any order, so they must not share an accumulator.
void check_one_issuer(Warp& warp, const Instruction& insn, const MmaOperands& operands, Mask active) {
  const int first = first_lane(active);
  const auto d_of = [&](int lane) { return static_cast<uint32_t>(warp.address(operands.d, lane)); };
  int other = first;
  for_each_lane(active, [&](int lane) {
    if (lane != first && d_of(lane) == d_of(first)) other = lane;
  });
  if (other == first) return;
  warp.cta().cluster().report(
      FindingKind::kRace, warp.thread(insn, other), d_of(first),
      fmt::format("{} lanes of warp {} each issue a tcgen05.mma into tensor memory column {}: nothing orders "
                  "what different threads issue",
                  count_lanes(active), warp.index(), TensorAddress::from_bits(d_of(first)).column),
      "let one elected lane issue it");
}

Step exec_mma(Warp& warp, const Instruction& insn, Mask active) {
  const MmaOperands& operands = insn.form<MmaOperands>();
  if (warp.cta().cluster().checks().races && count_lanes(active) > 1)
    check_one_issuer(warp, insn, operands, active);
  for_each_lane(active, [&](int lane) {
    submit_to_tensor_core(
        warp.cta(), std::make_unique<Mma>(warp.thread(insn, lane).as_unit(kUnit), warp, operands, lane));
  });
  return Step::kNext;
}

MmaKind kind_of(const Decoder& decoder) {
  switch (decoder.insn().one_of(
      {Mod::kind_f16, Mod::kind_tf32, Mod::kind_f8f6f4, Mod::kind_i8, Mod::kind_mxf8f6f4, Mod::kind_mxf4},
      Mod::kind_mxf4nvf4)) {
    case Mod::kind_f16:
      return MmaKind::kF16;
    case Mod::kind_tf32:
      return MmaKind::kTF32;
    case Mod::kind_f8f6f4:
      return MmaKind::kF8F6F4;
    case Mod::kind_i8:
      return MmaKind::kI8;
    case Mod::kind_mxf8f6f4:
      return MmaKind::kMxF8F6F4;
    case Mod::kind_mxf4:
      return MmaKind::kMxF4;
    default:
      return MmaKind::kMxF4NvF4;
  }
}

// Scale factors of a row that one MMA takes; 0 when the qualifier does not go with the kind.
uint32_t scales_per_row(const Decoder& decoder, MmaKind kind) {
  const bool x1 = decoder.has(Mod::scale_vec_1X), x2 = decoder.has(Mod::scale_vec_2X),
             x4 = decoder.has(Mod::scale_vec_4X);
  const bool b32 = decoder.has(Mod::block32), b16 = decoder.has(Mod::block16);
  switch (kind) {
    case MmaKind::kMxF8F6F4:
      return x2 || x4 || b16 ? 0 : 1;
    case MmaKind::kMxF4:
      return x1 || x4 || b16 ? 0 : 2;
    default:
      return x2 || b32 ? 2 : x4 || b16 ? 4 : 0;
  }
}

}  // namespace

bool decode_tcgen05_mma(Decoder& decoder, Instruction& out) {
  const bool is_ws = decoder.op() == Op::tcgen05_mma_ws || decoder.op() == Op::tcgen05_mma_ws_sp;
  const bool is_sparse = decoder.op() == Op::tcgen05_mma_sp || decoder.op() == Op::tcgen05_mma_ws_sp;
  if (decoder.op() != Op::tcgen05_mma && !is_ws && !is_sparse) return false;
  MmaOperands o;
  o.form.kind = kind_of(decoder);
  o.form.cta_group = decoder.has(Mod::cta_group_2) ? 2 : 1;
  o.form.weight_stationary = is_ws;
  o.form.sparse = is_sparse;
  o.shift_a = decoder.has(Mod::ashift);
  size_t next = 0;
  o.d = decoder.address(next++);
  o.a_in_tensor = decoder.operand(next).kind == ptx::OperandKind::address;
  if (o.a_in_tensor)
    o.a_address = decoder.address(next++);
  else
    o.a_descriptor = decoder.source(next++, ScalarType::b64);
  o.b_descriptor = decoder.source(next++, ScalarType::b64);
  if (is_sparse) o.metadata = decoder.address(next++);
  o.instruction_descriptor = decoder.source(next++, ScalarType::b32);
  if (is_block_scaled(o.form.kind)) {
    if (!decoder.has(Mod::block_scale) || decoder.operand_count() < next + 3)
      decoder.refuse("a block-scaled kind needs .block_scale and the addresses of both sets of factors");
    o.scale_a = decoder.address(next++);
    o.scale_b = decoder.address(next++);
    o.scales_per_row = scales_per_row(decoder, o.form.kind);
    if (o.scales_per_row == 0) decoder.refuse("this kind does not take this .scale_vec or .block qualifier");
  }
  if (decoder.operand(next).kind == ptx::OperandKind::vector) {
    for (const ptx::Operand& word : decoder.elements(decoder.operand(next++)))
      o.disabled_lanes.push_back(decoder.source(word, ScalarType::b32));
    if (o.disabled_lanes.size() != static_cast<size_t>(4 * o.form.cta_group))
      decoder.refuse(fmt::format("disable-output-lane has {} words, cta_group::{} takes {}",
                                 o.disabled_lanes.size(), o.form.cta_group, 4 * o.form.cta_group));
  }
  if (decoder.operand(next).is_immediate())
    o.enable_d_always = decoder.immediate(next++, "enable-input-d") != 0;
  else
    o.enable_d = decoder.predicate(next++);
  if (next < decoder.operand_count()) {
    if (is_ws) {
      o.has_zero_mask = true;
      o.zero_mask = decoder.source(next, ScalarType::b64);
    } else {
      o.scale_input_d = static_cast<int>(decoder.immediate(next, "scale-input-d"));
      if (o.scale_input_d < 0 || o.scale_input_d > 15) decoder.refuse("scale-input-d lies in 0 ... 15");
    }
  }
  if (o.shift_a && !o.a_in_tensor) decoder.refuse(".ashift needs A in tensor memory");
  out.extra = decoder.keep(std::move(o));
  set_body(out, exec_mma);
  return true;
}

}  // namespace imbrex::vgpu
