// SPDX-License-Identifier: Apache-2.0
// Attention with masks and score modifications of one's own (score_steps.h), called on tensors.
#pragma once

#include <cstdint>
#include <tuple>

#include "imbrex/kernels/attention/forward.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex {

/// What a launch of kernels::ForwardAttention is passed in front of the steps' arguments, from the tensors of a call.
struct ForwardAttentionArguments {
  /// The tensors as attention() takes them, but TMA must reach each as it lies. LaunchError names what does not fit.
  /// `long_first`: rows see ever more columns, as in causal attention; the longest start first.
  /// `q_begins`, `kv_begins`, `log_sum_exp`: as in AttentionOptions, or null.
  ForwardAttentionArguments(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                            const DeviceTensor& o, float scale, bool long_first,
                            const DeviceTensor& q_begins = {}, const DeviceTensor& kv_begins = {},
                            const DeviceTensor& log_sum_exp = {});

  /// A tensor's address, and its strides in units of 16 bytes.
  struct Heads {
    uint64_t address;
    int64_t batch, head, row;
    auto arguments() const { return std::tie(address, batch, head, row); }
  };
  int64_t batches, heads, rows, rows_kv, head_size, value_size, group;
  float scale;
  DataType dtype;
  Heads q, k, v, o;
  bool wants_log_sum = false, long_first, is_packed = false;
  kernels::Float8ScaleOf scale_of = kernels::Float8ScaleOf::kNothing;
  uint64_t log_sum, unused;  // an address for tensors that are not there
  int64_t section_heads, sequences = 0;
  uint64_t q_begins, kv_begins;
  auto arguments() const {
    return std::tie(batches, heads, rows, rows_kv, head_size, value_size, group, scale, dtype, dtype, q, k, v,
                    o, wants_log_sum, log_sum, long_first, section_heads, is_packed, sequences, q_begins,
                    kv_begins, scale_of, heads, unused, unused, unused);
  }
};

/// Attention with these steps on a device: an object that is called like a function. It compiles on the first call of each
/// type, head size and scale.
///
///   CustomAttention<kernels::CausalMask, MyBias> attend(device);
///   attend(q, k, v, o, {.long_first = true}, my_bias_pointer);
template <class... Steps>
class CustomAttention {
 public:
  struct Options {
    float scale = 0;                             ///< of the scores; 0: 1 / sqrt(head size)
    bool long_first = false;                     ///< see ForwardAttentionArguments
    DeviceTensor q_begins = {}, kv_begins = {};  ///< packed sequences, as in AttentionOptions
    DeviceTensor log_sum_exp = {};               ///< as in AttentionOptions: CustomAttentionBackward reads it
    Stream stream = {};                          ///< Stream(): the device's own
  };
  /// `tiles`: steps that take many registers need a smaller block_kv (CompileError tells of spills).
  explicit CustomAttention(const Device& device, const kernels::ForwardAttention<Steps...>& tiles = {})
      : kernel_(tiles, device) {}

  /// o = softmax(steps(scale q k^T)) v, launched on the stream without waiting. `arguments`: those of the steps, in order.
  template <class... Arguments>
  LaunchReport operator()(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                          const DeviceTensor& o, const Options& options, const Arguments&... arguments) {
    const ForwardAttentionArguments call(q, k, v, o, options.scale, options.long_first, options.q_begins,
                                         options.kv_begins, options.log_sum_exp);
    return kernel_.on(options.stream)(call, arguments...);
  }

 private:
  Kernel<kernels::ForwardAttention<Steps...>> kernel_;
};

}  // namespace imbrex
