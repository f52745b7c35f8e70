// SPDX-License-Identifier: Apache-2.0
// error: none
// POSIX has a sync() too: one declaration beside a kernel says which of the two is meant.
#include <unistd.h>

#include "imbrex/lang.h"
using namespace imbrex;

struct InItsBody {
  void operator()(Int32 n) const {
    using imbrex::sync;
    sync();
    if (auto arm = when(n > 1)) sync();
  }
};

namespace kernels {
using imbrex::sync;
struct AroundIt {
  void operator()(Int32) const { sync(); }
};
}  // namespace kernels

void flush_disks() { ::sync(); }
