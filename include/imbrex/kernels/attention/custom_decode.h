// SPDX-License-Identifier: Apache-2.0
// Attention of few rows of Q to long caches with masks and score modifications of one's own (score_steps.h), called on tensors.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/blackwell_decode.h"
#include "imbrex/kernels/attention/custom_attention.h"
#include "imbrex/kernels/attention/decode.h"
#include "imbrex/kernels/attention/decode_float8.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/workspace.h"

namespace imbrex {

/// What a launch of a kernel that decodes is passed in front of the steps' arguments, from the tensors and options of a call of attention_decode(). Memory for the parts' results is the stream's until its end.
class DecodeAttentionArguments {
 public:
  /// LaunchError names what does not fit. The options' masks and modifications are not looked at.
  DecodeAttentionArguments(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                           const DeviceTensor& o, const AttentionDecodeOptions& options);

  /// The kernel that serves the call: kernels::DecodeAttention, kernels::DecodeFloat8Attention where it is the faster one,
  /// kernels::BlackwellDecodeAttention on devices of target sm_100a.
  enum class Which : uint8_t { kHopper, kHopperFloat8, kBlackwell };
  Which which() const { return which_; }
  int64_t head_size() const { return head_size_; }
  /// What is launched behind the kernel, whose report is passed on: the merge of parts that their CTAs do not merge, and the copy
  /// to an O that TMA does not reach.
  LaunchReport finish(LaunchReport report) const;

  auto arguments() const {
    return std::tie(batches_, heads_kv_, group_, q_size_, parts_, head_size_, scale_, dtype_, kv_dtype_, q_,
                    is_paged_, has_lengths_, pages_, rows_of_page_, rows_of_sequence_, k_, v_, lengths_,
                    table_, has_scales_, k_scales_, v_scales_, o_, division_, wants_log_sum_, partial_,
                    log_sum_, tickets_, all_log_sum_);
  }

 private:
  using Heads = ForwardAttentionArguments::Heads;
  int64_t batches_, heads_kv_, group_, q_size_, parts_, head_size_;
  float scale_;
  DataType dtype_, kv_dtype_;
  bool is_paged_, has_lengths_, has_scales_, wants_log_sum_;
  Which which_;
  int64_t pages_, rows_of_page_, rows_of_sequence_;
  Heads q_, k_, v_, o_;
  uint64_t lengths_, table_, k_scales_, v_scales_;
  kernels::Division division_;
  uint64_t partial_, log_sum_, tickets_, all_log_sum_;
  DeviceTensor given_o_, o_tensor_;  ///< of the call, and where kernels write
  Stream stream_;
  std::vector<Workspace> held_;
};

/// Decoding with these steps on a device: an object that is called like a function. It compiles on the first call of each
/// type, head size, scale and size of pages. Positions are counted in the sequence: the last row of q is at its length - 1.
///
///   CustomDecodeAttention<kernels::CausalMask, MyBias> decode(device);
///   decode(q, k, v, o, {.lengths = lengths}, my_bias_pointer);
template <class... Steps>
class CustomDecodeAttention {
 public:
  explicit CustomDecodeAttention(const Device& device) : device_(device) {}

  /// attention_decode() with the steps in place of the options' masks and modifications, launched without waiting.
  /// `arguments`: those of the steps, in order.
  template <class... Arguments>
  LaunchReport operator()(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                          const DeviceTensor& o, const AttentionDecodeOptions& options,
                          const Arguments&... arguments) {
    const DecodeAttentionArguments call(q, k, v, o, options);
    const auto launch = [&](auto& kernel) {
      return call.finish(kernel.on(options.stream)(call, arguments...));
    };
    using enum DecodeAttentionArguments::Which;
    return call.which() == kBlackwell      ? launch(of_size(blackwell_, call.head_size()))
           : call.which() == kHopperFloat8 ? launch(of_size(float8_, call.head_size()))
                                           : launch(of_size(hopper_, call.head_size()));
  }

 private:
  template <class K>
  Kernel<K>& of_size(std::map<int64_t, Kernel<K>>& kernels, int64_t head_size) {
    return kernels.try_emplace(head_size, K::for_heads(head_size), device_).first->second;
  }

  Device device_;
  std::map<int64_t, Kernel<kernels::DecodeAttention<Steps...>>> hopper_;  // by head size
  std::map<int64_t, Kernel<kernels::DecodeFloat8Attention<Steps...>>> float8_;
  std::map<int64_t, Kernel<kernels::BlackwellDecodeAttention<Steps...>>> blackwell_;
};

}  // namespace imbrex
