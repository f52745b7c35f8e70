// SPDX-License-Identifier: Apache-2.0
// All-reduce, all-gather and reduce-scatter of small tensors, by words that carry their own signal: one way over the links and no
// meeting. x and y are this rank's own; sums are added in float32 in the order of the ranks. Each CTA moves one block of each
// row, and is one warp: it looks for what comes without a barrier.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "imbrex/parallel/communicator.h"
#include "imbrex/parallel/flagged_words.h"
#include "imbrex/parallel/overlapping_kernel.h"

namespace imbrex::parallel {

/// A row of n elements as so many units of elements: a kernel that knows the unit moves rows, which begin at multiples of n, by
/// as many bytes at once as it allows.
inline int unit_of_rows(int64_t n) { return static_cast<int>(std::gcd(n, int64_t{16})); }

enum class SmallCollective : uint8_t { kAllReduce, kAllGather, kReduceScatter };

/// Rows have n elements. All-reduce: x and y are a row. All-gather: x is a row, y one per rank. Reduce-scatter: x has a row per
/// rank, y is one.
template <bool kOverlaps>
struct SmallCollectiveKernel {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int block = 128;  ///< words of 32 bits

  void operator()(SmallCollective kind, Int32 n_units, int n_unit, Int32 ctas, int most_ctas, int most_words,
                  int ranks, int64_t rank_stride_bytes, Int32 rank, DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr,
                  Ptr<> box_ptr, Ptr<int32> call_ptr) const {
    const int per_word = 32 / static_cast<int>(dtype.bits());
    const bool has_rows = kind == SmallCollective::kReduceScatter;
    grid(ctas);
    warps(1);
    wait_for_kernel_before(kOverlaps);
    Int32 n = n_units * n_unit, words = n_units * (n_unit / per_word), offset = block_idx.x * block;
    auto g_x = global_view(x_ptr, uint32, {has_rows ? ranks : 1, words});
    auto g_y = global_view(y_ptr, dtype, {kind == SmallCollective::kAllGather ? ranks : 1, n});
    FlaggedWords boxes(box_ptr, call_ptr, most_ctas, most_words, block, ranks, rank_stride_bytes, rank);

    const auto row = [&](const ScalarArg& r) { return load_global(g_x[r], {offset}, {block}); };
    if (has_rows) {
      for (int i = 0; i < ranks; ++i) {
        Int32 to = (rank + i) % ranks;
        boxes.send(to, row(to));
      }
    } else {
      RegisterTensor x = row(0);
      for (int i = 0; i < ranks; ++i) boxes.send((rank + i) % ranks, x);
    }
    const std::vector<RegisterTensor> received = boxes.receive();
    const auto from = [&](int r) { return view(received[static_cast<size_t>(r)], dtype); };
    if (kind == SmallCollective::kAllGather) {
      for (int r = 0; r < ranks; ++r) store_global(g_y[r], from(r), {offset * per_word});
    } else {
      RegisterTensor sum = from(0).to(float32);
      for (int r = 1; r < ranks; ++r) sum += from(r).to(float32);
      store_global(g_y[0], sum.to(dtype), {offset * per_word});
    }
    boxes.end();
  }
};

/// One of the three, as AllReduce, AllGather and ReduceScatter launch it. Made and used by every rank alike.
class SmallCollectiveCall {
 public:
  /// Bytes of a row up to which it is the faster way: measured on two H100; with more ranks as many leave each.
  static int64_t fastest_bytes(int ranks) { return (int64_t{512} << 10) / std::max(ranks - 1, 1); }

  /// For rows of at most `most_bytes`; at most as many warps of each rank take part as `ctas` of 8 warps have.
  SmallCollectiveCall(const Communicator& ranks, SmallCollective kind, int ctas,
                      std::optional<int64_t> most_bytes = {})
      : kind_(kind),
        ctas_(8 * ctas),
        most_bytes_(
            std::min(most_bytes.value_or(fastest_bytes(ranks.size())), int64_t{ctas_} * kBlocks.back() * 4)) {
    for (const int block : kBlocks)
      kernels_.emplace_back(ranks.device(), SmallCollectiveKernel<false>{.block = block});
  }

  /// Whether rows of n elements can go this way.
  bool takes(DataType dtype, int64_t n) const {
    return FlaggedWords::can_carry(dtype, n) && n * dtype.bits() / 8 <= most_bytes_;
  }
  int64_t most_bytes() const { return most_bytes_; }
  /// body(kernel, arguments ...); x and y: addresses of this rank's own memory. In the first call the ranks make boxes together.
  template <class Body>
  void with_kernel(Communicator& ranks, DataType dtype, int64_t n, uint64_t x, uint64_t y,
                   SourceLocation where, Body&& body) {
    const int64_t most_words = cdiv(most_bytes_, int64_t{4}), words = n * dtype.bits() / 32;
    const int largest_block = block_for(most_words), block = block_for(words);
    const int64_t box_ctas = cdiv(most_words, int64_t{kBlocks.front()});
    if (!calls_) {
      boxes_ = ranks.signals(FlaggedWords::signals(box_ctas, largest_block, ranks.size()), where);
      calls_ = DeviceTensor::from_host(ranks.device(), HostTensor(int32, {box_ctas}));
    }
    const int unit = unit_of_rows(n);
    kernels_[block == kBlocks.front() ? 0 : 1].with([&](auto& kernel) {
      body(kernel, kind_, n / unit, unit, cdiv(words, int64_t{block}), static_cast<int>(box_ctas),
           largest_block, ranks.size(), boxes_.rank_stride_bytes(), ranks.rank(), dtype, x, y,
           boxes_.all().address(), *calls_);
    });
  }

 private:
  static constexpr std::array kBlocks = {128, 256};

  /// The smallest blocks of which the warps take so many words.
  int block_for(int64_t words) const { return kBlocks[words > int64_t{ctas_} * kBlocks[0] ? 1 : 0]; }

  SmallCollective kind_;
  int ctas_;
  int64_t most_bytes_;
  SymmetricTensor boxes_;
  std::optional<DeviceTensor> calls_;
  std::vector<OverlappingKernel<SmallCollectiveKernel>> kernels_;
};

}  // namespace imbrex::parallel
