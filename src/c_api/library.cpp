// SPDX-License-Identifier: Apache-2.0
// The kernel library.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <mutex>

#include "c_api/handles.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/softmax.h"

using namespace imbrex;
using namespace imbrex::c;

namespace {

/// The kernel for a device, with tuned configurations: made on the first request and kept.
template <class K>
Kernel<K>& kernel_on(const Device& device) {
  static std::mutex turn;
  static auto& kernels =
      *new std::map<const void*, Kernel<K>>;  // never freed: at exit the driver may be gone
  const std::lock_guard lock(turn);
  const void* const key = &device.backend();
  auto found = kernels.find(key);
  if (found == kernels.end()) found = kernels.emplace(key, Kernel<K>::tuned(device)).first;
  return found->second;
}

std::string text_of(const DeviceTensor& t) {
  return fmt::format("{} [{}]", t.dtype().name(), fmt::join(t.shape(), ", "));
}

/// LaunchError unless the tensor has this type and shape.
void expect(const char* function, const char* argument, const DeviceTensor& t, DataType dtype,
            const std::vector<int64_t>& shape) {
  if (t.dtype() != dtype || t.shape() != shape)
    refuse(function, fmt::format("{} is {}", argument, text_of(t)),
           fmt::format("make it {} [{}]", dtype.name(), fmt::join(shape, ", ")));
}

void expect_rank(const char* function, const char* argument, const DeviceTensor& t, size_t rank) {
  if (t.shape().size() != rank)
    refuse(function, fmt::format("{} is {}", argument, text_of(t)),
           fmt::format("give it {} dimensions", rank));
}

}  // namespace

extern "C" {

imbrex_status imbrex_matmul(imbrex_device* device, const imbrex_tensor* a, const imbrex_tensor* b,
                            const imbrex_tensor* c, const imbrex_matmul_options* options, void* stream,
                            imbrex_report** report) {
  return guard([&] {
    const char* const me = "imbrex_matmul";
    require_given(me, "device", device);
    const Device& on = device->device;
    MatmulOptions made;
    if (options != nullptr) {
      require_size(me, "imbrex_matmul_options", options->struct_size, sizeof *options);
      made.a_is_km = options->a_is_km != 0;
      made.b_is_kn = options->b_is_kn != 0;
      if (options->has_alpha != 0) made.alpha = options->alpha;
      made.beta = options->beta;
      if (options->activation < 0 || options->activation > static_cast<int>(Activation::kSilu))
        refuse(me, fmt::format("activation is {}", options->activation),
               "it is an imbrex_activation, 0 to 5");
      made.activation = static_cast<Activation>(options->activation);
      const auto optional = [&](const char* name, const imbrex_tensor* t) {
        return t == nullptr ? DeviceTensor() : tensor_of(me, name, on, t);
      };
      made.bias = optional("bias", options->bias);
      made.residual = optional("residual", options->residual);
      made.scale_a = optional("scale_a", options->scale_a);
      made.scale_b = optional("scale_b", options->scale_b);
    }
    made.stream = stream_of(on, stream);
    hand_over(matmul(tensor_of(me, "a", on, a), tensor_of(me, "b", on, b), tensor_of(me, "c", on, c), made),
              report);
  });
}

imbrex_status imbrex_attention(imbrex_device* device, const imbrex_tensor* q, const imbrex_tensor* k,
                               const imbrex_tensor* v, const imbrex_tensor* o, int32_t causal, float scale,
                               void* stream, imbrex_report** report) {
  return guard([&] {
    const char* const me = "imbrex_attention";
    require_given(me, "device", device);
    const Device& on = device->device;
    const DeviceTensor tq = tensor_of(me, "q", on, q), tk = tensor_of(me, "k", on, k),
                       tv = tensor_of(me, "v", on, v), to = tensor_of(me, "o", on, o);
    expect_rank(me, "q", tq, 3);
    expect_rank(me, "k", tk, 3);
    if (tq.dtype() != float16 && tq.dtype() != bfloat16)
      refuse(me, fmt::format("q is {}", text_of(tq)), "make it float16 or bfloat16");
    const int64_t heads = tq.shape()[0], rows = tq.shape()[1], d = tq.shape()[2], kv_heads = tk.shape()[0],
                  kv_rows = tk.shape()[1];
    if (kv_heads == 0 || heads % kv_heads != 0)
      refuse(me, fmt::format("q has {} heads, k has {}", heads, kv_heads),
             "q's number of heads is a multiple of k's");
    expect(me, "k", tk, tq.dtype(), {kv_heads, kv_rows, d});
    expect(me, "v", tv, tq.dtype(), {kv_heads, kv_rows, d});
    expect(me, "o", to, tq.dtype(), {heads, rows, d});
    const float factor = scale == 0 ? 1 / std::sqrt(static_cast<float>(d)) : scale;
    hand_over(kernel_on<kernels::Attention>(on).on(stream_of(on, stream))(
                  heads, rows, kv_rows, d, heads / kv_heads, causal != 0, factor, tq.dtype(), tq, tk, tv, to),
              report);
  });
}

imbrex_status imbrex_softmax(imbrex_device* device, const imbrex_tensor* x, const imbrex_tensor* y,
                             void* stream, imbrex_report** report) {
  return guard([&] {
    const char* const me = "imbrex_softmax";
    require_given(me, "device", device);
    const Device& on = device->device;
    const DeviceTensor tx = tensor_of(me, "x", on, x), ty = tensor_of(me, "y", on, y);
    expect_rank(me, "x", tx, 2);
    expect(me, "x", tx, float32, tx.shape());
    expect(me, "y", ty, float32, tx.shape());
    hand_over(kernel_on<kernels::Softmax>(on).on(stream_of(on, stream))(tx.shape()[0], tx.shape()[1], tx, ty),
              report);
  });
}

imbrex_status imbrex_layer_norm(imbrex_device* device, const imbrex_tensor* x, const imbrex_tensor* weight,
                                const imbrex_tensor* bias, const imbrex_tensor* y, float epsilon,
                                void* stream, imbrex_report** report) {
  return guard([&] {
    const char* const me = "imbrex_layer_norm";
    require_given(me, "device", device);
    const Device& on = device->device;
    const DeviceTensor tx = tensor_of(me, "x", on, x), tw = tensor_of(me, "weight", on, weight),
                       tb = tensor_of(me, "bias", on, bias), ty = tensor_of(me, "y", on, y);
    expect_rank(me, "x", tx, 2);
    const int64_t m = tx.shape()[0], n = tx.shape()[1];
    expect(me, "x", tx, float32, {m, n});
    expect(me, "weight", tw, float32, {n});
    expect(me, "bias", tb, float32, {n});
    expect(me, "y", ty, float32, {m, n});
    hand_over(kernel_on<kernels::LayerNorm>(on).on(stream_of(on, stream))(m, n, epsilon, tx, tw, tb, ty),
              report);
  });
}

}  // extern "C"
