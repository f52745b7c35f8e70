// SPDX-License-Identifier: Apache-2.0
// error: a kernel parameter must be a run-time scalar
#include "imbrex/lang.h"
using namespace imbrex;

struct Kernel {
  void operator()(const char*) const {}
};
const KernelEntry& entry = kernel_entry<Kernel>();
