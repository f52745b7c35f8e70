// SPDX-License-Identifier: Apache-2.0
// The threads that execute an op: the CTA, narrowed by the thread_group scopes around it.
#pragma once

#include <string>

#include "ir/ir.h"

namespace imbrex::passes {

struct ThreadGroup {
  int64_t begin = 0;  // in the CTA
  int64_t threads = 0;
  const ir::Op* op = nullptr;  // the innermost scope; null for the whole CTA

  /// The group inside a thread_group op.
  ThreadGroup narrowed(const ir::Op& thread_group) const;
  /// "one thread (thread 0)", "warp 1", "threads 32 ... 95".
  std::string describe() const;
};

/// The thread_group op around an op, or null.
const ir::Op* enclosing_thread_group(const ir::Op& op);
/// The threads that execute an op.
ThreadGroup thread_group_of(const ir::Function& function, const ir::Op& op);

}  // namespace imbrex::passes
