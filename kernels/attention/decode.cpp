// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention/decode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "attention/cache_case.h"
#include "attention/decode_launch.h"
#include "attention/kv_arguments.h"
#include "attention/reference.h"
#include "attention/score_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention/blackwell_decode.h"
#include "imbrex/kernels/attention/decode_float8.h"
#include "imbrex/kernels/attention/merge.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

/// A problem of decoding, as sizes of a registered kernel state it.
struct Decoding {
  DecodeSizes s;
  CacheCase cache;
  bool is_causal;
  DataType dtype, kv_dtype;
  float scale;
  DeviceTensor q, k, v, o;

  Decoding(Case& c, bool is_float8)
      : s{c.size("batch"), c.size("heads"), c.size("group"), c.size("q"), c.size("kv"), c.size("d")},
        cache(c, s.batches, s.capacity, c.size("page"), c.size("ragged") != 0),
        is_causal(c.size("causal") != 0),
        dtype(c.size("bf16") ? bfloat16 : float16),
        kv_dtype(is_float8 ? float8_e4m3 : dtype),
        scale(1 / std::sqrt(static_cast<float>(s.head_size))),
        q(c.input(dtype, {s.batches, s.heads_kv * s.group, s.q_size, s.head_size})),
        k(c.input(kv_dtype, {cache.pages, s.heads_kv, cache.rows_of_page, s.head_size})),
        v(c.input(kv_dtype, k.shape())),
        o(c.output(dtype, q.shape())) {}

  void expect(Case& c) const {
    std::shared_ptr<std::array<std::vector<double>, 3>> values;
    RowReference row;
    int64_t of = -1;
    const int64_t d = s.head_size, heads = s.heads_kv * s.group;
    const DataType product = kv_dtype == float8_e4m3 ? float16 : dtype;  // what is multiplied
    c.expect_within(
        o,
        [&, values, row, of](int64_t element) mutable {
          if (!values)
            values = std::make_shared<std::array<std::vector<double>, 3>>(
                std::array<std::vector<double>, 3>{c.values(q), c.values(k), c.values(v)});
          const int64_t r = element / d, i = r % s.q_size, head = r / s.q_size % heads,
                        b = r / s.q_size / heads;
          const auto place = [&](int64_t j) { return cache.row_at(b, j, s.heads_kv, head / s.group) * d; };
          const std::vector<double>&qs = (*values)[0], &ks = (*values)[1], &vs = (*values)[2];
          if (r != of) {
            const int64_t length = cache.length_of[b],
                          seen = std::max<int64_t>(0, is_causal ? length - s.q_size + i + 1 : length);
            row.weigh(qs.data() + r * d, d, scale, seen, product,
                      [&](int64_t j) { return ks.data() + place(j); });
            of = r;
          }
          return row.mean(element % d, {product, product, dtype},
                          [&](int64_t j) { return vs.data() + place(j); });
        },
        std::min<int64_t>(s.batches * heads * s.q_size * d,
                          (int64_t{1} << 28) / std::max<int64_t>(s.capacity, 1) / d + 300));
  }
};

/// Runs or measures a kernel that decodes, and the merge of its parts where a launch does that.
template <class Merge = MergeAttention, class K>
void decode(Case& c, const Decoding& p, Kernel<K>& kernel) {
  constexpr bool kIsBlackwell = std::is_same_v<K, WithScoreOptions<BlackwellDecodeAttention>>;
  const DecodeSizes& s = p.s;
  const int64_t parts = c.size("parts") > 0 ? c.size("parts") : decode_parts(s, kIsBlackwell ? 148 : 132, 64);
  const Merge tiles{merge_tiles(parts).block_parts, merge_tiles(parts).num_warps};
  const int64_t heads = s.heads_kv * s.group, rows = s.batches * heads * s.q_size;
  const Division division = parts == 1         ? Division::kNone
                            : c.size("launch") ? Division::kLeft
                                               : Division::kMerged;
  DeviceTensor partial = c.output(float32, {parts, rows, s.head_size}),
               log_sum = c.output(float32, {parts, rows}),
               tickets =
                   c.input(HostTensor(int32, {s.batches * s.heads_kv * ((s.group * s.q_size + 15) / 16)}));
  const HeadArguments qs(p.q), os(p.o);
  const CacheArguments cache(p.k, p.v, p.cache.lengths, p.cache.table);
  ScoreArguments steps{
      .causal = p.is_causal, .heads = heads, .slopes = p.q.address(), .sinks = p.q.address()};
  const auto merge = [&](Kernel<Merge>& last) {
    return last(s.batches, heads, s.q_size, parts, s.head_size, p.dtype, false, partial, log_sum, os,
                log_sum.address());
  };
  const auto launch = [&](auto&& run) {
    run(s.batches, s.heads_kv, s.group, s.q_size, parts, s.head_size, p.scale, p.dtype, p.kv_dtype, qs, cache,
        CacheScaleArguments({}, {}, p.q.address()), os, division, false, partial, log_sum, tickets,
        log_sum.address(), steps);
  };
  if (c.mode() == Case::Mode::kMeasure) {
    Kernel<Merge> last(tiles, p.q.device());
    c.measure([&](bool timed) {
      LaunchReport report;
      launch([&](const auto&... arguments) {
        report = timed ? kernel.launch_timed(arguments...) : kernel(arguments...);
      });
      if (division == Division::kLeft) merge(last);
      return report;
    });
  } else {
    launch([&](const auto&... arguments) { c.launch(kernel, arguments...); });
    if (c.mode() == Case::Mode::kRun && division == Division::kLeft) {
      Kernel<Merge> last(tiles, p.q.device());
      merge(last).expect_clean();
    }
  }
  c.flop = 4.0 * static_cast<double>(heads * s.q_size) * p.cache.all_rows() / static_cast<double>(s.batches) *
           static_cast<double>(s.batches * s.head_size);
  p.expect(c);
  c.expect(tickets, [](std::span<double> zeros) { std::ranges::fill(zeros, 0); });
}

std::vector<SizeOption> sizes(bool has_float8, const char* head_sizes = "a multiple of 16, at most 256") {
  std::vector<SizeOption> all{{"batch", 2, "sequences"},
                              {"heads", 2, "heads of K and V"},
                              {"group", 4, "heads of Q that share one of K and V"},
                              {"q", 1, "rows of Q per head"},
                              {"kv", 700, "rows of K and V for which there is room"},
                              {"d", 128, std::string("columns: the head's size, ") + head_sizes},
                              {"page", 0, "rows of a page; 0: contiguous"},
                              {"ragged", 0, "1: sequences of several lengths"},
                              {"causal", 0, "1: row i sees the columns up to i + length - q"},
                              {"bf16", 0, "1: bfloat16, 0: float16"}};
  if (has_float8) all.push_back({"float8", 0, "1: K and V are float8_e4m3"});
  all.push_back({"parts", 0, "CTAs that share a sequence; 0: as many as fill the GPU"});
  all.push_back({"launch", 0, "1: a launch of its own merges the parts, 0: the last of their CTAs"});
  return all;
}

const KernelRegistration<WithScoreOptions<DecodeAttention>> registration{
    {"attention_decode", "attention of a few query rows to a long cache, contiguous or in pages",
     sizes(true)},
    [](Case& c, Kernel<WithScoreOptions<DecodeAttention>>& kernel) {
      const Decoding p(c, c.size("float8") != 0);
      decode(c, p, kernel);
      const DecodeSizes& s = p.s;
      if (c.mode() != Case::Mode::kTrace && p.cache.lengths.is_null() && p.kv_dtype == p.dtype &&
          s.batches == 1 && (s.q_size == 1 || !p.is_causal))
        c.attention = StatedAttention{p.q[0], p.k[0], p.v[0], p.o[0], p.scale, false};
    }};

const KernelRegistration<WithScoreOptions<DecodeFloat8Attention>> of_float8{
    {"attention_decode_float8",
     "attention of a few query rows to a long cache of float8, whose elements are widened where they are "
     "multiplied",
     sizes(false)},
    [](Case& c, Kernel<WithScoreOptions<DecodeFloat8Attention>>& kernel) {
      decode(c, Decoding(c, true), kernel);
    }};

const KernelRegistration<WithScoreOptions<BlackwellDecodeAttention>> on_blackwell{
    {"blackwell_attention_decode",
     "attention of a few query rows to a long cache on Blackwell: scores, weights and sums in tensor memory",
     sizes(false, "a multiple of 16, at most 128")},
    [](Case& c, Kernel<WithScoreOptions<BlackwellDecodeAttention>>& kernel) {
      decode<BlackwellMergeAttention>(c, Decoding(c, false), kernel);
    }};

}  // namespace
}  // namespace imbrex::kernels
