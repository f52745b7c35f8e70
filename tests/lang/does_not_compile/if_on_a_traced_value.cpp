// SPDX-License-Identifier: Apache-2.0
// error: instead of a C\+\+ if, for, while or \?: write
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(Int32 m) {
  if (m == 1) sync();
}
