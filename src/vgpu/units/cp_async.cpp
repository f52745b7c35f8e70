// SPDX-License-Identifier: Apache-2.0
// cp.async: copies of 4 to 16 bytes per lane from global to shared memory, in the generic proxy, without any
// order among them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "vgpu/memory/raced_bytes.h"
#include "vgpu/timeline/recording.h"
#include "vgpu/units/mbarrier_ops.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr const char* kUnit = "cp.async";

struct CopyForm {
  AddressSource to, from;
  uint32_t bytes;
  bool has_source_bytes = false;  // Instruction::a
  bool has_ignore = false;
  PredicateSource ignore = {};
};

CopyGroups& tracker_of(Warp& warp) { return warp.cta().units().cp_async_of(warp.index()); }

struct LaneCopy {
  uint32_t to = 0;            // shared offset
  uint32_t source_bytes = 0;  // the rest is zeros
  uint64_t from = 0;
};

/// The copies of one warp instruction. They land together: nothing observes less than a whole copy, and the
/// order between instructions is the scheduler's.
class WarpCopy : public AsyncOp {
 public:
  WarpCopy(Who who, Warp& warp, uint32_t bytes) : AsyncOp(who), warp_(&warp), bytes_(bytes) {}

  void add(int lane, LaneCopy copy) {
    lanes |= lane_bit(lane);
    copies_[static_cast<size_t>(lane)] = copy;
  }

  bool run(Cluster& cluster) override {
    Cta& cta = warp_->cta();
    if (cluster.checks().any()) touch_lanes(cta);
    for_each_lane(lanes, [&](int lane) {
      const LaneCopy& copy = copies_[static_cast<size_t>(lane)];
      std::byte* to = cta.shared().at(copy.to);
      if (copy.source_bytes > 0) read_bytes(to, global_place(cluster, copy.from).host, copy.source_bytes);
      if (copy.source_bytes < bytes_) std::memset(to + copy.source_bytes, 0, bytes_ - copy.source_bytes);
      if (copy.source_bytes == ChunkOrigins::kChunkBytes && cluster.checks().layouts)
        cta.units().chunk_origins.note_copy(copy.to, copy.from, who.insn, who.warp);
    });
    tracker_of(*warp_).finish(number);
    cluster.note_progress();
    return true;
  }

  std::string describe() const override {
    const LaneCopy& first = copies_[static_cast<size_t>(first_lane(lanes))];
    return fmt::format("cp.async of {} bytes in each of {} lanes, the first to shared {:#x}", bytes_,
                       count_lanes(lanes), first.to);
  }
  WorkDemand demand() const override {
    int64_t bytes = 0;
    for_each_lane(lanes, [&](int lane) { bytes += copies_[static_cast<size_t>(lane)].source_bytes; });
    return {.kind = WorkDemand::Kind::kThreadLoad, .bytes = bytes};
  }
  std::vector<uint64_t> lines() const override {
    std::vector<uint64_t> lines;
    for_each_lane(lanes, [&](int lane) {
      const LaneCopy& copy = copies_[static_cast<size_t>(lane)];
      if (copy.source_bytes > 0) TouchedLine::add(lines, 0, copy.from);
    });
    std::ranges::sort(lines, {}, [](uint64_t line) { return line & TouchedLine::kNumber; });
    return lines;
  }

  bool fills(const Cta& cta, uint32_t at) const override {
    bool fills = false;
    for_each_lane(lanes, [&](int lane) { fills |= at - copies_[static_cast<size_t>(lane)].to < bytes_; });
    return fills && &cta == &warp_->cta();
  }
  Completion completion() const override { return {CompletedBy::kCopyGroup, 0, number}; }

  Mask lanes = 0;
  CopyGroups::Number number = 0;

 private:
  void touch_lanes(Cta& cta) {
    LaneTouches from(bytes_), to(bytes_);
    for_each_lane(lanes, [&](int lane) {
      const LaneCopy& copy = copies_[static_cast<size_t>(lane)];
      if (copy.source_bytes > 0) from.add(lane, copy.from, copy.source_bytes);
      to.add(lane, copy.to, bytes_);
    });
    who.lane = first_lane(lanes);
    Checked::lanes_touched(cta, who, Space::kGlobal, from, AccessKind::kRead);
    Checked::lanes_touched(cta, who, Space::kSharedCta, to, AccessKind::kWrite);
  }

  Warp* warp_;
  uint32_t bytes_;
  std::array<LaneCopy, kWarpSize> copies_;
};

Step exec_copy(Warp& warp, const Instruction& insn, Mask active) {
  const CopyForm& form = insn.form<CopyForm>();
  Cluster& cluster = warp.cta().cluster();
  auto op = std::make_unique<WarpCopy>(warp.threads(insn, active).as_unit(kUnit), warp, form.bytes);
  const Mask ignored = form.has_ignore ? warp.lanes_where(form.ignore) : 0;
  const std::byte* sources[kWarpSize];
  Mask reading = 0;
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane).as_unit(kUnit);
    LaneCopy copy;
    copy.source_bytes = form.has_source_bytes ? warp.reg<uint32_t>(insn.a)[lane] : form.bytes;
    if (copy.source_bytes > form.bytes) {
      cluster.report_fatal(
          FindingKind::kIllegalInstruction, who, 0,
          fmt::format("cp.async: source size {} exceeds the copy size {}", copy.source_bytes, form.bytes));
      return;
    }
    if ((ignored & lane_bit(lane)) != 0) copy.source_bytes = 0;
    Place to, from;
    const uint64_t address = warp.address(form.to, lane);
    if (is_own_shared(warp.cta(), form.to.space, address, form.bytes))
      to.address = shared_offset(static_cast<uint32_t>(address));
    else if (!locate(cluster, who, form.to.space, address, form.bytes, form.bytes, AccessKind::kWrite, to))
      return;
    if (copy.source_bytes > 0) {
      if (!locate(cluster, who, form.from.space, warp.address(form.from, lane), copy.source_bytes, form.bytes,
                  AccessKind::kRead, from))
        return;
      copy.from = from.address;
      sources[lane] = from.host;
      reading |= lane_bit(lane);
    }
    copy.to = static_cast<uint32_t>(to.address);
    cluster.statistics().cp_async_bytes += copy.source_bytes;
    op->add(lane, copy);
  });
  if (op->lanes == 0) return Step::kNext;
  cluster.observe().global_accessed(insn, sources, reading, form.bytes, GlobalAccess::kAsyncCopy);
  op->number = tracker_of(warp).issue(op->lanes);
  cluster.async().submit(std::move(op));
  return Step::kNext;
}

Step exec_commit(Warp& warp, const Instruction&, Mask active) {
  tracker_of(warp).commit(active);
  return Step::kNext;
}

// Wait::a: groups that may stay pending, or kAll. Wait::b: lanes.
constexpr uint64_t kAll = ~uint64_t{0};

bool is_wait_over(Warp& warp, const Wait& wait) {
  const CopyGroups& tracker = tracker_of(warp);
  const auto lanes = static_cast<Mask>(wait.b);
  return wait.a == kAll ? tracker.is_all_done(lanes)
                        : tracker.is_group_done(lanes, static_cast<uint32_t>(wait.a));
}

std::string describe_wait(Warp& warp, const Wait& wait) {
  const size_t under_way = tracker_of(warp).copies_under_way();
  if (wait.a == kAll) return fmt::format("for all its cp.async copies ({} under way)", under_way);
  return fmt::format("for all but {} of its cp.async groups ({} copies under way)", wait.a, under_way);
}

Step exec_wait(Warp& warp, const Instruction& insn, Mask active) {
  Wait wait;
  wait.ready = is_wait_over;
  wait.describe = describe_wait;
  wait.a = static_cast<uint64_t>(insn.immediate);
  wait.b = active;
  if (!is_wait_over(warp, wait)) return warp.wait_and_retry(active, wait);
  const CopyGroups& tracker = tracker_of(warp);
  warp.cta().cluster().observe().waited_for(
      warp.threads(insn, active), CompletedBy::kCopyGroup, warp.index(),
      wait.a == kAll ? tracker.issued() : tracker.end_of_groups(active, static_cast<uint32_t>(wait.a)));
  return Step::kNext;
}

/// The arrival of one lane at an mbarrier once its earlier copies are there.
class CopyArrival : public AsyncOp {
 public:
  CopyArrival(Who who, Warp& warp, const MbarrierRef& barrier)
      : AsyncOp(who),
        warp_(&warp),
        cta_(barrier.cta),
        offset_(barrier.offset),
        after_(tracker_of(warp).issued()) {}
  bool ready(Cluster&) override { return tracker_of(*warp_).is_done_before(who.lane, after_); }
  bool run(Cluster& cluster) override {
    deliver_arrival(cluster, who, *cta_, offset_);
    return true;
  }
  std::string describe() const override {
    return "arrival of cp.async.mbarrier.arrive at " + cta_->units().mbarriers.name_of(offset_);
  }
  WorkDemand demand() const override { return {.after_copies = true}; }
  Completion completion() const override { return {CompletedBy::kCopyGroup, 0, after_}; }

 private:
  Warp* warp_;
  Cta* cta_;
  uint32_t offset_;
  CopyGroups::Number after_;
};

template <bool kIncrement>
Step exec_mbarrier_arrive(Warp& warp, const Instruction& insn, Mask active) {
  const AddressSource& at = insn.form<AddressSource>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane).as_unit(kUnit);
    const MbarrierRef ref = find_mbarrier(cluster, who, at.space, warp.address(at, lane), true);
    if (ref.object == nullptr) return;
    if (kIncrement && !apply(cluster, who, ref, [](Mbarrier& o) { return o.add_pending(); })) return;
    cluster.async().submit(std::make_unique<CopyArrival>(who, warp, ref));
  });
  return Step::kNext;
}

bool decode_copy(Decoder& decoder, Instruction& out) {
  CopyForm form;
  form.to = decoder.address_in(decoder.operand(0), Space::kSharedCta);
  form.from = decoder.address_in(decoder.operand(1), Space::kGlobal);
  form.bytes = static_cast<uint32_t>(decoder.immediate(2, "copy size"));
  const bool only_16 = decoder.has(Mod::cg);
  if (form.bytes != 16 && (only_16 || (form.bytes != 4 && form.bytes != 8)))
    decoder.refuse(
        fmt::format("copy size {}: {}", form.bytes, only_16 ? ".cg copies 16 bytes" : "4, 8 or 16"));
  const size_t last = decoder.operand_count() - (decoder.has(Mod::L2_cache_hint) ? 1 : 0);
  if (last > 3) {
    form.has_ignore = decoder.is_predicate(decoder.operand(3));
    form.has_source_bytes = !form.has_ignore;
    if (form.has_ignore)
      form.ignore = decoder.predicate(3);
    else
      out.a = decoder.source(3, ScalarType::u32);
  }
  out.extra = decoder.keep(form);
  set_body(out, exec_copy);
  return true;
}

}  // namespace

bool decode_cp_async(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::cp_async:
      return decode_copy(decoder, out);
    case Op::cp_async_commit_group:
      set_body(out, exec_commit);
      return true;
    case Op::cp_async_wait_group:
      out.immediate = decoder.immediate(0, "number of groups");
      set_body(out, exec_wait);
      return true;
    case Op::cp_async_wait_all:
      out.immediate = static_cast<int64_t>(kAll);
      set_body(out, exec_wait);
      return true;
    case Op::cp_async_mbarrier_arrive:
      out.extra = decoder.keep(decoder.address(0));
      set_body(out, decoder.has(Mod::noinc) ? exec_mbarrier_arrive<false> : exec_mbarrier_arrive<true>);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
