// SPDX-License-Identifier: Apache-2.0
// Prints the tree as PTX text.
#pragma once

#include <string>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// The whole module as text that ptxas, the driver and read() take. The same tree gives the same bytes.
std::string write(const Module& module);

/// One instruction on one line, with its guard and without a newline, e.g. for traces and reports.
std::string write(const Module& module, const Function& function, const Instruction& instruction);

}  // namespace imbrex::ptx
