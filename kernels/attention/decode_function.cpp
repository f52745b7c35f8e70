// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "attention/configured_kernel.h"
#include "attention/decode_launch.h"
#include "attention/kv_arguments.h"
#include "attention/tensors.h"
#include "imbrex/kernels/attention/decode.h"
#include "imbrex/kernels/attention/merge.h"
#include "imbrex/runtime/caller_line.h"

namespace imbrex {
namespace {

DecodeSizes check(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& k,
                  const DeviceTensor& v, const DeviceTensor& o, const AttentionDecodeOptions& options) {
  call.check_tensors(AttentionCall::Float8::kKAndV);
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
  if (is_paged) {
    const DeviceTensor& table = options.page_table;
    if (table.shape().size() != 2 || table.shape()[0] != s.batches || table.shape()[1] < 1)
      call.refuse("page_table has another shape than [batch, pages of a sequence]",
                  fmt::format("give {} rows of page numbers, int32", s.batches));
    call.check_extra("page_table", table, int32, table.shape());
    if (options.lengths.is_null())
      call.refuse("a page table without lengths", "give the rows that each sequence has");
  }
  if (options.k_scales.is_null() != options.v_scales.is_null())
    call.refuse("only one of k_scales and v_scales is there", "give both, or none");
  if (!options.k_scales.is_null() && k.dtype() != float8_e4m3)
    call.refuse("scales of a cache that is not float8", "leave them out, and use options.scale");
  call.check_extra("k_scales", options.k_scales, float32, {s.heads_kv});
  call.check_extra("v_scales", options.v_scales, float32, {s.heads_kv});
  call.check_extra("lengths", options.lengths, int32, {s.batches});
  std::vector<int64_t> rows = q.shape();
  rows.pop_back();
  call.check_extra("log_sum_exp", options.log_sum_exp, float32, rows);
  if (options.parts < 0 || options.parts > 4096)
    call.refuse(fmt::format("{} parts", options.parts), "give 1 to 4096, or 0 for as many as fill the GPU");
  for (const DeviceTensor* cache : {&k, &v})
    if (!has_tma_rows(*cache))
      call.refuse("TMA does not reach the cache as it lies",
                  "its address and strides must be multiples of 16 bytes, and elements of a row neighbours");
  return s;
}

}  // namespace

LaunchReport attention_decode(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                              const DeviceTensor& o, const AttentionDecodeOptions& options,
                              SourceLocation where) {
  const CallerLine caller(where);
  const AttentionCall call("attention_decode", {{"q", q}, {"k", k}, {"v", v}, {"o", o}});
  DecodeSizes s = check(call, q, k, v, o, options);
  if (!options.page_table.is_null()) s.capacity = options.page_table.shape()[1] * head_extent(k, 2);
  std::vector<Workspace> held;  // given back when the launches are on the stream
  const DeviceTensor from = reachable(q, true, options.stream, held),
                     to = reachable(o, false, options.stream, held);

  kernels::DecodeAttention tiles;
  if (s.head_size > 192) tiles.stages = 2;
  auto& decode = configured_kernel(q.device(), tiles, {tiles.block_kv, tiles.stages, 0});
  const int64_t parts =
      options.parts > 0 ? options.parts : decode_parts(s, q.device().multiprocessors(), tiles.block_kv);
  const int64_t heads = s.heads_kv * s.group, rows = s.batches * heads * s.q_size;
  const bool is_divided = parts > 1, wants_log_sum = !options.log_sum_exp.is_null();
  const auto floats = [&](int64_t n) {
    held.push_back(Workspace::on(options.stream, q.device(), 4 * n));
    return held.back().address();
  };
  const uint64_t partial = is_divided ? floats(parts * rows * s.head_size) : from.address();
  const uint64_t log_sum =
      is_divided || !wants_log_sum ? floats(parts * rows) : options.log_sum_exp.address();
  const HeadArguments qs(from), os(to);
  const CacheArguments cache(k, v, options.lengths, options.page_table);
  LaunchReport report = decode.on(options.stream)(
      s.batches, s.heads_kv, s.group, s.q_size, parts, s.head_size, is_divided, options.causal,
      attention_scale(options.scale, s.head_size), q.dtype(), k.dtype(), qs, cache,
      CacheScaleArguments(options.k_scales, options.v_scales, q.address()), os, partial, log_sum);
  if (is_divided && report.clean())  // on a CUDA GPU it always is
    report = configured_kernel(q.device(), merge_tiles(parts), {merge_tiles(parts).block_parts, 0, 0})
                 .on(options.stream)(s.batches, heads, s.q_size, parts, s.head_size, q.dtype(), wants_log_sum,
                                     partial, log_sum, os,
                                     wants_log_sum ? options.log_sum_exp.address() : log_sum);
  if (to.address() != o.address()) DeviceTensor(o).copy_from(to, options.stream);
  return report;
}

}  // namespace imbrex
