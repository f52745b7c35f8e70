// SPDX-License-Identifier: Apache-2.0
#include "attention/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "attention/kv_arguments.h"
#include "imbrex/core/error.h"
#include "scratch_like.h"
#include "tensor_fact.h"

namespace imbrex {

void AttentionCall::refuse(const std::string& message, const std::string& help) const {
  Diagnostic told{{}, function_ + ": " + message, {}, help};
  for (const Named& t : tensors_) add_fact(told, t.name, t.tensor);
  throw LaunchError(std::move(told));
}

void AttentionCall::check_tensors(Float8 may_be_float8, bool has_blackwell) const {
  const DeviceTensor &q = tensors_[0].tensor, &k = tensors_[1].tensor;
  const bool q_is_float8 = may_be_float8 == Float8::kAllButTheLast && q.dtype() == float8_e4m3,
             caches = may_be_float8 == Float8::kKAndV || may_be_float8 == Float8::kCache,
             k_is_float8 = caches && k.dtype() == float8_e4m3;
  const size_t last_cache = may_be_float8 == Float8::kCache ? 1 : 2;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Named& t = tensors_[i];
    if (t.tensor.is_null() || t.tensor.address() == 0)
      refuse(fmt::format("{} is null or released", t.name), "make it before the call, and release it after");
    if (&t.tensor.device().backend() != &q.device().backend())
      refuse(fmt::format("{} is on '{}', q on '{}'", t.name, t.tensor.device().name(), q.device().name()),
             "copy it to q's device");
    const DataType type = t.tensor.dtype();
    const bool is_half = type == float16 || type == bfloat16;
    if (q_is_float8 && i + 1 == tensors_.size()) {
      if (!is_half)
        refuse(fmt::format("{} is {}; where q is float8 it is float16 or bfloat16", t.name, type.name()),
               "make it of one of these");
    } else if (k_is_float8 && i >= 1 && i <= last_cache) {
      if (type != k.dtype())
        refuse(fmt::format("{} is {}; k is {}", t.name, type.name(), k.dtype().name()), "convert it");
    } else if (type != q.dtype() || !(is_half || q_is_float8)) {
      refuse(fmt::format("{} is {}; all are float16, or all bfloat16", t.name, type.name()), "convert it");
    }
    const size_t rank = t.tensor.shape().size();
    if (rank != q.shape().size() || (rank != 3 && rank != 4))
      refuse(fmt::format("{} has {} dimensions", t.name, rank),
             "all have three, [heads, rows, head size], or four, with the batch first");
    for (int64_t size : t.tensor.shape())
      if (size < 1) refuse(fmt::format("{} has an extent of {}", t.name, size), "leave the call out");
  }
  if (!q.device().can_run("sm_90a") && !(has_blackwell && is_blackwell(q.device())))
    refuse(fmt::format("no kernel for {} ({})", q.device().name(), q.device().target()),
           has_blackwell ? "it runs on devices of target sm_90a or sm_100a"
                         : "it runs on devices of target sm_90a");
}

void AttentionCall::check_blackwell(const DeviceTensor& k, int64_t head_size, int64_t value_size) const {
  if (k.dtype() == float8_e4m3)
    refuse("float8 on a device of target sm_100a", "it needs one of sm_90a; convert the tensors");
  if (head_size != value_size || head_size > 128)
    refuse(fmt::format("heads of {} with values of {} on a device of target sm_100a", head_size, value_size),
           "there both are of one size, a multiple of 16 of at most 128");
}

void AttentionCall::check_shape(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape,
                                const std::string& why) const {
  if (t.shape() != shape)
    refuse(fmt::format("{} is [{}], not [{}]", name, fmt::join(t.shape(), ", "), fmt::join(shape, ", ")),
           why);
}

void AttentionCall::check_extra(const char* name, const DeviceTensor& t, DataType dtype,
                                const std::vector<int64_t>& shape) const {
  if (t.is_null()) return;
  if (t.address() == 0 || &t.device().backend() != &tensors_[0].tensor.device().backend())
    refuse(fmt::format("{} is released, or on another device than q", name), "copy it to q's device");
  if (t.dtype() != dtype || t.shape() != shape || !t.is_dense())
    refuse(fmt::format("{} is {} [{}]{}", name, t.dtype().name(), fmt::join(t.shape(), ", "),
                       t.is_dense() ? "" : ", and not dense"),
           fmt::format("make it a dense tensor of {} [{}]", dtype.name(), fmt::join(shape, ", ")));
}

void AttentionCall::check_written(const char* name, const DeviceTensor& t) const {
  if (t.may_overlap())
    refuse(fmt::format("elements of {} share memory", name), "write to a tensor without strides of 0");
}

AttentionSizes attention_sizes(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& k,
                               const DeviceTensor& v) {
  const AttentionSizes s{head_extent(q, 0), head_extent(q, 1), head_extent(k, 1), head_extent(q, 2),
                         head_extent(k, 2), head_extent(q, 3), head_extent(v, 3)};
  std::vector<int64_t> of_v = k.shape();
  of_v.back() = s.value_size;
  if (v.shape() != of_v)
    call.refuse("v has another shape than k", "v is what k is; only its last extent may be another");
  if (head_extent(k, 0) != s.batch || head_extent(k, 3) != s.head_size)
    call.refuse("k has another batch or head size than q", "k is [batch, kv heads, kv rows, head size]");
  if (s.heads % s.heads_kv != 0)
    call.refuse(fmt::format("{} heads of q do not share {} of k and v evenly", s.heads, s.heads_kv),
                "heads of q are a multiple of those of k");
  for (const int64_t size : {s.head_size, s.value_size})
    if (size % 16 != 0 || size > 256)
      call.refuse(fmt::format("head size {} is not a multiple of 16 of at most 256", size),
                  "pad the heads with zeros");
  if (s.heads > 65535 || s.batch > 65535)
    call.refuse(fmt::format("{} heads of {} batches; at most 65535 of each", s.heads, s.batch),
                "divide the call");
  return s;
}

void check_packed(const AttentionCall& call, const AttentionSizes& s, const DeviceTensor& q_begins,
                  const DeviceTensor& kv_begins) {
  if (q_begins.is_null() && kv_begins.is_null()) return;
  if (q_begins.is_null() || kv_begins.is_null())
    call.refuse("only one of q_begins and kv_begins is there",
                "packed sequences need both; they may be the same");
  if (s.batch != 1)
    call.refuse(fmt::format("packed sequences in {} batches", s.batch), "pack all of them into one batch");
  const std::vector<int64_t>& shape = q_begins.shape();
  if (shape.size() != 1 || shape[0] < 2)
    call.refuse(fmt::format("q_begins is [{}]", fmt::join(shape, ", ")),
                "give one number more than there are sequences");
  call.check_extra("q_begins", q_begins, int32, shape);
  call.check_extra("kv_begins", kv_begins, int32, shape);
}

bool has_tma_rows(const DeviceTensor& t) {
  const auto is_multiple = [&](int64_t elements) { return elements * t.dtype().bytes() % 16 == 0; };
  return t.address() % 16 == 0 && head_stride(t, 3) == 1 && is_multiple(head_stride(t, 0)) &&
         is_multiple(head_stride(t, 1)) && is_multiple(head_stride(t, 2));
}

DeviceTensor reachable(const DeviceTensor& t, bool is_read, const Stream& stream,
                       std::vector<Workspace>& held) {
  if (has_tma_rows(t)) return t;
  DeviceTensor copy = scratch_like(t, stream, held);
  if (is_read) copy.copy_from(t, stream);
  return copy;
}

float attention_scale(float scale, int64_t head_size) {
  if (!(scale >= 0) || std::isinf(scale))  // exponents are subtracted from that of the largest score
    throw LaunchError(Diagnostic{{},
                                 fmt::format("attention: the scale of scores is {}", scale),
                                 {},
                                 "give a positive number, or 0 for 1 / sqrt(head size)"});
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(head_size));
}

}  // namespace imbrex
