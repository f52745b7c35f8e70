// SPDX-License-Identifier: Apache-2.0
// The products behind imbrex/parallel/fused_matmul.h, with the choice of tiles apart from the launch.
#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/parallel/all_gather.h"
#include "imbrex/parallel/all_reduce.h"
#include "imbrex/parallel/communicator.h"
#include "imbrex/parallel/fused_matmul.h"
#include "imbrex/runtime/kernel.h"
#include "matmul/matmul_choice.h"
#include "matmul/matmul_launch.h"
#include "ranks/rank_copies.h"

namespace imbrex::parallel {

/// A kernel with the tiles of a choice.
template <class K>
struct TiledKernel {
  TiledKernel(const K& tiles, const Device& device) : tiles(tiles), kernel(tiles, device) {}
  K tiles;
  Kernel<K> kernel;
};

/// What every such product has on each rank: its signals, and its kernels by choice.
class FusedProduct {
 public:
  FusedProduct(Communicator ranks, int64_t parts, SourceLocation where);

 protected:
  Communicator ranks_;
  int64_t most_parts_;
  SymmetricTensor signals_;
  DeviceTensor progress_;

  kernels::RankSignalsArguments signals_for(int64_t parts, SourceLocation where) const;

 public:
  bool reaches_peers() const { return ranks_.reaches_peers(); }
  int ranks() const { return ranks_.size(); }
};

/// y = activation(x + bias), row by row: what is left to do once NCCL has added up.
struct StepsBehindSum {
  static constexpr const char* target = "sm_80";
  int block = 1024;  // columns of a CTA

  void operator()(Int32 m, Int32 n, DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr,
                  kernels::Optional<kernels::ColumnBias> add_bias, kernels::Activate activate) const {
    grid(m, cdiv(n, block));
    warps(4);
    Int32 row = block_idx.x, column = block * block_idx.y;
    const kernels::OutputTile at{m, n, dtype, row, column};
    auto x = load_global(global_view(x_ptr, dtype, {m, n}), {row, column}, {1, block}).to(float32);
    store_global(global_view(y_ptr, dtype, {m, n}), activate(add_bias(x, at), at).to(dtype), {row, column});
  }
};

/// Few rows are multiplied in less time than their tiles take on the way: then the product and the collective run one after the
/// other. The bound is from the times of each by itself on two H200; the pair was not timed.
constexpr int64_t kFewRows = 256;

/// A collective kernel whose CTAs of the same number meet, with its signals.
template <class K>
struct Apart {
  static constexpr int kCtas = 128;
  Apart(Communicator ranks, SourceLocation where)
      : signals(ranks.signals(MeetingsOfCtas::signals(2, kCtas, ranks.size()), where)),
        calls(DeviceTensor::from_host(ranks.device(), HostTensor(int32, {kCtas}))),
        kernel({}, ranks.device()) {}
  /// As many for all ranks, whatever each has to do.
  static int64_t ctas(int64_t elements) { return std::clamp<int64_t>(cdiv(elements, K().block), 1, kCtas); }

  SymmetricTensor signals;
  DeviceTensor calls;
  Kernel<K> kernel;
};

/// What brings tiles and rows to other ranks: the product's own kernel, or copy engines beside it.
enum class Carrier { kKernel, kCopyEngines };

class GatheredProduct : public FusedProduct {
 public:
  GatheredProduct(Communicator ranks, const FusedSizes& largest, SourceLocation where);
  /// The same by an all-gather and imbrex::matmul. Every rank has equally many rows.
  LaunchReport run_apart(Until until, const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
                         const FusedOptions& options, SourceLocation where);
  /// The same by NCCL and imbrex::matmul, where kernels do not reach the other ranks.
  LaunchReport run_by_nccl(Until until, const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c,
                           const FusedOptions& options, SourceLocation where);
  MatmulChoice choose(int64_t m, int64_t n, int64_t k) const;
  /// Copy engines where all rows of a rank come while it multiplies its own, and no tile has rows of two ranks.
  Carrier carrier(const MatmulChoice& choice, int64_t m, int64_t n, int64_t k) const;
  /// x [rows of the rank, k], b [n, k], c [m, n]. `chunk_k`: elements of k that a kernel carries together; 0: chosen here.
  LaunchReport run(Until until, const MatmulChoice& choice, const DeviceTensor& x, const DeviceTensor& b,
                   const DeviceTensor& c, const FusedOptions& options, SourceLocation where,
                   Carrier carrier = Carrier::kKernel, int64_t chunk_k = 0);

 private:
  using K = kernels::HopperMatmulH8<kernels::GatheredRows, kernels::Optional<kernels::ColumnBias>,
                                    kernels::Activate, kernels::Convert>;
  void check(const DeviceTensor& x, const DeviceTensor& b, const DeviceTensor& c, const FusedOptions& options,
             SourceLocation where) const;

  FusedSizes largest_;
  SymmetricTensor rows_;  // all of them, [m, k], and room for as many of each rank
  Apart<AllGatherKernel<true>> gather_;
  SmallCollectiveCall small_gather_;
  RankCopies copies_;
  std::map<MatmulChoice, std::unique_ptr<TiledKernel<K>>> kernels_;
};

class ScatteredProduct : public FusedProduct {
 public:
  ScatteredProduct(Communicator ranks, const FusedSizes& largest, SourceLocation where);
  /// The same by imbrex::matmul and a sum of the rank's rows or of all. Without steps.
  LaunchReport run_apart(Until until, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
                         const FusedOptions& options, SourceLocation where, bool to_all);
  /// The same by imbrex::matmul and NCCL, where kernels do not reach the other ranks: y are the rank's rows, or all.
  LaunchReport run_by_nccl(Until until, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
                           const FusedOptions& options, SourceLocation where, bool to_all);
  /// Of one kernel that multiplies for all ranks, or of several with the rows of one each.
  MatmulChoice choose(int64_t m, int64_t n, int64_t k, Carrier carrier) const;
  /// Copy engines where those of a rank's rows are hidden by the product of as many.
  Carrier carrier(int64_t m, int64_t n, int64_t k) const;
  /// a [m, k], b [n, k], y [rows of the rank, n]; or `all`, to which y belongs, [m, n]: every rank gets all rows.
  LaunchReport run(Until until, const MatmulChoice& choice, const DeviceTensor& a, const DeviceTensor& b,
                   const DeviceTensor& y, const FusedOptions& options, SourceLocation where,
                   Carrier carrier = Carrier::kKernel, const SymmetricTensor* all = nullptr);

 private:
  using K = kernels::HopperMatmulH8<kernels::ScatteredRows, kernels::Optional<kernels::ColumnBias>,
                                    kernels::Activate, kernels::Convert>;
  void check(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y, const FusedOptions& options,
             bool to_all, SourceLocation where) const;
  /// How many rows of a rank's copies bring at once.
  int64_t rows_of_piece(const MatmulChoice& choice, int64_t each, int64_t n) const;
  /// What a rank has multiplied, for a collective that follows: its sums are in partials_, [m, columns].
  struct Partial {
    int64_t columns, rows_of_each;
    RowsOfRank mine;  // of the result, or all
    LaunchReport multiplied = {};
  };
  Partial multiply(Until until, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& y,
                   const FusedOptions& options, SourceLocation where, bool to_all);

  FusedSizes largest_;
  Apart<OneShotAllReduce<true>> add_;
  SmallCollectiveCall small_add_, small_scatter_;
  SymmetricTensor partials_;  // [ranks, rows of a rank, n]
  DeviceTensor sent_;         // as much of this rank's, where copy engines are called for
  RankCopies copies_;
  SymmetricTensor nowhere_;  // [ranks, n], where ranks without rows store a result, each its own row
  std::map<MatmulChoice, std::unique_ptr<TiledKernel<K>>> kernels_;
  Kernel<StepsBehindSum> steps_;
};

}  // namespace imbrex::parallel
