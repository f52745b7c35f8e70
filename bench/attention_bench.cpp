// SPDX-License-Identifier: Apache-2.0
// Attention on the CUDA GPU, many problems and configurations in one process: device time of launches with a cold L2
// cache, medians. Results are not checked here: `imbrex run`
// does that.
//
//   bench_attention PROBLEM:CONFIGURATION ...        or `-`: those that stand on lines of the standard input
//     forward/HEADS,Q,KV,D,GROUP,CAUSAL[,DV[,SECTION]] :block_kv=128 stages=2
//     float8/HEADS,Q,KV,D,GROUP,CAUSAL            :block_kv=160 stages=2
//     step/STEP,HEADS,Q,KV,D                      of the ladder, 0 to 4
//     latent/BATCH,HEADS,Q,KV,PAGE[,PARTS[,STEPS]]   heads of 576 with values of 512; of STEPS are added up: 1 a cap, 2 ALiBi, 4 a
//                                                 window of 1024, 8 sinks
//     latent8/... the same, of a cache of float8  :block_kv=32 stages=2 float8_stages=3
//     packed/HEADS,ROWS,SEQUENCES,D,GROUP,CAUSAL  sequences of random lengths, ROWS together
//     packed8/HEADS,ROWS,SEQUENCES,D,GROUP,CAUSAL[,SCALES]  attention() of them in float8; SCALES 1: of heads, 2: of rows
//     packback/HEADS,ROWS,SEQUENCES,D,GROUP,CAUSAL
//     backward/HEADS,Q,KV,D,GROUP,CAUSAL
//     adding/... without determinism; dall/..., its kernel :stages=3
//     dq/..., dkv/..., and dkvl/... of large heads, one of its kernels        :block_kv=64 stages=2, :block_q=64 stages=2
//     decode/BATCH,HEADS_KV,GROUP,Q,KV,D,PAGE[,PARTS[,FLOAT8[,MERGE]]]  :block_kv=64 stages=3; MERGE 1: by the last CTA,
//                                                 2: by a launch, 3: not at all
//     decode8/BATCH,HEADS_KV,GROUP,Q,KV,D,PAGE[,PARTS[,1[,MERGE]]]      the kernel that is for float8
//     call/HEADS,Q,KV,D,GROUP,CAUSAL[,FLOAT8[,DV]]   attention(), with the tiles that it chooses
//     graph/BATCH,HEADS_KV,GROUP,Q,KV,D[,PARTS[,FLOAT8]]   attention_decode() in a CUDA graph; calls/... the same without one
//     copy/MEGABYTES                              read, and as many written
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attention/decode_launch.h"
#include "attention/kv_arguments.h"
#include "attention/score_arguments.h"
#include "attention_operands.h"
#include "contenders.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/decode.h"
#include "imbrex/kernels/attention/decode_float8.h"
#include "imbrex/kernels/attention/forward.h"
#include "imbrex/kernels/attention/gradient_all.h"
#include "imbrex/kernels/attention/gradient_kv.h"
#include "imbrex/kernels/attention/gradient_kv_large.h"
#include "imbrex/kernels/attention/gradient_q.h"
#include "imbrex/kernels/attention/gradient_rows.h"
#include "imbrex/kernels/attention/ladder/attention_a0.h"
#include "imbrex/kernels/attention/ladder/attention_a1.h"
#include "imbrex/kernels/attention/ladder/attention_a2.h"
#include "imbrex/kernels/attention/ladder/attention_a3.h"
#include "imbrex/kernels/attention/ladder/attention_a4.h"
#include "imbrex/kernels/attention/latent_decode.h"
#include "imbrex/kernels/attention/merge.h"
#include "imbrex/runtime/graph.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using kernels::MergeAttention;
using Forward = kernels::WithScoreOptions<kernels::ForwardAttention>;
using Decode = kernels::WithScoreOptions<kernels::DecodeAttention>;
using DecodeFloat8 = kernels::WithScoreOptions<kernels::DecodeFloat8Attention>;

struct LatentFloat8Decode : kernels::WithScoreOptions<kernels::LatentDecodeAttention> {
  LatentFloat8Decode() : LatentDecodeAttention(for_float8()) {}
  static auto space() {
    using K = LatentFloat8Decode;
    return Space<K>()
        .choose<&K::helps_early>({false, true})
        .choose<&K::block_kv, &K::stages, &K::float8_stages>({{32, 2, 3}});
  }
};

template <class K>
Kernel<K> configured(const Device& device, const std::string& configuration) {
  K kernel{};
  if (!configuration.empty()) tuning_space<K>().apply(&kernel, tuning_space<K>().parse(configuration));
  return Kernel<K>(kernel, device);
}

struct Timed {
  double us, flop, bytes;
  double difference = -1;  // the largest between this result and the first one of the same problem
};

class Bench {
 public:
  explicit Bench(const Device& device) : device_(device), timer_(device) {}

  Timed forward(const std::vector<int64_t>& n, const std::string& configuration) {
    const int64_t heads = n[0], q = n[1], kv = n[2], d = n[3], group = n[4],
                  dv = n.size() > 6 && n[6] > 0 ? n[6] : d;
    const bool causal = n[5] != 0;
    make({heads, q, d}, {heads / group, kv, d}, {heads / group, kv, dv}, {heads, q, dv});
    const DeviceTensor log_sum = DeviceTensor::empty(device_, float32, {heads, q});
    ScoreArguments steps;
    steps.causal = causal;
    steps.slopes = steps.sinks = log_sum.address();
    const HeadArguments qs(q_), ks(k_), vs(v_), os(o_);
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    auto kernel = configured<Forward>(device_, configuration);
    const int64_t section =
        n.size() > 7 ? n[7] : std::max<int64_t>(1, (int64_t{24} << 20) / (kv * (d + dv) * 2)) * group;
    const double us = time([&] {
      kernel(1, heads, q, kv, d, dv, group, scale, bfloat16, bfloat16, qs, ks, vs, os, false, log_sum, causal,
             section, PackedArguments({}, {}, q_.address()), Float8Arguments(heads, {}, {}, {}, q_.address()),
             steps);
    });
    return {us, 2.0 * heads * q * kv * (d + dv) * (causal ? 0.5 : 1), 0, difference(n)};
  }

  /// With the transposition of V.
  Timed float8(const std::vector<int64_t>& n, const std::string& configuration) {
    const int64_t heads = n[0], q = n[1], kv = n[2], d = n[3], group = n[4], heads_kv = heads / group;
    const bool causal = n[5] != 0;
    q_ = DeviceTensor();
    owners_.clear();
    const auto make8 = [&](std::vector<int64_t> shape, uint64_t seed) {
      return bench::repeated(device_, float8_e4m3, std::move(shape), seed, owners_);
    };
    const DeviceTensor q8 = make8({heads, q, d}, 1), k8 = make8({heads_kv, kv, d}, 2),
                       v8 = make8({heads_kv, kv, d}, 3),
                       transposed =
                           DeviceTensor::empty(device_, float8_e4m3, {heads_kv, d, (kv + 15) / 16 * 16});
    o_ = DeviceTensor::empty(device_, bfloat16, {heads, q, d});
    const DeviceTensor scales = DeviceTensor::from_host(device_, ones(heads));
    ScoreArguments steps;
    steps.causal = causal;
    steps.slopes = steps.sinks = q8.address();
    const HeadArguments qs(q8), ks(k8), vs(v8), ts(transposed), os(o_);
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    auto kernel = configured<Forward>(device_, configuration);
    Kernel<kernels::TransposeValues> transpose({}, device_);
    const int64_t section = std::max<int64_t>(1, (int64_t{24} << 20) / (kv * 2 * d) * group);
    const double us = time([&] {
      transpose(1, heads_kv, kv, static_cast<int>(d), vs, transposed, PackedArguments({}, {}, q8.address()));
      kernel(1, heads, q, kv, d, d, group, scale, float8_e4m3, bfloat16, qs, ks, ts, os, false, scales,
             causal, section, PackedArguments({}, {}, q8.address()),
             Float8Arguments(heads, scales, scales, scales, 0), steps);
    });
    return {us, 4.0 * heads * q * kv * d * (causal ? 0.5 : 1), 0, difference(n)};
  }

  Timed packed(const std::vector<int64_t>& n, const std::string& configuration) {
    const int64_t heads = n[0], rows = n[1], sequences = n[2], d = n[3], group = n[4];
    const bool causal = n[5] != 0;
    make({heads, rows, d}, {heads / group, rows, d}, {heads / group, rows, d}, {heads, rows, d});
    double scores = 0;
    const DeviceTensor at = begins_of(rows, sequences, scores),
                       log_sum = DeviceTensor::empty(device_, float32, {1});  // not written
    ScoreArguments steps;
    steps.causal = causal;
    steps.slopes = steps.sinks = at.address();
    const HeadArguments qs(q_), ks(k_), vs(v_), os(o_);
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    auto kernel = configured<Forward>(device_, configuration);
    const int64_t section = std::max<int64_t>(1, (int64_t{24} << 20) / (rows * 4 * d) * group);
    const double us = time([&] {
      kernel(1, heads, rows, rows, d, d, group, scale, bfloat16, bfloat16, qs, ks, vs, os, false, log_sum,
             causal, section, PackedArguments(at, at, 0), Float8Arguments(heads, {}, {}, {}, at.address()),
             steps);
    });
    return {us, 4.0 * static_cast<double>(heads * d) * scores * (causal ? 0.5 : 1), 0, difference(n)};
  }

  Timed step(const std::vector<int64_t>& n) {
    const int64_t heads = n[1], q = n[2], kv = n[3], d = n[4];
    make({heads, q, d}, {heads, kv, d}, {heads, kv, d}, {heads, q, d});
    const double us = n[0] == 0   ? time_step<kernels::AttentionA0>(heads, q, kv, d)
                      : n[0] == 1 ? time_step<kernels::AttentionA1>(heads, q, kv, d)
                      : n[0] == 2 ? time_step<kernels::AttentionA2>(heads, q, kv, d)
                      : n[0] == 3 ? time_step<kernels::AttentionA3>(heads, q, kv, d)
                                  : time_step<kernels::AttentionA4>(heads, q, kv, d);
    return {us, 4.0 * heads * q * kv * d, 0, difference({heads, q, kv, d, 0, 0})};
  }

  template <class K>
  Timed latent(const std::vector<int64_t>& n, const std::string& configuration) {
    constexpr bool is_float8 = std::is_same_v<K, LatentFloat8Decode>;
    const DecodeSizes s{n[0], 1, n[1], n[2], n[3], 576};
    const int64_t page = n[4], value_size = 512, rows = s.batches * s.group * s.q_size;
    const int64_t each = page ? (s.capacity + page - 1) / page : 1, pages = s.batches * each;
    const int64_t row_bytes = is_float8 ? latent_float8_row_bytes(s.head_size, value_size) : 2 * s.head_size;
    const std::vector<int64_t> cache{pages, 1, page ? page : s.capacity, row_bytes / (is_float8 ? 1 : 2)};
    make({s.batches, s.group, s.q_size, s.head_size}, is_float8 ? std::vector<int64_t>{1, 1, 8, 8} : cache,
         {1, 1, 8, 8}, {s.batches, s.group, s.q_size, value_size});
    if (is_float8) k_ = bench::latent_float8_cache(device_, cache, value_size, owners_);
    auto kernel = configured<K>(device_, configuration);
    const int64_t parts =
        n.size() > 5 && n[5] > 0 ? n[5] : decode_parts(s, device_.multiprocessors(), is_float8 ? 32 : 64);
    auto last = Kernel<MergeAttention>(merge_tiles(parts), device_);
    const DeviceTensor partial = DeviceTensor::empty(device_, float32, {parts, rows, value_size}),
                       log_sum = DeviceTensor::empty(device_, float32, {parts, rows}),
                       of_heads = DeviceTensor::from_host(device_, ones(s.group));
    const Pages paged = page ? pages_of(s, each) : Pages{};
    const HeadArguments qs(q_), os(o_);
    const CacheArguments arguments(k_, k_, paged.lengths, paged.table);
    ScoreArguments steps{.causal = s.q_size > 1, .heads = s.group};
    steps.slopes = steps.sinks = of_heads.address();
    const int64_t asked = n.size() > 6 ? n[6] : 0;
    steps.soft_cap = asked & 1, steps.cap = 30, steps.alibi = asked & 2, steps.window = asked & 4;
    steps.left = 1023, steps.sink = asked & 8;
    const double us = time([&] {
      kernel(s.batches, s.group, s.q_size, parts, s.head_size, value_size, parts > 1, 0.04f, bfloat16, qs,
             arguments, LatentFloat8Arguments(is_float8, k_.address(), value_size), os, partial, log_sum,
             steps);
      if (parts > 1)
        last(s.batches, s.group, s.q_size, parts, value_size, bfloat16, false, partial, log_sum, os,
             log_sum.address());
    });
    const int64_t seen = steps.window ? std::min<int64_t>(s.capacity, 1024) : s.capacity;
    const Timed t{us, 2.0 * static_cast<double>(rows * seen * (s.head_size + value_size)),
                  static_cast<double>(s.batches * seen * row_bytes), difference(n)};
    if (is_float8) q_ = DeviceTensor();
    return t;
  }

  /// attention() of packed sequences of float8.
  Timed packed_float8(const std::vector<int64_t>& n) {
    const int64_t heads = n[0], rows = n[1], d = n[3], heads_kv = heads / n[4],
                  scales = n.size() > 6 ? n[6] : 0;
    q_ = DeviceTensor();
    owners_.clear();
    const auto make8 = [&](std::vector<int64_t> shape, uint64_t seed) {
      return bench::repeated(device_, float8_e4m3, std::move(shape), seed, owners_);
    };
    const DeviceTensor q8 = make8({heads, rows, d}, 1), k8 = make8({heads_kv, rows, d}, 2),
                       v8 = make8({heads_kv, rows, d}, 3);
    o_ = DeviceTensor::empty(device_, bfloat16, {heads, rows, d});
    double scores = 0;
    const DeviceTensor at = begins_of(rows, n[2], scores);
    AttentionOptions options{.causal = n[5] != 0};
    options.q_begins = options.kv_begins = at;
    if (scales > 0) {
      const auto scales_of = [&](int64_t of) {
        const int64_t blocks = scales == 1 ? 1 : rows / 128 + n[2];
        const DeviceTensor all = DeviceTensor::from_host(device_, ones(of * blocks));
        owners_.push_back(all);
        return scales == 1 ? all : DeviceTensor::view(device_, all.address(), float32, {of, blocks});
      };
      options.q_scales = scales_of(heads), options.k_scales = options.v_scales = scales_of(heads_kv);
    }
    const double us = time([&] { attention(q8, k8, v8, o_, options); });
    return {us, 4.0 * static_cast<double>(heads * d) * scores * (options.causal ? 0.5 : 1), 0, difference(n)};
  }

  Timed backward(const std::vector<int64_t>& n, bool adds) {
    const int64_t heads = n[0], q = n[1], kv = n[2], d = n[3], group = n[4];
    make({heads, q, d}, {heads / group, kv, d}, {heads / group, kv, d}, {heads, q, d});
    AttentionOptions options;
    options.causal = n[5] != 0, options.deterministic = !adds;
    options.log_sum_exp = DeviceTensor::empty(device_, float32, {heads, q});
    const auto like = [&](const DeviceTensor& t) {
      return DeviceTensor::empty(device_, bfloat16, t.shape());
    };
    const DeviceTensor d_o = bench::repeated(device_, bfloat16, o_.shape(), 4, owners_), dq = like(q_),
                       dk = like(k_), dv = like(v_);
    attention(q_, k_, v_, o_, options);
    const double us = time([&] { attention_backward(q_, k_, v_, o_, d_o, dq, dk, dv, options); });
    return {us, 10.0 * heads * q * kv * d * (options.causal ? 0.5 : 1), 0};
  }

  struct Pages {
    DeviceTensor lengths, table;
  };

  /// Whole sequences of `each` pages, which lie apart.
  Pages pages_of(const DecodeSizes& s, int64_t each) const {
    const int64_t pages = s.batches * each;
    HostTensor lengths(int32, {s.batches}), order(int32, {s.batches, each});
    for (int64_t b = 0; b < s.batches; ++b) lengths.set(b, static_cast<double>(s.capacity));
    for (int64_t i = 0; i < pages; ++i) order.set(i, static_cast<double>((i * 7919 + 5) % pages));
    return {DeviceTensor::from_host(device_, lengths), DeviceTensor::from_host(device_, order)};
  }

  /// One of the two kernels; of the others' results only that they are there.
  Timed gradients(const std::vector<int64_t>& n, const std::string& configuration, bool of_q,
                  bool is_large = false) {
    const int64_t heads = n[0], q = n[1], kv = n[2], d = n[3], group = n[4], padded = (q + 127) / 128 * 128;
    make({heads, q, d}, {heads / group, kv, d}, {heads / group, kv, d}, {heads, q, d});
    const DeviceTensor log_sum = DeviceTensor::empty(device_, float32, {heads, q}),
                       rows = DeviceTensor::empty(device_, float32, {2, heads, padded}),
                       d_o = bench::repeated(device_, bfloat16, o_.shape(), 4, owners_),
                       dk = DeviceTensor::empty(device_, bfloat16, k_.shape()),
                       dv = DeviceTensor::empty(device_, bfloat16, v_.shape());
    ScoreArguments steps;
    steps.causal = n[5] != 0;
    steps.slopes = steps.sinks = log_sum.address();
    attention(q_, k_, v_, o_, {.causal = steps.causal, .log_sum_exp = log_sum});
    const HeadArguments qs(q_), ks(k_), vs(v_), os(o_), dos(d_o), dks(dk), dvs(dv);
    const float scale = 1 / std::sqrt(static_cast<float>(d));
    const PackedArguments packed({}, {}, q_.address());
    Kernel<kernels::AttentionGradientRows> prepare({}, device_);
    prepare(1, heads, q, padded, d, bfloat16, os, dos, log_sum, rows, packed);
    const auto of_kv = [&](auto kernel) {
      return time([&] {
        kernel(1, heads / group, q, padded, kv, d, d, group, scale, bfloat16, qs, ks, vs, dos, rows, dks, dvs,
               packed, steps);
      });
    };
    double us = 0;
    if (of_q) {
      auto kernel =
          configured<kernels::WithScoreOptions<kernels::AttentionGradientQ>>(device_, configuration);
      us = time([&] {
        kernel(1, heads, q, padded, kv, d, d, group, scale, bfloat16, qs, ks, vs, dos, rows, os, packed,
               steps);
      });
    } else if (is_large) {
      us = of_kv(
          configured<kernels::WithScoreOptions<kernels::AttentionGradientKvLarge>>(device_, configuration));
    } else {
      us = of_kv(configured<kernels::WithScoreOptions<kernels::AttentionGradientKv>>(device_, configuration));
    }
    if (!of_q) o_ = dk;
    const Timed t{us, (of_q ? 6.0 : 8.0) * heads * q * kv * d * (steps.causal ? 0.5 : 1), 0, difference(n)};
    q_ = DeviceTensor();
    return t;
  }

  /// The kernel alone; the sums of dQ grow from launch to launch.
  Timed all_gradients(const std::vector<int64_t>& n, const std::string& configuration) {
    const int64_t heads = n[0], q = n[1], kv = n[2], d = n[3], group = n[4], padded = (q + 127) / 128 * 128;
    make({heads, q, d}, {heads / group, kv, d}, {heads / group, kv, d}, {heads, q, d});
    const DeviceTensor log_sum = DeviceTensor::empty(device_, float32, {heads, q}),
                       rows = DeviceTensor::empty(device_, float32, {2, heads, padded}),
                       sums = DeviceTensor::empty(device_, float32, {heads, padded, d}),
                       turns = DeviceTensor::from_host(device_, HostTensor(int32, {heads * padded / 64 + 1})),
                       d_o = bench::repeated(device_, bfloat16, o_.shape(), 4, owners_),
                       dk = DeviceTensor::empty(device_, bfloat16, k_.shape()),
                       dv = DeviceTensor::empty(device_, bfloat16, v_.shape());
    ScoreArguments steps;
    steps.causal = n[5] != 0;
    steps.slopes = steps.sinks = log_sum.address();
    attention(q_, k_, v_, o_, {.causal = steps.causal, .log_sum_exp = log_sum});
    const HeadArguments qs(q_), ks(k_), vs(v_), os(o_), dos(d_o), dks(dk), dvs(dv);
    Kernel<kernels::AttentionGradientRows> prepare({}, device_);
    prepare(1, heads, q, padded, d, bfloat16, os, dos, log_sum, rows, PackedArguments({}, {}, q_.address()));
    auto kernel =
        configured<kernels::WithScoreOptions<kernels::AttentionGradientAll>>(device_, configuration);
    const double us = time([&] {
      kernel(1, heads / group, q, padded, kv, d, group, 1 / std::sqrt(static_cast<float>(d)), bfloat16, qs,
             ks, vs, dos, rows, sums, turns, dks, dvs, steps);
    });
    o_ = dk;
    const Timed t{us, 10.0 * heads * q * kv * d * (steps.causal ? 0.5 : 1), 0, difference(n)};
    q_ = DeviceTensor();
    return t;
  }

  template <class K>
  Timed decode(const std::vector<int64_t>& n, const std::string& configuration) {
    constexpr bool kOnlyFloat8 = std::is_same_v<K, DecodeFloat8>;
    const DecodeSizes s{n[0], n[1], n[2], n[3], n[4], n[5]};
    const int64_t page = n[6], heads = s.heads_kv * s.group, rows = s.batches * heads * s.q_size;
    const int64_t each = page ? (s.capacity + page - 1) / page : 1, pages = s.batches * each;
    const std::vector<int64_t> cache{pages, s.heads_kv, page ? page : s.capacity, s.head_size};
    const std::vector<int64_t> of_q{s.batches, heads, s.q_size, s.head_size};
    const DataType kv_dtype = kOnlyFloat8 || (n.size() > 8 && n[8]) ? float8_e4m3 : bfloat16;
    make(of_q, cache, cache, of_q, kv_dtype);
    auto kernel = configured<K>(device_, configuration);
    const int64_t parts = n.size() > 7 && n[7] > 0 ? n[7] : decode_parts(s, device_.multiprocessors(), 64);
    const int64_t tiles = (s.group * s.q_size + K::kRows - 1) / K::kRows, merge = n.size() > 9 ? n[9] : 0;
    const kernels::Division division = merge == 0   ? decode_division(s, s.head_size, parts, K::kRows)
                                       : parts == 1 ? kernels::Division::kNone
                                       : merge == 1 ? kernels::Division::kMerged
                                                    : kernels::Division::kLeft;
    auto last = Kernel<MergeAttention>(merge_tiles(parts), device_);
    const DeviceTensor partial = DeviceTensor::empty(device_, float32, {parts, rows, s.head_size}),
                       log_sum = DeviceTensor::empty(device_, float32, {parts, rows}),
                       tickets = DeviceTensor::from_host(device_,
                                                         HostTensor(int32, {s.batches * s.heads_kv * tiles}));
    const Pages paged = page ? pages_of(s, each) : Pages{};
    const HeadArguments qs(q_), os(o_);
    const CacheArguments arguments(k_, v_, paged.lengths, paged.table);
    const ScoreArguments steps{
        .causal = s.q_size > 1, .heads = heads, .slopes = q_.address(), .sinks = q_.address()};
    const float scale = 1 / std::sqrt(static_cast<float>(s.head_size));
    const double us = time([&] {
      kernel(s.batches, s.heads_kv, s.group, s.q_size, parts, s.head_size, scale, bfloat16, kv_dtype, qs,
             arguments, CacheScaleArguments({}, {}, q_.address()), os, division, false, partial, log_sum,
             tickets, log_sum.address(), steps);
      if (division == kernels::Division::kLeft && merge != 3)
        last(s.batches, heads, s.q_size, parts, s.head_size, bfloat16, false, partial, log_sum, os,
             log_sum.address());
    });
    return {us, 0, 2.0 * kv_dtype.bytes() * s.batches * s.heads_kv * s.capacity * s.head_size, difference(n)};
  }

  /// By the library's function; what it computes is compared with a kernel's of the same problem in front of it.
  Timed call(const std::vector<int64_t>& n) {
    const int64_t heads = n[0], q = n[1], kv = n[2], d = n[3], group = n[4], dv = n.size() > 7 ? n[7] : d;
    const AttentionOptions options{.causal = n[5] != 0};
    double us = 0;
    if (n.size() > 6 && n[6] != 0) {
      q_ = DeviceTensor();
      owners_.clear();
      const auto make8 = [&](std::vector<int64_t> shape, uint64_t seed) {
        return bench::repeated(device_, float8_e4m3, std::move(shape), seed, owners_);
      };
      const DeviceTensor q8 = make8({heads, q, d}, 1), k8 = make8({heads / group, kv, d}, 2),
                         v8 = make8({heads / group, kv, d}, 3);
      o_ = DeviceTensor::empty(device_, bfloat16, {heads, q, d});
      us = time([&] { attention(q8, k8, v8, o_, options); });
    } else {
      make({heads, q, d}, {heads / group, kv, d}, {heads / group, kv, dv}, {heads, q, dv});
      us = time([&] { attention(q_, k_, v_, o_, options); });
    }
    return {us, 2.0 * heads * q * kv * (d + dv) * (options.causal ? 0.5 : 1), 0, difference(n)};
  }

  Timed decode_call(const std::vector<int64_t>& n, bool is_graph) {
    const int64_t heads = n[1] * n[2], kv = n[4], d = n[5];
    const std::vector<int64_t> of_q{n[0], heads, n[3], d}, cache{n[0], n[1], kv, d};
    const DataType kv_dtype = n.size() > 7 && n[7] != 0 ? float8_e4m3 : bfloat16;
    make(of_q, cache, cache, of_q, kv_dtype);
    const Stream stream = Stream::create(device_);
    AttentionDecodeOptions options{.causal = n[3] > 1, .parts = n.size() > 6 ? n[6] : 0};
    const auto call = [&] { attention_decode(q_, k_, v_, o_, options); };
    double us = 0;
    if (is_graph) {
      call();
      device_.synchronize();
      options.stream = stream;
      const Graph graph = Graph::capture(stream, call);
      us = time([&] { graph.launch(); });
    } else {
      us = time(call);
    }
    return {us, 0, 2.0 * kv_dtype.bytes() * n[0] * n[1] * kv * d, difference(n)};
  }

  Timed packed_backward(const std::vector<int64_t>& n) {
    const int64_t heads = n[0], rows = n[1], d = n[3], group = n[4];
    make({heads, rows, d}, {heads / group, rows, d}, {heads / group, rows, d}, {heads, rows, d});
    double scores = 0;
    const DeviceTensor at = begins_of(rows, n[2], scores);
    AttentionOptions options;
    options.causal = n[5] != 0;
    options.q_begins = options.kv_begins = at;
    options.log_sum_exp = DeviceTensor::empty(device_, float32, {heads, rows});
    const auto like = [&](const DeviceTensor& t) {
      return DeviceTensor::empty(device_, bfloat16, t.shape());
    };
    const DeviceTensor d_o = bench::repeated(device_, bfloat16, o_.shape(), 4, owners_), dq = like(q_),
                       dk = like(k_), dv = like(v_);
    attention(q_, k_, v_, o_, options);
    const double us = time([&] { attention_backward(q_, k_, v_, o_, d_o, dq, dk, dv, options); });
    return {us, 10.0 * static_cast<double>(heads * d) * scores * (options.causal ? 0.5 : 1), 0};
  }

  Timed copy(const std::vector<int64_t>& n) {
    const DeviceTensor from = DeviceTensor::empty(device_, bfloat16, {n[0] << 19}),
                       to = DeviceTensor::empty(device_, bfloat16, {n[0] << 19});
    const double us = time([&] { DeviceTensor(to).copy_from(from); });
    return {us, 0, 4.0 * static_cast<double>(n[0] << 19)};
  }

 private:
  /// Where sequences of random lengths begin, and the sum of their squares.
  DeviceTensor begins_of(int64_t rows, int64_t sequences, double& squares) const {
    HostTensor begins(int32, {sequences + 1});
    std::mt19937_64 random(7);
    std::vector<int64_t> ends(static_cast<size_t>(sequences - 1));
    for (int64_t& end : ends) end = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    std::sort(ends.begin(), ends.end());
    ends.push_back(rows);
    for (int64_t s = 0, begin = 0; s < sequences; begin = ends[s++]) {
      begins.set(s + 1, static_cast<double>(ends[s]));
      squares += static_cast<double>(ends[s] - begin) * static_cast<double>(ends[s] - begin);
    }
    begins.set(0, 0);
    return DeviceTensor::from_host(device_, begins);
  }

  template <class K>
  double time_step(int64_t heads, int64_t q, int64_t kv, int64_t d) {
    Kernel<K> kernel({}, device_);
    return time(
        [&] { kernel(heads, q, kv, d, 1 / std::sqrt(static_cast<float>(d)), bfloat16, q_, k_, v_, o_); });
  }
  static HostTensor ones(int64_t n) {
    HostTensor host(float32, {n});
    for (int64_t i = 0; i < n; ++i) host.set(i, 1);
    return host;
  }
  void make(const std::vector<int64_t>& q, const std::vector<int64_t>& k, const std::vector<int64_t>& v,
            const std::vector<int64_t>& o, DataType kv_dtype = bfloat16) {
    if (!q_.is_null() && q_.shape() == q && k_.shape() == k && v_.shape() == v && k_.dtype() == kv_dtype)
      return;
    q_ = k_ = v_ = o_ = DeviceTensor();
    owners_.clear();
    q_ = bench::repeated(device_, bfloat16, q, 1, owners_),
    k_ = bench::repeated(device_, kv_dtype, k, 2, owners_),
    v_ = bench::repeated(device_, kv_dtype, v, 3, owners_), o_ = DeviceTensor::empty(device_, bfloat16, o);
  }
  /// Of the beginning of the result, from that of the first run of this problem: those of one stand next to each other.
  double difference(std::vector<int64_t> problem) {
    problem.resize(6);
    int64_t n = 1;
    for (int64_t extent : o_.shape()) n *= extent;
    const DeviceTensor beginning =
        DeviceTensor::view(device_, o_.address(), o_.dtype(), {std::min(n, int64_t{1} << 19)});
    const std::vector<double> now = beginning.to_host().to_doubles();
    if (problem != problem_) {
      problem_ = problem;
      first_ = now;
      return -1;
    }
    double most = 0;
    for (size_t i = 0; i < now.size(); ++i)
      most = std::max(most, std::isnan(now[i]) ? 1e9 : std::abs(now[i] - first_[i]));
    return most;
  }
  double time(const std::function<void()>& launch) {
    launch();
    device_.synchronize();
    return runtime::quartiles(timer_.measure({launch}, {.launches = 10})[0]).median;
  }

  Device device_;
  runtime::GpuTimer timer_;
  DeviceTensor q_, k_, v_, o_;
  std::vector<DeviceTensor> owners_;  // of the memory that they are views of
  std::vector<int64_t> problem_;
  std::vector<double> first_;
};

std::vector<int64_t> numbers(std::string_view text) {
  std::vector<int64_t> all;
  while (!text.empty()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) throw std::runtime_error(fmt::format("'{}' is not a number", text));
    all.push_back(value);
    text.remove_prefix(std::min<size_t>(text.size(), static_cast<size_t>(end - text.data()) + 1));
  }
  return all;
}

void run(Bench& bench, const std::string& argument) {
  const size_t slash = argument.find('/'), colon = argument.find(':');
  const std::string kind = argument.substr(0, slash);
  const std::string configuration = colon == std::string::npos ? "" : argument.substr(colon + 1);
  const std::vector<int64_t> n = numbers(std::string_view(argument).substr(slash + 1, colon - slash - 1));
  try {
    const Timed t =
        kind == "decode"     ? bench.decode<Decode>(n, configuration)
        : kind == "decode8"  ? bench.decode<DecodeFloat8>(n, configuration)
        : kind == "backward" ? bench.backward(n, false)
        : kind == "adding"   ? bench.backward(n, true)
        : kind == "dall"     ? bench.all_gradients(n, configuration)
        : kind == "dq"       ? bench.gradients(n, configuration, true)
        : kind == "dkv"      ? bench.gradients(n, configuration, false)
        : kind == "dkvl"     ? bench.gradients(n, configuration, false, true)
        : kind == "float8"   ? bench.float8(n, configuration)
        : kind == "copy"     ? bench.copy(n)
        : kind == "call"     ? bench.call(n)
        : kind == "graph"    ? bench.decode_call(n, true)
        : kind == "calls"    ? bench.decode_call(n, false)
        : kind == "packback" ? bench.packed_backward(n)
        : kind == "step"     ? bench.step(n)
        : kind == "latent"
            ? bench.latent<kernels::WithScoreOptions<kernels::LatentDecodeAttention>>(n, configuration)
        : kind == "latent8" ? bench.latent<LatentFloat8Decode>(n, configuration)
        : kind == "packed8" ? bench.packed_float8(n)
        : kind == "packed"  ? bench.packed(n, configuration)
                            : bench.forward(n, configuration);
    fmt::print("{:<60} {:>9.1f} us {:>6.1e}", argument, t.us, t.difference);
    if (t.flop > 0) fmt::print(" {:.0f} TFLOPS", t.flop / t.us / 1e6);
    if (t.bytes > 0) fmt::print(" {:.2f} TB/s", t.bytes / t.us / 1e6);
    fmt::print("\n");
  } catch (const std::exception& error) {
    fmt::print("{:<60} {}\n", argument, error.what());
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_attention", [&] {
    const imbrex::Device device = imbrex::Device::cuda();
    imbrex::Bench bench(device);
    for (int i = 1; i < argc; ++i)
      if (argv[i] == std::string_view("-"))
        for (std::string line; std::getline(std::cin, line);) imbrex::run(bench, line);
      else
        imbrex::run(bench, argv[i]);
    return 0;
  });
}
