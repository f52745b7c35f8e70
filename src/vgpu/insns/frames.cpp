// SPDX-License-Identifier: Apache-2.0
#include "vgpu/insns/frames.h"

#include <algorithm>
#include <cstddef>

namespace imbrex::vgpu {

namespace {

constexpr uint8_t kWhole = 0xF;

uint64_t& stack_pointer(Warp& warp, int lane) {
  return warp.reg<uint64_t>(warp.program().stack_pointer)[lane];
}

void put_aside(Warp& warp, int lane, const CallFrame& frame) {
  CallStack::Lane& mine = warp.call_stack().of(lane);
  for (const CallFrame::Register& r : frame.registers) {
    if (r.lane_bytes == 0) {
      mine.values.push_back(static_cast<std::byte>(warp.predicate(r.slot) >> lane & 1));
      continue;
    }
    const std::byte* at = warp.reg<std::byte>(r.slot) + static_cast<size_t>(lane) * r.lane_bytes;
    mine.values.insert(mine.values.end(), at, at + r.lane_bytes);
  }
  mine.undefined_at.push_back(mine.undefined.size());
  if (warp.defined().empty()) return;
  for (const uint32_t number : frame.numbers) {
    if ((warp.defined()[number] & lane_bit(lane)) != 0) continue;
    const auto partial = warp.undefined_bytes().find(number);
    mine.undefined.push_back({number, partial == warp.undefined_bytes().end()
                                          ? kWhole
                                          : partial->second[static_cast<size_t>(lane)]});
  }
}

void fetch(Warp& warp, int lane, const CallFrame& frame) {
  CallStack::Lane& mine = warp.call_stack().of(lane);
  for (size_t i = frame.registers.size(); i-- > 0;) {
    const CallFrame::Register& r = frame.registers[i];
    if (r.lane_bytes == 0) {
      Mask& predicate = warp.predicate(r.slot);
      predicate = (predicate & ~lane_bit(lane)) | (mine.values.back() != std::byte{0} ? lane_bit(lane) : 0);
      mine.values.pop_back();
      continue;
    }
    const auto value = mine.values.end() - static_cast<ptrdiff_t>(r.lane_bytes);
    std::copy(value, mine.values.end(),
              warp.reg<std::byte>(r.slot) + static_cast<size_t>(lane) * r.lane_bytes);
    mine.values.erase(value, mine.values.end());
  }
  const size_t first = mine.undefined_at.back();
  mine.undefined_at.pop_back();
  if (warp.defined().empty()) return;
  for (const uint32_t number : frame.numbers) warp.defined()[number] |= lane_bit(lane);
  for (size_t i = first; i < mine.undefined.size(); ++i) {
    const auto [number, bytes] = mine.undefined[i];
    warp.defined()[number] &= ~lane_bit(lane);
    const auto partial = warp.undefined_bytes().find(number);
    if (partial != warp.undefined_bytes().end()) partial->second[static_cast<size_t>(lane)] = bytes;
  }
  mine.undefined.resize(first);
}

}  // namespace

void push_call(Warp& warp, int lane, const CallStack::Call& call) {
  CallStack::Lane& mine = warp.call_stack().of(lane);
  if (call.saved != nullptr) put_aside(warp, lane, *call.saved);
  mine.calls.push_back(call);
  if (call.callee == nullptr) return;
  mine.bytes += call.callee->stack_bytes;
  uint64_t& pointer = stack_pointer(warp, lane);
  pointer += call.callee->bytes;
  if (warp.defined().empty()) return;
  for (const uint32_t number : call.callee->unwritten) {
    warp.defined()[number] &= ~lane_bit(lane);
    const auto partial = warp.undefined_bytes().find(number);
    if (partial != warp.undefined_bytes().end()) partial->second[static_cast<size_t>(lane)] = kWhole;
  }
  warp.mark_local_unwritten(lane, pointer - call.callee->bytes, call.callee->bytes);
}

void pop_call(Warp& warp, int lane) {
  CallStack::Lane& mine = warp.call_stack().of(lane);
  const CallStack::Call call = mine.calls.back();
  mine.calls.pop_back();
  if (call.callee != nullptr) {
    mine.bytes -= call.callee->stack_bytes;
    stack_pointer(warp, lane) -= call.callee->bytes;
  }
  if (call.saved != nullptr) fetch(warp, lane, *call.saved);
}

}  // namespace imbrex::vgpu
