// SPDX-License-Identifier: Apache-2.0
// A step of linear attention by the gated delta rule, as in decoding: of every sequence one token, whose keys and values change
// a state in memory. Bound by reading and writing the states once.
//
// A CTA holds columns of one head's state [key, value] in registers: they decay, are corrected by what they predict wrongly of
// the value, and answer the query.
#pragma once

#include <algorithm>

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct GatedDeltaRule {
  int block_v = 32, num_warps = 4;  // columns of a state in a CTA
  /// 1: a warp has some columns of all rows of the state, and sums along columns need no other warp; 0: rows of all of them.
  int by_columns = 0;

  static auto space() {
    using K = GatedDeltaRule;
    return Space<K>().choose<&K::block_v, &K::num_warps, &K::by_columns>({{32, 4, 0},
                                                                          {32, 4, 1},
                                                                          {64, 4, 1},
                                                                          {64, 8, 1},
                                                                          {128, 8, 1},
                                                                          {16, 1, 1},
                                                                          {16, 4, 0},
                                                                          {8, 2, 0},
                                                                          {32, 8, 0},
                                                                          {64, 8, 0}});
  }

  /// For token t and each head h of values, which has the queries and keys of head h / (value_heads / heads):
  ///
  ///   s   = state[slot[t], h] * exp(-exp(a_log[h]) * softplus(a[t, h] + dt_bias[h]))
  ///   s  += k r^T, with r = sigmoid(b[t, h]) * (v - s^T k)
  ///   o   = s^T q * scale, and state[slot[t], h] = s
  ///
  /// q and k [tokens, heads, key_size] are divided by their lengths first; v and o [tokens, value_heads, value_size];
  /// state [slots, value_heads, key_size, value_size]. No two tokens have the same slot; one whose slot is negative begins
  /// with zeros, and its state is not kept. value_heads is a multiple of heads.
  void operator()(Int32 tokens, int heads, int value_heads, int key_size, int value_size, Int32 slots,
                  Float32 scale, DataType dtype, Ptr<> q_ptr, Ptr<> k_ptr, Ptr<> v_ptr,
                  Ptr<float32> a_log_ptr, Ptr<> a_ptr, Ptr<float32> dt_bias_ptr, Ptr<> b_ptr,
                  Ptr<int32> slot_ptr, Ptr<float32> state_ptr, Ptr<> o_ptr) const {
    require(value_heads % heads == 0, "{} heads of values do not share {} of keys", value_heads, heads);
    grid(cdiv(value_size, block_v), value_heads, tokens);
    warps(num_warps);
    Int32 column = block_v * block_idx.x, value_head = block_idx.y, token = block_idx.z;
    auto head = value_head / (value_heads / heads);

    const auto of_key = [&](const Ptr<>& from) {
      auto x = load_global(global_view(from, dtype, {tokens, heads, key_size})[token][head], {0}, {key_size});
      return RegisterTensor(x.to(float32));
    };
    const auto of_head = [&](const GlobalTensor& from) {
      return load_global(from, {value_head}, {1}).to(float32);
    };
    const auto of_token = [&](const Ptr<>& from) {
      return of_head(global_view(from, dtype, {tokens, value_heads})[token]);
    };
    const auto values = [&](const Ptr<>& from) {
      return global_view(from, dtype, {tokens, value_heads, value_size})[token][value_head];
    };
    auto g_state = global_view(state_ptr, {slots, value_heads, key_size, value_size});

    Int32 slot = global_view(slot_ptr, {tokens})[token];
    RegisterTensor k_row = of_key(k_ptr), q_row = of_key(q_ptr);
    auto v = load_global(values(v_ptr), {column}, {block_v}).to(float32);
    auto x = of_token(a_ptr) + of_head(global_view(dt_bias_ptr, {value_heads}));
    auto a_log = of_head(global_view(a_log_ptr, {value_heads})), b = of_token(b_ptr);
    RegisterTensor state = zeros(float32, {key_size, block_v});
    if (by_columns) annotate_layout(state, layout_by_columns(key_size));
    if (auto kept = when(slot >= 0))
      state = load_global(g_state[slot][value_head], {0, column}, {key_size, block_v});

    auto softplus = max(x, 0.0f) + log(exp(-abs(x)) + 1.0f);
    RegisterTensor decay = exp(-exp(a_log) * softplus), strength = 1.0f / (exp(-b) + 1.0f);
    const auto one_over_length = [](const RegisterTensor& row) {
      return RegisterTensor(rsqrt(sum(row * row, {.axis = 0, .keep = true}) + 1e-6f));
    };
    RegisterTensor per_k = one_over_length(k_row), per_q = one_over_length(q_row);
    auto k = (k_row * per_k).reshape({key_size, 1}), q = (q_row * per_q).reshape({key_size, 1});
    // What the new state answers, without it: s^T q = decay * (state^T q) + (k^T q) r, so that both sums over the state are made
    // at once.
    RegisterTensor predicted = sum(state * k, {.axis = 0}), answered = sum(state * q, {.axis = 0}),
                   along = sum(k_row * q_row, {.axis = 0, .keep = true}) * per_k * per_q;
    RegisterTensor error = strength * (v - decay * predicted);
    RegisterTensor answer = decay * answered + along * error;
    state = state * decay.reshape({1, 1}) + k * error.reshape({1, block_v});

    store_global(values(o_ptr), (answer * scale).to(dtype), {column});
    if (auto kept = when(slot >= 0)) store_global(g_state[slot][value_head], state, {0, column});
  }

 private:
  layout::Layout layout_by_columns(int key_size) const {
    constexpr int kVector = 4;
    const int lanes = std::max(1, block_v / (kVector * num_warps)), rows = 32 / lanes;
    require(block_v % (kVector * num_warps) == 0 && 32 % lanes == 0 && key_size % rows == 0,
            "{} rows of {} columns cannot be divided among {} warps", key_size, block_v, num_warps);
    return layout::spatial({1, num_warps}) * layout::local({key_size / rows, 1}) *
           layout::spatial({rows, lanes}) * layout::local({1, kVector});
  }
};

}  // namespace imbrex::kernels
