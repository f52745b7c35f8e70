// SPDX-License-Identifier: Apache-2.0
// error: scale_d|ScalarArg
#include "imbrex/lang.h"
using namespace imbrex;

void kernel(SharedTensor a, SharedTensor b, RegisterTensor d) { wgmma::mma(a, b, d, {}); }
