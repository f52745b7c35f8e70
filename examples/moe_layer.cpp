// SPDX-License-Identifier: Apache-2.0
// A mixture of experts' layer: each token goes to some of the experts, y = sum over them of
// weight * down[e] (silu(gate[e] x) * (up[e] x)). Tokens are sorted by expert, and each product is one launch for all
// experts, in float8 with a scale per 128 columns:
//
//   gather -> quantise -> gate and up -> SwiGLU and quantise -> down -> weighted sum of each token's rows
//
// The sums of a token are added in the order of its experts, so that equal calls give equal bits. Checked against
// float64; without a CUDA GPU that runs sm_90a it is small, and runs on the virtual GPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "imbrex/imbrex.h"
#include "imbrex/kernels/gather_rows.h"
#include "imbrex/kernels/grouped/grouped_matmul.h"
#include "imbrex/kernels/rows/quantise.h"

using namespace imbrex;

namespace {

struct Sizes {
  int64_t tokens, width, inner, experts, chosen;
};

/// y[i, :] = the sum over j of weight[i, j] * rows[slot[i, j], :].
struct Combine {
  int columns = 512;
  void operator()(Int32 tokens, int width, int chosen, Ptr<bfloat16> rows_ptr, Ptr<int32> slot_ptr,
                  Ptr<float32> weight_ptr, Ptr<bfloat16> y_ptr) const {
    grid(tokens, cdiv(width, columns));
    warps(4);
    Int32 token = block_idx.x, column = block_idx.y * columns;
    auto rows = global_view(rows_ptr, {tokens * chosen, width}), y = global_view(y_ptr, {tokens, width});
    auto slots = global_view(slot_ptr, {tokens, chosen});
    auto weights = global_view(weight_ptr, {tokens, chosen});
    RegisterTensor sum = zeros(float32, {1, columns});
    for (int j = 0; j < chosen; ++j) {
      Int32 slot = load_global(slots, {token, j}, {1, 1}).item({0, 0});
      sum += load_global(rows, {slot, column}, {1, columns}).to(float32) *
             load_global(weights, {token, j}, {1, 1});
    }
    store_global(y, sum.to(bfloat16), {token, column});
  }
};

/// Where each token's rows are when all are sorted by expert.
struct Routing {
  std::vector<int32_t> first_row, token_of_slot, slot_of_choice;
  std::vector<float> weights;

  Routing(const Sizes& s, uint64_t seed)
      : token_of_slot(s.tokens * s.chosen), slot_of_choice(s.tokens * s.chosen) {
    std::mt19937_64 random(seed);
    std::vector<int32_t> expert_of_choice;
    std::vector<int32_t> all(static_cast<size_t>(s.experts));
    for (int64_t token = 0; token < s.tokens; ++token) {
      for (int32_t e = 0; e < s.experts; ++e) all[e] = e;
      for (int64_t j = 0; j < s.chosen; ++j) {
        std::swap(all[j], all[j + random() % (s.experts - j)]);
        expert_of_choice.push_back(all[j]);
        weights.push_back(static_cast<float>((random() % 1000 + 1) / 1000.0));
      }
    }
    int32_t next = 0;
    for (int32_t e = 0; e < s.experts; ++e) {
      first_row.push_back(next);
      for (size_t i = 0; i < expert_of_choice.size(); ++i)
        if (expert_of_choice[i] == e) {
          slot_of_choice[i] = next;
          token_of_slot[next++] = static_cast<int32_t>(i / s.chosen);
        }
    }
    first_row.push_back(next);
  }
};

template <class T>
DeviceTensor upload(const Device& device, DataType dtype, std::vector<int64_t> shape,
                    const std::vector<T>& values) {
  HostTensor host(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) host.set(static_cast<int64_t>(i), values[i]);
  return DeviceTensor::from_host(device, host);
}

/// Weights of all experts in float8, [experts, n, k], with a scale for each block of 128 x 128.
struct QuantisedWeights {
  DeviceTensor values, scales;
  std::vector<double> exact;  // what they stand for

  QuantisedWeights(const Device& device, int64_t experts, int64_t n, int64_t k, uint64_t seed) {
    const double deviation = 1 / std::sqrt(static_cast<double>(k));
    const HostTensor random = HostTensor::random(float32, {experts, n, k}, seed);
    HostTensor rounded(float8_e4m3, {experts, n, k}), scale(float32, {experts, n / 128, k / 128});
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t i = 0; i < n / 128; ++i)
        for (int64_t j = 0; j < k / 128; ++j) {
          const auto each = [&](auto&& use) {
            for (int64_t row = i * 128; row < i * 128 + 128; ++row)
              for (int64_t column = j * 128; column < j * 128 + 128; ++column)
                use((e * n + row) * k + column);
          };
          double largest = 0;
          each([&](int64_t at) { largest = std::max(largest, std::abs(random.get(at))); });
          const int64_t block = (e * (n / 128) + i) * (k / 128) + j;
          scale.set(block, largest * deviation / 448);
          each([&](int64_t at) { rounded.set(at, random.get(at) * deviation / scale.get(block)); });
        }
    values = DeviceTensor::from_host(device, rounded);
    scales = DeviceTensor::from_host(device, scale);
    exact.resize(static_cast<size_t>(experts * n * k));
    for (int64_t at = 0; at < experts * n * k; ++at)
      exact[at] = rounded.get(at) *
                  scale.get((at / (n * k) * (n / 128) + at / k % n / 128) * (k / 128) + at % k / 128);
  }
};

/// Rows in float8 and their scales, which grouped products take with neighbouring rows.
struct QuantisedRows {
  DeviceTensor values, scales;
  QuantisedRows(const DeviceTensor& rows, const DeviceTensor& gate) {
    const int64_t m = rows.shape()[0], k = rows.shape()[1];
    values = DeviceTensor::empty(rows.device(), float8_e4m3, {m, k});
    scales = DeviceTensor::empty(rows.device(), float32, {k / 128, m});
    quantise_float8(rows, values, scales.transpose(), {.block = 128, .gate = gate}).expect_clean();
  }
};

DeviceTensor moe_layer(const Sizes& s, const Device& device, const Routing& routing, const DeviceTensor& x,
                       const QuantisedWeights& gate_and_up, const QuantisedWeights& down) {
  const int64_t rows = s.tokens * s.chosen;
  const DeviceTensor first_row = upload(device, int32, {s.experts + 1}, routing.first_row),
                     token = upload(device, int32, {rows}, routing.token_of_slot),
                     slot = upload(device, int32, {s.tokens, s.chosen}, routing.slot_of_choice),
                     weight = upload(device, float32, {s.tokens, s.chosen}, routing.weights);
  const auto result = [&](int64_t m, int64_t n) {
    DeviceTensor t = DeviceTensor::empty(device, bfloat16, {m, n});
    t.poison();
    return t;
  };
  const Groups groups = Groups::contiguous(first_row);
  const DeviceTensor sorted = result(rows, s.width), both = result(rows, 2 * s.inner),
                     out = result(rows, s.width), y = result(s.tokens, s.width);

  Kernel(kernels::GatherRows{}, device)(rows, s.tokens, s.width, bfloat16, token, x, sorted).expect_clean();
  const QuantisedRows in(sorted, {});
  grouped_matmul(in.values, gate_and_up.values, both, groups,
                 {.scale_a = in.scales, .scale_b = gate_and_up.scales})
      .expect_clean();
  const DeviceTensor gate = both.slice({0, 0}, {rows, s.inner}),
                     up = both.slice({0, s.inner}, {rows, s.inner});
  const QuantisedRows middle(up, gate);
  grouped_matmul(middle.values, down.values, out, groups, {.scale_a = middle.scales, .scale_b = down.scales})
      .expect_clean();
  Kernel(Combine{}, device)(s.tokens, s.width, s.chosen, out, slot, weight, y).expect_clean();
  return y;
}

/// The same in float64, of one token; activations are not rounded.
std::vector<double> expected(const Sizes& s, const Routing& routing, const std::vector<double>& x,
                             int64_t token, const QuantisedWeights& gate_and_up,
                             const QuantisedWeights& down) {
  std::vector<double> y(static_cast<size_t>(s.width));
  for (int64_t j = 0; j < s.chosen; ++j) {
    const int64_t slot = routing.slot_of_choice[token * s.chosen + j];
    const int64_t expert = std::upper_bound(routing.first_row.begin(), routing.first_row.end(), slot) -
                           routing.first_row.begin() - 1;
    const auto row_of = [&](const QuantisedWeights& w, int64_t n, int64_t k, int64_t i, const double* in) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += w.exact[(expert * n + i) * k + l] * in[l];
      return sum;
    };
    std::vector<double> inner(static_cast<size_t>(s.inner));
    for (int64_t i = 0; i < s.inner; ++i) {
      const double gate = row_of(gate_and_up, 2 * s.inner, s.width, i, &x[token * s.width]),
                   up = row_of(gate_and_up, 2 * s.inner, s.width, s.inner + i, &x[token * s.width]);
      inner[i] = gate / (1 + std::exp(-gate)) * up;
    }
    for (int64_t i = 0; i < s.width; ++i)
      y[i] += routing.weights[token * s.chosen + j] * row_of(down, s.width, s.inner, i, inner.data());
  }
  return y;
}

}  // namespace

int main() {
  const bool has_gpu = Device::has_cuda() && Device::cuda().can_run("sm_90a");
  const Device device = has_gpu ? Device::cuda() : Device::virtual_gpu({.target = "sm_90a"});
  const Sizes s = has_gpu ? Sizes{2048, 1024, 512, 16, 2} : Sizes{20, 256, 128, 4, 2};
  const QuantisedWeights gate_and_up(device, s.experts, 2 * s.inner, s.width, 1),
      down(device, s.experts, s.width, s.inner, 2);
  const Routing routing(s, 3);
  const DeviceTensor x = DeviceTensor::random(device, bfloat16, {s.tokens, s.width}, 4);
  const DeviceTensor y = moe_layer(s, device, routing, x, gate_and_up, down);

  // Of the rounding of activations to 4 bits twice, little more than that of one element is left in sums: their errors
  // are independent.
  const std::vector<double> in = x.to_host().to_doubles(), out = y.to_host().to_doubles();
  double errors = 0, squares = 0;
  for (int64_t token = 0; token < s.tokens; token += std::max<int64_t>(1, s.tokens / 20)) {
    const std::vector<double> wanted = expected(s, routing, in, token, gate_and_up, down);
    for (int64_t i = 0; i < s.width; ++i) {
      const double error = out[token * s.width + i] - wanted[i];
      errors += error * error;
      squares += wanted[i] * wanted[i];
    }
  }
  const double error = std::sqrt(errors / squares);
  std::printf("%lld tokens to %lld of %lld experts on %s: error %.4f of the root mean square\n",
              static_cast<long long>(s.tokens), static_cast<long long>(s.chosen),
              static_cast<long long>(s.experts), device.name().c_str(), error);
  return error < 0.06 ? 0 : 1;
}
