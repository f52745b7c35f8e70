// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/sector_counter.h"

namespace imbrex::vgpu {

std::string_view name(GlobalAccess access) {
  switch (access) {
    case GlobalAccess::kLoad:
      return "load";
    case GlobalAccess::kStore:
      return "store";
    case GlobalAccess::kAtomic:
      return "atomic";
    case GlobalAccess::kReduction:
      return "reduction";
    case GlobalAccess::kAsyncCopy:
      return "async copy";
  }
  return "";
}

void SectorCounter::accessed(const Instruction& insn, const std::byte* const* host, Mask lanes,
                             uint32_t bytes, GlobalAccess access) {
  if (lanes == 0) return;
  // Global memory begins at a page of the host: addresses there lie in sectors as the kernel's own do.
  request_.addresses.assign(kWarpSize, -1);
  request_.bytes = static_cast<int>(bytes);
  for_each_lane(lanes, [&](int lane) {
    request_.addresses[static_cast<size_t>(lane)] =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(host[lane]));
  });
  const bool by_turns = access == GlobalAccess::kAtomic || access == GlobalAccess::kReduction;
  const SectorReport report =
      sector_report(request_, by_turns ? SectorSharing::kByTurns : SectorSharing::kTogether);
  Count& count = counts_[insn];
  ++count.requests;
  count.sectors += report.sectors;
  count.ideal += report.ideal;
  count.bytes_asked += report.bytes;
  count.bytes = static_cast<uint8_t>(bytes);
  count.access = access;
}

void SectorCounter::Count::add(const Count& other) {
  requests += other.requests;
  sectors += other.sectors;
  ideal += other.ideal;
  bytes_asked += other.bytes_asked;
  bytes = other.bytes;
  access = other.access;
}

}  // namespace imbrex::vgpu
