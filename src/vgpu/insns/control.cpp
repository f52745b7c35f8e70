// SPDX-License-Identifier: Apache-2.0
// Control flow: bra, brx.idx, call, ret, exit, trap, brkpt.
#include "vgpu/program/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "vgpu/insns/builtins.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"
#include "vgpu/program/device_runtime.h"
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

// ---- calls

/// One value of a call, moved between a caller and a callee.
struct Passed {
  bool from_register = false, to_register = false;
  int64_t from = 0, to = 0;  // slot, or offset in local memory
  uint32_t bytes = 0;
};
struct CallInfo {
  uint32_t target = 0;
  Builtin builtin = nullptr;
  std::vector<Passed> arguments, results;
  std::vector<int64_t> argument_offsets;  // for built-in functions: where in local memory each argument is
  std::vector<int64_t> result_offsets;
};

void pass(Warp& w, Mask active, const std::vector<Passed>& values) {
  for (const Passed& v : values) {
    const size_t stride = v.bytes <= 4 ? 4 : v.bytes;
    for_each_lane(active, [&](int lane) {
      std::byte value[16] = {};
      const size_t at = static_cast<size_t>(lane);
      std::byte* const local = w.local(lane);
      if (!v.from_register && !v.to_register) {
        std::memmove(local + v.to, local + v.from, v.bytes);
        return;
      }
      std::memcpy(
          value, v.from_register ? w.reg<std::byte>(static_cast<Slot>(v.from)) + at * stride : local + v.from,
          v.bytes);
      std::memcpy(v.to_register ? w.reg<std::byte>(static_cast<Slot>(v.to)) + at * stride : local + v.to,
                  value, v.to_register ? stride : v.bytes);
    });
    if (!v.to_register)
      for_each_lane(active,
                    [&](int lane) { w.mark_local_written(lane, static_cast<uint64_t>(v.to), v.bytes); });
  }
}

Step exec_call(Warp& w, const Instruction& n, Mask active) {
  const CallInfo& info = *static_cast<const CallInfo*>(n.extra);
  pass(w, active, info.arguments);
  if (info.builtin == nullptr) return w.call(active, info.target);
  const Step step = info.builtin(w, n, active, info.argument_offsets, info.result_offsets);
  for (int64_t offset : info.result_offsets)
    for_each_lane(active, [&](int lane) { w.mark_local_written(lane, static_cast<uint64_t>(offset), 8); });
  return step;
}

Step exec_call_result(Warp& w, const Instruction& n, Mask active) {
  pass(w, active, static_cast<const CallInfo*>(n.extra)->results);
  return Step::kNext;
}

/// A call through a register: by address, what it may call. The caller's registers stay as they are meanwhile, so that the
/// results are fetched by the same register.
struct PointerCallInfo {
  std::map<uint64_t, CallInfo> callees;
};
constexpr int64_t kThroughPointer = 1;  // in Instruction::immediate

/// The lanes of `active` that have the first one's address in the register of `n`.
Mask alike(Warp& w, const Instruction& n, Mask active, uint64_t& address) {
  const uint64_t* pointers = w.reg<uint64_t>(n.a);
  address = pointers[first_lane(active)];
  Mask same = 0;
  for_each_lane(active, [&](int i) { same |= pointers[i] == address ? lane_bit(i) : 0; });
  return same;
}

Step exec_pointer_call(Warp& w, const Instruction& n, Mask active) {
  const PointerCallInfo& info = *static_cast<const PointerCallInfo*>(n.extra);
  uint64_t address = 0;
  const Mask same = alike(w, n, active, address);
  const auto callee = info.callees.find(address);
  if (callee == info.callees.end()) {
    Cluster& cluster = w.cta().cluster();
    if (Finding* f = cluster.log().open(FindingKind::kIllegalInstruction,
                                        {&w.cta(), w.index(), first_lane(active), &n, ""})) {
      f->message = fmt::format("calls {:#x}, where no function of this kind is", address);
      f->hint =
          "pointers to functions come from the module that calls them; recursion through one is not modelled";
    }
    cluster.stop();
    return w.exit(active);
  }
  pass(w, same, callee->second.arguments);
  return w.call(same, callee->second.target, true);
}

Step exec_pointer_call_result(Warp& w, const Instruction& n, Mask active) {
  const PointerCallInfo& info = *static_cast<const PointerCallInfo*>(n.extra);
  for (Mask left = active; left != 0;) {
    uint64_t address = 0;
    const Mask same = alike(w, n, left, address);
    pass(w, same, info.callees.at(address).results);
    left &= ~same;
  }
  return Step::kNext;
}

/// Where a value handed to or taken from a call is on the caller's side.
Passed callers_side(Decoder& d, const ptx::Operand& o, const ptx::Variable& formal, bool is_argument) {
  Passed p;
  p.bytes = static_cast<uint32_t>(std::max<int64_t>(formal.size(), 1));
  bool& in_register = is_argument ? p.from_register : p.to_register;
  int64_t& place = is_argument ? p.from : p.to;
  if (o.kind == ptx::OperandKind::symbol) {
    place = static_cast<int64_t>(d.builder().address_of(d.layout(), o).address);
  } else {
    in_register = true;
    place = is_argument ? d.source(o, formal.type) : d.destination(o, formal.type);
  }
  return p;
}

void callees_side(const FunctionLayout& callee, const ptx::Variable& formal, int64_t offset, bool is_argument,
                  Passed& p) {
  bool& in_register = is_argument ? p.to_register : p.from_register;
  int64_t& place = is_argument ? p.to : p.from;
  in_register = formal.space == ptx::Space::reg;
  place = in_register ? callee.registers[formal.reg.id] : offset;
}

/// The call's side and the side of one callee, put together.
CallInfo call_info(Decoder& d, uint32_t index) {
  const ptx::Function& callee = d.builder().module().functions[index];
  const std::span<const ptx::Operand> results = d.elements(d.operand(0)),
                                      arguments = d.elements(d.operand(2));
  CallInfo info;
  if (!callee.has_body) {
    info.builtin = find_builtin(callee.name);
    if (info.builtin == nullptr)
      d.refuse(launches_kernels(callee.name)
                   ? fmt::format("it launches kernels from a kernel ({}), which is not there", callee.name)
                   : fmt::format("the function {} has no body and is not built in", callee.name));
    if (callee.name == "malloc" || callee.name == "free") d.builder().program().allocates = true;
  }
  // Modules are linked by name: where one declares a result and the other returns none, as Numba does for void functions of
  // C, there is nothing to hand over, and the caller does not look at it.
  const size_t returned = std::min(results.size(), callee.return_params.size());
  const bool is_void = results.empty() || callee.return_params.empty();
  if (arguments.size() != callee.params.size() || (results.size() != callee.return_params.size() && !is_void))
    d.refuse(fmt::format("{} takes {} arguments and returns {} values, the call has {} and {}", callee.name,
                         callee.params.size(), callee.return_params.size(), arguments.size(),
                         results.size()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    Passed p = callers_side(d, arguments[i], callee.params[i], true);
    if (info.builtin != nullptr) {
      if (p.from_register) d.refuse("arguments of a built-in function must be in .param space");
      info.argument_offsets.push_back(p.from);
      continue;
    }
    const FunctionLayout& layout = d.builder().layout_of(index);
    callees_side(layout, callee.params[i], layout.params[i], true, p);
    if (p.to_register) d.note_write(layout, callee.params[i].reg.id);
    info.arguments.push_back(p);
  }
  for (size_t i = 0; i < returned; ++i) {
    Passed p = callers_side(d, results[i], callee.return_params[i], false);
    if (info.builtin != nullptr) {
      if (p.to_register) d.refuse("results of a built-in function must be in .param space");
      info.result_offsets.push_back(p.to);
      continue;
    }
    const FunctionLayout& layout = d.builder().layout_of(index);
    callees_side(layout, callee.return_params[i], layout.return_params[i], false, p);
    info.results.push_back(p);
  }
  if (info.builtin == nullptr) info.target = d.builder().layout_of(index).pcs[0];
  return info;
}

bool decode_call(Decoder& d, Instruction& out) {
  const ptx::Operand& callee = d.operand(1);
  if (callee.kind == ptx::OperandKind::symbol && callee.ref == ptx::Ref::function) {
    out.extra = d.keep(call_info(d, callee.id));
    set_body(out, exec_call);
    return true;
  }
  PointerCallInfo info;
  ProgramBuilder& builder = d.builder();
  for (const uint32_t index : builder.callees_by_pointer(*d.layout().function, d.instruction()))
    if (builder.is_reachable(index))
      info.callees[builder.image().function_address(index)] = call_info(d, index);
  out.a = d.source(callee, ScalarType::u64);
  out.immediate = kThroughPointer;
  out.extra = d.keep(std::move(info));
  set_body(out, exec_pointer_call);
  return true;
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
Instruction call_result_instruction(const Instruction& call) {
  const bool through_pointer = call.immediate == kThroughPointer;
  Instruction out = own_instruction(through_pointer ? exec_pointer_call_result : exec_call_result);
  out.a = call.a;
  out.guard = call.guard;
  out.guard_flip = call.guard_flip;
  out.extra = call.extra;
  return out;
}

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
