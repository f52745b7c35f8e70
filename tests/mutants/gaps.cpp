// SPDX-License-Identifier: Apache-2.0
// Bugs that no checker reports yet. The suite says when one of them is reported, so that its row can go.
#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr Known kGaps[] = {
    {"*", "drop-after-fence", "", 0, "tcgen05 fences are not checked"},
    {"*", "early-after-fence", "", 0, "tcgen05 fences are not checked"},
    {"*", "drop-before-fence", "", 0, "tcgen05 fences are not checked"},
    {"*", "late-before-fence", "", 0, "tcgen05 fences are not checked"},
    {"*", "early-commit", "", 0, "tensor memory is not watched for races"},
    {"V2", "drop-sync", "", 3, "tensor memory is not watched for races"},
    {"V2", "late-sync", "", 0, "tensor memory is not watched for races"},
    {"V2", "load-shift-128", "", 0, "asynchronous work of one warp counts as ordered"},
    {"V2", "load-shift-4096", "", 0, "asynchronous work of one warp counts as ordered"},
    {"V3 V4 V5 V6", "early-arrive", "", 0, "tensor memory is not watched for races; lanes count as ordered"},
    {"*", "relaxed-wait", "", 0, "every wait counts as acquiring"},
    {"*", "relaxed-arrive", "", 0, "every arrival counts as releasing"},
    {"*", "narrow-wait", "", 0, "scopes are not distinguished"},
    {"*", "narrow-arrive", "", 0, "scopes are not distinguished"},
    {"V6 H5", "relaxed-cluster-sync", "", 2, "every arrival counts as releasing"},
    {"V6", "cta-for-cluster-sync", "", 2, "tcgen05.dealloc of a pair waits for the peer in this machine"},
    {"H5", "cta-for-cluster-sync", "", 0, "the initialisation of an mbarrier is not ordered with its use"},
    {"H5", "next-warp", "warp_group(0, 4)", 0, "setmaxnreg by a part of a warp group is not noticed"},
    {"H5", "previous-warp", "warp_group(0, 4)", 0, "setmaxnreg by a part of a warp group is not noticed"},
    {"*", "one-lane-arrive", "", 0, "the lanes of a warp count as ordered"},
    {"*", "one-lane-proxy-fence", "", 0, "the lanes of a warp count as ordered"},
    {"V5 V6", "drop-proxy-fence", "fence::proxy_async();", 0,
     "reads before an asynchronous write are not checked"},
    {"V5 V6", "early-proxy-fence", "", 0, "reads before an asynchronous write are not checked"},
    {"V5 V6", "global-proxy-fence", "", 0, "reads before an asynchronous write are not checked"},
    {"*", "late-init", "", 0, "the initialisation of an mbarrier is not ordered with its use"},
    {"V1 V2", "drop-sync", "sync();", 1, "the initialisation of an mbarrier is not ordered with its use"},
    {"V1 V2 V3 V4", "early-sync", "sync();", 1,
     "the initialisation of an mbarrier is not ordered with its use"},
    {"V1", "late-sync", "sync();", 1, "the initialisation of an mbarrier is not ordered with its use"},
    {"*", "two-warps", "auto warp = single_warp()", 0, "global memory is not watched for races"},
    {"*", "no-election", "tma::shared_to_global", 0, "global memory is not watched for races"},
    {"*", "mma-all-lanes", "", 0, "the lanes of a warp count as ordered"},
    {"*", "map-swizzle", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "map-half-box", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "map-narrow-box", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "matrix-stride", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "matrix-base-offset", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "matrix-a-next-line", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "transpose-a", "", 0, "descriptors are not compared with how the data was written"},
    {"*", "transpose-b", "", 0, "descriptors are not compared with how the data was written"},
};

}  // namespace

std::span<const Known> known_gaps() { return kGaps; }

}  // namespace imbrex::mutants
