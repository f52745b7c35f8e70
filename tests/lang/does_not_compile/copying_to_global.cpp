// SPDX-License-Identifier: Apache-2.0
// error: copies take the source first, then the destination
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(GlobalTensor g, SharedTensor s) { copy_async(s, g, {0, 0}); }
