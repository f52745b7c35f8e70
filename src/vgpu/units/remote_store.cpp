// SPDX-License-Identifier: Apache-2.0
// st.async and red.async: a few bytes to the shared memory of a CTA of the cluster, announced to an mbarrier
// there.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "vgpu/units/cluster_launch.h"
#include "vgpu/units/mbarrier_ops.h"
#include "vgpu/units/reduce_words.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;

constexpr const char* kUnit = "async store";

struct RemoteForm {
  AddressSource to, barrier;
  std::vector<Slot> values;
  uint32_t element_bytes;
  ReduceOp reduce = ReduceOp::kNone;
  ReduceType type = ReduceType::kU32;
  uint32_t bytes() const { return element_bytes * static_cast<uint32_t>(values.size()); }
};

class RemoteStore : public AsyncOp {
 public:
  RemoteStore(Who who, Warp& warp, const RemoteForm& form, Cta& to, uint32_t offset, uint32_t barrier,
              int lane)
      : AsyncOp(who), form_(&form), to_(&to), offset_(offset), barrier_(barrier) {
    for (size_t i = 0; i < form.values.size(); ++i) {
      std::byte* at = data_.data() + i * form.element_bytes;
      if (form.element_bytes == 8)
        std::memcpy(at, &warp.reg<uint64_t>(form.values[i])[lane], 8);
      else
        std::memcpy(at, &warp.reg<uint32_t>(form.values[i])[lane], 4);
    }
  }
  bool run(Cluster& cluster) override {
    std::byte* to = to_->shared().at(offset_);
    if (form_->reduce != ReduceOp::kNone)
      reduce_elements(form_->reduce, form_->type, to, data_.data(), 1);
    else
      std::memcpy(to, data_.data(), form_->bytes());
    touch(cluster, who, shared_place(*to_, offset_), form_->bytes(),
          form_->reduce != ReduceOp::kNone ? AccessKind::kAtomic : AccessKind::kWrite);
    deliver_bytes(cluster, who, *to_, barrier_, form_->bytes());
    return true;
  }
  std::string describe() const override {
    return fmt::format("{} of {} bytes to shared {:#x} of the CTA of rank {}",
                       form_->reduce != ReduceOp::kNone ? "red.async" : "st.async", form_->bytes(), offset_,
                       to_->rank());
  }
  WorkDemand demand() const override { return {.kind = WorkDemand::Kind::kRemote, .bytes = form_->bytes()}; }
  Completion completion() const override {
    return {CompletedBy::kMbarrier, sync_key(SyncKind::kMbarrier, to_->rank(), barrier_)};
  }

 private:
  const RemoteForm* form_;
  Cta* to_;
  uint32_t offset_, barrier_;
  std::array<std::byte, 32> data_{};
};

Step exec_store(Warp& warp, const Instruction& insn, Mask active) {
  const RemoteForm& form = insn.form<RemoteForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane).as_unit(kUnit);
    if (!expect_cluster_launch(cluster, who, form.reduce != ReduceOp::kNone ? "red.async" : "st.async"))
      return;
    Place to;
    if (!locate(cluster, who, form.to.space, warp.address(form.to, lane), form.bytes(), form.bytes(),
                AccessKind::kWrite, to))
      return;
    const MbarrierRef barrier =
        find_mbarrier(cluster, who, form.barrier.space, warp.address(form.barrier, lane), false);
    if (barrier.object == nullptr) return;
    if (to.cta != barrier.cta) {
      cluster.report_fatal(
          FindingKind::kIllegalInstruction, who, to.address,
          fmt::format(
              "data goes to the CTA of rank {}, the mbarrier is in the CTA of rank {}; both must be the same",
              to.cta->rank(), barrier.cta->rank()));
      return;
    }
    cluster.async().submit(std::make_unique<RemoteStore>(
        who, warp, form, *to.cta, static_cast<uint32_t>(to.address), barrier.offset, lane));
  });
  return Step::kNext;
}

}  // namespace

bool decode_remote_store(Decoder& decoder, Instruction& out) {
  const bool is_reduce = decoder.op() == Op::red_async;
  if (!is_reduce && decoder.op() != Op::st_async) return false;
  if (!decoder.has(Mod::mbarrier_complete_tx_bytes) || decoder.operand_count() != 3)
    decoder.refuse("only the form that signals an mbarrier of the cluster is modelled");
  RemoteForm form;
  form.to = decoder.address_in(decoder.operand(0), Space::kSharedCluster);
  form.barrier = decoder.address_in(decoder.operand(2), Space::kSharedCluster);
  form.element_bytes = static_cast<uint32_t>(ptx::bytes(decoder.type()));
  if (form.element_bytes < 4) decoder.refuse("elements have 4 or 8 bytes");
  const ptx::Operand& value = decoder.operand(1);
  const std::span<const ptx::Operand> elements =
      value.kind == ptx::OperandKind::vector ? decoder.elements(value) : std::span(&value, 1);
  for (const ptx::Operand& element : elements) form.values.push_back(decoder.source(element, decoder.type()));
  if (is_reduce) {
    form.reduce = reduce_op_of(decoder);
    form.type = reduce_type_of(decoder);
    if (!is_reduction(form.reduce, form.type))
      decoder.refuse("this operation does not exist for the element type");
  }
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_store);
  return true;
}

}  // namespace imbrex::vgpu
