// SPDX-License-Identifier: Apache-2.0
// error: convert|conversion|no matching|invalid initialization
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(Int32 m) { shared_tensor(float16, {m, 8}); }
