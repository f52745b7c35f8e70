// SPDX-License-Identifier: Apache-2.0
// error: beside unistd.h: .using imbrex::sync
#include <unistd.h>

#include "imbrex/lang.h"
using namespace imbrex;

void kernel() { sync(); }
