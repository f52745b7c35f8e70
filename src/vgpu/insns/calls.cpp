// SPDX-License-Identifier: Apache-2.0
#include "vgpu/insns/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/text.h"
#include "vgpu/insns/builtins.h"
#include "vgpu/insns/call_values.h"
#include "vgpu/insns/frames.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/program/control.h"
#include "vgpu/program/device_runtime.h"
#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

namespace {

struct CallInfo {
  uint32_t target = 0;
  Builtin builtin = nullptr;
  /// What is handed over; of built-in functions only what has to be moved out of the caller's frame, and back.
  std::vector<PassedValue> arguments, results;
  std::vector<int64_t> argument_offsets;  // for built-in functions: where in local memory each argument is
  std::vector<int64_t> result_offsets;
  const char* function = "";
  const CallFrame* callee = nullptr;  // where that has frames
  const CallFrame* saved = nullptr;   // the caller, where the callee may call it
  bool by_lane = false;               // a value is in a frame
};

void pass(Warp& w, Mask active, const CallInfo& info, const std::vector<PassedValue>& values) {
  if (!info.by_lane) return pass(w, active, values);
  std::vector<std::byte> read;
  for_each_lane(active, [&](int lane) {
    read_values(w, lane, values, read);
    write_values(w, lane, values, read);
  });
}

// ---- functions that may call themselves

/// The calls that a lane is in, the latest first, equal ones counted.
std::vector<std::string> call_facts(const Program& program, const std::vector<CallStack::Call>& calls) {
  constexpr size_t kMost = 6;
  std::vector<std::string> facts;
  for (size_t i = calls.size(); i > 0 && facts.size() < kMost;) {
    size_t first = i - 1;
    while (first > 0 && calls[first - 1].instruction == calls[i - 1].instruction) --first;
    const size_t times = i - first;
    facts.push_back(fmt::format("in {}, called at {}{}", calls[i - 1].function,
                                program.place_text(calls[i - 1].instruction),
                                times == 1 ? "" : fmt::format(", {} times in a row", times)));
    i = first;
  }
  return facts;
}

/// False where the lane's stack has no room for another call, which is a finding.
bool has_room(Warp& w, const Instruction& n, int lane, const CallInfo& info) {
  if (info.callee == nullptr) return true;
  const int64_t needed = info.callee->stack_bytes;
  const CallStack::Lane& stack = w.call_stack().of(lane);
  Cluster& cluster = w.cta().cluster();
  const int64_t limit = cluster.launch().stack_bytes, used = stack.bytes;
  if (used + needed <= limit) return true;
  if (Finding* f = cluster.log().open(FindingKind::kOutOfBounds, w.thread(n, lane))) {
    f->message = fmt::format(
        "stack overflow: calls {}, which takes at least {} bytes, {} calls deep; {} of the thread's {} "
        "bytes are in use",
        info.function, needed, stack.calls.size(), used, limit);
    f->facts = call_facts(w.program(), stack.calls);
    f->hint =
        "end the recursion earlier, or give threads more by cudaDeviceSetLimit(cudaLimitStackSize, bytes)";
  }
  cluster.stop();
  return false;
}

Step call_with_frame(Warp& w, const Instruction& n, Mask active, const CallInfo& info, bool others_call) {
  // Everything below is done once, so those who are here by chance leave first, and come again.
  if (!w.split().guests.empty()) return w.part_from_guests();
  for (Mask left = active; left != 0; left &= left - 1)
    if (!has_room(w, n, first_lane(left), info)) return w.exit(active);
  std::vector<std::byte> read;
  for_each_lane(active, [&](int lane) {
    read_values(w, lane, info.arguments, read);
    push_call(w, lane, {info.function, info.callee, info.saved, n.index, &info});
    write_values(w, lane, info.arguments, read);
  });
  w.cta().cluster().note_progress();  // what a warp will do follows no more from its registers alone
  return w.call(active, info.target, others_call);
}

void return_from_frame(Warp& w, int lane, const CallInfo& info) {
  std::vector<std::byte> read;
  read_values(w, lane, info.results, read);
  pop_call(w, lane);
  write_values(w, lane, info.results, read);
}

// ---- by name

Step exec_call(Warp& w, const Instruction& n, Mask active) {
  const CallInfo& info = n.form<CallInfo>();
  if (info.callee != nullptr) return call_with_frame(w, n, active, info, false);
  pass(w, active, info, info.arguments);
  if (info.builtin == nullptr) return w.call(active, info.target);
  const Step step = info.builtin(w, n, active, info.argument_offsets, info.result_offsets);
  if (step == Step::kTurn) return step;
  for (int64_t offset : info.result_offsets)
    for_each_lane(active, [&](int lane) { w.mark_local_written(lane, static_cast<uint64_t>(offset), 8); });
  pass(w, active, info, info.results);
  return step;
}

Step exec_call_result(Warp& w, const Instruction& n, Mask active) {
  const CallInfo& info = n.form<CallInfo>();
  const Mask returned = w.take_returned(active);
  if (info.callee != nullptr)
    for_each_lane(returned, [&](int lane) { return_from_frame(w, lane, info); });
  else if (info.builtin == nullptr)
    pass(w, active, info, info.results);
  return Step::kNext;
}

// ---- through a register

/// A call through a register: by address, what it may call. The caller's registers stay as they are meanwhile, or are as
/// they were when it returns, so that the results are fetched by the same register.
struct PointerCallInfo {
  std::map<uint64_t, CallInfo> callees;
  bool with_frames = false;  // one of them has
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
  const PointerCallInfo& info = n.form<PointerCallInfo>();
  uint64_t address = 0;
  const Mask same = alike(w, n, active, address);
  const auto callee = info.callees.find(address);
  if (callee == info.callees.end()) {
    Cluster& cluster = w.cta().cluster();
    if (Finding* f = cluster.log().open(FindingKind::kIllegalInstruction,
                                        {&w.cta(), w.index(), first_lane(active), &n, ""})) {
      f->message = fmt::format("calls {:#x}, where no function of this kind is", address);
      f->hint = "pointers to functions come from the module that calls them";
    }
    cluster.stop();
    return w.exit(active);
  }
  if (info.with_frames) return call_with_frame(w, n, same, callee->second, true);
  pass(w, same, callee->second, callee->second.arguments);
  return w.call(same, callee->second.target, true);
}

Step exec_pointer_call_result(Warp& w, const Instruction& n, Mask active) {
  const PointerCallInfo& info = n.form<PointerCallInfo>();
  Mask left = w.take_returned(active);
  if (info.with_frames) {
    // The register may not be the caller's yet; the stack knows who was called.
    for_each_lane(left, [&](int lane) {
      const CallStack::Call& call = w.call_stack().of(lane).calls.back();
      return_from_frame(w, lane, *static_cast<const CallInfo*>(call.form));
    });
    return Step::kNext;
  }
  while (left != 0) {
    uint64_t address = 0;
    const Mask same = alike(w, n, left, address);
    const CallInfo& callee = info.callees.at(address);
    pass(w, same, callee, callee.results);
    left &= ~same;
  }
  return Step::kNext;
}

// ---- decoding

ValuePlace in_memory(const FunctionLayout& layout, int64_t offset) {
  if (layout.frame == nullptr) return {false, false, offset};
  return {false, true, offset - layout.frame->bytes};
}

/// Where a value handed to or taken from a call is on the caller's side.
ValuePlace callers_side(Decoder& d, const ptx::Operand& o, const ptx::Variable& formal, bool is_argument) {
  if (o.kind == ptx::OperandKind::symbol) {
    const SymbolAddress symbol = d.builder().address_of(d.layout(), o);
    return {false, symbol.in_frame, static_cast<int64_t>(symbol.address)};
  }
  return {true, false, is_argument ? d.source(o, formal.type) : d.destination(o, formal.type)};
}

ValuePlace callees_side(const FunctionLayout& callee, const ptx::Variable& formal, int64_t offset) {
  if (formal.space == ptx::Space::reg) return {true, false, callee.registers[formal.reg.id]};
  return in_memory(callee, offset);
}

/// A built-in function takes its arguments from local memory, where they are not in a frame.
int64_t out_of_frame(Decoder& d, const ValuePlace& place, uint32_t bytes, bool is_argument, CallInfo& info) {
  if (place.in_register) d.refuse("arguments and results of a built-in function must be in .param space");
  if (!place.in_frame) return place.at;
  const ValuePlace outside{false, false, d.builder().allocate_local(bytes)};
  if (is_argument)
    info.arguments.push_back({place, outside, bytes});
  else
    info.results.push_back({outside, place, bytes});
  return outside.at;
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
  const auto bytes_of = [](const ptx::Variable& formal) {
    return static_cast<uint32_t>(std::max<int64_t>(formal.size(), 1));
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ptx::Variable& formal = callee.params[i];
    const ValuePlace from = callers_side(d, arguments[i], formal, true);
    if (info.builtin != nullptr) {
      info.argument_offsets.push_back(out_of_frame(d, from, bytes_of(formal), true, info));
      continue;
    }
    const FunctionLayout& layout = d.builder().layout_of(index);
    const ValuePlace to = callees_side(layout, formal, layout.params[i]);
    if (to.in_register) d.note_write(layout, formal.reg.id);
    info.arguments.push_back({from, to, bytes_of(formal)});
  }
  for (size_t i = 0; i < returned; ++i) {
    const ptx::Variable& formal = callee.return_params[i];
    const ValuePlace to = callers_side(d, results[i], formal, false);
    if (info.builtin != nullptr) {
      info.result_offsets.push_back(out_of_frame(d, to, bytes_of(formal), false, info));
      continue;
    }
    const FunctionLayout& layout = d.builder().layout_of(index);
    info.results.push_back({callees_side(layout, formal, layout.return_params[i]), to, bytes_of(formal)});
  }
  const auto in_frame = [](const PassedValue& v) { return v.from.in_frame || v.to.in_frame; };
  info.by_lane = std::ranges::any_of(info.arguments, in_frame) || std::ranges::any_of(info.results, in_frame);
  if (info.builtin != nullptr) return info;
  const FunctionLayout& layout = d.builder().layout_of(index);
  info.target = layout.pcs[0];
  info.function = intern(callee.name);
  info.callee = layout.frame;
  const CallFrame* const caller = d.layout().frame;
  if (info.callee != nullptr && caller != nullptr && caller->circle == info.callee->circle)
    info.saved = caller;
  return info;
}

}  // namespace

bool decode_call(Decoder& d, Instruction& out) {
  const ptx::Operand& callee = d.operand(1);
  if (callee.kind == ptx::OperandKind::symbol && callee.ref == ptx::Ref::function) {
    out.extra = d.keep(call_info(d, callee.id));
    set_body(out, exec_call);
    return true;
  }
  PointerCallInfo info;
  ProgramBuilder& builder = d.builder();
  for (const uint32_t index : builder.callees_by_pointer(*d.layout().function, d.instruction())) {
    const auto [at, is_new] =
        info.callees.try_emplace(builder.image().function_address(index), call_info(d, index));
    info.with_frames = info.with_frames || at->second.callee != nullptr;
  }
  out.a = d.source(callee, ptx::ScalarType::u64);
  out.immediate = kThroughPointer;
  out.extra = d.keep(std::move(info));
  set_body(out, exec_pointer_call);
  return true;
}

Instruction call_result_instruction(const Instruction& call) {
  const bool through_pointer = call.immediate == kThroughPointer;
  Instruction out;
  set_body(out, through_pointer ? exec_pointer_call_result : exec_call_result);
  out.a = call.a;
  out.extra = call.extra;
  // What the guard's register held may be in the frame that the result brings back: who has returned is known otherwise.
  const bool with_frame =
      through_pointer ? call.form<PointerCallInfo>().with_frames : call.form<CallInfo>().callee != nullptr;
  if (with_frame) return out;
  out.guard = call.guard;
  out.guard_flip = call.guard_flip;
  return out;
}

}  // namespace imbrex::vgpu
