// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/bank_counter.h"

#include <algorithm>

namespace imbrex::vgpu {

BankReport BankMeter::measure(const std::byte* const* host, Mask lanes, uint32_t bytes, BankAccess access) {
  // Host addresses differ from shared ones by a constant: banks are renamed, conflicts stay.
  access_.addresses.assign(kWarpSize, -1);
  access_.bytes = static_cast<int>(bytes);
  access_.access = access;
  const auto base = reinterpret_cast<uintptr_t>(host[first_lane(lanes)]) & ~uintptr_t{0xFFFF'FFFF};
  for_each_lane(lanes, [&](int lane) {
    access_.addresses[static_cast<size_t>(lane)] =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(host[lane]) - base + (uintptr_t{1} << 32));
  });
  return bank_report(access_);
}

void BankCounter::accessed(const Instruction& insn, Space space, const std::byte* const* host, Mask lanes,
                           uint32_t bytes, bool writes, BankAccess access) {
  if (space != Space::kSharedCta || lanes == 0) return;
  const BankReport report = meter_.measure(host, lanes, bytes, access);
  Count& count = counts_[insn];
  ++count.accesses;
  count.wavefronts += report.wavefronts;
  count.ideal += report.phases;
  count.degree = std::max(count.degree, report.degree);
  count.bytes = static_cast<uint8_t>(bytes);
  count.writes = writes;
}

void BankCounter::Count::add(const Count& other) {
  accesses += other.accesses;
  wavefronts += other.wavefronts;
  ideal += other.ideal;
  degree = std::max(degree, other.degree);
  bytes = other.bytes;
  writes = other.writes;
}

}  // namespace imbrex::vgpu
