// SPDX-License-Identifier: Apache-2.0
// error: a register tensor has no truth value
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() {
  auto x = zeros(float32, {8});
  if (x == 1) sync();
}
