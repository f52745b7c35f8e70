// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "imbrex/core/source_location.h"

namespace imbrex::python {

/// The line of the program that has called this package, for messages that would name a line of the extension's own
/// source otherwise. With the interpreter's lock. Unknown where no Python calls.
SourceLocation python_line();

}  // namespace imbrex::python
