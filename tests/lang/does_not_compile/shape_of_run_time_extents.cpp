// SPDX-License-Identifier: Apache-2.0
// error: known when the kernel is traced
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(Int32 m) { shared_tensor(float16, {m, 8}); }
