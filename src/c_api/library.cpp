// SPDX-License-Identifier: Apache-2.0
// The kernel library.
#include <fmt/format.h>

#include "c_api/handles.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/softmax.h"

using namespace imbrex;
using namespace imbrex::c;

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
    hand_over(
        matmul(tensor_of(me, "a", on, a), tensor_of(me, "b", on, b), tensor_of(me, "c", on, c), made, {}),
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
    const AttentionOptions options{.scale = scale, .causal = causal != 0, .stream = stream_of(on, stream)};
    hand_over(attention(tensor_of(me, "q", on, q), tensor_of(me, "k", on, k), tensor_of(me, "v", on, v),
                        tensor_of(me, "o", on, o), options, {}),
              report);
  });
}

imbrex_status imbrex_softmax(imbrex_device* device, const imbrex_tensor* x, const imbrex_tensor* y,
                             void* stream, imbrex_report** report) {
  return guard([&] {
    const char* const me = "imbrex_softmax";
    require_given(me, "device", device);
    const Device& on = device->device;
    hand_over(softmax(tensor_of(me, "x", on, x), tensor_of(me, "y", on, y), stream_of(on, stream), {}),
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
    hand_over(layer_norm(tensor_of(me, "x", on, x), tensor_of(me, "weight", on, weight),
                         tensor_of(me, "bias", on, bias), tensor_of(me, "y", on, y), epsilon,
                         stream_of(on, stream), {}),
              report);
  });
}

}  // extern "C"
