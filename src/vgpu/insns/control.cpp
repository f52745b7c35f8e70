// SPDX-License-Identifier: Apache-2.0
// Control flow: bra, brx.idx, ret, exit, trap, brkpt.
#include "vgpu/program/control.h"

#include <fmt/format.h>

#include "vgpu/insns/calls.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"
#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;
using ptx::ScalarType;

Step exec_bra(Warp& w, const Instruction& n, Mask active) {
  return w.branch(active, static_cast<uint32_t>(n.immediate), w.split().pc + 1, n.d);
}

/// list[0] is the number of targets, the targets follow; d is the meeting point.
Step exec_brx(Warp& w, const Instruction& n, Mask active) {
  // One target after the other leaves the split; what is left executes this again.
  const uint32_t* index = w.reg<uint32_t>(n.a);
  const int lane = first_lane(active);
  const uint32_t choice = index[lane];
  if (choice >= n.list[0]) {
    Cluster& cluster = w.cta().cluster();
    if (Finding* f =
            cluster.log().open(FindingKind::kIllegalInstruction, {&w.cta(), w.index(), lane, &n, ""}))
      f->message = fmt::format("branches to target {} of a list of {}", choice, n.list[0]);
    cluster.stop();
    return w.exit(active);
  }
  Mask same = 0;
  for_each_lane(active, [&](int i) { same |= index[i] == choice ? lane_bit(i) : 0; });
  return w.branch(same, n.list[1 + choice], w.split().pc, n.d);
}

Step exec_ret(Warp& w, const Instruction&, Mask active) { return w.ret(active); }
Step exec_exit(Warp& w, const Instruction&, Mask active) { return w.exit(active); }
Step exec_join(Warp& w, const Instruction&, Mask) { return w.arrive_at_join(); }

Step exec_trap(Warp& w, const Instruction& n, Mask active) {
  Cluster& cluster = w.cta().cluster();
  if (Finding* f =
          cluster.log().open(FindingKind::kTrap, {&w.cta(), w.index(), first_lane(active), &n, ""})) {
    f->message = "the kernel executed trap";
    // Whoever traps on purpose has usually said why.
    std::string_view printed = cluster.printed();
    if (printed.ends_with('\n')) printed.remove_suffix(1);
    printed.remove_prefix(printed.rfind('\n') + 1);
    if (!printed.empty()) f->facts.push_back(fmt::format("it last printed: {}", printed));
  }
  cluster.stop();
  return w.exit(active);
}

bool decode_brx(Decoder& d, Instruction& out) {
  const ptx::TargetList& targets = d.layout().function->target_lists[d.operand(1).id];
  std::vector<Slot> list{static_cast<Slot>(targets.targets.size())};
  for (uint32_t label : targets.targets)
    list.push_back(d.layout().pcs[d.layout().function->labels[label].position]);
  out.a = d.source(0, ScalarType::u32);
  out.d = static_cast<Slot>(d.meeting());
  out.list = d.keep_list(std::move(list));
  set_body(out, exec_brx);
  return true;
}

Instruction own_instruction(ExecFunction body) {
  Instruction out;
  set_body(out, body);
  return out;
}

}  // namespace

Instruction join_instruction() { return own_instruction(exec_join); }
Instruction return_instruction() { return own_instruction(exec_ret); }
bool decode_control(Decoder& d, Instruction& out) {
  switch (d.op()) {
    case Op::bra:
      out.immediate = d.label(d.operand(0));
      out.d = static_cast<Slot>(d.meeting());
      set_body(out, exec_bra);
      return true;
    case Op::brx_idx:
      return decode_brx(d, out);
    case Op::call:
      return decode_call(d, out);
    case Op::ret:
      set_body(out, exec_ret);
      return true;
    case Op::exit:
      set_body(out, exec_exit);
      return true;
    case Op::trap:
    case Op::brkpt:
      set_body(out, exec_trap);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
