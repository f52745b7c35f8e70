// SPDX-License-Identifier: Apache-2.0
// Mutants that are not bugs, each with the argument. A mutant that stands here must neither be reported nor
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
     "the barrier it is executed by the thread that starts the read, and the barrier has ordered the writes "
     "before it."},
    {"*", "drop-init-fence", "", 0,
     "Threads, TMA and tcgen05.commit all use an mbarrier through the generic proxy, and a barrier of the "
     "CTA (of the cluster, releasing, where others use it) stands between the initialisation and every use."},
    {"V0", "drop-sync", "sync();", 1,
     "The mbarrier is first used after the barrier that follows the first copies, which orders the "
     "initialisation as well."},
    {"V0", "early-sync", "sync();", 1, "As drop-sync: a later barrier orders the initialisation."},
    {"V0", "late-sync", "sync();", 1, "As drop-sync: a later barrier orders the initialisation."},
    {"V0", "late-init", "", 0, "As drop-sync: a later barrier orders the initialisation."},
    {"V2", "drop-sync", "sync();", 2,
     "Warp 0 alone works in the loop; the barriers of all but the last of its trips order nothing that the "
     "last does not. This is the first of two copies of the unrolled body."},
    {"V1 V2", "next-warp", "single_warp()", 0,
     "Any warp of the CTA may do it: a barrier of the CTA stands between what two warps do."},
    {"V3 V4", "next-warp", "mma_warp", 0, "Warp 2 has no other role."},
    {"V5 V6 mxf8 nvf4", "next-warp", "scheduler_warp", 0, "Warp 3 has no other role."},
    {"V5 V6 mxf8 nvf4", "sync-other-id", "sync();", 0,
     "The four warps agree on the other number, which nobody else uses."},
    {"V0 V1 V2 V3 V4", "drop-after-fence", "tcgen05::mma", 0,
     "The thread that multiplies is the first to touch the tensor memory, and its own products are in "
     "order."},
    {"V5", "drop-after-fence", "tcgen05::mma", 2,
     "The fence before the tile's first product has ordered what others did."},
    {"V6", "drop-after-fence", "tcgen05::mma", 2,
     "The fence before the tile's first product has ordered what others did."},
    {"V6", "drop-after-fence", "tcgen05::mma", 3,
     "The fence before the tile's first product has ordered what others did."},
    {"*", "drop-after-fence", "tcgen05::dealloc", 0,
     "Giving tensor memory back is synchronous; the barrier before it says that its uses are over."},
    {"*", "early-after-fence", "tcgen05::mma", 0,
     "As drop-after-fence: nothing is to be ordered, or a fence stands behind the wait for the accumulator."},
    {"*", "early-after-fence", "tcgen05::dealloc", 0, "As drop-after-fence."},
    {"V1 V2 V3 V4 V5 V6 mxf8 nvf4", "late-before-fence", "", 0,
     "A second barrier stands behind the fence, before anybody else touches the tensor memory."},
    {"V3 V4", "relaxed-wait", "flush_barrier", 0,
     "Products complete by commit; the tcgen05 fences and the barrier behind the wait order them."},
    {"V5 V6 mxf8 nvf4", "relaxed-wait", "mma_pipe.", 0,
     "Only tensor memory changes hands: for the tcgen05 fences a relaxed wait suffices."},
    {"V6 mxf8 nvf4", "narrow-wait", ".consumer_acquire();", 0,
     "What is waited for are copies, products and responses, which complete at the scope of the cluster."},
    {"V6 mxf8 nvf4", "narrow-wait", "next(tile)", 0,
     "What is waited for is a response, which completes at the scope of the cluster."},
    {"V6 mxf8 nvf4", "narrow-wait", "tma_pipe.producer_acquire();", 0,
     "What is waited for are products, which complete at the scope of the cluster."},
    {"V6 mxf8 nvf4", "narrow-wait", "mma_pipe.producer_acquire();", 0,
     "Only tensor memory changes hands: for the tcgen05 fences a relaxed wait suffices."},
    {"V5 V6 mxf8 nvf4", "relaxed-arrive", "mma_pipe", 0,
     "Only tensor memory changes hands: for the tcgen05 fences a relaxed arrival suffices."},
    {"H2 H3 H4", "relaxed-arrive", "", 0,
     "Only products have read the stage, and they are complete: nothing of the thread's own is to be "
     "ordered."},
    {"V6 mxf8 nvf4", "narrow-arrive", "mma_pipe", 0,
     "Only tensor memory changes hands: for the tcgen05 fences a relaxed arrival suffices."},
    {"H8", "narrow-arrive", "pipe.empty_barriers[stage]", 0,
     "The arrivals are relaxed; whose they are makes no difference to their order."},
    {"H5 H6 H7 H9", "narrow-arrive", "", 0,
     "The arrivals are relaxed; whose they are makes no difference to their order."},
    {"V5 V6 mxf8 nvf4", "one-lane-arrive", "mma_pipe", 0,
     "A barrier of the epilogue's warps stands between their loads and the arrival."},
    {"H2", "one-lane-arrive", "", 0,
     "Only products have read the stage, and the whole warp has waited for them."},
    {"V5", "early-arrive", "mma_pipe", 0,
     "The accumulator is written again two tiles later, and the response that hands that tile out is asked "
     "for only after the epilogue has arrived for the response before."},
    {"H2 H3", "two-warps", "", 0,
     "The other warp would be the one behind the last, which the CTA does not have."},
    {"H4 H5 H6 H7 H8 H9", "next-warp", "auto warp = single_warp()", 0,
     "Any warp of the producers' group may load."},
    {"H9", "relaxed-wait", "turns[i]", 0,
     "A turn says when to multiply: stages have barriers of their own, accumulators are each consumer's "
     "own."},
    {"H9", "relaxed-arrive", "arrive_each_warp(turns", 0, "As for the wait: a turn hands no memory over."},
    {"H8", "next-warp", "auto producer = warp_group(0, 4)", 0,
     "Warp 0 of the group loads; the warp that comes with it has nothing to do there."},
    {"H8", "previous-warp", "auto producer = warp_group(0, 4)", 0,
     "Warp 0 of the group loads; the last one, which stays away, has nothing to do there."},
    {"H8", "own-barrier", "remote_barrier(barrier, cta)", 0,
     "No two CTAs share loads here: the barrier that a CTA names by its own rank is its own."},
    {"H8", "sync-other-id", "sync();", 0,
     "The consumer's four warps agree on the other number, which nobody else uses."},
    {"V6 mxf8 nvf4 H5 H6 H7 H8 H9", "relaxed-cluster-sync", "cluster_sync();", 1,
     "What the barrier publishes are the initialised mbarriers, and fence.mbarrier_init.release.cluster "
     "releases those."},
    {"mxf8 nvf4", "drop-after-fence", "tcgen05::copy", 2,
     "The fence before the tile's first product has ordered what others did."},
    {"mxf8 nvf4", "early-after-fence", "tcgen05::copy", 0,
     "As drop-after-fence: nothing is to be ordered, or a fence stands behind the wait for the accumulator."},
    {"mxf8 nvf4", "matrix-base-offset", "tcgen05::copy", 0,
     "The factors lie without a swizzle, and a base offset is an offset in the swizzle's pattern."},
    {"H0 H1", "drop-sync", "sync();", 2,
     "A product is of the whole warpgroup: a warp that has waited for it may load over its operands."},
    {"H7", "drop-wgmma-fence", "wgmma::fence();", 2,
     "Between this product and the one before nothing but products of the same shape touches the registers."},
    {"H7", "drop-wgmma-fence", "wgmma::fence();", 3, "As before: the same accumulator, the same shape."},
    {"H7", "drop-wgmma-fence", "wgmma::fence();", 5, "As before: the same accumulator, the same shape."},
    {"H7", "drop-wgmma-fence", "wgmma::fence();", 6, "As before: the same accumulator, the same shape."},
    {"H6 H7 H9", "sync-other-id", "sync();", 5,
     "The second consumer's warps agree on the other number, which nobody else uses."},
    {"H6 H7 H9", "sync-other-id", "sync();", 6, "As before."},
    {"H6 H7 H9", "sync-other-id", "sync();", 7, "As before."},
    {"H6 H7 H9", "sync-other-id", "sync();", 8, "As before."},
};

}  // namespace

std::span<const Known> equivalents() { return kEquivalents; }

}  // namespace imbrex::mutants
