// SPDX-License-Identifier: Apache-2.0
// Cluster launch control: a running cluster takes over the work of one that has not been launched. Also the
// two instructions about grids and registers: griddepcontrol, which this machine has nothing to do for (launches are carried
// out one after the other), and setmaxnreg, whose warps wait where the CTA has no registers left. Which warps execute it is
// looked at when the CTA exits.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vgpu/units/mbarrier_ops.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr const char* kUnit = "cluster launch control";
constexpr uint32_t kResponseBytes = 16;
constexpr uint64_t kCancelled = 1;  // in the upper word

struct CancelForm {
  AddressSource response, barrier;
  bool multicast;
};

struct Response {
  uint64_t low = 0, high = 0;
};

/// One response on its way to one CTA.
class Delivery : public AsyncOp {
 public:
  Delivery(Who who, Cta& to, uint32_t offset, uint32_t barrier, Response response)
      : AsyncOp(who), to_(&to), offset_(offset), barrier_(barrier), response_(response) {}
  bool run(Cluster& cluster) override {
    std::memcpy(to_->shared().at(offset_), &response_, kResponseBytes);
    touch(cluster, who, shared_place(*to_, offset_), kResponseBytes, AccessKind::kWrite);
    deliver_bytes(cluster, who, *to_, barrier_, kResponseBytes);
    return true;
  }
  std::string describe() const override {
    return fmt::format("response of try_cancel to shared {:#x}", offset_);
  }
  Completion completion() const override {
    return {CompletedBy::kMbarrier, sync_key(SyncKind::kMbarrier, to_->rank(), barrier_)};
  }

 private:
  Cta* to_;
  uint32_t offset_, barrier_;
  Response response_;
};

/// The request: takes the next cluster that has not been launched, if any is left.
class Request : public AsyncOp {
 public:
  Request(Who who, Cta& from, uint32_t offset, uint32_t barrier, bool multicast)
      : AsyncOp(who), from_(&from), offset_(offset), barrier_(barrier), multicast_(multicast) {}
  bool run(Cluster& cluster) override {
    const int64_t number = cluster.take_unlaunched();
    Response response;
    if (number >= 0) {
      const Dim3 clusters = cluster.launch().clusters(), extent = cluster.launch().cluster;
      const auto x = static_cast<uint64_t>(number % clusters.x * extent.x);
      const auto y = static_cast<uint64_t>(number / clusters.x % clusters.y * extent.y);
      const auto z = static_cast<uint64_t>(number / clusters.x / clusters.y * extent.z);
      response = {x | y << 32 | z << 48, kCancelled};
    }
    for (const std::unique_ptr<Cta>& cta : cluster.ctas())
      if (multicast_ || cta.get() == from_)
        cluster.async().submit(std::make_unique<Delivery>(who, *cta, offset_, barrier_, response));
    return true;
  }
  std::string describe() const override { return "request of try_cancel"; }
  WorkDemand demand() const override { return {.kind = WorkDemand::Kind::kCancel}; }
  Completion completion() const override { return {}; }

 private:
  Cta* from_;
  uint32_t offset_, barrier_;
  bool multicast_;
};

Step exec_try_cancel(Warp& warp, const Instruction& insn, Mask active) {
  const CancelForm& form = insn.form<CancelForm>();
  Cta& cta = warp.cta();
  Cluster& cluster = cta.cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane).as_unit(kUnit);
    if (cta.units().saw_failed_cancel) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0,
                           "asks to cancel another cluster after a failed request has been seen",
                           "leave the loop then");
      return;
    }
    Place response;
    if (!locate(cluster, who, form.response.space, warp.address(form.response, lane), kResponseBytes,
                kResponseBytes, AccessKind::kWrite, response))
      return;
    const MbarrierRef barrier =
        find_mbarrier(cluster, who, form.barrier.space, warp.address(form.barrier, lane), true);
    if (barrier.object == nullptr) return;
    if (response.cta != &cta) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, response.address,
                           "try_cancel: the response goes to shared memory of the own CTA");
      return;
    }
    for (const std::unique_ptr<Cta>& other : cluster.ctas())
      if (form.multicast && other->finished()) {
        cluster.report_fatal(
            FindingKind::kIllegalInstruction, who, response.address,
            fmt::format("try_cancel with multicast: the CTA of rank {} has exited", other->rank()));
        return;
      }
    cluster.async().submit(std::make_unique<Request>(who, cta, static_cast<uint32_t>(response.address),
                                                     barrier.offset, form.multicast));
  });
  return Step::kNext;
}

// A b128 register: two words per lane.
Response response_in(Warp& warp, Slot slot, int lane) {
  const uint64_t* words = warp.reg<uint64_t>(slot) + 2 * lane;
  return {words[0], words[1]};
}

Step exec_is_canceled(Warp& warp, const Instruction& insn, Mask active) {
  Mask cancelled = 0;
  for_each_lane(active, [&](int lane) {
    if ((response_in(warp, insn.a, lane).high & kCancelled) != 0) cancelled |= lane_bit(lane);
  });
  if ((active & ~cancelled) != 0) warp.cta().units().saw_failed_cancel = true;
  Mask& result = warp.predicate(insn.d);
  result = (result & ~active) | cancelled;
  return Step::kNext;
}

struct CoordinateForm {
  std::vector<Slot> to;  // for coordinate first, first + 1, ...
  uint32_t first = 0;
};

Step exec_first_ctaid(Warp& warp, const Instruction& insn, Mask active) {
  const CoordinateForm& form = insn.form<CoordinateForm>();
  for_each_lane(active, [&](int lane) {
    const Response response = response_in(warp, insn.a, lane);
    if ((response.high & kCancelled) == 0)
      warp.cta().cluster().report(FindingKind::kIllegalInstruction, warp.thread(insn, lane), 0,
                                  "get_first_ctaid of a response that cancelled nothing",
                                  "ask is_canceled first");
    const uint32_t parts[4] = {static_cast<uint32_t>(response.low),
                               static_cast<uint32_t>(response.low >> 32 & 0xFFFF),
                               static_cast<uint32_t>(response.low >> 48), 0};
    for (size_t i = 0; i < form.to.size(); ++i) warp.reg<uint32_t>(form.to[i])[lane] = parts[form.first + i];
  });
  return Step::kNext;
}

bool decode_query(Decoder& decoder, Instruction& out) {
  out.a = decoder.source(1, ScalarType::b128);
  if (decoder.has(Mod::is_canceled)) {
    out.d = decoder.predicate_destination(decoder.operand(0));
    set_body(out, exec_is_canceled);
    return true;
  }
  CoordinateForm form;
  if (decoder.has(Mod::get_first_ctaid)) {
    for (const ptx::Operand& element : decoder.elements(decoder.operand(0)))
      form.to.push_back(decoder.destination(element, ScalarType::b32));
    if (form.to.size() != 4) decoder.refuse("get_first_ctaid.v4 has four destinations");
  } else {
    form.to.push_back(decoder.destination(0, ScalarType::b32));
    form.first = decoder.has(Mod::get_first_ctaid_x) ? 0 : decoder.has(Mod::get_first_ctaid_y) ? 1 : 2;
  }
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_first_ctaid);
  return true;
}

Step exec_nothing(Warp&, const Instruction&, Mask) { return Step::kNext; }

/// Registers that the CTA began with, in each thread; 0 where ptxas would not know them either, and ignores setmaxnreg.
int64_t entry_registers(const LaunchContext& launch) {
  const Program& program = launch.program;
  constexpr int64_t kStep = 8, kWarpgroup = 128, kMost = 256;
  if (program.max_registers > 0) return program.max_registers / kStep * kStep;
  if (program.ctas_per_sm == 0) return 0;
  const int64_t threads = (program.attributes.max_threads + kWarpgroup - 1) / kWarpgroup * kWarpgroup;
  return std::min(launch.target.registers_per_sm / (threads * program.ctas_per_sm) / kStep * kStep, kMost);
}

bool has_registers(Warp& warp, const Wait& wait) {
  const RegisterPool& pool = warp.cta().units().registers;
  return pool.lacks(warp.index(), static_cast<int64_t>(wait.a)) <= pool.free();
}

std::string describe_registers(Warp& warp, const Wait& wait) {
  const RegisterPool& pool = warp.cta().units().registers;
  return fmt::format(
      "for {} registers in each thread, {} more than it has: the CTA began with {} in each of {} warps, of "
      "which "
      "{} for one warp are free",
      wait.a, pool.lacks(warp.index(), static_cast<int64_t>(wait.a)), pool.entry(), warp.cta().warps().size(),
      pool.free());
}

Step exec_setmaxnreg(Warp& warp, const Instruction& insn, Mask active) {
  RegisterPool& pool = warp.cta().units().registers;
  if (!pool.has_begun())
    pool.begin(warp.cta().warps().size(), entry_registers(warp.cta().cluster().launch()));
  if (pool.lacks(warp.index(), insn.immediate) > pool.free()) {
    Wait wait;
    wait.ready = has_registers;
    wait.describe = describe_registers;
    wait.a = static_cast<uint64_t>(insn.immediate);
    return warp.wait_and_retry(active, wait);
  }
  pool.hold(warp.index(), insn.immediate);
  warp.cta().cluster().note_progress();
  std::vector<std::vector<const Instruction*>>& budgets = warp.cta().units().register_budgets;
  budgets.resize(warp.cta().warps().size());
  budgets[static_cast<size_t>(warp.index())].push_back(&insn);
  return Step::kNext;
}

}  // namespace

bool decode_launch_control(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::clusterlaunchcontrol_try_cancel: {
      CancelForm form{decoder.address(0), decoder.address(1), decoder.has(Mod::multicast_cluster_all)};
      out.extra = decoder.keep(form);
      set_body(out, exec_try_cancel);
      return true;
    }
    case Op::clusterlaunchcontrol_query_cancel:
      return decode_query(decoder, out);
    case Op::griddepcontrol:
      set_body(out, exec_nothing);
      return true;
    case Op::setmaxnreg: {
      const int64_t count = decoder.immediate(0, "number of registers");
      if (count < 24 || count > 256 || count % 8 != 0)
        decoder.refuse(fmt::format("{} registers: must be a multiple of 8 in 24 ... 256", count));
      out.immediate = count;
      set_body(out, exec_setmaxnreg);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
