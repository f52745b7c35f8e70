// SPDX-License-Identifier: Apache-2.0
// error: take one element with x.item
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(GlobalTensor g) { load_global(g, {zeros(int32, {8}), 0}, {8, 8}); }
