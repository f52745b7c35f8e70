// SPDX-License-Identifier: Apache-2.0
// Kernels made for choices, for either set of steps.
#pragma once

#include <memory>
#include <mutex>
#include <tuple>

#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/kernels/matmul/sum_of_k_parts.h"
#include "imbrex/runtime/workspace.h"
#include "library_kernel.h"
#include "matmul/matmul_launch.h"
#include "matmul/set_tiles.h"

namespace imbrex {

/// What a call passes for ScaleByFactors, ScaleByFactors, Optional<Scale>, Optional<ColumnBias>,
/// Optional<RowBias>. Addresses that a call does not use are c's, and not read.
struct FactorsAndBiases {
  explicit FactorsAndBiases(const Product& p)
      : scales_a(static_cast<int>(p.scales_a)),
        scale_a(scales_a != 0 ? p.scale_a : p.c),
        scales_b(static_cast<int>(p.scales_b)),
        scale_b(scales_b != 0 ? p.scale_b : p.c),
        scales(p.alpha != 1),
        alpha(p.alpha),
        bias_type(p.bias.is_null() ? p.c_type : p.bias.dtype()),
        bias(p.bias.is_null() ? p.c : p.bias.address()),
        has_column_bias(!p.bias.is_null() && p.is_column_bias),
        has_row_bias(!p.bias.is_null() && !p.is_column_bias) {}
  int scales_a;  // kernels::Factors
  uint64_t scale_a;
  int scales_b;
  uint64_t scale_b;
  bool scales;
  float alpha;
  DataType bias_type;
  uint64_t bias;
  bool has_column_bias, has_row_bias;

  auto arguments() const {
    return std::tie(scales_a, scale_a, scales_b, scale_b, scales, alpha, has_column_bias, bias_type, bias,
                    has_row_bias, bias_type, bias);
  }
};

/// What a kernel takes between its operands and its steps: nothing, or a workspace for sums and turns.
template <class K>
struct Scratch {
  Scratch(const K&, Until, const std::optional<Device>&, const Product&, const Stream&) {}
  auto arguments() const { return std::tie(); }
};
template <class... Steps>
struct Scratch<kernels::HopperMatmulStreamK<Steps...>> {
  Scratch(const kernels::HopperMatmulStreamK<Steps...>& kernel, Until until,
          const std::optional<Device>& device, const Product& p, const Stream& stream)
      : sum_address(p.c), turn_address(p.c) {  // read by no one where the kernel is only compiled
    if (until == Until::kCompiled) return;
    sums = Workspace::on(stream, *device, 4 * kernel.partial_elements(p.ctas));
    turns = Workspace::on(stream, *device, 4 * kernel.turn_elements(p.ctas), Workspace::Contents::kLeftZero);
    sum_address = sums.address();
    turn_address = turns.address();
  }
  Workspace sums, turns;
  uint64_t sum_address, turn_address;
  auto arguments() const { return std::tie(sum_address, turn_address); }
};

template <class K>
void set_tile(K& kernel, const Variant& variant) {
  set_tile(kernel, variant.choice);
  kernel.a_is_km = variant.a_is_km;
  kernel.b_is_kn = variant.b_is_kn;
}

/// Compiles or launches K, whose tiles are those of the variant, with what `arguments(product)` makes of the steps.
template <class K, class Arguments>
Launch launch_of(K kernel, const Variant& variant, const std::optional<Device>& device, Arguments arguments) {
  set_tile(kernel, variant);
  auto ready = std::make_shared<Kernel<K>>(library_kernel(kernel, device));
  auto turn = std::make_shared<std::mutex>();
  // What a call of the kernel takes goes to `use`.
  const auto with_arguments = [arguments, kernel, device](Until until, const Product& p, const Stream& stream,
                                                          const auto& use) {
    const auto steps = arguments(p);
    const Scratch<K> scratch(kernel, until, device, p, stream);
    return use(kernels::product_sizes(kernel, p.m, p.n, p.k, p.ctas), p.dtype, p.a, p.b, p.c, scratch, steps);
  };
  return {.run =
              [=](Until until, const Product& p, const Stream& stream) {
                return with_arguments(until, p, stream, [&](const auto&... all) {
                  const std::lock_guard lock(*turn);
                  if (until == Until::kLaunched) return ready->on(stream)(all...);
                  ready->prepare(all...);
                  return LaunchReport();
                });
              },
          .trace =
              [=](const Product& p) {
                return with_arguments(Until::kCompiled, p, Stream(),
                                      [&](const auto&... all) { return std::vector{ready->trace(all...)}; });
              },
          .ship =
              [=](const Product& p, Cache& folder) {
                with_arguments(Until::kCompiled, p, Stream(),
                               [&](const auto&... all) { ready->ship(folder, all...); });
              }};
}

/// Two launches: K leaves the sums of parts of k, SumOfKParts adds them up and makes the steps.
template <class K, class Sum, class OfParts, class OfSum>
Launch launch_of_parts(K kernel, const Variant& variant, const std::optional<Device>& device,
                       OfParts of_parts, OfSum of_sum) {
  set_tile(kernel, variant);
  auto multiply = std::make_shared<Kernel<K>>(library_kernel(kernel, device));
  auto add = std::make_shared<Kernel<Sum>>(library_kernel(Sum(), device));
  auto turn = std::make_shared<std::mutex>();
  const auto multiply_with = [=](const Product& p, uint64_t sums, const auto& use) {
    const auto before = of_parts(p);
    return use(kernels::ProductSizesArguments(p.m, p.n, p.k, 0, p.ctas), p.dtype, p.a, p.b, sums, before);
  };
  const auto add_with = [=](const Product& p, uint64_t sums, const auto& use) {
    const auto steps = of_sum(p);
    return use(kernels::ProductSizesArguments(p.m, p.n, 1, 0, 0), int64_t{p.parts}, p.dtype, sums, p.c,
               steps);
  };
  return {.run =
              [=](Until until, const Product& p, const Stream& stream) {
                const std::lock_guard lock(*turn);
                if (until == Until::kCompiled) {
                  multiply_with(p, p.c, [&](const auto&... all) { multiply->prepare(all...); });
                  add_with(p, p.c, [&](const auto&... all) { add->prepare(all...); });
                  return LaunchReport();
                }
                const int64_t matrices = p.strides ? p.strides->batch.matrices : 1;
                const Workspace sums = Workspace::on(stream, *device, 4 * matrices * p.parts * p.m * p.n);
                LaunchReport report = multiply_with(
                    p, sums.address(), [&](const auto&... all) { return multiply->on(stream)(all...); });
                LaunchReport added =
                    add_with(p, sums.address(), [&](const auto&... all) { return add->on(stream)(all...); });
                return report.clean() ? added : report;
              },
          .trace =
              [=](const Product& p) {
                return std::vector{
                    multiply_with(p, p.c, [&](const auto&... all) { return multiply->trace(all...); }),
                    add_with(p, p.c, [&](const auto&... all) { return add->trace(all...); })};
              },
          .ship =
              [=](const Product& p, Cache& folder) {
                multiply_with(p, p.c, [&](const auto&... all) { multiply->ship(folder, all...); });
                add_with(p, p.c, [&](const auto&... all) { add->ship(folder, all...); });
              }};
}

/// `Steps<K>`: kernel template K with the steps that `arguments(product)` stands for.
template <template <template <class...> class> class Steps, class Arguments>
Launch make_launch(const Variant& variant, const std::optional<Device>& device, Arguments arguments) {
  const MatmulChoice& choice = variant.choice;
  switch (choice.method) {
    case MatmulChoice::Method::kSkinny: {
      typename Steps<kernels::HopperMatmulSkinny>::Kernel kernel;
      kernel.cluster_n = choice.cluster_n;
      return launch_of(kernel, variant, device, arguments);
    }
    case MatmulChoice::Method::kStreamK: {
      typename Steps<kernels::HopperMatmulStreamK>::Kernel kernel;
      kernel.consumers = choice.consumers;
      kernel.cluster_m = choice.cluster_m;
      kernel.cluster_n = choice.cluster_n;
      kernel.swap_ab = choice.swap_ab;
      return launch_of(kernel, variant, device, arguments);
    }
    case MatmulChoice::Method::kParts: {
      typename Steps<kernels::HopperMatmulH8>::Parts kernel;
      set_h8(kernel, choice);
      return launch_of_parts<typename Steps<kernels::HopperMatmulH8>::Parts,
                             typename Steps<kernels::SumOfKParts>::Kernel>(
          kernel, variant, device,
          [](const Product& p) { return typename Steps<kernels::SumOfKParts>::OfParts(p); }, arguments);
    }
    default: {
      typename Steps<kernels::HopperMatmulH8>::Kernel kernel;
      set_h8(kernel, choice);
      return launch_of(kernel, variant, device, arguments);
    }
  }
}

}  // namespace imbrex
