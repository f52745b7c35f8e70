// SPDX-License-Identifier: Apache-2.0
// Matrix products whose tiles travel between the ranks while others are computed. Programs that call them link
// imbrex_kernels.
//
//   AllGatherMatmul up(ranks, {.m = 4096, .k = 8192});       // c = [x of all ranks] w1^T
//   MatmulReduceScatter down(ranks, {.m = 4096, .n = 8192}); // y = my rows of the sum of all ranks' h w2^T
//   up(x, w1, h);
//   down(h, w2, y);
//
// Rows are dealt out evenly: with m rows on R ranks, rank r has rows r * cdiv(m, R) and following, the last ranks perhaps
// fewer, or none. All ranks make the same calls in the same order, one at a time. Sums are in float32; what ranks send to
// each other for a sum is rounded to the result's type, as collectives do, and added up in the order of the ranks behind the
// owner.
#pragma once

#include <cstdint>
#include <memory>

#include "imbrex/kernels/activation.h"
#include "imbrex/parallel/communicator.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"

namespace imbrex::parallel {

/// The first of a rank's rows, and how many it has, of m that are dealt out to `ranks`.
struct RowsOfRank {
  int64_t first, count;
  static RowsOfRank of(int64_t m, int ranks, int rank);
};

/// What the largest call needs: it decides how much symmetric memory is taken.
struct FusedSizes {
  int64_t m;                  ///< rows of all ranks together
  int64_t n = 0;              ///< columns of the result; AllGatherMatmul takes any
  int64_t k = 0;              ///< columns of x; MatmulReduceScatter takes any
  DataType dtype = bfloat16;  ///< of what travels: of x, or of the result
};

/// What is done to the sums before they are stored, result = activation(sum + bias), and where it is launched.
struct FusedOptions {
  DeviceTensor bias;  ///< [n], one per column, of the result's type or float32; null: none
  Activation activation = Activation::kNone;
  Stream stream;  ///< Stream(): the own one of the rank's device
};

class GatheredProduct;
class ScatteredProduct;

/// c = activation([x of all ranks] b^T + bias).
class AllGatherMatmul {
 public:
  AllGatherMatmul(Communicator ranks, const FusedSizes& largest,
                  SourceLocation where = SourceLocation::current());

  /// x [rows of this rank, k], its own; b [n, k]; c [m, n] gets the product of all ranks' rows. m is c's. x and b are both
  /// float16 or both bfloat16, dense, k a multiple of 8; c is of the same type. Devices that run sm_90a. It does not wait;
  /// calls can be captured into graphs once prepare() has compiled them. LaunchError names what does not fit.
  LaunchReport operator()(const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
                          const FusedOptions& options = {}, SourceLocation where = SourceLocation::current());
  void prepare(const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
               const FusedOptions& options = {}, SourceLocation where = SourceLocation::current());

 private:
  std::shared_ptr<GatheredProduct> product_;
};

/// y = activation(this rank's rows of the sum of all ranks' a b^T, + bias).
class MatmulReduceScatter {
 public:
  MatmulReduceScatter(Communicator ranks, const FusedSizes& largest,
                      SourceLocation where = SourceLocation::current());

  /// a [m, k] and b [n, k], this rank's part of k; y [rows of this rank, n]. Types and the rest as AllGatherMatmul.
  LaunchReport operator()(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
                          const FusedOptions& options = {}, SourceLocation where = SourceLocation::current());
  void prepare(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
               const FusedOptions& options = {}, SourceLocation where = SourceLocation::current());

 private:
  std::shared_ptr<ScatteredProduct> product_;
};

/// y.mine() = activation(the sum of all ranks' a b^T, + bias), on every rank, with the same bits.
class MatmulAllReduce {
 public:
  MatmulAllReduce(Communicator ranks, const FusedSizes& largest,
                  SourceLocation where = SourceLocation::current());

  /// a [m, k] and b [n, k], this rank's part of k; y [m, n]. Types and the rest as AllGatherMatmul. Others store into y from
  /// the moment that this rank's call has begun.
  LaunchReport operator()(const DeviceTensor& a, const DeviceTensor& b, const SymmetricTensor& y,
                          const FusedOptions& options = {}, SourceLocation where = SourceLocation::current());
  void prepare(const DeviceTensor& a, const DeviceTensor& b, const SymmetricTensor& y,
               const FusedOptions& options = {}, SourceLocation where = SourceLocation::current());

 private:
  std::shared_ptr<ScatteredProduct> product_;
};

}  // namespace imbrex::parallel
