// SPDX-License-Identifier: Apache-2.0
#include "vgpu/insns/call_values.h"

#include <cstring>

namespace imbrex::vgpu {

namespace {

/// Of a register's lane that holds so many bytes.
size_t lane_stride(uint32_t bytes) { return bytes <= 4 ? 4 : bytes; }

uint64_t local_offset(Warp& w, int lane, const ValuePlace& place) {
  const uint64_t base = place.in_frame ? w.reg<uint64_t>(w.program().stack_pointer)[lane] : 0;
  return base + static_cast<uint64_t>(place.at);
}

std::byte* lane_of_register(Warp& w, int lane, const ValuePlace& place, uint32_t bytes) {
  return w.reg<std::byte>(static_cast<Slot>(place.at)) + static_cast<size_t>(lane) * lane_stride(bytes);
}

}  // namespace

void pass(Warp& w, Mask active, const std::vector<PassedValue>& values) {
  for (const PassedValue& v : values) {
    const size_t stride = lane_stride(v.bytes);
    for_each_lane(active, [&](int lane) {
      std::byte value[16] = {};
      std::byte* const local = w.local(lane);
      if (!v.from.in_register && !v.to.in_register) {
        std::memmove(local + v.to.at, local + v.from.at, v.bytes);
        return;
      }
      std::memcpy(value, v.from.in_register ? lane_of_register(w, lane, v.from, v.bytes) : local + v.from.at,
                  v.bytes);
      std::memcpy(v.to.in_register ? lane_of_register(w, lane, v.to, v.bytes) : local + v.to.at, value,
                  v.to.in_register ? stride : v.bytes);
    });
    if (!v.to.in_register)
      for_each_lane(active,
                    [&](int lane) { w.mark_local_written(lane, static_cast<uint64_t>(v.to.at), v.bytes); });
  }
}

void read_values(Warp& w, int lane, const std::vector<PassedValue>& values, std::vector<std::byte>& read) {
  read.clear();
  for (const PassedValue& v : values) {
    const std::byte* from = v.from.in_register ? lane_of_register(w, lane, v.from, v.bytes)
                                               : w.local(lane) + local_offset(w, lane, v.from);
    read.insert(read.end(), from, from + v.bytes);
  }
}

void write_values(Warp& w, int lane, const std::vector<PassedValue>& values,
                  const std::vector<std::byte>& read) {
  const std::byte* next = read.data();
  for (const PassedValue& v : values) {
    if (v.to.in_register) {
      std::byte* const to = lane_of_register(w, lane, v.to, v.bytes);
      std::memset(to, 0, lane_stride(v.bytes));
      std::memcpy(to, next, v.bytes);
    } else {
      const uint64_t offset = local_offset(w, lane, v.to);
      std::memcpy(w.local(lane) + offset, next, v.bytes);
      w.mark_local_written(lane, offset, v.bytes);
    }
    next += v.bytes;
  }
}

}  // namespace imbrex::vgpu
