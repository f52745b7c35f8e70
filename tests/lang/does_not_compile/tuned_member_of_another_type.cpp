// SPDX-License-Identifier: Apache-2.0
// error: a tuned member must be a bool, integer
#include "imbrex/lang.h"
using namespace imbrex;

struct Kernel {
  const char* name;
};
auto space = Space<Kernel>().choose<&Kernel::name>({nullptr});
