// SPDX-License-Identifier: Apache-2.0
// error: no (matching function|default constructor|matching constructor)
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() { Int32 x; }
