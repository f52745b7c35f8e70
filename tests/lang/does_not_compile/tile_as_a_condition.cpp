// SPDX-License-Identifier: Apache-2.0
// error: a register tensor is not a scalar: reduce it to one with any
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() {
  auto x = zeros(float32, {8});
  if (auto arm = when(x > 1)) sync();
}
