// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "attention/configured_kernel.h"
#include "attention/decode_call.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "attention/tensors.h"
#include "imbrex/kernels/attention/custom_decode.h"
#include "imbrex/runtime/caller_line.h"

namespace imbrex {
namespace {

using Decode = kernels::WithScoreOptions<kernels::DecodeAttention>;
using Blackwell = kernels::WithScoreOptions<kernels::BlackwellDecodeAttention>;
using DecodeFloat8 = kernels::WithScoreOptions<kernels::DecodeFloat8Attention>;

DecodeSizes check(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& k,
                  const DeviceTensor& v, const DeviceTensor& o, const AttentionDecodeOptions& options) {
  call.check_tensors(AttentionCall::Float8::kKAndV, true);
  const bool is_paged = !options.page_table.is_null();
  const DecodeSizes s{head_extent(q, 0),
                      head_extent(k, 1),
                      head_extent(q, 1) / head_extent(k, 1),
                      head_extent(q, 2),
                      is_paged ? 0 : head_extent(k, 2),
                      head_extent(q, 3)};
  if (v.shape() != k.shape()) call.refuse("v has another shape than k", "v is what k is");
  if (o.shape() != q.shape()) call.refuse("o has another shape than q", "o is what q is");
  call.check_written("o", o);
  if (head_extent(k, 3) != s.head_size || (!is_paged && head_extent(k, 0) != s.batches))
    call.refuse("k has another batch or head size than q",
                "k is [batch, kv heads, rows, head size], or pages with a page table");
  if (head_extent(q, 1) % s.heads_kv != 0)
    call.refuse(fmt::format("{} heads of q do not share {} of k and v evenly", head_extent(q, 1), s.heads_kv),
                "heads of q are a multiple of those of k");
  if (s.head_size % 16 != 0 || s.head_size > 256)
    call.refuse(fmt::format("head size {} is not a multiple of 16 of at most 256", s.head_size),
                "pad the heads with zeros");
  if (s.heads_kv > 65535 || s.batches > 65535)
    call.refuse(fmt::format("{} kv heads of {} batches; at most 65535 of each", s.heads_kv, s.batches),
                "divide the call");
  if (is_blackwell(q.device())) call.check_blackwell(k, s.head_size, s.head_size);
  if (options.k_scales.is_null() != options.v_scales.is_null())
    call.refuse("only one of k_scales and v_scales is there", "give both, or none");
  if (!options.k_scales.is_null() && k.dtype() != float8_e4m3)
    call.refuse("scales of a cache that is not float8", "leave them out, and use options.scale");
  call.check_extra("k_scales", options.k_scales, float32, {s.heads_kv});
  call.check_extra("v_scales", options.v_scales, float32, {s.heads_kv});
  check_decode_options(call, s.batches, q, options);
  for (const DeviceTensor* cache : {&k, &v}) check_cache_rows(call, *cache);
  return s;
}

}  // namespace

DecodeAttentionArguments::DecodeAttentionArguments(const DeviceTensor& q, const DeviceTensor& k,
                                                   const DeviceTensor& v, const DeviceTensor& o,
                                                   const AttentionDecodeOptions& options)
    : given_o_(o), stream_(options.stream) {
  const AttentionCall call("attention_decode", {{"q", q}, {"k", k}, {"v", v}, {"o", o}});
  DecodeSizes s = check(call, q, k, v, o, options);
  if (!options.page_table.is_null()) s.capacity = options.page_table.shape()[1] * head_extent(k, 2);
  const DeviceTensor from = reachable(q, true, stream_, held_);
  o_tensor_ = reachable(o, false, stream_, held_);

  constexpr int kBlock = 64;
  const bool is_float8 = k.dtype() == float8_e4m3;
  which_ =
      is_blackwell(q.device()) ? Which::kBlackwell
      // More rows of Q than a tile has would each read the cache again.
      : is_float8 && s.head_size % 32 == 0 && s.group * s.q_size <= kernels::DecodeFloat8Attention<>::kRows
          ? Which::kHopperFloat8
          : Which::kHopper;
  // Fewer and longer parts suit float8: one CTA for each multiprocessor.
  const int multiprocessors = q.device().multiprocessors();
  const bool has_long_parts = which_ == Which::kHopperFloat8 && s.head_size <= 128;
  parts_ = options.parts > 0
               ? options.parts
               : decode_parts(s, has_long_parts ? std::max(multiprocessors / 2, 1) : multiprocessors, kBlock);
  const int64_t tile_rows = which_ == Which::kBlackwell      ? kernels::BlackwellDecodeAttention<>::kRows
                            : which_ == Which::kHopperFloat8 ? kernels::DecodeFloat8Attention<>::kRows
                                                             : kernels::DecodeAttention<>::kRows;
  const PartialArguments results =
      partial_arguments(s, s.head_size, parts_, decode_division(s, s.head_size, parts_, tile_rows), tile_rows,
                        from, options, held_);
  std::tie(division_, wants_log_sum_, partial_, log_sum_, tickets_, all_log_sum_) = results.arguments();
  std::tie(batches_, heads_kv_, group_, q_size_, head_size_) =
      std::tie(s.batches, s.heads_kv, s.group, s.q_size, s.head_size);
  scale_ = attention_scale(options.scale, s.head_size);
  dtype_ = q.dtype(), kv_dtype_ = k.dtype();
  const auto heads_of = [](const HeadArguments& a) { return Heads{a.address, a.batch, a.head, a.row}; };
  const CacheArguments cache(k, v, options.lengths, options.page_table);
  q_ = heads_of(HeadArguments(from)), o_ = heads_of(HeadArguments(o_tensor_));
  k_ = heads_of(cache.k), v_ = heads_of(cache.v);
  is_paged_ = cache.is_paged, has_lengths_ = cache.has_lengths, pages_ = cache.pages;
  rows_of_page_ = cache.rows_of_page, rows_of_sequence_ = cache.per_sequence;
  lengths_ = cache.length_address, table_ = cache.table_address;
  std::tie(has_scales_, k_scales_, v_scales_) =
      CacheScaleArguments(options.k_scales, options.v_scales, q.address()).arguments();
}

LaunchReport DecodeAttentionArguments::finish(LaunchReport report) const {
  if (division_ == kernels::Division::kLeft && report.clean())  // on a CUDA GPU it always is
    report = merge_parts({batches_, heads_kv_, group_, q_size_, 0, head_size_}, head_size_, parts_, dtype_,
                         {division_, wants_log_sum_, partial_, log_sum_, tickets_, all_log_sum_},
                         HeadArguments(o_tensor_), given_o_.device(), stream_);
  if (o_tensor_.address() != given_o_.address()) DeviceTensor(given_o_).copy_from(o_tensor_, stream_);
  return report;
}

LaunchReport attention_decode(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                              const DeviceTensor& o, const AttentionDecodeOptions& options,
                              SourceLocation where) {
  const CallerLine caller(where);
  const DecodeAttentionArguments call(q, k, v, o, options);
  const ScoreArguments steps =
      decode_score_arguments({"attention_decode", {{"q", q}, {"k", k}, {"v", v}, {"o", o}}}, options,
                             head_extent(q, 1), q.address());
  const auto launch = [&](const auto& tiles) {
    return call.finish(configured_kernel(q.device(), tiles, {static_cast<int>(call.head_size()), 0, 0})
                           .on(options.stream)(call, steps));
  };
  using enum DecodeAttentionArguments::Which;
  return call.which() == kBlackwell      ? launch(Blackwell::for_heads(call.head_size()))
         : call.which() == kHopperFloat8 ? launch(DecodeFloat8::for_heads(call.head_size()))
                                         : launch(Decode::for_heads(call.head_size()));
}

}  // namespace imbrex
