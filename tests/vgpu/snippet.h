// SPDX-License-Identifier: Apache-2.0
// Runs one PTX instruction on many operands and compares with an expectation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "vgpu_testing.h"

namespace imbrex::vgpu {

/// Operands and result of one lane, zero-extended.
struct Row {
  uint64_t a = 0, b = 0, c = 0;
};
using Expected = std::function<uint64_t(uint64_t a, uint64_t b, uint64_t c)>;

/// Executes `code` once a row and returns what it left in its destination. Registers: %a %b %c and result %d
/// are 32 bits; %A %B %C %D 64; %ha %hb %hc %hd 16; predicates %p (result) and %q (bit 0 of c). `result`
/// names the one to return: "%d", "%D", "%hd" or "%p". Lanes not in `lanes` do not execute it and return
/// kUntouched; code of several instructions in braces guards them itself, with @%active.
inline constexpr uint64_t kUntouched = 0x5A5A'5A5A'5A5A'5A5A;
std::vector<uint64_t> run_snippet(const std::string& code, const std::string& result,
                                  const std::vector<Row>& rows, uint32_t lanes = ~0u,
                                  const std::string& target = "sm_100a");

/// Runs `code` on all rows: on full warps, on every other lane, and on a single lane.
void expect_snippet(const std::string& code, const std::string& result, const std::vector<Row>& rows,
                    const Expected& expected);

/// All combinations of the values for as many operands as `operands` says.
std::vector<Row> combinations(const std::vector<uint64_t>& values, int operands);

/// Values at which integer and floating-point instructions of a width go wrong.
std::vector<uint64_t> edge_integers(int bits);
std::vector<uint64_t> edge_floats();
std::vector<uint64_t> edge_doubles();
std::vector<uint64_t> edge_halves();

}  // namespace imbrex::vgpu
