// SPDX-License-Identifier: Apache-2.0
// The mbarrier instructions of threads. cp.async.mbarrier.arrive is with cp.async.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "vgpu/units/mbarrier_ops.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

enum class ArriveKind : uint8_t { kPlain, kExpectTx, kNoComplete };

struct ArriveForm {
  AddressSource at;
  ArriveKind kind;
  bool drop;
  bool own_only;
  uint8_t order = kAcquires | kReleases;
};

struct WaitForm {
  AddressSource at;
  bool parity;
  uint8_t order;
};

struct PlainForm {
  AddressSource at;
};

// An object is used as if by a strong access: it must have been initialised before. The first and the last
// lane speak for those between.
void use_mbarrier(Cluster& cluster, Who who, const MbarrierRef& ref) {
  cluster.observe().mbarrier_used(who, *ref.cta, ref.offset);
  if (const int last = kWarpSize - 1 - std::countl_zero(who.lanes); last > who.lane) {
    who.lane = last;
    cluster.observe().mbarrier_used(who, *ref.cta, ref.offset);
  }
}

MbarrierOutcome arrive(Mbarrier& object, const ArriveForm& form, uint32_t operand) {
  const int64_t count = form.kind == ArriveKind::kExpectTx ? 1 : operand;
  if (form.drop) {
    const MbarrierOutcome outcome = object.drop(count);
    if (outcome.fault != MbarrierFault::kNone) return outcome;
  }
  if (form.kind == ArriveKind::kExpectTx) return object.arrive_expect_tx(operand);
  if (form.kind == ArriveKind::kPlain) return object.arrive(count);
  const MbarrierOutcome outcome = object.arrive_no_complete(count);
  // As on the chip: the finding is made, and the phase completes all the same.
  if (outcome.fault == MbarrierFault::kNoCompleteCompletes) object.arrive(count);
  return outcome;
}

Step exec_arrive(Warp& warp, const Instruction& insn, Mask active) {
  const ArriveForm& form = insn.form<ArriveForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    Who who = warp.thread(insn, lane);
    const MbarrierRef ref =
        find_mbarrier(cluster, who, form.at.space, warp.address(form.at, lane), form.own_only);
    if (ref.object == nullptr) return;
    warp.reg<uint64_t>(insn.d)[lane] = ref.object->state();
    who.lanes = active;
    who.order = form.order;
    if (lane == first_lane(active)) {
      use_mbarrier(cluster, who, ref);
      cluster.observe().mbarrier_reached(who, *ref.cta, ref.offset);
    }
    apply(cluster, who, ref, [&](Mbarrier& o) { return arrive(o, form, warp.reg<uint32_t>(insn.a)[lane]); });
  });
  return Step::kNext;
}

Step exec_init(Warp& warp, const Instruction& insn, Mask active) {
  const PlainForm& form = insn.form<PlainForm>();
  Cluster& cluster = warp.cta().cluster();
  struct Initialised {
    uint32_t offset, count;
    bool operator==(const Initialised&) const = default;
  };
  std::vector<Initialised> done;  // by the lanes before
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane);
    Place place;
    if (!locate(cluster, who, form.at.space, warp.address(form.at, lane), 8, 8, AccessKind::kWrite, place))
      return;
    const auto offset = static_cast<uint32_t>(place.address);
    if (place.space != Space::kSharedCta || place.cta != &warp.cta()) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, place.address,
                           "mbarrier.init takes an address in the own CTA's shared memory");
      return;
    }
    const uint32_t count = warp.reg<uint32_t>(insn.a)[lane];
    const MbarrierFault fault = warp.cta().units().mbarriers.init(offset, count);
    if (Mbarrier* made = warp.cta().units().mbarriers.find(offset)) {
      const InstructionInfo& written = cluster.program().info[insn.index];
      made->file = written.file;
      made->line = written.line;
      made->variable = written.object;
    }
    const bool repeats = std::find(done.begin(), done.end(), Initialised{offset, count}) != done.end();
    done.push_back({offset, count});
    place.cta->shared().mark_written(offset, 8);
    cluster.observe().mbarrier_initialised(who, *place.cta, offset);
    if (fault == MbarrierFault::kNone || (fault == MbarrierFault::kAlreadyLive && !cluster.checks().barriers))
      return;
    if (fault == MbarrierFault::kAlreadyLive)
      cluster.report(FindingKind::kInvalidBarrier, who, offset,
                     fmt::format("a live mbarrier is at shared {:#x} already", offset),
                     repeats ? "let one lane initialise it" : "mbarrier.inval it first",
                     repeats ? BentRule::kRepeatedInit : BentRule::kNone);
    else
      cluster.report_fatal(FindingKind::kInvalidBarrier, who, offset,
                           fmt::format("mbarrier.init with count {}: {}", count, explain(fault, Mbarrier())));
  });
  return Step::kNext;
}

Step exec_inval(Warp& warp, const Instruction& insn, Mask active) {
  const PlainForm& form = insn.form<PlainForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane);
    const MbarrierRef ref = find_mbarrier(cluster, who, form.at.space, warp.address(form.at, lane), true);
    if (ref.object == nullptr) return;
    use_mbarrier(cluster, who, ref);
    ref.cta->units().mbarriers.invalidate(ref.offset);
  });
  return Step::kNext;
}

template <bool kExpect>
Step exec_tx(Warp& warp, const Instruction& insn, Mask active) {
  const PlainForm& form = insn.form<PlainForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane);
    const uint32_t bytes = warp.reg<uint32_t>(insn.a)[lane];
    apply(cluster, who, find_mbarrier(cluster, who, form.at.space, warp.address(form.at, lane), false),
          [&](Mbarrier& o) { return kExpect ? o.expect_tx(bytes) : o.complete_tx(bytes); });
  });
  return Step::kNext;
}

Step exec_pending_count(Warp& warp, const Instruction& insn, Mask active) {
  for_each_lane(active, [&](int lane) {
    warp.reg<uint32_t>(insn.d)[lane] = Mbarrier::pending_count(warp.reg<uint64_t>(insn.a)[lane]);
  });
  return Step::kNext;
}

// ---- waiting

// Wait::a is the object's offset, with the form in bit 32; Wait::b the parity or state.
constexpr uint64_t kParityFlag = uint64_t{1} << 32;

bool is_done(const Mbarrier& object, bool parity, uint64_t operand) {
  return parity ? object.is_done_parity(static_cast<uint32_t>(operand)) : object.is_done_state(operand);
}

bool wait_is_over(Warp& warp, const Wait& wait) {
  // An object that died meanwhile ends the wait too: the instruction runs again and reports it.
  const Mbarrier* object = warp.cta().units().mbarriers.find(static_cast<uint32_t>(wait.a));
  return object == nullptr || is_done(*object, (wait.a & kParityFlag) != 0, wait.b);
}

std::string describe_wait(Warp& warp, const Wait& wait) {
  const auto offset = static_cast<uint32_t>(wait.a);
  const Mbarrier* object = warp.cta().units().mbarriers.find(offset);
  const std::string counts = object == nullptr ? "not initialised" : object->describe();
  const std::string name = warp.cta().units().mbarriers.name_of(offset);
  if ((wait.a & kParityFlag) != 0) return fmt::format("for parity {} of {} ({})", wait.b & 1, name, counts);
  return fmt::format("for the phase of a state of {} ({})", name, counts);
}

// Lanes are asked one by one; kBlocking forms stop the warp at the first lane whose phase is not done.
template <bool kBlocking>
Step exec_wait(Warp& warp, const Instruction& insn, Mask active) {
  const WaitForm& form = insn.form<WaitForm>();
  Cluster& cluster = warp.cta().cluster();
  Mask done = 0;
  Wait wait;
  MbarrierRef ref;  // of the lane before, which nearly always waits for the same object
  uint64_t address = 0;
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane);
    const uint64_t before = std::exchange(address, warp.address(form.at, lane));
    if (ref.object == nullptr || address != before)
      ref = find_mbarrier(cluster, who, form.at.space, address, true);
    if (ref.object == nullptr) return;
    const uint64_t operand =
        form.parity ? warp.reg<uint32_t>(insn.a)[lane] : warp.reg<uint64_t>(insn.a)[lane];
    if (!form.parity && cluster.checks().barriers && ref.object->is_stale_state(operand))
      cluster.report(FindingKind::kInvalidBarrier, who, ref.offset,
                     fmt::format("{}: {}", barrier_text(who, *ref.cta, ref.offset),
                                 explain(MbarrierFault::kStaleState, *ref.object)));
    if (is_done(*ref.object, form.parity, operand)) {
      const SyncKey key = sync_key(SyncKind::kMbarrier, ref.cta->rank(), ref.offset);
      if (done == 0) {
        Who waiter = warp.threads(insn, active);
        waiter.order = form.order;
        use_mbarrier(cluster, waiter, ref);
        cluster.observe().mbarrier_phases_acquired(waiter, key);
        cluster.observe().waited(who, key, ref.object->phase() - 1);
      }
      ref.object->note_wait();
      done |= lane_bit(lane);
    } else if (wait.ready == nullptr) {
      wait.ready = wait_is_over;
      wait.describe = describe_wait;
      wait.a = ref.offset | (form.parity ? kParityFlag : 0);
      wait.b = operand;
      wait.may_time_out = true;
    }
  });
  if (kBlocking && wait.ready != nullptr && !warp.split().timed_out) return warp.wait_and_retry(active, wait);
  Split& split = warp.split();
  split.timed_out = false;
  if (split.asked = !kBlocking && wait.ready != nullptr; split.asked) {
    split.wait = wait;
    split.waits_at = split.pc;
  }
  Mask& result = warp.predicate(insn.d);
  result = (result & ~active) | done;
  return Step::kNext;
}

// Without words: .acquire or .release at the scope of the CTA.
uint8_t order_of(const Decoder& decoder) {
  if (decoder.has(Mod::relaxed)) return kRelaxed;
  return kAcquires | kReleases | (decoder.has(Mod::cluster) ? 0 : kCtaScope);
}

bool decode_arrive(Decoder& decoder, Instruction& out) {
  ArriveForm form;
  form.at = decoder.address(1);
  form.kind = decoder.has(Mod::expect_tx)    ? ArriveKind::kExpectTx
              : decoder.has(Mod::noComplete) ? ArriveKind::kNoComplete
                                             : ArriveKind::kPlain;
  form.drop = decoder.op() == Op::mbarrier_arrive_drop;
  // A state can be returned, and .noComplete used, for the own CTA's objects only.
  const bool has_state = decoder.operand(0).kind != ptx::OperandKind::sink;
  form.own_only = has_state || form.kind == ArriveKind::kNoComplete;
  form.order = order_of(decoder);
  out.d = decoder.destination(0, ScalarType::b64);
  out.a = decoder.operand_count() > 2 ? decoder.source(2, ScalarType::u32) : decoder.constant32(1);
  out.extra = decoder.keep(form);
  set_body(out, exec_arrive);
  return true;
}

bool decode_wait(Decoder& decoder, Instruction& out) {
  const WaitForm form{decoder.address(1), decoder.has(Mod::parity), order_of(decoder)};
  out.d = decoder.predicate_destination(decoder.operand(0));
  out.a = decoder.source(2, form.parity ? ScalarType::u32 : ScalarType::b64);
  out.extra = decoder.keep(form);
  set_body(out, decoder.op() == Op::mbarrier_try_wait ? exec_wait<true> : exec_wait<false>);
  return true;
}

}  // namespace

bool decode_mbarrier(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::mbarrier_arrive:
    case Op::mbarrier_arrive_drop:
      return decode_arrive(decoder, out);
    case Op::mbarrier_test_wait:
    case Op::mbarrier_try_wait:
      return decode_wait(decoder, out);
    case Op::mbarrier_pending_count:
      out.d = decoder.destination(0, ScalarType::u32);
      out.a = decoder.source(1, ScalarType::b64);
      set_body(out, exec_pending_count);
      return true;
    case Op::mbarrier_init:
      set_body(out, exec_init);
      break;
    case Op::mbarrier_inval:
      set_body(out, exec_inval);
      break;
    case Op::mbarrier_expect_tx:
      set_body(out, exec_tx<true>);
      break;
    case Op::mbarrier_complete_tx:
      set_body(out, exec_tx<false>);
      break;
    default:
      return false;
  }
  out.extra = decoder.keep(PlainForm{decoder.address(0)});
  if (decoder.operand_count() > 1) out.a = decoder.source(1, ScalarType::u32);
  return true;
}

}  // namespace imbrex::vgpu
