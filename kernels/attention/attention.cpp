// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention.h"

#include "attention/configured_kernel.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "imbrex/runtime/caller_line.h"

namespace imbrex {
namespace {

using Forward = kernels::WithScoreOptions<kernels::ForwardAttention>;

/// A checked call.
struct Checked {
  AttentionCall call;
  AttentionSizes s;
  ScoreArguments steps;

  Checked(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v, const DeviceTensor& o,
          const AttentionOptions& options)
      : call("attention", {{"q", q}, {"k", k}, {"v", v}, {"o", o}}),
        s((call.check_tensors(), attention_sizes(call, q, k, v))) {
    std::vector<int64_t> shape = q.shape();
    shape.back() = s.value_size;
    if (o.shape() != shape)
      call.refuse(s.value_size == s.head_size ? "o has another shape than q"
                                              : "o has another shape than q with v's last extent",
                  "o is what q is, with rows as long as v's");
    call.check_written("o", o);
    shape.pop_back();
    call.check_extra("log_sum_exp", options.log_sum_exp, float32, shape);
    steps = score_arguments(call, options, s, q.address());
  }
};

/// `launch(kernel, arguments...)` with what a call launches.
template <class Call>
auto call_forward(const Checked& c, const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                  const DeviceTensor& o, const AttentionOptions& options, const Call& call) {
  const AttentionSizes& s = c.s;
  const Device& device = q.device();
  const Forward tiles = forward_tiles<Forward>(s, c.steps, device.multiprocessors());
  const HeadArguments qs(q), ks(k), vs(v), os(o);
  const bool wants_log_sum = !options.log_sum_exp.is_null();
  const bool long_first = c.steps.causal || c.steps.prefix;
  return call(configured_kernel(device, tiles, {tiles.block_kv, tiles.stages, tiles.consumers}), s.batch,
              s.heads, s.rows, s.rows_kv, s.head_size, s.value_size, s.group(),
              attention_scale(options.scale, s.head_size), q.dtype(), qs, ks, vs, os, wants_log_sum,
              wants_log_sum ? options.log_sum_exp.address() : q.address(), long_first, heads_of_section(s),
              c.steps);
}

}  // namespace

LaunchReport attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  const Checked checked(q, k, v, o, options);
  std::vector<Workspace> copies;  // given back when the launch and the copy of its result are on the stream
  const auto read = [&](const DeviceTensor& t) { return reachable(t, true, options.stream, copies); };
  const DeviceTensor to = reachable(o, false, options.stream, copies);
  LaunchReport report = call_forward(
      checked, read(q), read(k), read(v), to, options,
      [&](auto& kernel, const auto&... arguments) { return kernel.on(options.stream)(arguments...); });
  if (to.address() != o.address()) DeviceTensor(o).copy_from(to, options.stream);
  return report;
}

void prepare_attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options) {
  const Checked checked(q, k, v, o, options);
  std::vector<Workspace> copies;
  const auto like = [&](const DeviceTensor& t) { return reachable(t, false, options.stream, copies); };
  call_forward(checked, like(q), like(k), like(v), like(o), options,
               [](auto& kernel, const auto&... arguments) { kernel.prepare(arguments...); });
}

}  // namespace imbrex
