// SPDX-License-Identifier: Apache-2.0
// error: convert|conversion
#include "imbrex/lang.h"
using namespace imbrex;

int kernel(Int32 m) { return m; }
