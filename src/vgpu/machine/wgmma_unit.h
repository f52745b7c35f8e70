// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix products of one CTA: which are under way, in which groups, with which registers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "vgpu/machine/async.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

class Warp;
class WarpgroupProduct;

inline constexpr int kWarpgroupWarps = 4;

/// What one warp has issued. Products are numbered per warpgroup: the i-th of each of its warps is the same
/// one.
struct WgmmaWarp {
  int64_t issued = 0;
  bool has_fenced = false;
  /// Registers of products since the last commit, once for every product that has them; dense numbers.
  std::vector<uint32_t> open_registers;
  struct Group {
    int64_t end;  // products below this number belong to it or to earlier groups
    std::vector<uint32_t> registers;
  };
  std::deque<Group> groups;  // not yet waited for
  /// By dense number: how many products not yet waited for have the register.
  std::vector<uint32_t> uses;
  /// Of those, the registers that were read too early, which has been reported.
  std::set<uint32_t> read_early;
  /// Of those, the registers that products read A from: a write to them waits.
  std::set<uint32_t> operands;
  /// Of the registers of the program's products, by dense number: what they held at the last wgmma.fence, or when the product
  /// that wrote them had been waited for. Another value has been written since, and a product would need a fence.
  struct Fenced {
    uint32_t number;
    Slot slot;
    std::array<uint32_t, 32> lanes;
  };
  std::vector<Fenced> fenced;
  std::vector<uint32_t> fenced_at;  // by dense number: where it is there, plus 1; 0: it is not
  Fenced* find_fenced(uint32_t number) {
    const uint32_t at = number < fenced_at.size() ? fenced_at[number] : 0;
    return at == 0 ? nullptr : &fenced[at - 1];
  }

  bool is_in_flight(uint32_t register_number) const {
    return register_number < uses.size() && uses[register_number] > 0;
  }
};

struct Warpgroup {
  QueueId queue = kUnordered;
  int64_t done = 0;
  int64_t first = 0;                      // number of pending.front()
  std::deque<WarpgroupProduct*> pending;  // issued by at least one warp, not carried out
  WgmmaWarp warps[kWarpgroupWarps];
  std::vector<uint32_t> tile;     // D of the product being carried out, row by row
  bool tile_has_results = false;  // of the product before, which are not in the registers
  /// By D's first register: a number for the products that are added up in it, since one did not add.
  std::map<uint32_t, uint64_t> sums;
};

/// The state of the warpgroup a warp belongs to.
Warpgroup& warpgroup_of(Warp& warp);
inline WgmmaWarp& wgmma_warp(Warpgroup& group, int warp_index) {
  return group.warps[warp_index % kWarpgroupWarps];
}

}  // namespace imbrex::vgpu
