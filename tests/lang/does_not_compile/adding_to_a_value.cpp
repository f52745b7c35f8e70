// SPDX-License-Identifier: Apache-2.0
// error: is a value and cannot be assigned
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(Int32 m) {
  auto x = m + 1;
  x += 2;
}
