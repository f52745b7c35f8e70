// SPDX-License-Identifier: Apache-2.0
// All-gather and reduce-scatter by kernels that reach each other's memory; CTAs of the same number meet as in
// all_reduce.h. Together they are an all-reduce, with work on the parts in between.
#pragma once

#include "imbrex/parallel/all_reduce.h"

namespace imbrex::parallel {

/// Every rank's y is the x of all ranks, [ranks, n]: each stores its own to all.
template <bool kOverlaps>
struct AllGatherKernel {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int block = 4096;
  int num_warps = 8;

  void operator()(Int32 n_units, int n_unit, Int32 ctas, int most_ctas, int ranks, int64_t rank_stride_bytes,
                  Int32 rank, DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr) const {
    grid(ctas);
    warps(num_warps);
    wait_for_kernel_before(kOverlaps);
    Int32 n = n_units * n_unit;
    auto g_x = global_view(x_ptr, dtype, {n});
    auto g_y = symmetric_view(y_ptr, dtype, rank_stride_bytes, ranks, {ranks, n});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, most_ctas, 2, ranks, rank_stride_bytes, rank);

    ctas_of_ranks.meet(0);  // nobody reads the last call's y any more
    for (Int32 offset : range(block_idx.x * block, n, ctas * block)) {
      RegisterTensor x = load_global(g_x, {offset}, {block});
      for (int i = 0; i < ranks; ++i) store_global(g_y[(rank + i) % ranks][rank], x, {offset});
    }
    ctas_of_ranks.meet(1);  // the others' x has been stored here
    ctas_of_ranks.end();
  }
};

/// Rank r's y, [n], is the sum of row r of all ranks' x, [ranks, n], in float32 in the order of the ranks.
template <bool kOverlaps>
struct ReduceScatterKernel {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int block = 4096;
  int num_warps = 8;

  void operator()(Int32 n_units, int n_unit, Int32 ctas, int most_ctas, int ranks, int64_t rank_stride_bytes,
                  Int32 rank, DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr) const {
    grid(ctas);
    warps(num_warps);
    wait_for_kernel_before(kOverlaps);
    Int32 n = n_units * n_unit;
    auto g_x = symmetric_view(x_ptr, dtype, rank_stride_bytes, ranks, {ranks, n});
    auto g_y = global_view(y_ptr, dtype, {n});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, most_ctas, 2, ranks, rank_stride_bytes, rank);

    ctas_of_ranks.meet(0);  // their x is there
    for (Int32 offset : range(block_idx.x * block, n, ctas * block)) {
      RegisterTensor sum =
          sum_of_ranks(ranks, [&](int peer) { return load_global(g_x[peer][rank], {offset}, {block}); });
      store_global(g_y, sum.to(dtype), {offset});
    }
    ctas_of_ranks.meet(1);  // they have read mine
    ctas_of_ranks.end();
  }
};

/// What AllGather and ReduceScatter share. Made and used by every rank alike; calls, graphs and preparing as AllReduce.
template <template <bool> class K, SmallCollective kSmall>
class RowCollective {
 public:
  /// At most `ctas` of each rank take part, fewer for small tensors; a GPU must hold them all at once. Rows of at most
  /// `low_latency_bytes` (SmallCollectiveCall::fastest_bytes()) go as words that carry their signal (small_collectives.h).
  explicit RowCollective(Communicator ranks, int ctas = 128, std::optional<int64_t> low_latency_bytes = {},
                         SourceLocation where = SourceLocation::current())
      : ranks_(std::move(ranks)),
        ctas_(ctas),
        signals_(ranks_.signals(MeetingsOfCtas::signals(2, ctas, ranks_.size()), where)),
        calls_(DeviceTensor::from_host(ranks_.device(), HostTensor(int32, {ctas}))),
        small_(ranks_, kSmall, ctas, low_latency_bytes),
        kernel_(ranks_.device()) {}

 protected:
  /// `rows` has a row per rank, `row` is one. `x_is_row`: it is what is read.
  template <class Body>
  void with_kernel(const char* name, const SymmetricTensor& rows, const DeviceTensor& row, bool x_is_row,
                   SourceLocation where, Body&& body) {
    std::vector<int64_t> wanted{ranks_.size()};
    wanted.insert(wanted.end(), row.shape().begin(), row.shape().end());
    if (rows.dtype() != row.dtype() || rows.shape() != wanted || !row.is_dense())
      throw LaunchError(
          Diagnostic{where,
                     std::string(name) + ": the larger tensor is not a dense row per rank of the smaller's",
                     {},
                     "pass tensors of one type, of shapes [ranks, ...] and [...]"});
    const int64_t n = row.bytes() * 8 / row.dtype().bits();
    ranks_.agree(name, row.dtype(), {n}, where);
    if (!ranks_.reaches_peers()) return;  // NCCL's kernels do it
    if (small_.takes(row.dtype(), n)) {
      const uint64_t of_row = row.address(), of_rows = rows.mine().address();
      return small_.with_kernel(ranks_, row.dtype(), n, x_is_row ? of_row : of_rows,
                                x_is_row ? of_rows : of_row, where, body);
    }
    const uint64_t of_row = row.address(), of_rows = rows.all().address();
    const int64_t ctas = std::clamp<int64_t>(cdiv(n, K<true>().block), 1, ctas_);
    const int unit = unit_of_rows(n);
    kernel_.with([&](auto& kernel) {
      body(kernel, n / unit, unit, ctas, ctas_, ranks_.size(), rows.rank_stride_bytes(), ranks_.rank(),
           row.dtype(), x_is_row ? of_row : of_rows, x_is_row ? of_rows : of_row, signals_.all().address(),
           calls_);
    });
  }
  LaunchReport launch(const char* name, const SymmetricTensor& rows, const DeviceTensor& row, bool x_is_row,
                      const Stream& stream, SourceLocation where) {
    LaunchReport report;
    with_kernel(name, rows, row, x_is_row, where, [&](auto& kernel, const auto&... arguments) {
      report = kernel.on(stream, where)(arguments...);
    });
    if (ranks_.reaches_peers()) return report;
    if (x_is_row)
      ranks_.all_gather_by_nccl(row, rows.mine(), stream, where);
    else
      ranks_.reduce_scatter_by_nccl(rows.mine(), row, stream, where);
    return report;
  }
  void compile(const char* name, const SymmetricTensor& rows, const DeviceTensor& row, bool x_is_row,
               SourceLocation where) {
    with_kernel(name, rows, row, x_is_row, where,
                [](auto& kernel, const auto&... arguments) { kernel.prepare(arguments...); });
  }

 private:
  Communicator ranks_;
  int ctas_;
  SymmetricTensor signals_;
  DeviceTensor calls_;
  SmallCollectiveCall small_;
  OverlappingKernel<K> kernel_;
};

class AllGather : public RowCollective<AllGatherKernel, SmallCollective::kAllGather> {
 public:
  using RowCollective::RowCollective;
  /// y.mine() = the x of all ranks, [ranks, ...]; x is this rank's own, [...]. LaunchError for other shapes.
  LaunchReport operator()(const DeviceTensor& x, const SymmetricTensor& y, const Stream& stream = {},
                          SourceLocation where = SourceLocation::current()) {
    return launch("AllGather", y, x, true, stream, where);
  }
  void prepare(const DeviceTensor& x, const SymmetricTensor& y,
               SourceLocation where = SourceLocation::current()) {
    compile("AllGather", y, x, true, where);
  }
};

class ReduceScatter : public RowCollective<ReduceScatterKernel, SmallCollective::kReduceScatter> {
 public:
  using RowCollective::RowCollective;
  /// y = the sum of row rank() of the x of all ranks, [ranks, ...]; y is this rank's own, [...]. LaunchError for other
  /// shapes.
  LaunchReport operator()(const SymmetricTensor& x, const DeviceTensor& y, const Stream& stream = {},
                          SourceLocation where = SourceLocation::current()) {
    return launch("ReduceScatter", x, y, false, stream, where);
  }
  void prepare(const SymmetricTensor& x, const DeviceTensor& y,
               SourceLocation where = SourceLocation::current()) {
    compile("ReduceScatter", x, y, false, where);
  }
};

}  // namespace imbrex::parallel
