// SPDX-License-Identifier: Apache-2.0
// The shape of a launch.
#pragma once

#include "imbrex/lang/scalar.h"

namespace imbrex {

/// CTAs along each axis, computed from the kernel's parameters alone. Every kernel says it once.
void grid(const ScalarArg& x, const ScalarArg& y = 1, const ScalarArg& z = 1,
          SourceLocation where = SourceLocation::current());
/// Warps per CTA, 1 to 32; 4 when a kernel does not say. Before the first thread group. [PTX: .maxntid]
void warps(int64_t count, SourceLocation where = SourceLocation::current());
/// CTAs per cluster along each axis; sm_90 and later. [PTX: .reqnctapercluster]
void cluster(int64_t x, int64_t y = 1, int64_t z = 1, SourceLocation where = SourceLocation::current());
/// The most registers a thread may use (8 to 255); the assembler decides when unset. [PTX: .maxnreg]
void max_registers(int64_t count, SourceLocation where = SourceLocation::current());

/// Every thread of the group, whole warp groups, has this many registers from here on: a multiple of 8, 24 to
/// 256. A CTA starts with equal shares (with warps(12), 168); warp groups that need few give some back, and
/// those that need more wait until there are enough. At the start of a warp group's scope; sm_90a, sm_100a.
/// [PTX: setmaxnreg]
void setmaxnreg(int64_t registers, SourceLocation where = SourceLocation::current());

/// Overlap of a grid with the one before it in the stream. A kernel that executes wait() is launched, on a
/// CUDA GPU, as soon as every CTA before it has executed launch_dependents() or ended: its CTAs start where
/// there is room. What it reads and writes in global memory comes after wait(), in all threads. On the
/// virtual GPU, and launched by the loader that `imbrex build` writes, grids run one after the other.
namespace griddepcontrol {
/// Waits until the grids this one depends on have ended and what they wrote is visible. sm_90.
/// [PTX: griddepcontrol.wait]
void wait(SourceLocation where = SourceLocation::current());
/// Lets dependent grids be launched once every CTA has executed it or ended. sm_90.
/// [PTX: griddepcontrol.launch_dependents]
void launch_dependents(SourceLocation where = SourceLocation::current());
}  // namespace griddepcontrol

/// The CTA's rank in its cluster; sm_90 and later. [PTX: %cluster_ctarank]
Expr cluster_rank(SourceLocation where = SourceLocation::current());

/// x, y and z of the CTA's place in the grid, and of the grid's extents. [PTX: %ctaid, %nctaid]
struct LaunchIndices {
  LaunchIndex x, y, z;
};
inline constexpr LaunchIndices block_idx{
    {LaunchIndex::Kind::kBlockIdx, 0}, {LaunchIndex::Kind::kBlockIdx, 1}, {LaunchIndex::Kind::kBlockIdx, 2}};
inline constexpr LaunchIndices grid_dim{
    {LaunchIndex::Kind::kGridDim, 0}, {LaunchIndex::Kind::kGridDim, 1}, {LaunchIndex::Kind::kGridDim, 2}};

}  // namespace imbrex
