// SPDX-License-Identifier: Apache-2.0
// Where a Python program is: the interpreter's own functions, found in the process where one runs.
#pragma once

#include <string>

namespace imbrex::cuda {

/// The calling thread's innermost Python function that is the program's, not of an installed package: "step (train.py:12)"; ""
/// where no interpreter runs or the thread is none of its own. Takes the interpreter's lock, so that no lock of ours may be held.
std::string python_place();

}  // namespace imbrex::cuda
