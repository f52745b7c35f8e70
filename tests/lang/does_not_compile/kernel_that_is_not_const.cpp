// SPDX-License-Identifier: Apache-2.0
// error: a kernel's operator\(\) must be
#include "imbrex/lang.h"
using namespace imbrex;

struct Kernel {
  void operator()(Int32) {}
};
const KernelEntry& entry = kernel_entry<Kernel>();
