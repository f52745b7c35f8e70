// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/program_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "ptx/object_names.h"
#include "vgpu/program/byte_parts.h"
#include "vgpu/program/cas_loops.h"
#include "vgpu/program/control.h"
#include "vgpu/program/control_flow.h"
#include "vgpu/program/cost_class.h"
#include "vgpu/program/decode.h"
#include "vgpu/program/registers_in_flight.h"
#include "vgpu/program/shared_slots.h"
#include "vgpu/program/tensor_origins.h"

namespace imbrex::vgpu {

namespace {

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
/// What registers hold before they are written.
constexpr int kPoison = 0xCB;
constexpr uint32_t kSlotAlignment = 64;

[[noreturn]] void refuse(const ProgramBuilder& builder, const ptx::Function& f, uint32_t line,
                         std::string message) {
  throw CompileError({{intern(builder.text_name()), line, intern(f.name)}, std::move(message), {}, ""});
}

bool are_alike(const std::vector<ptx::Variable>& a, const std::vector<ptx::Variable>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ptx::Variable& x, const ptx::Variable& y) {
                      return x.space == y.space && x.size() == y.size();
                    });
}

uint32_t slot_bytes(ptx::ScalarType type) {
  if (type == ptx::ScalarType::pred) return sizeof(Mask);
  const int bits = ptx::bits(type);
  return static_cast<uint32_t>(kWarpSize * (bits <= 32 ? 4 : bits / 8));
}

}  // namespace

uint32_t machine_instructions(const ptx::Instruction& insn) {
  return ptx::has_trait(insn.op, ptx::kTwoSteps) ? 2 : 1;
}

ProgramBuilder::ProgramBuilder(const ModuleImage& image, const ptx::Function& entry)
    : image_(image), entry_(entry), program_(std::make_shared<Program>()) {}

std::shared_ptr<const Program> ProgramBuilder::build() {
  const ptx::Module& module = image_.tree();
  program_->name = entry_.name;
  program_->text = image_.lines();
  program_->register_count = 1;
  next_slot_ = 0;
  constant(kAllLanes, 1);  // slot 0: the guard of instructions without one

  find_functions(static_cast<uint32_t>(&entry_ - module.functions.data()));
  find_circles();
  module_shared_.assign(module.variables.size(), -1);
  for (uint32_t f : order_) {
    place_registers(layouts_[f]);
    place_variables(layouts_[f]);
  }
  finish_frames();
  // Dynamic shared memory (extern .shared x[]) comes after everything static.
  const int64_t base = image_.target().shared_base;
  program_->attributes.static_shared_bytes = program_->static_shared_bytes;
  const int64_t shared = round_up(base + program_->static_shared_bytes, dynamic_alignment_) - base;
  program_->static_shared_bytes = static_cast<uint32_t>(shared);
  uint32_t pc = 0;
  for (uint32_t f : order_) lay_out_code(layouts_[f], pc);
  for (uint32_t f : order_) decode_function(layouts_[f]);
  place_stack();
  finish_image();
  describe_entry();
  program_->collect_uses();
  return program_;
}

void ProgramBuilder::find_functions(uint32_t index) {
  const ptx::Function& f = module().functions[index];
  if (layouts_.contains(index)) return;
  if (const auto unread = image_.unread().find(index); unread != image_.unread().end()) throw unread->second;
  layouts_[index].function = &f;
  order_.push_back(index);
  for (const ptx::Instruction& insn : f.body) {
    if (insn.op != ptx::Op::call) continue;
    const auto finds = [&](uint32_t callee) {
      calls_[index].insert(callee);
      find_functions(callee);
    };
    if (f.operands_of(insn)[1].is_reg()) {
      for (const uint32_t callee : callees_by_pointer(f, insn)) finds(callee);
      continue;
    }
    for (const ptx::Operand& o : f.operands_of(insn))
      if (o.kind == ptx::OperandKind::symbol && o.ref == ptx::Ref::function &&
          module().functions[o.id].has_body)
        finds(o.id);
  }
}

std::vector<uint32_t> ProgramBuilder::callees_by_pointer(const ptx::Function& f,
                                                         const ptx::Instruction& call) {
  const std::span<const ptx::Operand> operands = f.operands_of(call);
  if (operands.size() < 4)
    refuse(*this, f, call.pos.line, "a call through a register without its prototype or its targets");
  if (operands[3].ref == ptx::Ref::target_list) return f.target_lists[operands[3].id].targets;
  const ptx::Prototype& prototype = f.prototypes[operands[3].id];
  std::vector<uint32_t> callees;
  if (!by_address_.has_value()) by_address_ = image_.functions_by_address();
  for (const uint32_t index : *by_address_) {
    const ptx::Function& candidate = module().functions[index];
    if (are_alike(candidate.params, prototype.params) &&
        are_alike(candidate.return_params, prototype.return_params))
      callees.push_back(index);
  }
  return callees;
}

// ---- registers and immediates

Slot ProgramBuilder::allocate(uint32_t bytes) {
  const uint32_t alignment = bytes <= sizeof(Mask) ? sizeof(Mask) : kSlotAlignment;
  next_slot_ = static_cast<uint32_t>(round_up(next_slot_, alignment));
  const Slot slot = next_slot_;
  next_slot_ += bytes;
  return slot;
}

void ProgramBuilder::place_registers(FunctionLayout& layout) {
  const ptx::Function& f = *layout.function;
  layout.registers.resize(f.registers.size());
  layout.register_numbers.resize(f.registers.size());
  for (uint32_t i = 0; i < f.registers.size(); ++i) {
    layout.register_numbers[i] = program_->register_count;
    program_->register_count += layout.has_halves(i) ? 2 : 1;
  }
  layout.contractions = contractions(f);
  // A function that calls itself puts all of its registers aside.
  const std::vector<uint32_t> shared =
      layout.frame != nullptr ? std::vector<uint32_t>() : shared_slots(f, layout.contractions);
  std::map<uint32_t, std::vector<Slot>> shared_by_size;
  // Predicates first, so that they share cache lines.
  for (const bool predicates : {true, false})
    for (size_t i = 0; i < f.registers.size(); ++i) {
      const ptx::ScalarType type = f.registers[i].type;
      if ((type == ptx::ScalarType::pred) != predicates) continue;
      const uint32_t bytes = slot_bytes(type);
      if (shared.empty() || shared[i] == kOwnSlot) {
        layout.registers[i] = allocate(bytes);
        continue;
      }
      std::vector<Slot>& slots = shared_by_size[bytes];
      while (slots.size() <= shared[i]) slots.push_back(allocate(bytes));
      layout.registers[i] = slots[shared[i]];
    }
}

Slot ProgramBuilder::constant(uint64_t value, int lane_bytes, bool shared_address) {
  const auto [at, is_new] = constant_slots_.try_emplace({value, lane_bytes, shared_address}, Slot{0});
  if (!is_new) return at->second;
  at->second = allocate(lane_bytes == 1 ? sizeof(Mask) : static_cast<uint32_t>(kWarpSize * lane_bytes));
  constants_.push_back({at->second, value, lane_bytes});
  if (shared_address) program_->shared_addresses.emplace_back(at->second, lane_bytes == 8);
  return at->second;
}

Slot ProgramBuilder::special(ptx::SpecialReg special) {
  const auto [at, is_new] = special_slots_.try_emplace(special, Slot{0});
  if (is_new) {
    at->second = allocate(slot_bytes(ptx::type_of(special)));
    program_->specials.push_back({static_cast<int>(special), at->second});
  }
  return at->second;
}

Slot ProgramBuilder::carry() {
  if (carry_ == 0) carry_ = allocate(sizeof(Mask));
  return carry_;
}

void ProgramBuilder::finish_image() {
  Program& p = *program_;
  p.register_bytes = static_cast<uint32_t>(round_up(next_slot_, kSlotAlignment));
  p.register_image.assign(p.register_bytes, std::byte{kPoison});
  for (const Constant& c : constants_) {
    std::byte* at = p.register_image.data() + c.slot;
    if (c.lane_bytes == 1) {
      const Mask mask = static_cast<Mask>(c.value);
      std::memcpy(at, &mask, sizeof mask);
      continue;
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
      std::byte* to = at + static_cast<ptrdiff_t>(lane) * c.lane_bytes;
      std::memset(to, 0, static_cast<size_t>(c.lane_bytes));
      std::memcpy(to, &c.value, static_cast<size_t>(std::min(c.lane_bytes, 8)));
    }
  }
}

// ---- variables

void ProgramBuilder::place_shared(const ptx::Variable& v, int64_t& offset) {
  const int64_t base = image_.target().shared_base;
  if (v.size() == 0) {
    dynamic_alignment_ = std::max(dynamic_alignment_, v.alignment());
    offset = FunctionLayout::kDynamicShared;
    return;
  }
  offset = round_up(base + program_->static_shared_bytes, v.alignment()) - base;
  program_->static_shared_bytes = static_cast<uint32_t>(offset + v.size());
}

void ProgramBuilder::place_variables(FunctionLayout& layout) {
  const ptx::Function& f = *layout.function;
  uint32_t& used = layout.frame != nullptr ? layout.frame->bytes : local_bytes_;
  const auto place_local = [&](const ptx::Variable& v) {
    const int64_t offset = round_up(used, v.alignment());
    used = static_cast<uint32_t>(offset + std::max<int64_t>(v.size(), 1));
    return offset;
  };
  layout.variables.resize(f.variables.size());
  for (size_t i = 0; i < f.variables.size(); ++i) {
    const ptx::Variable& v = f.variables[i];
    if (v.space == ptx::Space::shared)
      place_shared(v, layout.variables[i]);
    else if (v.space == ptx::Space::local || v.space == ptx::Space::param)
      layout.variables[i] = place_local(v);
    else
      refuse(*this, f, v.pos.line,
             fmt::format("{}: a variable of this state space in a function is not modelled", v.name));
  }
  if (f.is_entry) {
    layout.params = ptx::param_offsets(f);
  } else {
    for (const ptx::Variable& v : f.params)
      layout.params.push_back(v.space == ptx::Space::reg ? -1 : place_local(v));
    for (const ptx::Variable& v : f.return_params)
      layout.return_params.push_back(v.space == ptx::Space::reg ? -1 : place_local(v));
  }
  // Module-scope shared variables count only where they are used, as the driver does it.
  for (const ptx::Operand& o : f.operands) {
    if (o.ref != ptx::Ref::global || module_shared_[o.id] != -1) continue;
    const ptx::Variable& v = module().variables[o.id];
    if (v.space == ptx::Space::shared) place_shared(v, module_shared_[o.id]);
  }
}

SymbolAddress ProgramBuilder::address_of(const FunctionLayout& layout, const ptx::Operand& symbol) const {
  const uint64_t addend = static_cast<uint64_t>(symbol.value);
  const auto shared = [&](int64_t offset) {
    if (offset == FunctionLayout::kDynamicShared) offset = program_->static_shared_bytes;
    return SymbolAddress{Space::kSharedCta,
                         static_cast<uint64_t>(image_.target().shared_base + offset) + addend};
  };
  const auto local = [&](int64_t offset) {
    const bool in_frame = layout.frame != nullptr;
    if (in_frame) offset -= layout.frame->bytes;
    return SymbolAddress{Space::kLocal, static_cast<uint64_t>(offset) + addend, in_frame};
  };
  switch (symbol.ref) {
    case ptx::Ref::global: {
      const ptx::Variable& v = module().variables[symbol.id];
      if (v.space == ptx::Space::shared) return shared(module_shared_[symbol.id]);
      return {v.space == ptx::Space::constant ? Space::kConst : Space::kGlobal,
              image_.variable_address(symbol.id) + addend};
    }
    case ptx::Ref::param:
      if (layout.function->is_entry)
        return {Space::kParam,
                param_base(image_.gpu()) + static_cast<uint64_t>(layout.params[symbol.id]) + addend};
      return local(layout.params[symbol.id]);
    case ptx::Ref::return_param:
      return local(layout.return_params[symbol.id]);
    case ptx::Ref::local: {
      const ptx::Variable& v = layout.function->variables[symbol.id];
      const int64_t offset = layout.variables[symbol.id];
      return v.space == ptx::Space::shared ? shared(offset) : local(offset);
    }
    default:
      throw InternalError("a symbol without an address reached the virtual GPU's decoder");
  }
}

const FunctionLayout& ProgramBuilder::layout_of(uint32_t function) const { return layouts_.at(function); }

// ---- code

void ProgramBuilder::lay_out_code(FunctionLayout& layout, uint32_t& pc) {
  const ptx::Function& f = *layout.function;
  const std::vector<uint32_t> meetings = meeting_points(f);
  layout.is_meeting.assign(f.body.size() + 1, false);
  for (uint32_t m : meetings)
    if (m != kNoMeeting) layout.is_meeting[m] = true;
  layout.in_flight = uses_in_flight(f);
  for (size_t i = 0; i <= f.body.size(); ++i) {
    layout.pcs.push_back(pc);
    pc += layout.own_before(i);
    pc += i < f.body.size() ? machine_instructions(f.body[i]) : 1;
  }
  for (uint32_t m : meetings) layout.meetings.push_back(m == kNoMeeting ? kNowhere : layout.pcs[m]);
}

void ProgramBuilder::append(Instruction insn, const FunctionLayout& layout, uint32_t index) {
  const ptx::Function& f = *layout.function;
  Program& p = *program_;
  insn.index = static_cast<uint32_t>(p.code.size());
  if (p.info.size() <= insn.index) p.info.emplace_back();
  InstructionInfo& info = p.info.back();
  info.function = intern(f.name);
  if (index < f.body.size()) {
    const ptx::Instruction& source = f.body[index];
    info.ptx_line = static_cast<int>(source.pos.line);
    const std::span<const ptx::Operand> operands = f.operands_of(source);
    info.cost = static_cast<uint8_t>(cost_class(source, operands.empty() ? nullptr : &operands.back()));
    info.tests = source.op == ptx::Op::mbarrier_test_wait || source.op == ptx::Op::mbarrier_try_wait;
    info.releases = source.has(ptx::Mod::release) || source.has(ptx::Mod::acq_rel);
    const bool is_strong = info.releases || source.has(ptx::Mod::acquire) || source.has(ptx::Mod::relaxed) ||
                           source.has(ptx::Mod::volatile_);
    info.looks = source.op == ptx::Op::ld && is_strong;
    info.tells =
        (source.op == ptx::Op::st && is_strong) || source.op == ptx::Op::atom || source.op == ptx::Op::red;
    info.ends_block = ptx::insn_facts(source.op).family == ptx::Family::control;
    info.is_strong = is_strong_access(source);
    info.drains = drains_stores(source);
    if (source.op == ptx::Op::mbarrier_init) info.object = intern(ptx::initialised_variable(f, index));
    info.matrix_work = static_cast<float>(mma_sync_work(source));
    if (source.loc != ptx::Instruction::kNone) {
      const ptx::Loc& loc = f.locs[source.loc];
      for (const ptx::File& file : module().files)
        if (file.index == loc.file) info.file = intern(file.path);
      info.line = static_cast<int>(loc.line);
    }
  }
  p.code.push_back(insn);
}

void ProgramBuilder::decode_function(FunctionLayout& layout) {
  const ptx::Function& f = *layout.function;
  for (uint32_t i = 0; i <= f.body.size(); ++i) {
    if (layout.is_meeting[i]) append(join_instruction(), layout, i);
    if (const uint8_t writers = layout.waits_for(i); writers != 0)
      append(registers_written_instruction(writers), layout, i);
    if (i < f.body.size())
      decode_instruction(layout, i);
    else
      append(return_instruction(), layout, i);
  }
  for (const ptx::Instruction& insn : f.body) program_->habits.note(insn);
  const std::vector<bool> in_cas = in_cas_loops(f);
  for (uint32_t i = 0; i < in_cas.size(); ++i)
    program_->info[layout.pcs[i] + layout.own_before(i)].in_cas = in_cas[i];
  const std::vector<SharedUpdate> updates = shared_updates(f);
  for (uint32_t i = 0; i < updates.size(); ++i)
    program_->info[layout.pcs[i] + layout.own_before(i)].update = static_cast<uint8_t>(updates[i]) & 3;
  // The 16-byte stores of what was loaded from tensor memory.
  TensorOrigins origins(f);
  for (uint32_t i = 0; i < f.body.size(); ++i)
    if (f.body[i].op == ptx::Op::st)
      program_->info[layout.pcs[i] + layout.own_before(i)].stages = origins.stored_by(f.body[i]);
}

/// Notes in the latest instruction what comes of undefined operands.
void ProgramBuilder::describe_undefined_flow(const FunctionLayout& layout, const ptx::Instruction& source,
                                             bool computes) {
  InstructionInfo& info = program_->info.back();
  const std::span<const ptx::Operand> operands = layout.function->operands_of(source);
  const auto number = [&](const ptx::Operand& o) { return o.is_reg() ? layout.register_numbers[o.id] : 0; };
  const bool of_predicates = source.type(0) == ptx::ScalarType::pred;
  if (source.op == ptx::Op::shfl_sync) {
    const ptx::Operand& result = operands[0];
    const bool pair = result.kind == ptx::OperandKind::pair;
    info.flow = UndefinedFlow::kShuffled;
    info.numbers[0] = number(operands[1]);
    info.numbers[1] = number(pair ? layout.function->elements_of(result)[0] : result);
  } else if (source.op == ptx::Op::selp ||
             (of_predicates && (source.op == ptx::Op::and_ || source.op == ptx::Op::or_))) {
    info.flow = source.op == ptx::Op::selp   ? UndefinedFlow::kSelected
                : source.op == ptx::Op::and_ ? UndefinedFlow::kAnd
                                             : UndefinedFlow::kOr;
    for (size_t i = 1; i < operands.size(); ++i) info.numbers[i - 1] = number(operands[i]);
  } else if (info.parts = byte_parts(layout, source); !info.parts.empty()) {
    info.flow = UndefinedFlow::kByParts;
  } else if (computes) {
    info.flow = UndefinedFlow::kPassed;
  } else if ((source.op == ptx::Op::ld || source.op == ptx::Op::ldu || source.op == ptx::Op::st) &&
             ptx::bits(source.type()) <= 64) {
    const bool is_store = source.op == ptx::Op::st;
    if (is_store && (source.has(ptx::Mod::param) || source.has(ptx::Mod::param_func))) return;
    info.flow = is_store ? UndefinedFlow::kStored : UndefinedFlow::kLoaded;
    info.element_bytes = static_cast<uint8_t>(ptx::bytes(source.type()));
    const ptx::Operand& value = operands[is_store ? 1 : 0];
    const std::span<const ptx::Operand> elements =
        value.has_elements() ? layout.function->elements_of(value) : std::span(&value, 1);
    for (const ptx::Operand& o : elements) info.elements.push_back(number(o));
  } else if (source.op == ptx::Op::tcgen05_ld) {
    info.flow = UndefinedFlow::kLoaded;
  }
}

void ProgramBuilder::decode_instruction(FunctionLayout& layout, uint32_t index) {
  const ptx::Instruction& source = layout.function->body[index];
  program_->info.emplace_back();  // where the decoder notes what is read and written
  Decoder decoder(*this, layout, source);
  Instruction insn;
  if (source.guard.is_valid()) {
    insn.guard = layout.registers[source.guard.id];
    insn.guard_flip = source.guard_negated ? kAllLanes : 0;
    layout.add_numbers(source.guard.id, program_->info.back().reads);
    program_->info.back().guard = layout.register_numbers[source.guard.id];
  }
  const ptx::Family family = ptx::insn_facts(source.op).family;
  if (!vgpu::decode_function(family)(decoder, insn))
    decoder.refuse("the virtual GPU does not model this instruction");
  append(insn, layout, index);
  describe_undefined_flow(layout, source, ptx::computes(family));
  if (machine_instructions(source) == 2) {
    append(source.op == ptx::Op::call ? call_result_instruction(insn) : barrier_result_instruction(insn),
           layout, index);
    // A frame brings its registers back as they were, defined or not.
    std::vector<InstructionInfo>& info = program_->info;
    if (source.op != ptx::Op::call || program_->code.back().guard == insn.guard)
      info.back().writes = info[info.size() - 2].writes;
  }
}

void ProgramBuilder::describe_entry() {
  Program& p = *program_;
  FunctionAttributes& a = p.attributes;
  a.local_bytes = p.local_bytes;
  a.parameter_bytes = ptx::param_bytes(entry_);
  a.max_dynamic_shared_bytes = std::max<int64_t>(0, (48 << 10) - p.static_shared_bytes);
  const auto extent = [](const std::array<int, 3>& d) {
    return d[0] == 0 ? Dim3{0, 0, 0} : Dim3{d[0], std::max(d[1], 1), std::max(d[2], 1)};
  };
  a.required_block = extent(entry_.reqntid);
  a.required_cluster = extent(entry_.reqnctapercluster);
  const Dim3 most = extent(entry_.maxntid);
  if (most.x > 0) a.max_threads = static_cast<int>(most.count());
  if (a.required_block.x > 0) a.max_threads = static_cast<int>(a.required_block.count());
  p.max_registers = entry_.maxnreg;
  // Without a number of threads ptxas does not heed it.
  if (most.x > 0 || a.required_block.x > 0) p.ctas_per_sm = entry_.minnctapersm;
  for (const ptx::Register& r : entry_.registers)
    if (r.type != ptx::ScalarType::pred) a.registers_declared += std::max(1, ptx::bits(r.type) / 32);
  std::set<uint32_t> constants;
  for (const uint32_t f : order_)
    for (const ptx::Operand& o : module().functions[f].operands)
      if (o.ref == ptx::Ref::global && module().variables[o.id].space == ptx::Space::constant)
        constants.insert(o.id);
  for (const uint32_t variable : constants) a.constant_bytes += module().variables[variable].size();
  const std::vector<int64_t> offsets = ptx::param_offsets(entry_);
  for (size_t i = 0; i < entry_.params.size(); ++i)
    p.parameters.push_back(
        {entry_.params[i].name, offsets[i], entry_.params[i].size(), entry_.params[i].alignment()});
}

}  // namespace imbrex::vgpu
