// SPDX-License-Identifier: Apache-2.0
// error: the function must take one index for each dimension
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() {
  register_tensor(int32, {8}, [] { return 1; });
}
