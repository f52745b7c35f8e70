// SPDX-License-Identifier: Apache-2.0
// Subjects of two ranks: collectives, and products fused with them.
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/parallel/all_reduce.h"
#include "mutants/subject.h"

namespace imbrex::mutants {
namespace {

constexpr int kRanks = 2, kParts = 16;

/// y = the sum of what all ranks write to x, who then write to it again: the meetings of a collective.
struct Exchanged {
  static constexpr const char* target = "sm_90a";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<float32> x_ptr, Ptr<float32> y_ptr,
                  Ptr<int32> signal_ptr, Ptr<int32> call_ptr) const {
    constexpr int n = 64;
    grid(1);
    warps(2);
    auto g_x = symmetric_view(x_ptr, float32, rank_stride_bytes, ranks, {n});
    auto g_y = global_view(y_ptr, {n});
    parallel::MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, 1, 2, ranks, rank_stride_bytes, rank);
    store_global(g_x[rank], load_global(g_y, {0}, {n}) + 1.0f, {0});
    ctas_of_ranks.meet(0);
    RegisterTensor sum =
        parallel::sum_of_ranks(ranks, [&](int peer) { return load_global(g_x[peer], {0}, {n}); });
    ctas_of_ranks.meet(1);
    store_global(g_x[rank], sum, {0});
    store_global(g_y, sum, {0});
    ctas_of_ranks.end();
  }
};

Subject exchanged() {
  Subject subject = make_subject(
      "meetings", 1, Exchanged(), kRanks, rank_stride_bytes(), RankNumber(), out(float32, {64}).on_all(),
      zeroed(float32, {64}), zeroed(int32, {2 * kRanks, 1}).on_all().unread(), zeroed(int32, {1}).unread());
  subject.ranks = kRanks;
  return subject;
}

template <class K>
K small_tiles() {
  K kernel;
  kernel.block_m = 64;
  kernel.block_n = 64;
  kernel.block_k = 64;
  kernel.stages = 2;
  kernel.consumers = 1;
  kernel.swizzle_size = 1;
  return kernel;
}

/// Tiles of both ranks' rows, in two chunks along k.
Subject gathered() {
  using namespace kernels;
  const int m = 128, n = 64, k = 256, rows = m / kRanks;
  const ProductSizesArguments sizes(m, n, k, 0, 2);
  constexpr int kPlaces = 6;  // of the tensors below
  Subject subject = make_subject(
      "all-gather", 1, small_tiles<HopperMatmulH8<GatheredRows>>(), m, static_cast<int>(sizes.n_units),
      sizes.n_unit, k, false, 2, float16, OwnPart{kPlaces - 1, float16, {m, k}}, in(float16, {n, k}),
      out(float16, {m, n}), kRanks, rank_stride_bytes(), RankNumber(), kParts,
      zeroed(int32, {kRanks, 1 + kParts}).on_all().unread(), zeroed(int32, {2}).unread(),
      in(float16, {rows, k}), out(float16, {m, k}).on_all(rows * k * 2).unread(), rows, 128, false);
  subject.ranks = kRanks;
  return subject;
}

/// Of three CTAs one has tiles of the other rank's rows alone. A tile's k has more blocks than are multiplied before the
/// tile before it is told of.
Subject scattered(const char* name) {
  using namespace kernels;
  const int m = 256, n = 64, k = 384, rows = m / kRanks, ctas = 3;
  const ProductSizesArguments sizes(rows, n, k, 0, ctas);
  Subject subject = make_subject(
      name, 3, small_tiles<HopperMatmulH8<ScatteredRows>>(), rows, static_cast<int>(sizes.n_units),
      sizes.n_unit, k, false, ctas, float16, in(float16, {m, k}), in(float16, {n, k}),
      out(float16, {rows, n}), kRanks, rank_stride_bytes(), RankNumber(), kParts,
      zeroed(int32, {kRanks, 1 + kParts}).on_all().unread(), zeroed(int32, {2}).unread(),
      out(float16, {kRanks, rows, n}).on_all().unread(), m, rows, false,
      out(float16, {m, n}).on_all(rows * n * 2).unread());
  subject.ranks = kRanks;
  return subject;
}

}  // namespace

std::vector<Subject> rank_subjects() {
  std::vector<Subject> all;
  all.push_back(exchanged());
  all.push_back(gathered());
  all.push_back(scattered("reduce-scatter"));
  return all;
}

}  // namespace imbrex::mutants
