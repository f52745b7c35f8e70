// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Inserts the waits and fences that the memory model requires between instructions Imbrex itself expands
/// (design D11):
///
///   fence_proxy_async      after generic writes (store_shared, completed copy_async) to shared memory that a
///                          matrix instruction reads or TMA fills; before the writer's next synchronisation.
///                          Between generic reads of what TMA fills and the next time it does: by the thread that
///                          starts the copy, after it has waited; where copies go to several CTAs, by the readers
///   tcgen05_wait_load      after tcgen05_load, before the first use of what it loaded
///   tcgen05_wait_store     after tcgen05_store, before the data is used or the thread synchronises
///   tcgen05_fence_before_thread_sync, _after_thread_sync
///                          between a thread's tcgen05 operations and the synchronisation that orders them
///                          with those of others
///
/// What the author has placed counts, so nothing is there twice. The fence behind the initialisation of
/// barriers is part of mbarrier_alloc's own code.
void insert_fences(ir::Function& function);

}  // namespace imbrex::passes
