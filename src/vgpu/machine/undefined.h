// SPDX-License-Identifier: Apache-2.0
// Lanes of registers that were never written, followed through arithmetic to where they matter.
#pragma once

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// For the body of a kShuffled instruction: of the lanes of `members`, whose value comes from lane
/// `from[lane]`.
void pass_shuffled(Warp& warp, const Instruction& insn, Mask members, const int* from);

/// For the body of a kLoaded instruction: its registers count as written, and then, of register `number`, `bytes`
/// do not in `lanes`: they came from memory that nobody has written, or where `how` has stored what has no value.
void define_loaded(Warp& warp, const Instruction& insn, Mask lanes);
void note_loaded_unwritten(Warp& warp, const Instruction& insn, Mask lanes, uint32_t number, uint8_t bytes,
                           UndefinedStore how = {});

/// For the body of a kStored instruction where Warp::stores_undefined, once `lanes` have stored at `host`: in shared and
/// local memory the bytes without a value count as not written, elsewhere they are reported.
void note_undefined_stored(Warp& warp, const Instruction& insn, Mask lanes, Space space,
                           std::byte* const* host);
/// How bytes of shared or local memory without a value came there, for findings; empty where nothing was stored.
std::vector<std::string> undefined_store_facts(const Program& program, UndefinedStore how);

}  // namespace imbrex::vgpu
