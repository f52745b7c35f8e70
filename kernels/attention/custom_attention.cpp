// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention/custom_attention.h"

#include <fmt/format.h>

#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"

namespace imbrex {

ForwardAttentionArguments::ForwardAttentionArguments(const DeviceTensor& from_q, const DeviceTensor& from_k,
                                                     const DeviceTensor& from_v, const DeviceTensor& to,
                                                     float given_scale, bool long_first,
                                                     const DeviceTensor& q_begins,
                                                     const DeviceTensor& kv_begins,
                                                     const DeviceTensor& log_sum_exp)
    : long_first(long_first) {
  const AttentionCall call("attention", {{"q", from_q}, {"k", from_k}, {"v", from_v}, {"o", to}});
  call.check_tensors();
  const AttentionSizes s = attention_sizes(call, from_q, from_k, from_v);
  std::vector<int64_t> shape = from_q.shape();
  shape.back() = s.value_size;
  call.check_shape("o", to, shape, "o is what q is, with rows as long as v's");
  call.check_written("o", to);
  const auto heads_of = [&](const char* name, const DeviceTensor& t) {
    if (!has_tma_rows(t))
      call.refuse(fmt::format("TMA does not reach {} as it lies", name),
                  "its address and strides must be multiples of 16 bytes, and elements of a row neighbours");
    const HeadArguments a(t);
    return Heads{a.address, a.batch, a.head, a.row};
  };
  q = heads_of("q", from_q), k = heads_of("k", from_k), v = heads_of("v", from_v), o = heads_of("o", to);
  batches = s.batch, heads = s.heads, rows = s.rows, rows_kv = s.rows_kv;
  head_size = s.head_size, value_size = s.value_size, group = s.group();
  scale = attention_scale(given_scale, s.head_size);
  dtype = from_q.dtype();
  unused = q.address;
  shape.pop_back();
  call.check_extra("log_sum_exp", log_sum_exp, float32, shape);
  wants_log_sum = !log_sum_exp.is_null();
  log_sum = wants_log_sum ? log_sum_exp.address() : unused;
  check_packed(call, s, q_begins, kv_begins);
  const PackedArguments packed(q_begins, kv_begins, unused);
  is_packed = packed.is_packed, sequences = packed.sequences;
  this->q_begins = packed.q_begin, this->kv_begins = packed.kv_begin;
  section_heads = heads_of_section(s);
}

}  // namespace imbrex
