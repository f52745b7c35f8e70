// SPDX-License-Identifier: Apache-2.0
// Reads PTX text of any compiler into the tree.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "imbrex/core/parse_error.h"
#include "ptx/ptx.h"

namespace imbrex::ptx {

/// The module that `text` says. `source_name` appears in messages ("kernel.ptx").
///
/// Throws ParseError, with up to twenty diagnostics, each at its line of the text. Reading settles syntax,
/// names and words; whether an instruction's operands, modifiers and target go together is check()'s to say.
Module read(std::string_view text, std::string_view source_name = "<ptx>");

/// By index in Module::functions, what is wrong in the bodies that could not be read.
using UnreadBodies = std::map<uint32_t, ParseError>;
/// The same, but a body with errors does not refuse the module: it is left empty and told in `unread`.
Module read(std::string_view text, std::string_view source_name, UnreadBodies& unread);

}  // namespace imbrex::ptx
