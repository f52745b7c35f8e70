// SPDX-License-Identifier: Apache-2.0
// A step of linear attention by the gated delta rule, as in decoding: of every sequence one token, whose keys and values change
// a state in memory. Bound by reading and writing the states once.
//
// A CTA holds columns of one head's state [key, value] in registers: they decay, are corrected by what they predict wrongly of
// the value, and answer the query.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct GatedDeltaRule {
  int block_v = 32, num_warps = 4;  // columns of a state in a CTA

  static auto space() {
    return Space<GatedDeltaRule>().choose<&GatedDeltaRule::block_v, &GatedDeltaRule::num_warps>(
        {{32, 4}, {16, 4}, {8, 2}, {32, 8}, {64, 8}});
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

    const auto unit_row = [&](const Ptr<>& from) {
      auto x = load_global(global_view(from, dtype, {tokens, heads, key_size})[token][head], {0}, {key_size});
      RegisterTensor row = x.to(float32);
      return RegisterValue((row * rsqrt(sum(row * row) + 1e-6f)).reshape({key_size, 1}));
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
    RegisterTensor state = zeros(float32, {key_size, block_v});
    if (auto kept = when(slot >= 0))
      state = load_global(g_state[slot][value_head], {0, column}, {key_size, block_v});
    auto k = unit_row(k_ptr), q = unit_row(q_ptr);
    auto v = load_global(values(v_ptr), {column}, {block_v}).to(float32);

    auto x = of_token(a_ptr) + of_head(global_view(dt_bias_ptr, {value_heads}));
    auto softplus = max(x, 0.0f) + log(exp(-abs(x)) + 1.0f);
    auto decay = exp(-exp(of_head(global_view(a_log_ptr, {value_heads}))) * softplus);
    auto strength = 1.0f / (exp(-of_token(b_ptr)) + 1.0f);
    state *= decay.reshape({1, 1});
    auto error = strength * (v - sum(state * k, {.axis = 0}));
    state += k * error.reshape({1, block_v});

    store_global(values(o_ptr), (sum(state * q, {.axis = 0}) * scale).to(dtype), {column});
    if (auto kept = when(slot >= 0)) store_global(g_state[slot][value_head], state, {0, column});
  }
};

}  // namespace imbrex::kernels
