// SPDX-License-Identifier: Apache-2.0
// Experts of a mixture that are dealt out to the ranks: each token's row travels to the ranks of its experts, sorted there
// by expert, and the experts' rows travel back to be added up.
//
//   ExpertExchange exchange(ranks, {.tokens = 512, .width = 4096, .experts = 32, .chosen = 4});
//   exchange.dispatch(x, chosen).expect_clean();
//   grouped_matmul(exchange.rows(), w, exchange.results(), Groups::contiguous(exchange.first_row()));
//   exchange.combine(weights, y).expect_clean();
//
// Where a row goes is computed on the GPUs: the host learns no sizes, and waits for nothing. Three kernels dispatch: CTA e
// counts who has chosen expert e and tells all ranks; from the counts of all it says at which place each of its rows will
// be; then rows are stored to their ranks. Rows of an expert are in the order of the ranks, of one rank in that of its
// tokens, so that equal calls give equal bits. CTAs of the same number meet as in all_reduce.h.
#pragma once

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "imbrex/lang.h"
#include "imbrex/parallel/all_reduce.h"

namespace imbrex::parallel {

/// CTA e tells all ranks how many of this rank's choices are of expert e: counts [ranks, experts] on each rank.
struct CountChoices {
  static constexpr const char* target = "sm_80";
  int block = 1024;

  void operator()(Int32 choices, int experts, int ranks, int64_t rank_stride_bytes, Int32 rank,
                  Ptr<int32> expert_ptr, Ptr<int32> count_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr) const {
    grid(experts);
    warps(4);
    auto g_experts = global_view(expert_ptr, {choices});
    auto g_counts = symmetric_view(count_ptr, int32, rank_stride_bytes, ranks, {ranks, experts});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, experts, 2, ranks, rank_stride_bytes, rank);
    Int32 expert = block_idx.x;

    RegisterTensor found = zeros(int32, {block});
    for (Int32 offset : range(0, choices, block))
      found += select(load_global(g_experts, {offset}, {block}, {.other = -1}) == expert, 1, 0).to(int32);
    RegisterTensor count = sum(found, {.axis = 0, .keep = true});
    ctas_of_ranks.meet(0);  // nobody reads the last call's counts any more
    for (int i = 0; i < ranks; ++i) store_global(g_counts[(rank + i) % ranks][rank], count, {expert});
    ctas_of_ranks.meet(1);  // the others' counts are here
    ctas_of_ranks.end();
  }
};

/// CTA e says for each choice of expert e in which row of that expert's rank it will be, and, of an expert of this rank,
/// where its rows end.
struct PlaceChoices {
  static constexpr const char* target = "sm_80";
  int block = 1024;

  void operator()(Int32 choices, int experts, int ranks, int64_t room, Int32 rank, Ptr<int32> expert_ptr,
                  Ptr<int32> count_ptr, Ptr<int32> place_ptr, Ptr<int32> first_row_ptr) const {
    grid(experts);
    warps(4);
    const int per_rank = experts / ranks;
    const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<unsigned>(ranks)));
    const auto columns = static_cast<int64_t>(std::bit_ceil(static_cast<unsigned>(per_rank)));
    auto g_experts = global_view(expert_ptr, {choices}), g_places = global_view(place_ptr, {choices});
    auto g_counts = global_view(count_ptr, {ranks, experts});
    auto g_first_row = global_view(first_row_ptr, {per_rank + 1});
    Int32 expert = block_idx.x;
    Int32 owner = expert / per_rank, mine = expert % per_rank;

    // Of the experts of the same rank. What the tile has beyond them is of the next rank, and not added. Of a rank that has not
    // come counts are whatever was there, when waits for it have been ended: what is made of them stays within the room.
    const auto most = static_cast<int32_t>(room / ranks);
    RegisterTensor counts = min(max(load_global(g_counts, {0, owner * per_rank}, {rows, columns}), 0), most);
    RegisterTensor from = register_tensor(int32, {rows, columns}, [&](auto r, auto) { return r; });
    RegisterTensor of = register_tensor(int32, {rows, columns}, [&](auto, auto c) { return c; });
    Int32 first = sum(select(of < mine, counts, 0));
    Int32 all = sum(select(of == mine, counts, 0));
    Int32 place = first + sum(select((of == mine) & (from < rank), counts, 0));
    if (auto is_here = when(owner == rank)) {
      if (auto is_first = when(mine == 0)) store_global(g_first_row, zeros(int32, {1}), {0});
      store_global(g_first_row, full(int32, {1}, min(first + all, static_cast<int32_t>(room))), {mine + 1});
    }
    for (Int32 offset : range(0, choices, block)) {
      RegisterTensor is_chosen = load_global(g_experts, {offset}, {block}, {.other = -1}) == expert;
      RegisterTensor one = select(is_chosen, 1, 0).to(int32);
      RegisterTensor index = register_tensor(int32, {block}, [&](auto i) { return offset + i; });
      scatter(g_places, cumsum(one) + (place - 1), {index}, {.mask = is_chosen});
      place += sum(one);
    }
  }
};

/// Where a token's rows are: of its j-th choice, on which rank, and in which row. A choice of no expert has a row behind the
/// last, which loads and stores leave out: so none of them waits for a branch.
class RowsOfToken {
 public:
  RowsOfToken(const GlobalTensor& experts, const GlobalTensor& places, const Int32& token, int chosen,
              int of_rank, int all, int64_t room) {
    for (int j = 0; j < chosen; ++j) {
      Int32 expert = experts[token][j].item();
      auto is_expert = (expert >= 0) & (expert < all);
      ranks_.push_back(select(is_expert, expert / of_rank, 0));
      rows_.push_back(select(is_expert, places[token][j].item(), static_cast<int32_t>(room)));
    }
  }
  const Int32& rank(int j) const { return ranks_[static_cast<size_t>(j)]; }
  const Int32& row(int j) const { return rows_[static_cast<size_t>(j)]; }

 private:
  std::vector<Int32> ranks_, rows_;
};

/// Stores each token's row to the ranks of its experts.
struct SendRows {
  static constexpr const char* target = "sm_80";
  int columns = 2048, num_warps = 8;

  void operator()(Int32 tokens, int chosen, int width, int experts, Int32 ctas, int most_ctas, int64_t room,
                  int ranks, int64_t rank_stride_bytes, Int32 rank, DataType dtype, Ptr<> x_ptr,
                  Ptr<int32> expert_ptr, Ptr<int32> place_ptr, Ptr<> row_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr) const {
    grid(ctas);
    warps(num_warps);
    auto g_x = global_view(x_ptr, dtype, {tokens, width});
    auto g_experts = global_view(expert_ptr, {tokens, chosen}),
         g_places = global_view(place_ptr, {tokens, chosen});
    auto g_rows = symmetric_view(row_ptr, dtype, rank_stride_bytes, ranks, {room, width});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, most_ctas, 2, ranks, rank_stride_bytes, rank);

    ctas_of_ranks.meet(0);  // the last call's rows have been used
    for (Int32 token : range(block_idx.x, tokens, ctas)) {
      const RowsOfToken to(g_experts, g_places, token, chosen, experts / ranks, experts, room);
      for (int64_t column = 0; column < width; column += columns) {
        RegisterTensor row = load_global(g_x, {token, column}, {1, columns});
        for (int j = 0; j < chosen; ++j) store_global(g_rows[to.rank(j)], row, {to.row(j), column});
      }
    }
    ctas_of_ranks.meet(1);  // the others' rows are here
    ctas_of_ranks.end();
  }
};

/// y[token, :] = the sum over j of weight[token, j] * the result of the token's j-th expert, in float32 in this order.
struct CombineRows {
  static constexpr const char* target = "sm_80";
  int columns = 2048, num_warps = 8;

  void operator()(Int32 tokens, int chosen, int width, int experts, Int32 ctas, int most_ctas, int64_t room,
                  int ranks, int64_t rank_stride_bytes, Int32 rank, DataType dtype, Ptr<> result_ptr,
                  Ptr<int32> expert_ptr, Ptr<int32> place_ptr, Ptr<float32> weight_ptr, Ptr<> y_ptr,
                  Ptr<int32> signal_ptr, Ptr<int32> call_ptr) const {
    grid(ctas);
    warps(num_warps);
    auto g_y = global_view(y_ptr, dtype, {tokens, width});
    auto g_experts = global_view(expert_ptr, {tokens, chosen}),
         g_places = global_view(place_ptr, {tokens, chosen}),
         g_weights = global_view(weight_ptr, {tokens, chosen});
    auto g_results = symmetric_view(result_ptr, dtype, rank_stride_bytes, ranks, {room, width});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, most_ctas, 2, ranks, rank_stride_bytes, rank);

    ctas_of_ranks.meet(0);  // their experts have computed
    for (Int32 token : range(block_idx.x, tokens, ctas)) {
      const RowsOfToken from(g_experts, g_places, token, chosen, experts / ranks, experts, room);
      for (int64_t column = 0; column < width; column += columns) {
        RegisterTensor y = zeros(float32, {1, columns});
        for (int j = 0; j < chosen; ++j)
          y += load_global(g_results[from.rank(j)], {from.row(j), column}, {1, columns}).to(float32) *
               g_weights[token][j].item();
        store_global(g_y, y.to(dtype), {token, column});
      }
    }
    ctas_of_ranks.meet(1);  // they have read mine, which may be overwritten
    ctas_of_ranks.end();
  }
};

/// What the largest call of an ExpertExchange needs: it decides how much symmetric memory is taken.
struct ExpertSizes {
  int64_t tokens;  ///< of one rank, at most
  int64_t width;   ///< columns of a row
  int experts;     ///< of all ranks together; rank r has the experts / ranks from r * experts / ranks on
  int chosen;      ///< experts of a token
  DataType dtype = bfloat16;  ///< of rows and results
};

/// Rows to their experts' ranks and back. Made and used by every rank alike, one dispatch() and then one combine() at a
/// time, on one stream.
class ExpertExchange {
 public:
  /// At most `ctas` of each rank carry rows; a GPU must hold them, and as many as there are experts, at once. LaunchError
  /// where the ranks do not divide the experts. Memory on each rank: twice rows() (which has room for all choices of all
  /// ranks). The kernels are compiled and loaded here: a GPU loads nothing while one of them waits for a rank, and calls can be
  /// captured into graphs.
  ExpertExchange(Communicator ranks, const ExpertSizes& sizes, int ctas = 128,
                 SourceLocation where = SourceLocation::current());

  /// What this rank's experts have to compute: [ranks * tokens * chosen, width]. Local expert g has the rows first_row()[g] to
  /// first_row()[g + 1] - 1; behind the last expert's nothing is defined. As grouped_matmul() takes them.
  const DeviceTensor& rows() const { return rows_.mine(); }
  /// int32 [experts of a rank + 1].
  const DeviceTensor& first_row() const { return first_row_; }
  /// Where the experts' results go, row by row as rows(), before combine().
  const DeviceTensor& results() const { return results_.mine(); }

  /// Sends x [tokens, width] of this rank, dense, to the experts that `chosen` names, int32 [tokens, chosen], dense; a number
  /// that is no expert's (-1, say) is left out. Ranks may have different numbers of tokens, up to ExpertSizes::tokens.
  /// It does not wait; rows() are there for what follows on the stream. `chosen` stays as it is until combine() has run.
  /// LaunchError for other types and shapes.
  LaunchReport dispatch(const DeviceTensor& x, const DeviceTensor& chosen, const Stream& stream = {},
                        SourceLocation where = SourceLocation::current());
  /// y [tokens, width] = for each token the sum of its experts' results, each times its weight, float32 [tokens, chosen];
  /// in float32, in the order of `chosen`. Tokens and choices are those of the last dispatch().
  LaunchReport combine(const DeviceTensor& weights, const DeviceTensor& y, const Stream& stream = {},
                       SourceLocation where = SourceLocation::current());

 private:
  void check(bool holds, const char* what, SourceLocation where) const {
    if (holds) return;
    throw LaunchError(Diagnostic{where,
                                 std::string("ExpertExchange: ") + what,
                                 {},
                                 "see imbrex/parallel/experts.h for what is expected"});
  }
  /// That a CTA moves at once: 16 bytes per thread, of bfloat16.
  static int columns_of(const ExpertSizes& sizes) {
    return static_cast<int>(std::clamp<uint64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(sizes.width, 1))), 256, 2048));
  }
  /// CTAs that carry, the same on all ranks.
  int64_t ctas() const { return std::clamp<int64_t>(sizes_.tokens, 1, ctas_); }
  // body(kernel, arguments...) of each kernel, for a launch or to prepare one.
  template <class Tensor, class Body>
  auto with_count(int64_t choices, const Tensor& chosen, const Body& body) {
    return body(count_, choices, sizes_.experts, ranks_.size(), rows_.rank_stride_bytes(), ranks_.rank(),
                chosen, counts_.all().address(), count_signals_.all().address(), count_calls_);
  }
  template <class Tensor, class Body>
  auto with_place(int64_t choices, const Tensor& chosen, const Body& body) {
    return body(place_, choices, sizes_.experts, ranks_.size(), room_, ranks_.rank(), chosen, counts_.mine(),
                places_, first_row_);
  }
  template <class Tensor, class Body>
  auto with_send(int64_t tokens, const Tensor& x, const Tensor& chosen, const Body& body) {
    return body(send_, tokens, sizes_.chosen, static_cast<int>(sizes_.width), sizes_.experts, ctas(), ctas_,
                room_, ranks_.size(), rows_.rank_stride_bytes(), ranks_.rank(), sizes_.dtype, x, chosen,
                places_, rows_.all().address(), send_signals_.all().address(), send_calls_);
  }
  template <class Tensor, class Body>
  auto with_combine(int64_t tokens, const Tensor& chosen, const Tensor& weights, const Tensor& y,
                    const Body& body) {
    return body(combine_, tokens, sizes_.chosen, static_cast<int>(sizes_.width), sizes_.experts, ctas(),
                ctas_, room_, ranks_.size(), results_.rank_stride_bytes(), ranks_.rank(), sizes_.dtype,
                results_.all().address(), chosen, places_, weights, y, combine_signals_.all().address(),
                combine_calls_);
  }
  /// Findings of several launches as those of one.
  static void add(LaunchReport& all, LaunchReport next) {
    all.is_virtual = next.is_virtual;
    all.milliseconds += next.milliseconds;
    all.virtual_report.completed &= next.virtual_report.completed;
    for (vgpu::Finding& finding : next.virtual_report.findings)
      all.virtual_report.findings.push_back(std::move(finding));
  }

  Communicator ranks_;
  ExpertSizes sizes_;
  int ctas_;
  int64_t room_;
  SymmetricTensor counts_, rows_, results_, count_signals_, send_signals_, combine_signals_;
  DeviceTensor first_row_, places_, chosen_, count_calls_, send_calls_, combine_calls_;
  Kernel<CountChoices> count_;
  Kernel<PlaceChoices> place_;
  Kernel<SendRows> send_;
  Kernel<CombineRows> combine_;
};

inline ExpertExchange::ExpertExchange(Communicator ranks, const ExpertSizes& sizes, int ctas,
                                      SourceLocation where)
    : ranks_(std::move(ranks)),
      sizes_(sizes),
      ctas_(ctas),
      room_(ranks_.size() * sizes.tokens * sizes.chosen),
      count_({}, ranks_.device()),
      place_({}, ranks_.device()),
      send_({.columns = columns_of(sizes), .num_warps = columns_of(sizes) / 256}, ranks_.device()),
      combine_({.columns = columns_of(sizes), .num_warps = columns_of(sizes) / 256}, ranks_.device()) {
  check(sizes.tokens > 0 && sizes.width > 0 && sizes.chosen > 0 && ctas > 0, "sizes are positive", where);
  check(sizes.experts > 0 && sizes.experts % ranks_.size() == 0, "the ranks divide the experts", where);
  const Device& device = ranks_.device();
  const auto zeros_of = [&](int64_t count) {
    return DeviceTensor::from_host(device, HostTensor(int32, {count}));
  };
  counts_ = ranks_.symmetric(int32, {ranks_.size(), sizes.experts}, where);
  rows_ = ranks_.symmetric(sizes.dtype, {room_, sizes.width}, where);
  results_ = ranks_.symmetric(sizes.dtype, {room_, sizes.width}, where);
  count_signals_ = ranks_.signals(MeetingsOfCtas::signals(2, sizes.experts, ranks_.size()), where);
  send_signals_ = ranks_.signals(MeetingsOfCtas::signals(2, ctas, ranks_.size()), where);
  combine_signals_ = ranks_.signals(MeetingsOfCtas::signals(2, ctas, ranks_.size()), where);
  first_row_ = zeros_of(sizes.experts / ranks_.size() + 1);
  places_ = zeros_of(sizes.tokens * sizes.chosen);
  count_calls_ = zeros_of(sizes.experts);
  send_calls_ = zeros_of(ctas);
  combine_calls_ = zeros_of(ctas);
  const auto compile = [](auto& kernel, const auto&... arguments) { kernel.prepare(arguments...); };
  const uint64_t any = places_.address();  // nothing of the calls' tensors is compiled in
  with_count(1, any, compile);
  with_place(1, any, compile);
  with_send(1, any, any, compile);
  with_combine(1, any, any, any, compile);
}

inline LaunchReport ExpertExchange::dispatch(const DeviceTensor& x, const DeviceTensor& chosen,
                                             const Stream& stream, SourceLocation where) {
  check(x.dtype() == sizes_.dtype && x.shape().size() == 2 && x.shape()[1] == sizes_.width && x.is_dense(),
        "x is [tokens, width] of the type that the exchange was made for, and dense", where);
  const int64_t tokens = x.shape()[0];
  check(tokens <= sizes_.tokens, "x has more tokens than the exchange was made for", where);
  check(chosen.dtype() == int32 && chosen.shape() == std::vector<int64_t>{tokens, sizes_.chosen} &&
            chosen.is_dense(),
        "chosen is int32 [tokens, chosen], and dense", where);
  chosen_ = chosen;
  const auto launch = [&](auto& kernel, const auto&... arguments) {
    return kernel.on(stream, where)(arguments...);
  };
  LaunchReport all;
  all.virtual_report.completed = true;
  add(all, with_count(tokens * sizes_.chosen, chosen, launch));
  add(all, with_place(tokens * sizes_.chosen, chosen, launch));
  add(all, with_send(tokens, x, chosen, launch));
  return all;
}

inline LaunchReport ExpertExchange::combine(const DeviceTensor& weights, const DeviceTensor& y,
                                            const Stream& stream, SourceLocation where) {
  check(!chosen_.shape().empty(), "combine() comes behind dispatch()", where);
  const int64_t tokens = chosen_.shape()[0];
  check(weights.dtype() == float32 && weights.shape() == chosen_.shape() && weights.is_dense(),
        "weights are float32 [tokens, chosen], and dense", where);
  check(y.dtype() == sizes_.dtype && y.shape() == std::vector<int64_t>{tokens, sizes_.width} && y.is_dense(),
        "y is [tokens, width] of the type that the exchange was made for, and dense", where);
  return with_combine(tokens, chosen_, weights, y, [&](auto& kernel, const auto&... arguments) {
    return kernel.on(stream, where)(arguments...);
  });
}

}  // namespace imbrex::parallel
