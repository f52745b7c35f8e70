// SPDX-License-Identifier: Apache-2.0
#include "vgpu/units/bulk_groups.h"

#include <fmt/format.h>

#include "vgpu/memory/raced_bytes.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;

Step exec_commit(Warp& warp, const Instruction&, Mask active) {
  BulkGroups& groups = bulk_groups_of(warp);
  groups.reads.commit(active);
  groups.writes.commit(active);
  return Step::kNext;
}

// Wait::a: groups that may stay pending; Wait::b: lanes.
template <bool kReads>
bool is_wait_over(Warp& warp, const Wait& wait) {
  const BulkGroups& groups = bulk_groups_of(warp);
  return (kReads ? groups.reads : groups.writes)
      .is_group_done(static_cast<Mask>(wait.b), static_cast<uint32_t>(wait.a));
}

template <bool kReads>
std::string describe_wait(Warp&, const Wait& wait) {
  return fmt::format("for all but {} of its bulk groups to be {}", wait.a, kReads ? "read" : "written");
}

template <bool kReads>
Step exec_wait(Warp& warp, const Instruction& insn, Mask active) {
  Wait wait;
  wait.ready = is_wait_over<kReads>;
  wait.describe = describe_wait<kReads>;
  wait.a = static_cast<uint64_t>(insn.immediate);
  wait.b = active;
  if (!is_wait_over<kReads>(warp, wait)) return warp.wait_and_retry(active, wait);
  bulk_groups_of(warp).note_wait(insn, active, static_cast<uint32_t>(wait.a));
  Observers& observe = warp.cta().cluster().observe();
  const uint64_t end = bulk_groups_of(warp).reads.end_of_groups(active, static_cast<uint32_t>(wait.a));
  if (kReads)
    observe.waited_for_reads(warp.threads(insn, active), end);
  else
    observe.waited_for(warp.threads(insn, active), CompletedBy::kBulkGroup, warp.index(), end);
  return Step::kNext;
}

}  // namespace

BulkGroups& bulk_groups_of(Warp& warp) { return warp.cta().units().bulk_groups_of(warp.index()); }

BulkStore::BulkStore(Who who, Warp& warp) : AsyncOp(who), warp_(&warp) {
  BulkGroups& groups = bulk_groups_of(warp);
  number_ = groups.reads.issue(lane_bit(who.lane));
  groups.writes.issue(lane_bit(who.lane));
  groups.has_stored = true;
  if (warp.cta().cluster().checks().async_lifetime) groups.unwaited.push_back({number_, who.lane, who.insn});
}

AccessKind BulkStore::kind_of_write(const Cluster& cluster, const Place& to, const void* bytes,
                                    size_t count) {
  return cluster.checks().races && holds_bytes(to.host, bytes, count) ? AccessKind::kSameWrite
                                                                      : AccessKind::kWrite;
}

bool BulkStore::run(Cluster& cluster) {
  cluster.note_progress();
  BulkGroups& groups = bulk_groups_of(*warp_);
  if (!has_read_) {
    read(cluster);
    has_read_ = true;
    groups.reads.finish(number_);
    return false;
  }
  write(cluster);
  groups.writes.finish(number_);
  return true;
}

bool decode_bulk_groups(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::cp_async_bulk_commit_group:
      set_body(out, exec_commit);
      return true;
    case Op::cp_async_bulk_wait_group:
      out.immediate = decoder.immediate(0, "number of groups");
      set_body(out, decoder.has(Mod::read) ? exec_wait<true> : exec_wait<false>);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
