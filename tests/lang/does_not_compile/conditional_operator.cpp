// SPDX-License-Identifier: Apache-2.0
// error: instead of a C\+\+ if, for, while or \?: write
#include "imbrex/lang.h"
using namespace imbrex;

int kernel(Int32 m) { return m == 1 ? 2 : 3; }
