// SPDX-License-Identifier: Apache-2.0
// tcgen05.commit: an arrival at an mbarrier once the thread's earlier tensor-core work is done. And the two
// tcgen05 fences, which order nothing in a machine that executes a thread's instructions one after the other;
// the race checker wants them.
#include <fmt/format.h>

#include "vgpu/tensor_cores/tensor_unit.h"
#include "vgpu/units/mbarrier_ops.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

struct CommitForm {
  AddressSource barrier;
  int cta_group;
  bool multicast;
  Slot mask = 0;
};

class Commit : public AsyncOp {
 public:
  /// The barrier of the CTA of rank `checked` was good when the instruction was executed.
  Commit(Who who, uint32_t ranks, uint32_t checked, uint32_t offset)
      : AsyncOp(who), ranks_(ranks), checked_(checked), offset_(offset) {}

  bool run(Cluster& cluster) override {
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if ((ranks_ >> rank & 1) == 0) continue;
      Cta* cta = cluster.cta(rank);
      if (cta == nullptr) continue;
      // Invalidated meanwhile: no thread waits for this arrival, and that is how Triton ends its pipelines.
      if (rank == checked_ && !cta->finished() && cta->units().mbarriers.find(offset_) == nullptr) continue;
      deliver_arrival(cluster, who, *cta, offset_);
    }
    return true;
  }
  std::string describe() const override {
    return fmt::format("tcgen05.commit to the barrier at shared {:#x}", offset_);
  }
  WorkDemand demand() const override { return {.kind = WorkDemand::Kind::kCommit}; }
  Completion completion() const override { return {CompletedBy::kCommit}; }

 private:
  uint32_t ranks_, checked_;
  uint32_t offset_;
};

/// Without a state space the address is generic. Triton gives a shared address, widened, and the chip takes
/// it: of a generic address of shared memory only the low half matters to it.
Space space_of(Space written, uint64_t address) {
  return written == Space::kGeneric && address < kWindowBytes ? Space::kSharedCluster : written;
}

Step exec_commit(Warp& warp, const Instruction& insn, Mask active) {
  const CommitForm& form = insn.form<CommitForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane).as_unit("tensor core");
    const uint64_t address = warp.address(form.barrier, lane);
    const MbarrierRef ref =
        find_mbarrier(cluster, who, space_of(form.barrier.space, address), address, false);
    if (ref.object == nullptr) return;
    uint32_t ranks = 1u << ref.cta->rank();
    if (form.multicast) {
      ranks = warp.reg<uint32_t>(form.mask)[lane] & 0xFFFF;
      if (ranks >> cluster.ctas().size() != 0) {
        cluster.report_fatal(FindingKind::kIllegalInstruction, who, ref.offset,
                             fmt::format("tcgen05.commit: mask {:#x} names CTAs outside the cluster of {}",
                                         ranks, cluster.ctas().size()));
        return;
      }
    }
    submit_to_tensor_core(
        warp.cta(), std::make_unique<Commit>(who, ranks, static_cast<uint32_t>(ref.cta->rank()), ref.offset));
  });
  return Step::kNext;
}

template <bool kBefore>
Step exec_fence(Warp& warp, const Instruction& insn, Mask active) {
  Observers& observe = warp.cta().cluster().observe();
  const Who who = warp.threads(insn, active);
  kBefore ? observe.tensor_fence_before(who) : observe.tensor_fence_after(who);
  return Step::kNext;
}

}  // namespace

bool decode_tcgen05_commit(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::tcgen05_commit: {
      CommitForm form{decoder.address(0), decoder.has(Mod::cta_group_2) ? 2 : 1,
                      decoder.has(Mod::multicast_cluster)};
      if (form.multicast) {
        if (decoder.operand_count() < 2) decoder.refuse(".multicast::cluster needs a mask of CTAs");
        form.mask = decoder.source(1, ScalarType::b16);
      }
      out.extra = decoder.keep(form);
      set_body(out, exec_commit);
      return true;
    }
    case Op::tcgen05_fence_before_thread_sync:
      set_body(out, exec_fence<true>);
      return true;
    case Op::tcgen05_fence_after_thread_sync:
      set_body(out, exec_fence<false>);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
