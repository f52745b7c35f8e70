// SPDX-License-Identifier: Apache-2.0
// Which functions may call themselves, and their frames.
#include <algorithm>
#include <set>

#include "ptx/register_pressure.h"
#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

namespace {

uint32_t round_up(int64_t value, int64_t to) { return static_cast<uint32_t>((value + to - 1) / to * to); }

/// Everything that may be called once the function is.
std::set<uint32_t> reached(const std::map<uint32_t, std::set<uint32_t>>& calls, uint32_t from) {
  std::set<uint32_t> found;
  std::vector<uint32_t> left{from};
  while (!left.empty()) {
    const auto at = calls.find(left.back());
    left.pop_back();
    if (at == calls.end()) continue;
    for (const uint32_t callee : at->second)
      if (found.insert(callee).second) left.push_back(callee);
  }
  return found;
}

/// No more than ptxas 13.0 gives a function that calls itself (of six, half as much to as much): its variables, the return address,
/// and the registers that live across calls. ptxas puts more aside than there are values.
uint32_t estimated_stack(const ptx::Function& f, std::string_view target) {
  int64_t variables = 0;
  for (const ptx::Variable& v : f.variables)
    if (v.space == ptx::Space::local) variables = round_up(variables, v.alignment()) + v.size();
  return round_up(variables + 4 * (ptx::register_pressure(f, target).across_calls + 2), 8);
}

}  // namespace

void ProgramBuilder::find_circles() {
  std::map<uint32_t, std::set<uint32_t>> reach;
  for (const uint32_t f : order_) reach[f] = reached(calls_, f);
  for (const uint32_t f : order_) {
    if (!reach[f].contains(f)) continue;
    auto frame = std::make_shared<CallFrame>();
    frame->circle = *std::ranges::find_if(reach[f], [&](uint32_t other) { return reach[other].contains(f); });
    layouts_[f].frame = frame.get();
    program_->kept.push_back(std::move(frame));
  }
}

void ProgramBuilder::finish_frames() {
  int64_t alignment = 16;
  for (const auto& [index, layout] : layouts_)
    if (layout.frame != nullptr)
      for (const ptx::Variable& v : layout.function->variables)
        alignment = std::max(alignment, v.alignment());
  for (auto& [index, layout] : layouts_) {
    if (layout.frame == nullptr) continue;
    if (program_->stack_pointer == 0) program_->stack_pointer = allocate(kWarpSize * sizeof(uint64_t));
    const ptx::Function& f = *layout.function;
    CallFrame& frame = *layout.frame;
    frame.bytes = round_up(std::max<int64_t>(frame.bytes, 1), alignment);
    frame.stack_bytes = estimated_stack(f, module().target);
    program_->stack_scale =
        std::max(program_->stack_scale, static_cast<double>(frame.bytes) / frame.stack_bytes);
    for (uint32_t r = 0; r < f.registers.size(); ++r) {
      const bool is_predicate = f.registers[r].type == ptx::ScalarType::pred;
      const auto bits = static_cast<uint32_t>(ptx::bits(f.registers[r].type));
      frame.registers.push_back({layout.registers[r], is_predicate ? 0 : std::max(4u, bits / 8)});
      layout.add_numbers(r, frame.numbers);
      const auto is_this = [&](const ptx::Variable& v) {
        return v.space == ptx::Space::reg && v.reg.id == r;
      };
      if (std::ranges::none_of(f.params, is_this)) layout.add_numbers(r, frame.unwritten);
    }
  }
  stack_alignment_ = alignment;
}

void ProgramBuilder::place_stack() {
  local_bytes_ = round_up(local_bytes_, stack_alignment_);
  program_->local_bytes = local_bytes_;
  if (program_->stack_pointer != 0) constants_.push_back({program_->stack_pointer, local_bytes_, 8});
}

int64_t ProgramBuilder::allocate_local(int64_t bytes) {
  const int64_t offset = round_up(local_bytes_, 16);
  local_bytes_ = static_cast<uint32_t>(offset + bytes);
  return offset;
}

}  // namespace imbrex::vgpu
