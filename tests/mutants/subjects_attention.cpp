// SPDX-License-Identifier: Apache-2.0
// Attention among the subjects: problems in which every ring goes round, a persistent CTA has several tiles, and every
// consumer has rows that are there.
#include <tuple>

#include "attention/score_arguments.h"
#include "imbrex/kernels/attention/blackwell_decode.h"
#include "imbrex/kernels/attention/blackwell_forward.h"
#include "imbrex/kernels/attention/decode.h"
#include "imbrex/kernels/attention/decode_float8.h"
#include "imbrex/kernels/attention/forward.h"
#include "imbrex/kernels/attention/gradient_all.h"
#include "imbrex/kernels/attention/gradient_kv.h"
#include "imbrex/kernels/attention/gradient_kv_large.h"
#include "imbrex/kernels/attention/gradient_q.h"
#include "imbrex/kernels/attention/latent_decode.h"
#include "mutants/subject.h"

namespace imbrex::mutants {

namespace {

using kernels::WithScoreOptions;

constexpr int kHeads = 2,
              kSize = 32;  // two heads of K and V (two sequences, in decoding), whose rows have 32 elements
const TensorArgument kNone = in(float32, {4});

/// A tensor [heads, rows, size], and its strides in units of 16 bytes: between batches, heads, rows.
auto heads(TensorArgument t) {
  const int row = static_cast<int>(t.shape[2] * t.dtype.bits() / 128);
  return std::tuple(t, 0, static_cast<int>(t.shape[1]) * row, row);
}
auto read(int rows, int size = kSize, int of_heads = kHeads, DataType dtype = float16) {
  return heads(in(dtype, {of_heads, rows, size}));
}
auto written(int rows, int size = kSize, int of_heads = kHeads) {
  return heads(out(float16, {of_heads, rows, size}));
}
/// ScoreSteps without any but, perhaps, the causal mask, and a window of `left` columns before a row's own if not -1.
auto steps(bool causal, int left = -1) {
  return std::tuple(causal, left >= 0, left, 0, false, 0, false, 0.f, false, kNone, kHeads, false, kNone,
                    kHeads);
}
const auto kNotPacked = std::tuple(false, 0, kNone, kNone);

/// The same of sequences with one head.
auto sequences(TensorArgument t) {
  const int row = static_cast<int>(t.shape[2] * t.dtype.bits() / 128),
            all = static_cast<int>(t.shape[1]) * row;
  return std::tuple(t, all, all, row);
}
/// A cache of two sequences with room for `rows` each, the second of which is no longer than a part of a block.
template <class K>
auto cache(int rows, const K& kv) {
  return std::tuple_cat(std::tuple(false, true, kHeads, 1, rows), kv, kv,
                        std::tuple(numbers(int32, {rows, 20}), in(int32, {1})));
}

template <class K, class... Arguments>
Subject subject_of(std::string name, const K& kernel, const Arguments&... arguments) {
  return std::apply([&](const auto&... each) { return make_subject(std::move(name), 1, kernel, each...); },
                    std::tuple_cat(arguments...));
}

Subject forward() {
  const int rows = 200, columns = 200;
  const WithScoreOptions<kernels::ForwardAttention> kernel{
      .block_kv = 64, .stages = 2, .ctas = 1, .takes_turns = true};
  return subject_of(
      "attention", kernel, std::tuple(1, kHeads, rows, columns, kSize, kSize, 1, 0.2f, float16, float16),
      read(rows), read(columns), read(columns), written(rows), std::tuple(false, kNone, true, kHeads),
      kNotPacked, std::tuple(kernels::Float8ScaleOf::kNothing, kHeads, kNone, kNone, kNone), steps(true));
}

Subject gradient_kv() {
  const int rows = 150, columns = 140, padded = 256;
  const WithScoreOptions<kernels::AttentionGradientKv> kernel{.block_q = 32, .stages = 2};
  return subject_of("dkv", kernel,
                    std::tuple(1, kHeads, rows, padded, columns, kSize, kSize, 1, 0.2f, float16), read(rows),
                    read(columns), read(columns), read(rows), std::tuple(in(float32, {2, kHeads, padded})),
                    written(columns), written(columns), kNotPacked, steps(true));
}

Subject gradient_kv_large() {
  // No row sees the columns of the first CTA; others have more blocks than the ring has stages, which are more than the one place
  // of weights.
  const int rows = 150, columns = 350, padded = 256, left = 60;
  const WithScoreOptions<kernels::AttentionGradientKvLarge> kernel{.block_q = 32, .stages = 3};
  return subject_of("dkv-large", kernel,
                    std::tuple(1, 1, rows, padded, columns, kSize, kSize, kHeads, 0.2f, float16), read(rows),
                    read(columns, kSize, 1), read(columns, kSize, 1), read(rows),
                    std::tuple(in(float32, {2, kHeads, padded})), written(columns, kSize, 1),
                    written(columns, kSize, 1), kNotPacked, steps(true, left));
}

Subject gradient_q() {
  const int rows = 140, columns = 150, padded = 256;
  const WithScoreOptions<kernels::AttentionGradientQ> kernel{.block_kv = 32, .stages = 2};
  return subject_of("dq", kernel,
                    std::tuple(1, kHeads, rows, padded, columns, kSize, kSize, 1, 0.2f, float16), read(rows),
                    read(columns), read(columns), read(rows), std::tuple(in(float32, {2, kHeads, padded})),
                    written(rows), kNotPacked, steps(true));
}

Subject gradient_all_of(bool in_order) {
  // No row sees the columns of the first CTA, the second and the third add to the same rows, and with two heads that share K
  // and V the third has six blocks: more than would end without the warp that adds. In order every row sees all columns.
  const int rows = 150, columns = 350, padded = 256, left = 60;
  const WithScoreOptions<kernels::AttentionGradientAll> kernel{.in_order = in_order};
  const std::vector<int64_t> sums{kHeads, 3, kSize / 8, 64, 8};
  return subject_of(
      in_order ? "dqkv-in-order" : "dqkv", kernel,
      std::tuple(1, 1, rows, padded, columns, kSize, kHeads, 0.2f, float16), read(rows),
      read(columns, kSize, 1), read(columns, kSize, 1), read(rows),
      std::tuple(in(float32, {2, kHeads, padded}), in_order ? out(float32, sums) : zeroed(float32, sums),
                 zeroed(int32, {kHeads * 3 + 1})),
      written(columns, kSize, 1), written(columns, kSize, 1), steps(!in_order, in_order ? -1 : left));
}

Subject gradient_all() { return gradient_all_of(false); }
Subject gradient_all_in_order() {
  Subject subject = gradient_all_of(true);
  subject.left_out = {"load-shared-plus-16"};  // behind the last of the numbers that are kept lie mbarriers
  return subject;
}

/// Two parts of each sequence, which the last CTA merges.
auto parts(int head_size) {
  return std::tuple(kernels::Division::kMerged, true, out(float32, {2, 2, 2, head_size}),
                    out(float32, {2, 2, 2}), zeroed(int32, {2}), out(float32, {2, 2}));
}

Subject decode() {
  const int columns = 200;
  const WithScoreOptions<kernels::DecodeAttention> kernel{.block_kv = 32, .stages = 2};
  const auto q = sequences(in(float16, {2, 2, kSize}));
  return subject_of("decode", kernel, std::tuple(2, 1, 1, 2, 2, kSize, 0.2f, float16, float16), q,
                    cache(columns, sequences(in(float16, {2, columns, kSize}))),
                    std::tuple(false, kNone, kNone), sequences(out(float16, {2, 2, kSize})), parts(kSize),
                    steps(true));
}

Subject decode_float8() {
  const int columns = 200;
  const WithScoreOptions<kernels::DecodeFloat8Attention> kernel{.consumers = 2, .warp_rows = 16, .stages = 2};
  return subject_of(
      "decode8", kernel, std::tuple(2, 1, 1, 2, 2, kSize, 0.2f, float16, float8_e4m3),
      sequences(in(float16, {2, 2, kSize})), cache(columns, sequences(in(float8_e4m3, {2, columns, kSize}))),
      std::tuple(false, kNone, kNone), sequences(out(float16, {2, 2, kSize})), parts(kSize), steps(true));
}

/// `float8`: of a cache of float8, what it is beside the values.
template <class K, class Float8>
Subject latent_decode(std::string name, const K& kernel, const TensorArgument& rows, const Float8& float8,
                      int columns) {
  const int size = 192, value_size = 128, of_heads = 4;
  const auto of_each = [](TensorArgument t) {  // [sequences, heads, size], one row
    const int row = static_cast<int>(t.shape[2] / 8);
    return std::tuple(t, of_heads * row, row, row);
  };
  return subject_of(std::move(name), kernel,
                    std::tuple(2, of_heads, 1, 1, size, value_size, false, 0.1f, float16),
                    of_each(in(float16, {2, of_heads, size})), cache(columns, sequences(rows)), float8,
                    of_each(out(float16, {2, of_heads, value_size})),
                    std::tuple(kNone, out(float32, {2, of_heads})), steps(false));
}
using LatentDecode = WithScoreOptions<kernels::LatentDecodeAttention>;

Subject latent_decode_float16() {
  const int columns = 120;
  return latent_decode("latent", LatentDecode{.block_kv = 32, .stages = 2}, in(float16, {2, columns, 192}),
                       std::tuple(false, kNone, kNone), columns);
}

Subject latent_decode_float8() {
  const int columns = 150, row_bytes = 272;  // the factors and the rest of the keys lie in rows as far apart
  Subject subject = latent_decode(
      "latent8", LatentDecode{.block_kv = 32, .stages = 2, .float8_stages = 2},
      in(float8_e4m3, {2, columns, row_bytes}),
      std::tuple(true, in(float32, {2, columns, row_bytes / 4}), in(float16, {2, columns, row_bytes / 2})),
      columns);
  subject.left_out = {"load-shift-128"};  // the rest of a key is moved: in place of it is another row's
  return subject;
}

Subject blackwell_forward() {
  const int rows = 250, columns = 150;  // every warp has rows, whose sums are rescaled
  const WithScoreOptions<kernels::BlackwellAttention> kernel{.block_kv = 32, .stages = 2};
  Subject subject =
      subject_of("b-attention", kernel, std::tuple(1, kHeads, rows, columns, kSize, 1, 4.f, float16),
                 read(rows), read(columns), read(columns), written(rows),
                 std::tuple(true, out(float32, {kHeads, rows})), steps(false));
  // The next line of Q is another row, and half of the last product is missing: only the result can reveal it.
  subject.left_out = {"matrix-a-next-line", "matrix-a-next-stage", "half-n"};
  return subject;
}

Subject blackwell_decode() {
  const int columns = 200;
  const WithScoreOptions<kernels::BlackwellDecodeAttention> kernel{.block_kv = 32, .stages = 2};
  // Scores whose maxima grow enough for sums to be rescaled.
  Subject subject = subject_of(
      "b-decode", kernel, std::tuple(2, 1, 1, 2, 2, kSize, 6.f, float16, float16),
      sequences(in(float16, {2, 2, kSize})), cache(columns, sequences(in(float16, {2, columns, kSize}))),
      std::tuple(false, kNone, kNone), sequences(out(float16, {2, 2, kSize})), parts(kSize), steps(true));
  subject.left_out = {"matrix-a-next-line"};  // another row of Q
  return subject;
}

}  // namespace

std::vector<Subject> attention_subjects() {
  std::vector<Subject> all;
  for (const auto make :
       {forward, gradient_kv, gradient_kv_large, gradient_q, gradient_all, gradient_all_in_order, decode,
        decode_float8, latent_decode_float16, latent_decode_float8, blackwell_forward, blackwell_decode}) {
    Subject& subject = all.emplace_back(make());
    // Tiles lie side by side, all of them written: beside an operand, or in another order, are numbers too.
    for (const char* rule : {"matrix-b-next-line", "matrix-swizzle", "matrix-stride", "matrix-base-offset",
                             "transpose-a", "transpose-b", "store-shared-plus-16", "store-shared-plus-4096",
                             "load-shared-plus-8192", "store-shift-128", "map-swizzle"})
      subject.left_out.emplace_back(rule);
  }
  return all;
}

}  // namespace imbrex::mutants
