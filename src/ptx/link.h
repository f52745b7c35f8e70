// SPDX-License-Identifier: Apache-2.0
// Links modules: what the tools of CUDA do with machine code, done with PTX.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// A module, and what messages call it.
struct LinkInput {
  std::string name;
  Module module;
};

/// One module out of several. What one declares `.extern` and another defines becomes one; of `.weak` and `.common`
/// definitions of a name the first stays; internal names that several modules have get a suffix. Functions that nobody
/// defines stay declarations. The version and the target are the newest of all; debug sections are left out.
///
/// Throws CompileError, with a diagnostic for each name that two modules define or that is a function here and a variable
/// there, and for each `.extern` variable in global or constant memory that none defines.
Module link(std::vector<LinkInput> inputs);

}  // namespace imbrex::ptx
