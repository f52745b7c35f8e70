// SPDX-License-Identifier: Apache-2.0
// error: copies take the source first, then the destination
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(GlobalTensor g, SharedTensor s, Barrier b) { tma::global_to_shared(s, g, {0, 0}, b); }
