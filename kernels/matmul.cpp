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

using kernels::Optional;

/// Every step that the options name, in order: one kernel type, of which what is not used leaves no trace.
template <template <class...> class K>
using Fused = K<Optional<kernels::ScaleBy>, Optional<kernels::ScaleBy>, Optional<kernels::Scale>,
                Optional<kernels::ColumnBias>, Optional<kernels::RowBias>, Optional<kernels::Residual>,
                kernels::Activate, kernels::Convert>;
using HopperMatmulH5 = Fused<kernels::HopperMatmulH5>;
using HopperMatmulH7 = Fused<kernels::HopperMatmulH7>;
using HopperMatmulSkinny = Fused<kernels::HopperMatmulSkinny>;

constexpr int64_t kUnit = 8;          // elements of 16 bytes, of 16-bit types
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
  int store_n = 64;
  bool a_is_km = false, b_is_kn = false;
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

/// Whether a bias is one a column, [n] or [1, n]; else it is [m, 1].
bool is_column_bias(const DeviceTensor& bias, int64_t n) {
  const std::vector<int64_t>& shape = bias.shape();
  return (shape.size() == 1 || (shape.size() == 2 && shape[0] == 1)) && shape.back() == n;
}

using Launch =
    std::function<LaunchReport(int64_t m, int64_t n, int64_t k, const DeviceTensor& a, const DeviceTensor& b,
                               const DeviceTensor& c, const MatmulOptions& options)>;

template <class K>
Launch launcher(K kernel, const Choice& choice, const Device& device) {
  kernel.a_is_km = choice.a_is_km;
  kernel.b_is_kn = choice.b_is_kn;
  auto ready = std::make_shared<Kernel<K>>(kernel, device);
  auto turn = std::make_shared<std::mutex>();
  return [ready, turn](int64_t m, int64_t n, int64_t k, const DeviceTensor& a, const DeviceTensor& b,
                       const DeviceTensor& c, const MatmulOptions& o) {
    // The address of what is not used is not read.
    const auto or_c = [&](const DeviceTensor& t) -> const DeviceTensor& { return t.is_null() ? c : t; };
    const DataType bias_type = or_c(o.bias).dtype();
    const bool has_bias = !o.bias.is_null(), is_column = has_bias && is_column_bias(o.bias, n);
    const std::lock_guard lock(*turn);
    return (*ready)(m, n, k, a.dtype(), a, b, c, !o.scale_a.is_null(), or_c(o.scale_a).address(),
                    !o.scale_b.is_null(), or_c(o.scale_b).address(), o.alpha != 1, o.alpha, is_column,
                    bias_type, or_c(o.bias), has_bias && !is_column, bias_type, or_c(o.bias), o.beta != 0,
                    o.beta, or_c(o.residual), o.activation, c.dtype());
  };
}

Launch make(const Choice& choice, const Device& device) {
  switch (choice.method) {
    case Method::kSkinny: {
      HopperMatmulSkinny kernel;
      kernel.block_m = choice.block_m;
      kernel.block_k = choice.block_k;
      kernel.stages = choice.stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, choice, device);
    }
    case Method::kDirect: {
      HopperMatmulH5 kernel;
      kernel.block_m = choice.block_m;
      kernel.block_n = choice.block_n;
      kernel.block_k = choice.block_k;
      kernel.stages = choice.stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, choice, device);
    }
    default: {
      HopperMatmulH7 kernel;
      kernel.block_m = choice.block_m;
      kernel.block_n = choice.block_n;
      kernel.block_k = choice.block_k;
      kernel.stages = choice.stages;
      kernel.store_n = choice.store_n;
      kernel.store_stages = choice.store_stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, choice, device);
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

struct Problem {
  int64_t m, n, k;
};

/// A tensor of the options, if it is there: on a's device.
void check_device(std::string_view name, const DeviceTensor& t, const DeviceTensor& a) {
  if (!t.is_null() && &t.device().backend() != &a.device().backend())
    refuse(fmt::format("{} is on another device than a", name), {text_of(name, t), text_of("a", a)},
           "copy it to a's");
}

Problem check(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c, const MatmulOptions& o) {
  for (const DeviceTensor* t : {&a, &b, &c})
    if (t->is_null()) refuse("a tensor is null or released", {}, "make it before the call");
  const std::vector<std::string> facts{text_of("a", a), text_of("b", b), text_of("c", c)};
  for (const DeviceTensor* t : {&a, &b, &c})
    if (t->shape().size() != 2) refuse("operands are matrices", facts, "give them two dimensions");
  const Problem p{a.shape()[o.a_is_km ? 1 : 0], b.shape()[o.b_is_kn ? 1 : 0], a.shape()[o.a_is_km ? 0 : 1]};
  const int64_t b_k = b.shape()[o.b_is_kn ? 0 : 1];
  if (p.k != b_k)
    refuse(fmt::format("inner sizes differ, a has k = {} and b has k = {}", p.k, b_k), facts,
           fmt::format("a is {}, b is {} (a_is_km, b_is_kn)", o.a_is_km ? "[k, m]" : "[m, k]",
                       o.b_is_kn ? "[k, n]" : "[n, k]"));
  if (c.shape()[0] != p.m || c.shape()[1] != p.n)
    refuse(fmt::format("c is [{}, {}], the product is [{}, {}]", c.shape()[0], c.shape()[1], p.m, p.n), facts,
           "c is [m, n]");
  const bool is_half = a.dtype() == float16 || a.dtype() == bfloat16;
  if (a.dtype() != b.dtype() || !(is_half || a.dtype() == float8_e4m3))
    refuse("a and b are not both float16, both bfloat16 or both float8_e4m3", facts, "convert them");
  if (c.dtype() != float16 && c.dtype() != bfloat16 && c.dtype() != float32)
    refuse("c is not float16, bfloat16 or float32", facts, "give it one of these types");
  if (!is_half && (o.a_is_km || o.b_is_kn))
    refuse("float8_e4m3 operands have k contiguous", facts, "transpose them: a is [m, k], b is [n, k]");
  const auto check_rows = [&](std::string_view operand, std::string_view name, int64_t size) {
    const int64_t unit = 128 / a.dtype().bits();
    if (size % unit != 0)
      refuse(fmt::format("{} is {}, rows of it in {} do not begin at multiples of 16 bytes", name, size,
                         operand),
             facts, fmt::format("pad {} to {} with zeros", name, divide_up(size, unit) * unit));
  };
  check_rows("a", o.a_is_km ? "m" : "k", o.a_is_km ? p.m : p.k);
  check_rows("b", o.b_is_kn ? "n" : "k", o.b_is_kn ? p.n : p.k);
  for (const DeviceTensor* t : {&b, &c})
    if (&t->device().backend() != &a.device().backend())
      refuse("tensors are on different devices", facts, "copy them to one");
  if (!a.device().can_run("sm_90a"))
    refuse(fmt::format("no kernel for {} ({})", a.device().name(), a.device().target()), facts,
           "products run on devices of target sm_90a");
  return p;
}

void check_options(const Problem& p, const DeviceTensor& a, const DeviceTensor& c, const MatmulOptions& o) {
  const auto check_scale = [&](std::string_view name, const DeviceTensor& t) {
    if (t.is_null()) return;
    check_device(name, t, a);
    if (t.dtype() != float32 || t.bytes() != 4)
      refuse(fmt::format("{} is not one float32", name), {text_of(name, t)}, "make it float32 [1]");
  };
  check_scale("scale_a", o.scale_a);
  check_scale("scale_b", o.scale_b);
  if (!o.bias.is_null()) {
    check_device("bias", o.bias, a);
    const std::vector<std::string> facts{text_of("bias", o.bias), text_of("c", c)};
    if (!is_column_bias(o.bias, p.n) && o.bias.shape() != std::vector<int64_t>{p.m, 1})
      refuse("bias does not fit c", facts,
             fmt::format("make it [{}], one a column, or [{}, 1], one a row", p.n, p.m));
    if (o.bias.dtype() != c.dtype() && o.bias.dtype() != float32)
      refuse("bias is neither of c's type nor float32", facts, "convert it");
  }
  if (!o.residual.is_null()) {
    check_device("residual", o.residual, a);
    if (o.residual.shape() != c.shape() || o.residual.dtype() != c.dtype())
      refuse("residual is not like c", {text_of("residual", o.residual), text_of("c", c)},
             "give it c's shape and type");
  }
}

/// choose() for these operands and options: what depends on the bytes of an element, and on orders.
Choice choose(const Problem& p, const DeviceTensor& a, const DeviceTensor& c, const MatmulOptions& o) {
  const int halves = 16 / a.dtype().bits();  // elements in 16 bits: rows of as many bytes take as long
  Choice choice = choose(p.m, p.n, divide_up(p.k, halves), a.device().multiprocessors());
  choice.block_k *= halves;
  choice.a_is_km = o.a_is_km;
  choice.b_is_kn = o.b_is_kn;
  if (choice.method == Method::kSkinny) return choice;
  choice.method = p.n * c.dtype().bits() % 128 == 0 ? Method::kStaged : Method::kDirect;
  choice.store_n = 1024 / c.dtype().bits();  // slices of C whose rows are as long as the widest swizzle
  return choice;
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

LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options) {
  const Problem p = check(a, b, c, options);
  check_options(p, a, c, options);
  return find(choose(p, a, c, options), a.device())(p.m, p.n, p.k, a, b, c, options);
}

}  // namespace imbrex
