// SPDX-License-Identifier: Apache-2.0
// What the functions of attention ask of their tensors.
#pragma once

#include <string>
#include <vector>

#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/workspace.h"

namespace imbrex {

/// The tensors of a call, by name, and the errors that show them.
class AttentionCall {
 public:
  struct Named {
    const char* name;
    const DeviceTensor& tensor;
  };
  /// Which tensors may be float8_e4m3 instead.
  enum class Float8 : uint8_t { kNothing, kAllButTheLast, kKAndV, kCache };  ///< the second one
  AttentionCall(std::string function, std::vector<Named> tensors)
      : function_(std::move(function)), tensors_(std::move(tensors)) {}

  [[noreturn]] void refuse(const std::string& message, const std::string& help) const;

  /// All are there, on the first one's device, of its type, float16 or bfloat16, and of its number of dimensions, three
  /// or four; the device runs sm_90a, or if `has_blackwell` sm_100a.
  void check_tensors(Float8 may_be_float8 = Float8::kNothing, bool has_blackwell = false) const;
  /// Of tensors on a Blackwell device: float16 or bfloat16, and heads of at most 128, the values' as the keys'.
  void check_blackwell(const DeviceTensor& k, int64_t head_size, int64_t value_size) const;
  /// `t` has this shape.
  void check_shape(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape,
                   const std::string& why) const;
  /// `t`, which may be null, is dense, on the device, of this type and shape.
  void check_extra(const char* name, const DeviceTensor& t, DataType dtype,
                   const std::vector<int64_t>& shape) const;
  /// Elements of `t` have memory each.
  void check_written(const char* name, const DeviceTensor& t) const;

 private:
  std::string function_;
  std::vector<Named> tensors_;
};

struct AttentionSizes {
  int64_t batch, heads, heads_kv, rows, rows_kv, head_size, value_size;
  int64_t group() const { return heads / heads_kv; }
};

/// The sizes of q, k and v, which fit each other.
AttentionSizes attention_sizes(const AttentionCall& call, const DeviceTensor& q, const DeviceTensor& k,
                               const DeviceTensor& v);

/// Where packed sequences begin: both tensors, or neither.
void check_packed(const AttentionCall& call, const AttentionSizes& s, const DeviceTensor& q_begins,
                  const DeviceTensor& kv_begins);

/// Whether kernels for Blackwell serve the device.
inline bool is_blackwell(const Device& device) { return device.can_run("sm_100a"); }

/// Whether TMA reaches the tensor as it lies.
bool has_tma_rows(const DeviceTensor& t);
/// `t`, or where TMA does not reach it a tensor like it; `is_read`: with its contents.
DeviceTensor reachable(const DeviceTensor& t, bool is_read, const Stream& stream,
                       std::vector<Workspace>& held);

/// The scale that options stand for.
float attention_scale(float scale, int64_t head_size);

}  // namespace imbrex
