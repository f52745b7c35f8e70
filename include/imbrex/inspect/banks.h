// SPDX-License-Identifier: Apache-2.0
// Shared memory's 32 banks of 4 bytes: which lane meets which bank in which cycle, and how often they
// collide.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex {

inline constexpr int kBanks = 32;
inline constexpr int kBankBytes = 4;

/// What accesses: only plain loads have lanes share more than a word.
enum class BankAccess : uint8_t { kLoad, kStore, kMatrix };  ///< ld; st; ldmatrix and stmatrix

/// Bytes that each lane of a warp accesses in one instruction; a negative address means that the lane takes
/// no part.
struct WarpAccess {
  std::vector<int64_t> addresses;  ///< up to 32, in bytes
  int bytes = 4;                   ///< per lane: 1, 2, 4, 8 or 16 (a row of ldmatrix and stmatrix is 16)
  BankAccess access = BankAccess::kLoad;
};

/// How one instruction of a warp meets the banks. The hardware serves lanes in phases of 128 bytes: all 32
/// lanes of up to 4 bytes, 16 lanes of 8, 8 lanes of 16 (which is also one 8x8 matrix of ldmatrix or
/// stmatrix). Lanes of a phase that want the same word share it. Loads of 8 bytes by a warp, and of 16 by
/// half a warp, in which lanes 2i and 2i + 1 want the same are served like half as many lanes. All of it was
/// compared with an H200's counters, access by access (tests/analysis/data).
struct BankReport {
  int phases = 0;      ///< of 128 bytes: the cycles a conflict-free access takes
  int wavefronts = 0;  ///< cycles it does take
  int conflicts() const { return wavefronts - phases; }
  int degree = 1;  ///< the most different words that one bank serves in one phase
  /// cycle[lane]: the cycle (from 0) in which the lane's first word is served; -1 for lanes that take no
  /// part.
  std::vector<int> cycle;
  /// bank[lane]: the bank of the lane's first word; -1 for lanes that take no part.
  std::vector<int> bank;
};
/// LaunchError when there are more than 32 lanes, or a width or alignment that no instruction has.
BankReport bank_report(const WarpAccess& access);

/// The swizzles of TMA and matrix descriptors, by name: "none", "32B", "64B", "128B", "128B/32B", ...
std::vector<std::string> swizzle_names();
/// The shared-memory byte that holds linear byte `address` under the swizzle. LaunchError for an unknown one.
int64_t swizzled_address(std::string_view swizzle, int64_t address);

}  // namespace imbrex
