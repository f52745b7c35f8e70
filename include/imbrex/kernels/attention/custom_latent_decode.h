// SPDX-License-Identifier: Apache-2.0
// Latent attention of few rows of Q with masks and score modifications of one's own (score_steps.h), called on tensors.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/custom_attention.h"
#include "imbrex/kernels/attention/latent_decode.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/workspace.h"

namespace imbrex {

/// What a launch of kernels::LatentDecodeAttention is passed in front of the steps' arguments, from the tensors and options of a
/// call of attention_latent_decode(). Memory for the parts' results is the stream's until its end.
class LatentDecodeArguments {
 public:
  /// LaunchError names what does not fit. The options' masks and modifications are not looked at.
  LatentDecodeArguments(const DeviceTensor& q, const DeviceTensor& cache, const DeviceTensor& o,
                        const AttentionDecodeOptions& options);

  /// The configuration of K, the kernel with some steps, and what tells it from others.
  template <class K>
  K tiles() const {
    K kernel = is_float8_ ? K::for_float8() : K{};
    kernel.helps_early = helps_early_;
    return kernel;
  }
  int tiles_key() const { return 2 * is_float8_ + helps_early_; }
  /// What is launched behind the kernel, whose report is passed on: the merge of the parts, and the copy to an O that TMA does
  /// not reach.
  LaunchReport finish(LaunchReport report) const;

  auto arguments() const {
    return std::tie(batches_, heads_, q_size_, parts_, head_size_, value_size_, is_divided_, scale_, dtype_,
                    q_, is_paged_, has_lengths_, pages_, rows_of_page_, rows_of_sequence_, cache_, cache_,
                    lengths_, table_, is_float8_, scales_, rest_, o_, partial_, log_sum_);
  }

 private:
  using Heads = ForwardAttentionArguments::Heads;
  int64_t batches_, heads_, q_size_, parts_, head_size_, value_size_;
  float scale_;
  DataType dtype_;
  bool is_divided_, is_paged_, has_lengths_, is_float8_, helps_early_, wants_log_sum_;
  int64_t pages_, rows_of_page_, rows_of_sequence_;
  Heads q_, cache_, o_;
  uint64_t lengths_, table_, scales_, rest_, partial_, log_sum_, all_log_sum_;
  DeviceTensor given_o_, o_tensor_;  ///< of the call, and where kernels write
  Stream stream_;
  std::vector<Workspace> held_;
};

/// attention_latent_decode() with these steps on a device: an object that is called like a function. It compiles on the first call
/// of each type, head size, scale and size of pages. Positions are counted in the sequence: the last row of q is at its
/// length - 1.
///
///   CustomLatentDecodeAttention<kernels::CausalMask, MyBias> decode(device);
///   decode(q, cache, o, {.lengths = lengths}, my_bias_pointer);
template <class... Steps>
class CustomLatentDecodeAttention {
 public:
  explicit CustomLatentDecodeAttention(const Device& device) : device_(device) {}

  /// attention_latent_decode() with the steps in place of the options' masks and modifications, launched without waiting.
  /// `arguments`: those of the steps, in order.
  template <class... Arguments>
  LaunchReport operator()(const DeviceTensor& q, const DeviceTensor& cache, const DeviceTensor& o,
                          const AttentionDecodeOptions& options, const Arguments&... arguments) {
    const LatentDecodeArguments call(q, cache, o, options);
    using K = kernels::LatentDecodeAttention<Steps...>;
    auto& kernel = kernels_.try_emplace(call.tiles_key(), call.template tiles<K>(), device_).first->second;
    return call.finish(kernel.on(options.stream)(call, arguments...));
  }

 private:
  Device device_;
  std::map<int, Kernel<kernels::LatentDecodeAttention<Steps...>>> kernels_;  // by tiles_key()
};

}  // namespace imbrex
