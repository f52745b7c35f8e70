// SPDX-License-Identifier: Apache-2.0
// error: a variable begins with a value
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() { Int32 x; }
