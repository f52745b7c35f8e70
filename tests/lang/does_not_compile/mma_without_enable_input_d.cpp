// SPDX-License-Identifier: Apache-2.0
// error: enable_input_d|ScalarArg
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(SharedTensor a, SharedTensor b, TMemoryTensor d) { tcgen05::mma(a, b, d, {}); }
