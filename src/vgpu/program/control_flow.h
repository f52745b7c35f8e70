// SPDX-License-Identifier: Apache-2.0
// Where lanes that part at a branch meet again: immediate post-dominators of a PTX function.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// Instructions [begin, end) of a function that are entered at the first and left at the last only.
struct Block {
  uint32_t begin = 0, end = 0;
  std::vector<uint32_t> successors;  // blocks
  bool returns = false;              // a path out of the function leaves from here
};
/// The basic blocks in the order of the body; the last one includes its end, index body.size().
std::vector<Block> basic_blocks(const ptx::Function& function);

/// For every instruction of the body that may part lanes (bra with a guard, brx.idx), the index of the
/// instruction at which they meet again; kNoMeeting for all others and where they never do. Paths that end in
/// exit or trap do not count as long as others end in ret.
std::vector<uint32_t> meeting_points(const ptx::Function& function);
inline constexpr uint32_t kNoMeeting = ~0u;

/// Does control never reach the next instruction? (bra without a guard, ret, exit, trap, brx.idx)
bool ends_flow(const ptx::Instruction& insn);

}  // namespace imbrex::vgpu
