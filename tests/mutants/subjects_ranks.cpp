// SPDX-License-Identifier: Apache-2.0
// Subjects of two ranks: collectives, products fused with them, and the exchange of experts' rows.
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/parallel/all_reduce.h"
#include "imbrex/parallel/experts.h"
#include "imbrex/parallel/small_collectives.h"
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

/// An all-reduce by words that carry their signal, of one CTA.
Subject flagged() {
  constexpr int n = 128;
  Subject subject = make_subject(
      "low latency", 1, parallel::SmallCollectiveKernel<true>(), parallel::SmallCollective::kAllReduce,
      n / 16, 16, 1, 1, n, kRanks, rank_stride_bytes(), RankNumber(), float32, in(float32, {n}),
      out(float32, {n}), zeroed(int32, {2 * kRanks * n * 2}).on_all().unread(), zeroed(int32, {1}).unread());
  subject.ranks = kRanks;
  return subject;
}

/// The signals around the copies of a product's call, which are several kernels there: nobody overwrites what the last call
/// reads, and nobody reads what has not come.
struct Copied {
  static constexpr const char* target = "sm_90a";
  void operator()(kernels::RankSignals signals, Ptr<float32> x_ptr, Ptr<float32> place_ptr,
                  Ptr<float32> y_ptr) const {
    constexpr int n = 64;
    grid(1);
    warps(2);
    kernels::RankCall call(signals);
    auto g_places = symmetric_view(place_ptr, float32, signals.rank_stride_bytes, signals.ranks, {n});
    Int32 other = call.peer(1);
    call.begin();
    call.wait_for_all_to_begin();
    store_global(g_places[other], load_global(global_view(x_ptr, {n}), {0}, {n}), {0});
    call.stored(other, 0);
    call.wait_for(other, 0);
    store_global(global_view(y_ptr, {n}), load_global(g_places[call.rank()], {0}, {n}), {0});
    call.end();
  }
};

Subject copied() {
  Subject subject = make_subject("copies", 1, Copied(), kRanks, rank_stride_bytes(), RankNumber(), 1,
                                 zeroed(int32, {kRanks, 2}).on_all().unread(), zeroed(int32, {3}).unread(),
                                 in(float32, {64}), out(float32, {64}).on_all().unread(), out(float32, {64}));
  subject.ranks = kRanks;
  return subject;
}

// The kernels of ExpertExchange, of two experts and two tokens of one choice each. What they store to other ranks, the next
// kernel reads there; here the same one does, so that it is read before the next call.
constexpr int kExperts = 2, kTokens = 2, kWidth = 64, kRoom = kRanks * kTokens;

struct Counted {
  static constexpr const char* target = "sm_90a";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<int32> expert_ptr,
                  Ptr<int32> count_ptr, Ptr<int32> signal_ptr, Ptr<int32> call_ptr, Ptr<int32> y_ptr) const {
    parallel::CountChoices{.block = 64}(kTokens, kExperts, ranks, rank_stride_bytes, rank, expert_ptr,
                                        count_ptr, signal_ptr, call_ptr);
    auto g_counts = symmetric_view(count_ptr, int32, rank_stride_bytes, ranks, {ranks, kExperts});
    auto g_y = global_view(y_ptr, {ranks, kExperts});
    store_global(g_y, load_global(g_counts[rank], {0, block_idx.x}, {kRanks, 1}), {0, block_idx.x});
  }
};

struct Sent {
  static constexpr const char* target = "sm_90a";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<> x_ptr, Ptr<int32> expert_ptr,
                  Ptr<int32> place_ptr, Ptr<> row_ptr, Ptr<int32> signal_ptr, Ptr<int32> call_ptr,
                  Ptr<> y_ptr) const {
    store_global(global_view(place_ptr, {kTokens}), full(int32, {kTokens}, rank), {0});
    sync();
    parallel::SendRows{.columns = kWidth, .num_warps = 2}(kTokens, 1, kWidth, kExperts, 1, 1, kRoom, ranks,
                                                          rank_stride_bytes, rank, float32, x_ptr, expert_ptr,
                                                          place_ptr, row_ptr, signal_ptr, call_ptr);
    auto g_rows = symmetric_view(row_ptr, float32, rank_stride_bytes, ranks, {kRoom, kWidth});
    store_global(global_view(y_ptr, float32, {kRanks, kWidth}),
                 load_global(g_rows[rank], {0, 0}, {kRanks, kWidth}), {0, 0});
  }
};

struct Combined {
  static constexpr const char* target = "sm_90a";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<> x_ptr, Ptr<int32> expert_ptr,
                  Ptr<int32> place_ptr, Ptr<float32> weight_ptr, Ptr<> result_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr, Ptr<> y_ptr) const {
    auto g_results = symmetric_view(result_ptr, float32, rank_stride_bytes, ranks, {kRoom, kWidth});
    store_global(global_view(place_ptr, {kTokens}), full(int32, {kTokens}, rank), {0});
    store_global(g_results[rank],
                 load_global(global_view(x_ptr, float32, {kRanks, kWidth}), {0, 0}, {kRanks, kWidth}),
                 {0, 0});
    sync();
    parallel::CombineRows{.columns = kWidth, .num_warps = 2}(
        kTokens, 1, kWidth, kExperts, 1, 1, kRoom, ranks, rank_stride_bytes, rank, float32, result_ptr,
        expert_ptr, place_ptr, weight_ptr, y_ptr, signal_ptr, call_ptr);
  }
};

std::vector<Subject> expert_subjects() {
  const auto experts = [] { return numbers(int32, {1, 0}); };
  const auto signals = [](int64_t ctas) { return zeroed(int32, {2 * kRanks, ctas}).on_all().unread(); };
  std::vector<Subject> all;
  all.push_back(make_subject("experts: count", 2, Counted(), kRanks, rank_stride_bytes(), RankNumber(),
                             experts(), out(int32, {kRanks, kExperts}).on_all().unread(), signals(kExperts),
                             zeroed(int32, {kExperts}).unread(), out(int32, {kRanks, kExperts})));
  all.push_back(make_subject("experts: send", 1, Sent(), kRanks, rank_stride_bytes(), RankNumber(),
                             in(float32, {kTokens, kWidth}), experts(), out(int32, {kTokens}).unread(),
                             out(float32, {kRoom, kWidth}).on_all().unread(), signals(1),
                             zeroed(int32, {1}).unread(), out(float32, {kRanks, kWidth})));
  all.push_back(make_subject("experts: combine", 1, Combined(), kRanks, rank_stride_bytes(), RankNumber(),
                             in(float32, {kRanks, kWidth}), experts(), out(int32, {kTokens}).unread(),
                             in(float32, {kTokens}), out(float32, {kRoom, kWidth}).on_all().unread(),
                             signals(1), zeroed(int32, {1}).unread(), out(float32, {kTokens, kWidth})));
  for (Subject& subject : all) subject.ranks = kRanks;
  return all;
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
      zeroed(int32, {kRanks, 1 + kParts}).on_all().unread(), zeroed(int32, {3}).unread(),
      in(float16, {rows, k}), out(float16, {m, k}).on_all(rows * k * 2).unread(), rows, 128, false, false);
  subject.ranks = kRanks;
  return subject;
}

/// Of three CTAs one has tiles of the other rank's rows alone. A tile's k has more blocks than are multiplied before the
/// tile before it is told of.
Subject scattered(const char* name) {
  using namespace kernels;
  const int m = 256, n = 64, k = 1920, rows = m / kRanks, ctas = 3;
  const ProductSizesArguments sizes(rows, n, k, 0, ctas);
  Subject subject = make_subject(
      name, 3, small_tiles<HopperMatmulH8<ScatteredRows>>(), rows, static_cast<int>(sizes.n_units),
      sizes.n_unit, k, false, ctas, float16, in(float16, {m, k}), in(float16, {n, k}),
      out(float16, {rows, n}), kRanks, rank_stride_bytes(), RankNumber(), kParts,
      zeroed(int32, {kRanks, 1 + kParts}).on_all().unread(), zeroed(int32, {3}).unread(),
      out(float16, {kRanks, rows, n}).on_all().unread(), m, rows, false,
      out(float16, {m, n}).on_all(rows * n * 2).unread(), ScatteredRows::kAllTiles, 0, 0, rows,
      out(float16, {1}).unread());
  subject.ranks = kRanks;
  return subject;
}

}  // namespace

std::vector<Subject> rank_subjects() {
  std::vector<Subject> all;
  all.push_back(exchanged());
  all.push_back(flagged());
  all.push_back(copied());
  all.push_back(gathered());
  all.push_back(scattered("reduce-scatter"));
  for (Subject& subject : expert_subjects()) all.push_back(std::move(subject));
  return all;
}

}  // namespace imbrex::mutants
