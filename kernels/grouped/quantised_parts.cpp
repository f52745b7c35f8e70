// SPDX-License-Identifier: Apache-2.0
#include "grouped/quantised_parts.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/sum_of_k_parts.h"
#include "imbrex/runtime/workspace.h"
#include "library_kernel.h"

namespace imbrex {
namespace {

using Multiply = kernels::HopperMatmulH8<kernels::PartsOfK>;
using Quantise = kernels::SumOfKParts<kernels::ScaleByFactors, kernels::ScaleByFactors, kernels::GatedBy,
                                      kernels::QuantiseBlocks, kernels::Activate, kernels::Convert>;

Multiply multiply_with(const MatmulChoice& c, int bits) {
  Multiply kernel;
  kernel.block_m = c.block_m;
  kernel.block_n = c.block_n;
  kernel.block_k = c.block_k * 16 / bits;
  kernel.stages = c.stages;
  kernel.consumers = c.consumers;
  kernel.cluster_m = c.cluster_m;
  kernel.cluster_n = c.cluster_n;
  kernel.split_k = c.split_k;
  kernel.swap_ab = c.swap_ab;
  kernel.store_stages = c.store_stages;
  return kernel;
}

/// What the second launch takes goes to `use`; the sums are at an address, of so many parts of k.
auto with_arguments(const FusedProduct& p, uint64_t sums, int64_t parts, const auto& use) {
  return with_steps(p, [&](const auto&... steps) {
    return use(kernels::ProductSizesArguments(p.m, p.n, 1, 0, 0), parts, p.dtype, sums, p.c, steps...);
  });
}

/// The kernels of a device, made when they are first needed.
struct Kernels {
  explicit Kernels(const Device& device)
      : quantise(std::make_unique<Kernel<Quantise>>(library_kernel(Quantise(), device))) {}
  std::map<std::tuple<int, MatmulChoice>, std::unique_ptr<Kernel<Multiply>>> multiply;
  std::unique_ptr<Kernel<Quantise>> quantise;
};

}  // namespace

bool has_one_factor(const FusedProduct& p) {
  return !p.is_gated || p.up == p.b + static_cast<uint64_t>(p.n * p.k * p.dtype.bits() / 8);
}

LaunchReport quantise_parts(const FusedProduct& p, const Device& device, const MatmulChoice& choice,
                            const Stream& stream) {
  static std::mutex turn;
  // Never freed: at exit the driver may be unloaded first.
  static auto& known = *new std::map<const void*, Kernels>;
  const std::lock_guard lock(turn);
  Kernels& kernels = known.try_emplace(&device.backend(), device).first->second;
  const int bits = p.dtype.bits();
  MatmulChoice tile = choice;  // how many CTAs and parts, is for each launch to say
  tile.ctas = 0, tile.parts = 1;
  std::unique_ptr<Kernel<Multiply>>& multiply = kernels.multiply[{bits, tile}];
  if (!multiply)
    multiply = std::make_unique<Kernel<Multiply>>(library_kernel(multiply_with(tile, bits), device));
  const int64_t parts = choice.parts;
  const Workspace sums = Workspace::on(stream, device, 4 * parts * p.m * p.columns());
  const LaunchReport multiplied =
      multiply->on(stream)(kernels::ProductSizesArguments(p.m, p.columns(), p.k, 0, choice.ctas), p.dtype,
                           p.a, p.b, sums.address(), parts);
  const LaunchReport quantised = with_arguments(
      p, sums.address(), parts, [&](const auto&... all) { return kernels.quantise->on(stream)(all...); });
  return multiplied.clean() ? quantised : multiplied;
}

std::vector<std::shared_ptr<ir::Function>> trace_second_launch(const FusedProduct& p) {
  return with_arguments(p, p.c, 1, [&](const auto&... all) {
    return std::vector{library_kernel(Quantise(), std::nullopt).trace(all...)};
  });
}
void ship_second_launch(const FusedProduct& p, Cache& folder) {
  with_arguments(p, p.c, 1,
                 [&](const auto&... all) { library_kernel(Quantise(), std::nullopt).ship(folder, all...); });
}

}  // namespace imbrex
