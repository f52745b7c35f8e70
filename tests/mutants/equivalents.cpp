// SPDX-License-Identifier: Apache-2.0
// Mutants that are no bugs, each with the argument. A mutant that stands here must neither be reported nor
// change a number; one that does not must be reported.
#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr Known kEquivalents[] = {
    {"*", "double-wait", "", 0,
     "A phase may be waited for twice: it stays complete until the waiting thread has done its part in the "
     "next one, which comes later in its program."},
    {"*", "late-expect", "", 0,
     "Bytes may arrive before they are announced: the count of bytes goes below zero, and the phase cannot "
     "complete while the announcing arrival is missing."},
    {"*", "drop-warp-sync", "", 0,
     "A bar.sync of the same warps follows, with no access in between: it orders all the lanes."},
    {"*", "late-proxy-fence", "", 0,
     "A proxy fence orders wherever it stands on the path from the write to the asynchronous read. Behind "
     "the "
     "barrier it is executed by the thread that starts the read, and the barrier has ordered the writes "
     "before it."},
    {"*", "drop-init-fence", "", 0,
     "Threads, TMA and tcgen05.commit all use an mbarrier through the generic proxy, and a barrier of the "
     "CTA "
     "(of the cluster, releasing, where others use it) stands between the initialisation and every use."},
    {"V0", "drop-sync", "sync();", 1,
     "The mbarrier is first used after the barrier that follows the first copies, which orders the "
     "initialisation as well."},
    {"V0", "early-sync", "sync();", 1, "As drop-sync: a later barrier orders the initialisation."},
    {"V0", "late-sync", "sync();", 1, "As drop-sync: a later barrier orders the initialisation."},
    {"V0", "late-init", "", 0, "As drop-sync: a later barrier orders the initialisation."},
    {"V2", "drop-sync", "sync();", 2,
     "Warp 0 alone works in the loop; the barriers of all but the last of its trips order nothing that the "
     "last does not. This is the first of two copies of the unrolled body."},
    {"V0", "next-warp", "single_warp()", 0,
     "Any warp of the CTA may do it, and warp 1 has nothing to do then."},
    {"V1 V2", "next-warp", "single_warp()", 0,
     "Any warp of the CTA may do it: a barrier of the CTA stands between what two warps do."},
    {"V3 V4", "next-warp", "mma_warp", 0, "Warp 2 has no other role."},
    {"V3 V4", "next-warp", "auto warp = single_warp()", 0, "Any warp may store what a barrier has ordered."},
    {"V5 V6", "next-warp", "scheduler_warp", 0, "Warp 3 has no other role."},
    {"V5 V6", "next-warp", "auto warp = single_warp()", 0,
     "Any warp of the epilogue may store what their barrier has ordered."},
    {"V5 V6", "sync-other-id", "sync();", 0,
     "The four warps agree on the other number, which nobody else uses."},
    {"H2", "two-warps", "", 0, "The other warp would be warp 5, which the CTA has not."},
    {"H5", "next-warp", "auto warp = single_warp()", 0, "Any warp of the producers' group may load."},
    {"V6 H5", "relaxed-cluster-sync", "cluster_sync();", 1,
     "What the barrier publishes are the initialised mbarriers, and fence.mbarrier_init.release.cluster "
     "releases those."},
};

}  // namespace

std::span<const Known> equivalents() { return kEquivalents; }

}  // namespace imbrex::mutants
