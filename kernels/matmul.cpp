// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul: a choice of kernel and tiles by a model of the time each takes, checked against
// measurements of the shapes in docs/performance.md.
#include "imbrex/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "hopper_matmul/matmul_h5.h"
#include "hopper_matmul/matmul_h7.h"
#include "hopper_matmul/matmul_skinny.h"
#include "imbrex/error.h"

namespace imbrex {
namespace {

using kernels::HopperMatmulH5;
using kernels::HopperMatmulH7;
using kernels::HopperMatmulSkinny;

constexpr int64_t kUnit = 8;          // elements of 16 bytes
constexpr int64_t kSkinnyRows = 128;  // the most rows of A that go through the columns of wgmma

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

enum class Method {
  kSkinny,  ///< few rows of A
  kStaged,  ///< the result leaves by TMA, whose rows begin at multiples of 16 bytes
  kDirect,  ///< it is stored element by element
};

struct Choice {
  Method method;
  int block_m, block_n, block_k, stages, store_stages;
  int ctas;  ///< of a cluster, kSkinny; else of the grid
  friend auto operator<=>(const Choice&, const Choice&) = default;
};

/// Tiles of a CTA of the big kernels, and the part of the tensor cores' rate that a main loop of them
/// reaches.
struct Tiles {
  int block_m, block_n, stages, store_stages;
  double rate;
};
constexpr Tiles kTiles[] = {
    {128, 256, 4, 2, 1.0}, {128, 192, 5, 1, 0.97}, {128, 128, 5, 2, 0.95}, {128, 64, 8, 1, 0.62}};

/// Clocks: what a block of k takes, what a tile's start and end add.
constexpr double kTileClocks = 4000;
double clocks_of(const Tiles& tiles, int64_t k, int64_t waves) {
  const double block = tiles.block_m * tiles.block_n / 32.0 / tiles.rate;
  return static_cast<double>(waves) * (static_cast<double>(divide_up(k, 64)) * block + kTileClocks);
}

Choice choose(int64_t m, int64_t n, int64_t k, int multiprocessors) {
  if (m <= kSkinnyRows) {
    // As many columns as there are rows of A; of stages, as many as fit. Where the CTAs are more than one
    // wave, they find less of A in the L2 cache, and share it between more.
    const bool one_wave = divide_up(n, 64) <= multiprocessors;
    const Choice choices[] = {{Method::kSkinny, 8, 64, 128, 10, 0, 1},
                              {Method::kSkinny, 16, 64, 128, 9, 0, 1},
                              {Method::kSkinny, 32, 64, 128, 8, 0, 2},
                              {Method::kSkinny, 64, 64, 128, 6, 0, 2},
                              {Method::kSkinny, 128, 64, 64, 8, 0, one_wave ? 2 : 4}};
    for (const Choice& choice : choices)
      if (m <= choice.block_m) return choice;
  }
  constexpr int kPair = 2;  // CTAs of a cluster
  const int64_t pairs = std::max(multiprocessors / kPair, 1);
  const Tiles* best = nullptr;
  int64_t best_waves = 0, best_tiles = 0;
  for (const Tiles& tiles : kTiles) {
    const int64_t count = divide_up(m, kPair * tiles.block_m) * divide_up(n, tiles.block_n);
    const int64_t waves = divide_up(count, pairs);
    if (best && clocks_of(tiles, k, waves) >= clocks_of(*best, k, best_waves)) continue;
    best = &tiles;
    best_waves = waves;
    best_tiles = count;
  }
  // No more CTAs than the waves need: those left dark leave their power to the others.
  const auto ctas = static_cast<int>(kPair * divide_up(best_tiles, best_waves));
  return {n % kUnit == 0 ? Method::kStaged : Method::kDirect,
          best->block_m,
          best->block_n,
          64,
          best->stages,
          best->store_stages,
          ctas};
}

using Launch =
    std::function<LaunchReport(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c)>;

template <class K>
Launch launcher(K kernel, const Device& device) {
  auto ready = std::make_shared<Kernel<K>>(kernel, device);
  auto turn = std::make_shared<std::mutex>();
  return [ready, turn](const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c) {
    const std::lock_guard lock(*turn);
    return (*ready)(a.shape()[0], b.shape()[0], a.shape()[1], a.dtype(), a, b, c);
  };
}

Launch make(const Choice& choice, const Device& device) {
  switch (choice.method) {
    case Method::kSkinny: {
      HopperMatmulSkinny<> kernel;
      kernel.block_m = choice.block_m;
      kernel.block_k = choice.block_k;
      kernel.stages = choice.stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, device);
    }
    case Method::kDirect: {
      HopperMatmulH5<> kernel;
      kernel.block_m = choice.block_m;
      kernel.block_n = choice.block_n;
      kernel.stages = choice.stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, device);
    }
    default: {
      HopperMatmulH7<> kernel;
      kernel.block_m = choice.block_m;
      kernel.block_n = choice.block_n;
      kernel.stages = choice.stages;
      kernel.store_stages = choice.store_stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, device);
    }
  }
}

/// The kernel for a choice on a device, made when first asked for and kept, and with it the device.
Launch find(const Choice& choice, const Device& device) {
  using Kernels = std::map<std::pair<const void*, Choice>, Launch>;
  static std::mutex turn;
  static Kernels& kernels = *new Kernels;  // never freed: at exit the driver may be gone before them
  const std::lock_guard lock(turn);
  Launch& launch = kernels[{&device.backend(), choice}];
  if (!launch) launch = make(choice, device);
  return launch;
}

[[noreturn]] void refuse(std::string message, std::vector<std::string> facts, std::string help) {
  throw LaunchError(Diagnostic{{}, "matmul: " + std::move(message), std::move(facts), std::move(help)});
}

std::string text_of(std::string_view name, const DeviceTensor& t) {
  return fmt::format("{}  {} [{}]", name, t.dtype().name(), fmt::join(t.shape(), ", "));
}

void check(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c) {
  for (const DeviceTensor* t : {&a, &b, &c})
    if (t->is_null()) refuse("a tensor is null or released", {}, "make it before the call");
  const std::vector<std::string> facts{text_of("a", a), text_of("b", b), text_of("c", c)};
  for (const DeviceTensor* t : {&a, &b, &c})
    if (t->shape().size() != 2) refuse("operands are matrices", facts, "give them two dimensions");
  if (a.shape()[1] != b.shape()[1])
    refuse(fmt::format("inner sizes differ, a has k = {} and b has k = {}", a.shape()[1], b.shape()[1]),
           facts, "b is [n, k]");
  if (c.shape()[0] != a.shape()[0] || c.shape()[1] != b.shape()[0])
    refuse(fmt::format("c is [{}, {}], the product is [{}, {}]", c.shape()[0], c.shape()[1], a.shape()[0],
                       b.shape()[0]),
           facts, "c is [m, n]");
  if (a.dtype() != b.dtype() || a.dtype() != c.dtype() || (a.dtype() != float16 && a.dtype() != bfloat16))
    refuse("element types are not all float16 or all bfloat16", facts, "convert them");
  if (a.shape()[1] % kUnit != 0)
    refuse(fmt::format("k is {}, rows of it do not begin at multiples of 16 bytes", a.shape()[1]), facts,
           fmt::format("pad k to {} with zeros", divide_up(a.shape()[1], kUnit) * kUnit));
  for (const DeviceTensor* t : {&b, &c})
    if (&t->device().backend() != &a.device().backend())
      refuse("tensors are on different devices", facts, "copy them to one");
  if (!a.device().can_run("sm_90a"))
    refuse(fmt::format("no kernel for {} ({})", a.device().name(), a.device().target()), facts,
           "products run on devices of target sm_90a");
}

}  // namespace

std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors) {
  const Choice c = choose(m, n, k, multiprocessors);
  if (c.method == Method::kSkinny)
    return fmt::format("hopper_matmul_skinny block_m={} block_k={} stages={} ctas={}", c.block_m, c.block_k,
                       c.stages, c.ctas);
  if (c.method == Method::kDirect)
    return fmt::format("hopper_matmul_h5 block_m={} block_n={} stages={} ctas={}", c.block_m, c.block_n,
                       c.stages, c.ctas);
  return fmt::format("hopper_matmul_h7 block_m={} block_n={} stages={} store_stages={} ctas={}", c.block_m,
                     c.block_n, c.stages, c.store_stages, c.ctas);
}

LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c) {
  check(a, b, c);
  const Device& device = a.device();
  const Choice choice = choose(a.shape()[0], b.shape()[0], a.shape()[1], device.multiprocessors());
  return find(choice, device)(a, b, c);
}

}  // namespace imbrex
