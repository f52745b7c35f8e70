// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention, gradients of K and V. A CTA has a block of their rows and goes through those of Q and of
// the result's gradient, of all heads that share K and V; weights are computed again, transposed, so that they are in the
// registers where the products that sum over rows of Q need them. Sums have one order: results are the same each time.
#pragma once

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Which gradients a launch computes: the registers hold both for heads of at most 128.
enum class KvGradients : uint8_t { kBoth, kOnlyK, kOnlyV };

template <class... Steps>
struct AttentionGradientKv {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64, kConsumers = 2;
  int block_q = 64, stages = 2;

  static auto space() {
    return Space<AttentionGradientKv>()
        .template choose<&AttentionGradientKv::block_q, &AttentionGradientKv::stages>(
            {{64, 2}, {64, 3}, {128, 2}, {32, 3}});
  }

  /// Sizes and tensors as ForwardAttention's; `row_ptr` as AttentionGradientRows leaves it. dK and dV are like K and V.
  void operator()(Int32 batches, Int32 heads_kv, Int32 q_size, Int32 padded, Int32 kv_size, int head_size,
                  int value_size, int group, float scale, DataType dtype, KvGradients which, Ptr<> q_ptr,
                  HeadStrides q_strides, Ptr<> k_ptr, HeadStrides k_strides, Ptr<> v_ptr,
                  HeadStrides v_strides, Ptr<> do_ptr, HeadStrides do_strides, Ptr<float32> row_ptr,
                  Ptr<> dk_ptr, HeadStrides dk_strides, Ptr<> dv_ptr, HeadStrides dv_strides,
                  ScoreSteps<Steps...> steps) const {
    for (const int size : {head_size, value_size})
      require(size % 16 == 0 && size <= 256, "heads of {}: a multiple of 16, at most 256", size);
    const bool wants_k = which != KvGradients::kOnlyV, wants_v = which != KvGradients::kOnlyK;
    constexpr int kBlock = kConsumers * kRows;
    grid(cdiv(kv_size, kBlock), heads_kv, batches);
    warps(4 + 4 * kConsumers);
    Int32 offset_kv = block_idx.x * kBlock, head_kv = block_idx.y, batch = block_idx.z;
    Int32 heads = heads_kv * group, shift = kv_size - q_size;

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_do = do_strides.view(do_ptr, dtype, batches, heads, q_size, value_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads_kv, kv_size, value_size);
    auto g_rows = global_view(row_ptr, {2, batches * heads, padded});
    auto s_k = shared_tensor(dtype, {kBlock, head_size});
    auto s_v = shared_tensor(dtype, {kBlock, value_size});
    auto s_q = shared_tensor(dtype, {stages, block_q, head_size});
    auto s_do = shared_tensor(dtype, {stages, block_q, value_size});
    auto s_rows = shared_tensor(float32, {stages, 2, 1, block_q});
    Pipeline pipe(stages, 1, kConsumers * 128);  // every thread reads the rows' numbers
    Barrier kv_full = mbarrier::alloc({1})[0];
    sync();

    // Rows of Q that see any of these columns.
    Int32 first = 0, last = q_size - 1;
    {
      Int32 first_position = shift, last_position = last + shift;
      steps.narrow_rows({offset_kv, min(offset_kv + kBlock, kv_size) - 1, batch}, first_position,
                        last_position);
      first = max(first_position - shift, 0) / block_q * block_q;
      last = min(last_position - shift, last);
    }

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(24);
      if (auto warp = single_warp()) {
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(kv_full, s_k.nbytes() + s_v.nbytes());
        tma::global_to_shared(g_k, s_k, {batch, head_kv, offset_kv, 0}, kv_full);
        tma::global_to_shared(g_v, s_v, {batch, head_kv, offset_kv, 0}, kv_full);
        for (Int32 in_group : range(group)) {
          Int32 head = head_kv * group + in_group, of = batch * heads + head;
          for (Int32 row : range(first, last + 1, block_q)) {
            pipe.producer_acquire();
            auto q = s_q[pipe.producer_stage], d_o = s_do[pipe.producer_stage];
            auto rows = s_rows[pipe.producer_stage];
            Barrier full = pipe.producer_barrier();
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(full, q.nbytes() + d_o.nbytes() + rows.nbytes());
            tma::global_to_shared(g_q, q, {batch, head, row, 0}, full);
            tma::global_to_shared(g_do, d_o, {batch, head, row, 0}, full);
            for (int i = 0; i < 2; ++i) tma::global_to_shared(g_rows, rows[i], {i, of, row}, full);
            pipe.producer_advance();
          }
        }
      }
    }

    for (int i = 0; i < kConsumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(240);
        auto k = s_k.slice({i * kRows, 0}, {kRows, head_size});
        auto v = s_v.slice({i * kRows, 0}, {kRows, value_size});
        Int32 first_column = offset_kv + i * kRows;
        RegisterTensor dk = zeros(float32, {kRows, wants_k ? head_size : 8});
        RegisterTensor dv = zeros(float32, {kRows, wants_v ? value_size : 8});
        auto scores = wgmma::accumulator(float32, {kRows, block_q});
        auto along = wgmma::accumulator(float32, {kRows, block_q});
        RegisterTensor weights = zeros(dtype, {kRows, block_q}), slopes = zeros(dtype, {kRows, block_q});
        mbarrier::wait(kv_full, 0);
        for (Int32 in_group : range(group)) {
          Int32 head = head_kv * group + in_group;
          for (Int32 row : range(first, last + 1, block_q)) {
            pipe.consumer_acquire();
            auto q = s_q[pipe.consumer_stage], d_o = s_do[pipe.consumer_stage];
            auto rows = s_rows[pipe.consumer_stage];
            wgmma::fence();
            wgmma::mma(k, q.transpose(), scores, {.scale_d = false});
            wgmma::commit_group();
            if (wants_k) {
              wgmma::mma(v, d_o.transpose(), along, {.scale_d = false});
              wgmma::commit_group();
            }
            wgmma::wait_group(wants_k ? 1 : 0);

            const ScoreTile at{
                [&] {
                  return register_tensor(int32, {1, block_q},
                                         [&](auto, auto c) { return c + (row + shift); });
                },
                [&] {
                  return register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return first_column + r; });
                },
                [&] {
                  return register_tensor(int32, {1, 1}, [&](auto, auto) { return head + 0; });
                },
                batch};
            const float factor = (steps.changes() ? 1 : scale) * 1.44269504f;
            RegisterTensor slope = full(float32, {kRows, block_q}, 1);
            if (steps.changes()) scores = scores * scale;
            if (steps.has_slopes())
              steps.change_with_slopes(scores, slope, at);
            else
              steps.change(scores, at);
            if (steps.masks()) {
              auto is_edge = steps.is_edge({row + shift, row + (block_q - 1) + shift, first_column,
                                            first_column + (kRows - 1), batch});
              if (auto edge = when(is_edge)) steps.mask(scores, at);
            }
            // Rows of K beyond the end have gradients that nobody stores.
            scores = exp2(fma(scores, factor, -load_shared(rows[0])));  // now weights
            weights = scores;
            if (wants_k) {
              wgmma::wait_group(0);
              auto gradient = scores * (along - load_shared(rows[1]));
              slopes = steps.has_slopes() ? gradient * slope : gradient;
            }
            wgmma::fence();
            if (wants_v) wgmma::mma(weights, d_o, dv, {.scale_d = true});
            if (wants_k) wgmma::mma(slopes, q, dk, {.scale_d = true});
            wgmma::commit_group();
            wgmma::wait_group(0);
            mbarrier::arrive(pipe.consumer_barrier());
            pipe.consumer_advance();
          }
        }

        // This consumer's rows of K and V, which it alone has read, take their gradients.
        const auto store = [&](const SharedTensor& s, const RegisterValue& value, const Ptr<>& pointer,
                               const HeadStrides& strides, int size) {
          store_shared(s, value);
          fence::proxy_async();
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(s, strides.view(pointer, dtype, batches, heads_kv, kv_size, size),
                                  {batch, head_kv, first_column, 0});
            tma::commit_group();
          }
        };
        if (wants_k) store(k, (dk * scale).to(dtype), dk_ptr, dk_strides, head_size);
        if (wants_v) store(v, dv.to(dtype), dv_ptr, dv_strides, value_size);
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }
};

}  // namespace imbrex::kernels
