// SPDX-License-Identifier: Apache-2.0
// The shape of a launch.
#pragma once

#include "imbrex/lang/scalar.h"

namespace imbrex {

/// CTAs along each axis, computed from the kernel's parameters alone. Every kernel calls it once, outside of
/// loops, when() blocks and thread groups; CompileError where an extent is known and not positive.
void grid(const ScalarArg& x, const ScalarArg& y = 1, const ScalarArg& z = 1,
          SourceLocation where = SourceLocation::current());
/// Warps per CTA, 1 to 32; 4 if a kernel does not call it. Before the first thread group. [PTX: .maxntid]
void warps(int64_t count, SourceLocation where = SourceLocation::current());
/// CTAs per cluster along each axis, at most 16 in all (more than 8 are not portable); the grid is a multiple
/// of them. sm_90. [PTX: .reqnctapercluster]
void cluster(int64_t x, int64_t y = 1, int64_t z = 1, SourceLocation where = SourceLocation::current());
/// The most registers per thread, 8 to 255; without it the assembler decides. [PTX: .maxnreg]
void max_registers(int64_t count, SourceLocation where = SourceLocation::current());

/// Sets the registers of every thread of the group from here on: a multiple of 8, 24 to 256. A CTA starts
/// with equal shares (with warps(12), 168 per thread); warp groups that need few release some, and those that
/// need more wait until enough are free. Whole warp groups execute it, at the start of their scope, or each of a warp
/// group's four warps in a role of its own, for the same number; sm_90a, sm_100a.
/// [PTX: setmaxnreg]
void setmaxnreg(int64_t registers, SourceLocation where = SourceLocation::current());

/// Overlap of a grid with the previous one in the stream (programmatic dependent launch). A CUDA GPU launches
/// a kernel that contains wait() as soon as every CTA of the previous grid has executed launch_dependents()
/// or exited: its CTAs start where there is room. All its accesses to global memory come after wait(), in all
/// threads. On the virtual GPU, and launched by the loader that `imbrex build` writes, grids run one after
/// the other.
namespace griddepcontrol {
/// Waits until the grids that this one depends on have completed and their writes are visible. Any thread;
/// sm_90.
/// [PTX: griddepcontrol.wait]
void wait(SourceLocation where = SourceLocation::current());
/// Lets dependent grids be launched once every CTA has executed it or exited. Any thread; sm_90.
/// [PTX: griddepcontrol.launch_dependents]
void launch_dependents(SourceLocation where = SourceLocation::current());
}  // namespace griddepcontrol

/// The CTA's rank in its cluster, from 0; x varies fastest. sm_90. [PTX: %cluster_ctarank]
Expr cluster_rank(SourceLocation where = SourceLocation::current());

/// The CTA's place in its cluster along each axis, from 0, computed from its rank; after cluster(). sm_90.
struct ClusterIndices {
  Expr x, y, z;
};
ClusterIndices cluster_idx(SourceLocation where = SourceLocation::current());
/// CTAs per cluster along axis 0, 1 or 2, and in all, as cluster() has set them.
int64_t cluster_dim(int axis, SourceLocation where = SourceLocation::current());
int64_t cluster_size(SourceLocation where = SourceLocation::current());

/// The executing thread's number in the enclosing thread group, from 0: a scalar that differs between threads. Where a
/// condition depends on it, the threads part, and must not meet in a sync() inside. [PTX: %tid]
Expr thread_index(SourceLocation where = SourceLocation::current());
/// The first thread of the enclosing group, counted in the CTA, and how many threads it has.
int64_t thread_group_begin(SourceLocation where = SourceLocation::current());
int64_t thread_group_size(SourceLocation where = SourceLocation::current());

/// The CTA's index in the grid, and the grid's extents in CTAs, as int32. [PTX: %ctaid, %nctaid]
struct LaunchIndices {
  LaunchIndex x, y, z;
};
inline constexpr LaunchIndices block_idx{
    {LaunchIndex::Kind::kBlockIdx, 0}, {LaunchIndex::Kind::kBlockIdx, 1}, {LaunchIndex::Kind::kBlockIdx, 2}};
inline constexpr LaunchIndices grid_dim{
    {LaunchIndex::Kind::kGridDim, 0}, {LaunchIndex::Kind::kGridDim, 1}, {LaunchIndex::Kind::kGridDim, 2}};

}  // namespace imbrex
