// SPDX-License-Identifier: Apache-2.0
// error: declare a variable, .?RegisterTensor x
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() {
  auto x = zeros(float32, {8});
  x = x + 1;
}
