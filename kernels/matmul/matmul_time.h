// SPDX-License-Identifier: Apache-2.0
// What a product takes with a choice of kernel and tiles, in microseconds: a model that was fitted to measurements on an H200
// (docs/measurements/2026-11-23-choice-by-measurements.md).
#pragma once

#include <cstdint>

#include "matmul/matmul_choice.h"

namespace imbrex {

/// `matrices` products of 16-bit elements in one launch.
struct ProductShape {
  int64_t m, n, k, matrices = 1;
};

int cluster_ctas(const MatmulChoice& c);
/// Clusters that run at once: larger ones than pairs leave some multiprocessors without a place in one.
int64_t clusters_at_once(int ctas, int multiprocessors);
/// Tiles of clusters, not of CTAs, of one part of k.
int64_t tiles_of(const MatmulChoice& c, const ProductShape& p);
/// Gives a choice its grid: no more CTAs than the waves need, since idle multiprocessors leave their power to the others. (Where a
/// single wave is not full the kernel itself launches fewer, so that all such m share a compiled kernel.)
void set_ctas(MatmulChoice& c, const ProductShape& p, int multiprocessors);

/// By what limits a kernel: tensor cores, the L2 cache, the latency of loads, memory, launches and stores. Right within 10 %
/// for the faster choices.
double estimated_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors);

/// What that is at least, for a tenth of the trouble.
double least_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors);

/// An estimate corrected by a small network that learned the rest, within 5 %. For choices whose estimates are close to the
/// least: it was taught by no others.
double corrected_microseconds(const MatmulChoice& c, const ProductShape& p, int multiprocessors,
                              double estimate);

}  // namespace imbrex
