// SPDX-License-Identifier: Apache-2.0
// Checks instructions against the table: operands, modifiers, types, target and PTX version.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/error.h"
#include "ptx/ptx.h"

namespace imbrex::ptx {

/// What is wrong with one instruction of a function, in one sentence that names the instruction; empty when
/// it is right.

std::string check(const Module& module, const Function& function, const Instruction& instruction);

/// What is wrong with a module, one diagnostic per instruction, at most `limit`. Locations are lines of the
/// text the module was read from (`source_name`), or the .loc in force where the module was built and not
/// read.
std::vector<Diagnostic> check(const Module& module, std::string_view source_name = "<ptx>", int limit = 20);

}  // namespace imbrex::ptx
