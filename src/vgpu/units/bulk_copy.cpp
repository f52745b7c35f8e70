// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk and cp.reduce.async.bulk: runs of bytes between global memory and the shared memories of a
// cluster.
#include <fmt/format.h>

#include "vgpu/memory/raced_bytes.h"
#include "vgpu/units/bulk_groups.h"
#include "vgpu/units/cluster_launch.h"
#include "vgpu/units/mbarrier_ops.h"
#include "vgpu/units/reduce_words.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr const char* kUnit = "bulk copy";

enum class Direction : uint8_t { kGlobalToShared, kSharedToShared, kSharedToGlobal };

struct BulkForm {
  Direction direction;
  AddressSource to, from, barrier;
  bool multicast = false;
  Slot ranks = 0;
  bool masked = false;  // .cp_mask
  Slot bytes_kept = 0;
  ReduceOp reduce = ReduceOp::kNone;
  ReduceType type = ReduceType::kU32;
};

/// Into shared memory; bytes are announced to an mbarrier of the same CTA.
class CopyToShared : public AsyncOp {
 public:
  CopyToShared(Who who, const BulkForm& form, Place from, uint32_t bytes, Cta& to, uint32_t offset,
               uint32_t barrier)
      : AsyncOp(who),
        form_(&form),
        from_(from),
        bytes_(bytes),
        to_(&to),
        offset_(offset),
        barrier_(barrier) {}

  bool run(Cluster& cluster) override {
    touch(cluster, who, from_, bytes_, AccessKind::kRead);
    std::byte* to = to_->shared().at(offset_);
    if (form_->reduce != ReduceOp::kNone)
      reduce_elements(form_->reduce, form_->type, to, from_.host, bytes_ / bytes_of(form_->type));
    else
      read_bytes(to, from_.host, bytes_);
    touch(cluster, who, shared_place(*to_, offset_), bytes_,
          form_->reduce != ReduceOp::kNone ? AccessKind::kAtomic : AccessKind::kWrite);
    cluster.statistics().tma_bytes_loaded += bytes_;
    deliver_bytes(cluster, who, *to_, barrier_, bytes_);
    return true;
  }
  std::string describe() const override {
    return fmt::format("bulk copy of {} bytes to shared {:#x} of the CTA of rank {}", bytes_, offset_,
                       to_->rank());
  }
  WorkDemand demand() const override {
    const bool is_global = from_.space == Space::kGlobal;
    return {.kind = is_global ? WorkDemand::Kind::kTmaLoad : WorkDemand::Kind::kRemote,
            .bytes = bytes_,
            .multicast = form_->multicast,
            .block = is_global ? from_.address * 0x9E3779B97F4A7C15u + bytes_ : 0,
            .address = is_global ? from_.address : 0};
  }
  bool fills(const Cta& cta, uint32_t at) const override { return &cta == to_ && at - offset_ < bytes_; }
  Completion completion() const override {
    return {CompletedBy::kMbarrier, sync_key(SyncKind::kMbarrier, to_->rank(), barrier_)};
  }

 private:
  const BulkForm* form_;
  Place from_;
  uint32_t bytes_;
  Cta* to_;
  uint32_t offset_;
  uint32_t barrier_;
};

class CopyToGlobal : public BulkStore {
 public:
  CopyToGlobal(Who who, Warp& warp, const BulkForm& form, uint32_t from, uint32_t bytes, Place to,
               uint16_t kept)
      : BulkStore(who, warp), form_(&form), from_(from), bytes_(bytes), to_(to), kept_(kept) {}

  std::string describe() const override {
    return fmt::format("bulk {} of {} bytes from shared {:#x}", reduces() ? "reduction" : "store", bytes_,
                       from_);
  }
  WorkDemand demand() const override {
    return {.kind = WorkDemand::Kind::kTmaStore,
            .bytes = bytes_,
            .reduces = reduces(),
            .block = to_.address * 0x9E3779B97F4A7C15u + bytes_,
            .address = to_.address};
  }

 protected:
  bool reduces() const override { return form_->reduce != ReduceOp::kNone; }
  void read(Cluster& cluster) override {
    touch(cluster, who, shared_place(source(), from_), bytes_, AccessKind::kRead);
    const std::byte* from = source().shared().at(from_);
    data_.assign(from, from + bytes_);
  }
  void write(Cluster& cluster) override {
    if (reduces()) {
      reduce_elements(form_->reduce, form_->type, to_.host, data_.data(), bytes_ / bytes_of(form_->type));
      touch(cluster, who, to_, bytes_, AccessKind::kAtomic);
    } else if (kept_ == 0xFFFF) {
      const AccessKind kind = kind_of_write(cluster, to_, data_.data(), bytes_);
      write_bytes(to_.host, data_.data(), bytes_);
      touch(cluster, who, to_, bytes_, kind);
    } else {
      for (uint32_t i = 0; i < bytes_; ++i) {
        if ((kept_ >> i % 16 & 1) == 0) continue;
        const Place to = global_place(cluster, to_.address + i);
        const AccessKind kind = kind_of_write(cluster, to, &data_[i], 1);
        write_bytes(to.host, &data_[i], 1);
        touch(cluster, who, to, 1, kind);
      }
    }
    cluster.statistics().tma_bytes_stored += bytes_;
  }

 private:
  const BulkForm* form_;
  uint32_t from_;
  uint32_t bytes_;
  Place to_;
  uint16_t kept_;  // of every 16 bytes
  std::vector<std::byte> data_;
};

// Where a copy into shared memory goes, and its barrier: checked, then submitted for each CTA.
void submit_to_shared(Cluster& cluster, Warp& warp, const Who& who, const BulkForm& form, const Place& from,
                      uint32_t bytes, int lane) {
  Place to, barrier;
  if (!locate(cluster, who, form.to.space, warp.address(form.to, lane), bytes, 16, AccessKind::kWrite, to) ||
      !locate(cluster, who, form.barrier.space, warp.address(form.barrier, lane), 8, 8, AccessKind::kAtomic,
              barrier))
    return;
  uint32_t ranks = 1u << to.cta->rank();
  if (form.multicast) ranks = warp.reg<uint32_t>(form.ranks)[lane] & 0xFFFF;
  if (ranks >> cluster.ctas().size() != 0 || (!form.multicast && to.cta != barrier.cta)) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, to.address,
        form.multicast
            ? fmt::format("multicast mask {:#x} names CTAs outside the cluster of {}", ranks,
                          cluster.ctas().size())
            : fmt::format("the copy goes to the CTA of rank {} and its mbarrier is in the CTA of rank {}",
                          to.cta->rank(), barrier.cta->rank()));
    return;
  }
  for (uint32_t rank = 0; rank < cluster.ctas().size(); ++rank) {
    if ((ranks >> rank & 1) == 0) continue;
    Place check;
    Cta& target = *cluster.cta(rank);
    const auto offset = static_cast<uint32_t>(to.address);
    if (!locate_shared(who, target, offset, bytes, 16, AccessKind::kWrite, check)) return;
    cluster.async().submit(std::make_unique<CopyToShared>(who, form, from, bytes, target, offset,
                                                          static_cast<uint32_t>(barrier.address)));
  }
}

void copy(Cluster& cluster, Warp& warp, const Instruction& insn, const BulkForm& form, int lane) {
  const Who who = warp.thread(insn, lane).as_unit(kUnit);
  const uint32_t bytes = warp.reg<uint32_t>(insn.a)[lane];
  if (form.direction == Direction::kSharedToShared &&
      !expect_cluster_launch(cluster, who, "a bulk copy between shared memories"))
    return;
  if (bytes % 16 != 0 || bytes == 0) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, 0,
        fmt::format("a bulk copy of {} bytes: the size must be a positive multiple of 16", bytes));
    return;
  }
  Place from;
  if (!locate(cluster, who, form.from.space, warp.address(form.from, lane), bytes, 16, AccessKind::kRead,
              from))
    return;
  if (form.direction != Direction::kSharedToGlobal) {
    submit_to_shared(cluster, warp, who, form, from, bytes, lane);
    return;
  }
  Place to;
  const AccessKind kind = form.reduce != ReduceOp::kNone ? AccessKind::kAtomic : AccessKind::kWrite;
  if (!locate(cluster, who, Space::kGlobal, warp.address(form.to, lane), bytes, 16, kind, to)) return;
  const auto kept = static_cast<uint16_t>(form.masked ? warp.reg<uint32_t>(form.bytes_kept)[lane] : 0xFFFF);
  cluster.async().submit(
      std::make_unique<CopyToGlobal>(who, warp, form, static_cast<uint32_t>(from.address), bytes, to, kept));
}

Step exec_copy(Warp& warp, const Instruction& insn, Mask active) {
  const BulkForm& form = insn.form<BulkForm>();
  for_each_lane(active, [&](int lane) { copy(warp.cta().cluster(), warp, insn, form, lane); });
  return Step::kNext;
}

// A prefetch changes nothing; its operands are looked at all the same.
Step exec_prefetch(Warp& warp, const Instruction& insn, Mask active) {
  const AddressSource& from = insn.form<AddressSource>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    Place place;
    locate(cluster, warp.thread(insn, lane).as_unit(kUnit), Space::kGlobal, warp.address(from, lane),
           warp.reg<uint32_t>(insn.a)[lane], 16, AccessKind::kRead, place);
  });
  return Step::kNext;
}

}  // namespace

bool decode_bulk_copy(Decoder& decoder, Instruction& out) {
  if (decoder.op() == Op::cp_async_bulk_prefetch) {
    out.a = decoder.source(1, ScalarType::u32);
    out.extra = decoder.keep(decoder.address_in(decoder.operand(0), Space::kGlobal));
    set_body(out, exec_prefetch);
    return true;
  }
  const bool is_reduce = decoder.op() == Op::cp_reduce_async_bulk;
  if (!is_reduce && decoder.op() != Op::cp_async_bulk) return false;
  BulkForm form;
  // The first space word is the destination's.
  const Space first = decoder.space();
  const bool has_cta = decoder.has(Mod::shared_cta), has_cluster = decoder.has(Mod::shared_cluster);
  if (first == Space::kGlobal)
    form.direction = Direction::kSharedToGlobal;
  else
    form.direction = has_cta && has_cluster ? Direction::kSharedToShared : Direction::kGlobalToShared;
  form.to = decoder.address_in(decoder.operand(0), first);
  form.from = decoder.address_in(
      decoder.operand(1), form.direction == Direction::kGlobalToShared ? Space::kGlobal : Space::kSharedCta);
  out.a = decoder.source(2, ScalarType::u32);
  size_t next = 3;
  if (form.direction != Direction::kSharedToGlobal)
    form.barrier = decoder.address_in(decoder.operand(next++), Space::kSharedCluster);
  form.multicast = decoder.has(Mod::multicast_cluster);
  form.masked = decoder.has(Mod::cp_mask);
  const size_t needed =
      next + (form.multicast ? 1 : 0) + (decoder.has(Mod::L2_cache_hint) ? 1 : 0) + (form.masked ? 1 : 0);
  if (decoder.operand_count() != needed)
    decoder.refuse(fmt::format("{} operands given, this form takes {}", decoder.operand_count(), needed));
  if (form.multicast) form.ranks = decoder.source(next, ScalarType::b16);
  // The byte mask comes after the cache policy.
  if (form.masked) form.bytes_kept = decoder.source(decoder.operand_count() - 1, ScalarType::b16);
  if (is_reduce) {
    form.reduce = reduce_op_of(decoder);
    form.type = reduce_type_of(decoder);
    if (!is_reduction(form.reduce, form.type))
      decoder.refuse("this operation does not exist for the element type");
  }
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_copy);
  return true;
}

}  // namespace imbrex::vgpu
