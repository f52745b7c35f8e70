// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/banks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "imbrex/core/error.h"

namespace imbrex {
namespace {

constexpr int kWarp = 32;

/// The different words wanted of every bank in one phase, in the order they are served: the index is the
/// cycle.
class Phase {
 public:
  int cycle_of(int64_t word) {
    const auto bank = static_cast<size_t>(word % kBanks);
    int& count = counts_[bank];
    int cycle = 0;
    while (cycle < count && words_[bank][static_cast<size_t>(cycle)] != word) ++cycle;
    if (cycle == count) words_[bank][static_cast<size_t>(count++)] = word;
    deepest_ = std::max(deepest_, count);
    return cycle;
  }
  int deepest() const { return deepest_; }

 private:
  std::array<int, kBanks> counts_{};
  std::array<std::array<int64_t, kWarp>, kBanks> words_;
  int deepest_ = 0;
};

/// Lanes [first, first + count) take part in pairs that want the same bytes.
bool in_pairs(const WarpAccess& access, int first, int count) {
  for (int lane = first; lane < first + count; lane += 2) {
    const auto at = static_cast<size_t>(lane);
    if (at + 1 >= access.addresses.size() || access.addresses[at] < 0 ||
        access.addresses[at] != access.addresses[at + 1])
      return false;
  }
  return true;
}

}  // namespace

BankReport bank_report(const WarpAccess& access) {
  const int lanes = static_cast<int>(access.addresses.size());
  const int bytes = access.bytes;
  auto refuse = [](std::string what) { throw LaunchError(Diagnostic{{}, std::move(what), {}, ""}); };
  if (lanes > kWarp) refuse(fmt::format("{} lanes, a warp has 32", lanes));
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16)
    refuse(fmt::format("{} bytes per lane; shared memory is accessed by 1, 2, 4, 8 or 16", bytes));

  BankReport report;
  report.cycle.assign(access.addresses.size(), -1);
  report.bank.assign(access.addresses.size(), -1);
  const int usual = std::min(kWarp, kBanks * kBankBytes / std::max(bytes, kBankBytes));
  for (int first = 0, lanes_per_phase = usual; first < lanes; first += lanes_per_phase) {
    const bool can_join = access.access == BankAccess::kLoad && usual < kWarp && first % (2 * usual) == 0;
    lanes_per_phase = can_join && in_pairs(access, first, 2 * usual) ? 2 * usual : usual;
    Phase phase;
    for (int lane = first; lane < std::min(lanes, first + lanes_per_phase); ++lane) {
      const int64_t address = access.addresses[static_cast<size_t>(lane)];
      if (address < 0) continue;
      if (address % bytes != 0)
        refuse(fmt::format("lane {} accesses {} bytes at address {}, which is not a multiple of {}", lane,
                           bytes, address, bytes));
      report.bank[static_cast<size_t>(lane)] = static_cast<int>(address / kBankBytes % kBanks);
      for (int64_t word = address / kBankBytes; word <= (address + bytes - 1) / kBankBytes; ++word) {
        const int cycle = phase.cycle_of(word);
        int& lane_cycle = report.cycle[static_cast<size_t>(lane)];
        if (lane_cycle < 0) lane_cycle = report.wavefronts + cycle;
      }
    }
    report.degree = std::max(report.degree, phase.deepest());
    report.wavefronts += phase.deepest();
    report.phases += phase.deepest() > 0;
  }
  return report;
}

}  // namespace imbrex
