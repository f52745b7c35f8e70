// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "attention/configured_kernel.h"
#include "attention/decode_call.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "attention/score_arguments.h"
#include "attention/tensors.h"
#include "imbrex/kernels/attention/custom_latent_decode.h"
#include "imbrex/runtime/caller_line.h"

namespace imbrex {
namespace {

using LatentDecode = kernels::WithScoreOptions<kernels::LatentDecodeAttention>;

AttentionCall named(const DeviceTensor& q, const DeviceTensor& cache, const DeviceTensor& o) {
  return {"attention_latent_decode", {{"q", q}, {"cache", cache}, {"o", o}}};
}

DecodeSizes check(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& cache,
                  const DeviceTensor& o, const AttentionDecodeOptions& options) {
  call.check_tensors(AttentionCall::Float8::kCache);
  const bool is_paged = !options.page_table.is_null(), is_float8 = cache.dtype() == float8_e4m3;
  // Heads are rows of one tile: those of one key and value head.
  DecodeSizes s{
      head_extent(q, 0), 1, head_extent(q, 1), head_extent(q, 2), is_paged ? 0 : head_extent(cache, 2),
      head_extent(q, 3)};
  const int64_t value_size = head_extent(o, 3), rows_of_page = head_extent(cache, 2);
  if (head_extent(cache, 1) != 1)
    call.refuse(fmt::format("the cache has {} heads", head_extent(cache, 1)), "all heads of q share one");
  std::vector<int64_t> shape = q.shape();
  shape.back() = value_size;
  call.check_shape("o", o, shape, "o is like q, with rows as long as values");
  call.check_written("o", o);
  if (s.head_size % 64 != 0 || s.head_size > 576 || value_size % 128 != 0 || value_size > 512 ||
      value_size > s.head_size)
    call.refuse(fmt::format("heads of {} with values of {}", s.head_size, value_size),
                "heads are multiples of 64 up to 576, values multiples of 128 up to 512");
  if (!is_paged && head_extent(cache, 0) != s.batches)
    call.refuse(fmt::format("the cache is of {} sequences, q of {}", head_extent(cache, 0), s.batches),
                "it is [batch, 1, rows, head size], or pages with a page table");
  if (const int64_t row = is_float8 ? latent_float8_row_bytes(s.head_size, value_size) : s.head_size;
      head_extent(cache, 3) != row)
    call.refuse(
        fmt::format("rows of the cache have {} {}, not {}", head_extent(cache, 3),
                    is_float8 ? "bytes" : "elements", row),
        is_float8
            ? fmt::format("for heads of {} they are {} float8_e4m3, {} bytes of float32 factors and {} {}",
                          s.head_size, value_size,
                          4 * kernels::LatentFloat8::scales_of(static_cast<int>(value_size)),
                          s.head_size - value_size, q.dtype().name())
            : "rows of the cache are as long as q's");
  if (s.batches > 65535) call.refuse(fmt::format("{} batches; at most 65535", s.batches), "divide the call");
  check_cache_rows(call, cache);
  check_decode_options(call, s.batches, q, options);
  if (is_paged) {
    const int block_kv = LatentDecode{}.block_kv;
    if (rows_of_page % block_kv != 0 && (block_kv % rows_of_page != 0 || rows_of_page % 8 != 0))
      call.refuse(fmt::format("pages of {} rows", rows_of_page),
                  "pages have 8, 16, 32, or a multiple of 64 rows");
    s.capacity = options.page_table.shape()[1] * rows_of_page;
  }
  if (!options.k_scales.is_null() || !options.v_scales.is_null())
    call.refuse("k_scales and v_scales of a latent cache",
                is_float8 ? "leave them out: its rows have factors of their own"
                          : "leave them out, and use options.scale");
  return s;
}

}  // namespace

LatentDecodeArguments::LatentDecodeArguments(const DeviceTensor& q, const DeviceTensor& cache,
                                             const DeviceTensor& o, const AttentionDecodeOptions& options)
    : given_o_(o), stream_(options.stream) {
  const AttentionCall call = named(q, cache, o);
  const DecodeSizes s = check(call, q, cache, o, options);
  value_size_ = head_extent(o, 3);
  is_float8_ = cache.dtype() == float8_e4m3;
  helps_early_ = is_float8_ || s.group * s.q_size <= LatentDecode::kRows;  // one tile reads a sequence
  const DeviceTensor from = reachable(q, true, stream_, held_);
  o_tensor_ = reachable(o, false, stream_, held_);
  parts_ = options.parts > 0
               ? options.parts
               : decode_parts(s, q.device().multiprocessors(),
                              is_float8_ ? LatentDecode::for_float8().block_kv : LatentDecode{}.block_kv);
  // Results of 64 rows of 512 are much to merge.
  is_divided_ = parts_ > 1;
  const PartialArguments results = partial_arguments(
      s, value_size_, parts_, is_divided_ ? kernels::Division::kLeft : kernels::Division::kNone,
      LatentDecode::kRows, from, options, held_);
  wants_log_sum_ = results.wants_log_sum;
  partial_ = results.partial, log_sum_ = results.log_sum, all_log_sum_ = results.all_log_sum;
  batches_ = s.batches, heads_ = s.group, q_size_ = s.q_size, head_size_ = s.head_size;
  scale_ = attention_scale(options.scale, s.head_size);
  dtype_ = q.dtype();
  const auto heads_of = [](const HeadArguments& a) { return Heads{a.address, a.batch, a.head, a.row}; };
  const CacheArguments rows(cache, cache, options.lengths, options.page_table);
  q_ = heads_of(HeadArguments(from)), o_ = heads_of(HeadArguments(o_tensor_)), cache_ = heads_of(rows.k);
  is_paged_ = rows.is_paged, has_lengths_ = rows.has_lengths, pages_ = rows.pages;
  rows_of_page_ = rows.rows_of_page, rows_of_sequence_ = rows.per_sequence;
  lengths_ = rows.length_address, table_ = rows.table_address;
  std::tie(is_float8_, scales_, rest_) =
      LatentFloat8Arguments(is_float8_, cache.address(), value_size_).arguments();
}

LaunchReport LatentDecodeArguments::finish(LaunchReport report) const {
  if (is_divided_ && report.clean())  // on a CUDA GPU it always is
    report = merge_parts({batches_, 1, heads_, q_size_, 0, head_size_}, value_size_, parts_, dtype_,
                         {kernels::Division::kLeft, wants_log_sum_, partial_, log_sum_, 0, all_log_sum_},
                         HeadArguments(o_tensor_), given_o_.device(), stream_);
  if (o_tensor_.address() != given_o_.address()) DeviceTensor(given_o_).copy_from(o_tensor_, stream_);
  return report;
}

LaunchReport attention_latent_decode(const DeviceTensor& q, const DeviceTensor& cache, const DeviceTensor& o,
                                     const AttentionDecodeOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  const LatentDecodeArguments call(q, cache, o, options);
  const ScoreArguments steps =
      decode_score_arguments(named(q, cache, o), options, head_extent(q, 1), q.address());
  return call.finish(configured_kernel(q.device(), call.tiles<LatentDecode>(), {call.tiles_key(), 0, 0})
                         .on(options.stream)(call, steps));
}

}  // namespace imbrex
