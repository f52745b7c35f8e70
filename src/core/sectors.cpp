// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/sectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "imbrex/core/error.h"

namespace imbrex {

SectorReport sector_report(const WarpAccess& access, SectorSharing sharing) {
  constexpr size_t kWarp = 32;
  auto refuse = [](std::string what) { throw LaunchError(Diagnostic{{}, std::move(what), {}, ""}); };
  const int bytes = access.bytes;
  if (access.addresses.size() > kWarp)
    refuse(fmt::format("{} lanes, a warp has 32", access.addresses.size()));
  if (bytes < 1 || bytes > 32 || (bytes & (bytes - 1)) != 0)
    refuse(fmt::format("{} bytes per lane; global memory is accessed by 1, 2, 4, 8, 16 or 32", bytes));
  std::array<int64_t, kWarp> wanted;
  size_t lanes = 0;
  for (const int64_t address : access.addresses) {
    if (address < 0) continue;
    if (address % bytes != 0)
      refuse(fmt::format("address {} is not a multiple of the {} bytes accessed", address, bytes));
    wanted[lanes++] = address;
  }
  SectorReport report;
  report.lanes = static_cast<int>(lanes);
  report.bytes = static_cast<int64_t>(lanes) * bytes;
  std::sort(wanted.begin(), wanted.begin() + lanes);
  // Aligned accesses of one width are equal or apart, and none of up to 32 bytes lies in two sectors.
  int words = 0;
  int turns = 0;  // that the current sector takes
  for (size_t i = 0, same = 0; i < lanes; ++i) {
    same = i > 0 && wanted[i] == wanted[i - 1] ? same + 1 : 1;
    words += same == 1;
    if (i == 0 || wanted[i] / kSectorBytes != wanted[i - 1] / kSectorBytes) turns = 0;
    const int needed = sharing == SectorSharing::kByTurns ? static_cast<int>(same) : 1;
    if (needed <= turns) continue;
    ++report.sectors;
    turns = needed;
  }
  report.ideal = (words * bytes + kSectorBytes - 1) / kSectorBytes;
  return report;
}

}  // namespace imbrex
