// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/sector_counter.h"

#include <algorithm>

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
  const SectorReport report = sector_report(request_);
  Count& count = counts_[insn.index];
  ++count.requests;
  count.sectors += report.sectors;
  count.ideal += report.ideal;
  count.bytes_asked += report.bytes;
  count.bytes = static_cast<uint8_t>(bytes);
  count.access = access;
}

void SectorCounter::add(const SectorCounter& other) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Count& from = other.counts_[i];
    if (from.requests == 0) continue;
    Count& to = counts_[i];
    to.requests += from.requests;
    to.sectors += from.sectors;
    to.ideal += from.ideal;
    to.bytes_asked += from.bytes_asked;
    to.bytes = from.bytes;
    to.access = from.access;
  }
}

std::vector<SectorUse> SectorCounter::report(const Program& program) const {
  std::vector<SectorUse> uses;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Count& c = counts_[i];
    if (c.requests == 0) continue;
    uses.push_back({program.place(static_cast<uint32_t>(i)), c.access, c.bytes, c.requests, c.sectors,
                    c.ideal, c.bytes_asked});
  }
  std::stable_sort(uses.begin(), uses.end(), [](const SectorUse& a, const SectorUse& b) {
    return a.place.ptx_line < b.place.ptx_line;
  });
  return uses;
}

}  // namespace imbrex::vgpu
