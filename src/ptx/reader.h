// SPDX-License-Identifier: Apache-2.0
// Reads PTX text of any compiler into the tree.
#pragma once

#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// The module that `text` says. `source_name` appears in messages ("kernel.ptx").
///
/// Throws ParseError, with up to twenty diagnostics, each at its line of the text. Reading settles syntax,
/// names and words; whether an instruction's operands, modifiers and target go together is check()'s to say.
Module read(std::string_view text, std::string_view source_name = "<ptx>");

}  // namespace imbrex::ptx
