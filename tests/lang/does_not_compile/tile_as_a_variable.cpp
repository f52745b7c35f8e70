// SPDX-License-Identifier: Apache-2.0
// error: a register tensor is not a scalar
#include "imbrex/lang.h"
using namespace imbrex;

void kernel() { Float32 x = zeros(float32, {1}); }
