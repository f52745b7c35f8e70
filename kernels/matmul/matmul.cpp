// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul: what it takes, and the kernels made for it. Which one a product gets is chosen in
// matmul_choice.cpp.
#include "imbrex/kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "imbrex/core/error.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "matmul/matmul_choice.h"

namespace imbrex {
namespace {

using kernels::Optional;

/// All the steps that the options can ask for, in order: one kernel type; unused steps add no instructions.
template <template <class...> class K>
using Fused = K<Optional<kernels::ScaleBy>, Optional<kernels::ScaleBy>, Optional<kernels::Scale>,
                Optional<kernels::ColumnBias>, Optional<kernels::RowBias>, Optional<kernels::Residual>,
                kernels::Activate, kernels::Convert>;
/// What a call passes for the steps of Fused, in their order. Tensors that a call does not use are not read.
struct FusedArguments {
  bool scales_a;
  uint64_t scale_a;
  bool scales_b;
  uint64_t scale_b;
  bool scales;
  float alpha;
  bool has_column_bias;
  DataType column_bias_type;
  const DeviceTensor& column_bias;
  bool has_row_bias;
  DataType row_bias_type;
  const DeviceTensor& row_bias;
  bool has_residual;
  float beta;
  const DeviceTensor& residual;
  Activation activation;
  DataType result;

  auto arguments() const {
    return std::tie(scales_a, scale_a, scales_b, scale_b, scales, alpha, has_column_bias, column_bias_type,
                    column_bias, has_row_bias, row_bias_type, row_bias, has_residual, beta, residual,
                    activation, result);
  }
};

using HopperMatmulH7 = Fused<kernels::HopperMatmulH7>;
using HopperMatmulH8 = Fused<kernels::HopperMatmulH8>;
using HopperMatmulSkinny = Fused<kernels::HopperMatmulSkinny>;

constexpr int64_t kUnit = 8;  // elements of 16 bytes, of 16-bit types

/// A choice, and the orders of the operands.
struct Variant {
  MatmulChoice choice;
  bool a_is_km = false, b_is_kn = false;
  friend auto operator<=>(const Variant&, const Variant&) = default;
};

/// Whether a bias is per column, [n] or [1, n]; else it is per row, [m, 1].
bool is_column_bias(const DeviceTensor& bias, int64_t n) {
  const std::vector<int64_t>& shape = bias.shape();
  return (shape.size() == 1 || (shape.size() == 2 && shape[0] == 1)) && shape.back() == n;
}

enum class Until { kCompiled, kLaunched };

using Launch =
    std::function<LaunchReport(Until, int64_t m, int64_t n, int64_t k, const DeviceTensor& a,
                               const DeviceTensor& b, const DeviceTensor& c, const MatmulOptions& options)>;

template <class K>
Launch launcher(K kernel, const Variant& variant, const Device& device) {
  kernel.block_m = variant.choice.block_m;
  kernel.block_n = variant.choice.block_n;
  kernel.block_k = variant.choice.block_k;
  kernel.stages = variant.choice.stages;
  kernel.a_is_km = variant.a_is_km;
  kernel.b_is_kn = variant.b_is_kn;
  auto ready = std::make_shared<Kernel<K>>(kernel, device);
  auto turn = std::make_shared<std::mutex>();
  return [ready, turn](Until until, int64_t m, int64_t n, int64_t k, const DeviceTensor& a,
                       const DeviceTensor& b, const DeviceTensor& c, const MatmulOptions& o) {
    const auto or_c = [&](const DeviceTensor& t) -> const DeviceTensor& { return t.is_null() ? c : t; };
    const DeviceTensor& bias = or_c(o.bias);
    const bool has_bias = !o.bias.is_null(), is_column = has_bias && is_column_bias(o.bias, n);
    const FusedArguments steps{.scales_a = !o.scale_a.is_null(),
                               .scale_a = or_c(o.scale_a).address(),
                               .scales_b = !o.scale_b.is_null(),
                               .scale_b = or_c(o.scale_b).address(),
                               .scales = o.alpha != 1,
                               .alpha = o.alpha,
                               .has_column_bias = is_column,
                               .column_bias_type = bias.dtype(),
                               .column_bias = bias,
                               .has_row_bias = has_bias && !is_column,
                               .row_bias_type = bias.dtype(),
                               .row_bias = bias,
                               .has_residual = o.beta != 0,
                               .beta = o.beta,
                               .residual = or_c(o.residual),
                               .activation = o.activation,
                               .result = c.dtype()};
    const std::lock_guard lock(*turn);
    if (until == Until::kLaunched) return ready->on(o.stream)(m, n, k, a.dtype(), a, b, c, steps);
    ready->prepare(m, n, k, a.dtype(), a, b, c, steps);
    return LaunchReport();
  };
}

Launch make(const Variant& variant, int c_bits, const Device& device) {
  const MatmulChoice& choice = variant.choice;
  switch (choice.method) {
    case MatmulChoice::Method::kSkinny: {
      HopperMatmulSkinny kernel;
      kernel.cluster_n = choice.cluster_n;
      return launcher(kernel, variant, device);
    }
    case MatmulChoice::Method::kLarge: {
      HopperMatmulH7 kernel;
      kernel.store_n = 1024 / c_bits;  // a slice's row is 128 bytes, the widest swizzle
      kernel.store_stages = choice.store_stages;
      kernel.ctas = choice.ctas;
      return launcher(kernel, variant, device);
    }
    default: {
      HopperMatmulH8 kernel;
      kernel.consumers = choice.consumers;
      kernel.cluster_m = choice.cluster_m;
      kernel.cluster_n = choice.cluster_n;
      kernel.split_k = choice.split_k;
      kernel.swap_ab = choice.swap_ab;
      kernel.ctas = choice.ctas;
      return launcher(kernel, variant, device);
    }
  }
}

/// The kernel for a choice on a device: made on the first request and kept, and with it the device.
const Launch& find(const Variant& variant, int c_bits, const Device& device) {
  using Kernels = std::map<std::tuple<const void*, Variant, int>, Launch>;
  static Kernels& kernels = *new Kernels;  // never freed: at exit the driver may be unloaded first
  Launch& launch = kernels[{&device.backend(), variant, c_bits}];
  if (!launch) launch = make(variant, c_bits, device);
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
  const auto facts = [&] { return std::vector{text_of("a", a), text_of("b", b), text_of("c", c)}; };
  for (const DeviceTensor* t : {&a, &b, &c})
    if (t->shape().size() != 2) refuse("operands are matrices", facts(), "give them two dimensions");
  const Problem p{a.shape()[o.a_is_km ? 1 : 0], b.shape()[o.b_is_kn ? 1 : 0], a.shape()[o.a_is_km ? 0 : 1]};
  const int64_t b_k = b.shape()[o.b_is_kn ? 0 : 1];
  if (p.k != b_k)
    refuse(fmt::format("inner sizes differ, a has k = {} and b has k = {}", p.k, b_k), facts(),
           fmt::format("a is {}, b is {} (a_is_km, b_is_kn)", o.a_is_km ? "[k, m]" : "[m, k]",
                       o.b_is_kn ? "[k, n]" : "[n, k]"));
  if (c.shape()[0] != p.m || c.shape()[1] != p.n)
    refuse(fmt::format("c is [{}, {}], the product is [{}, {}]", c.shape()[0], c.shape()[1], p.m, p.n),
           facts(), "c is [m, n]");
  const bool is_half = a.dtype() == float16 || a.dtype() == bfloat16;
  if (a.dtype() != b.dtype() || !(is_half || a.dtype() == float8_e4m3))
    refuse("a and b are not both float16, both bfloat16 or both float8_e4m3", facts(), "convert them");
  if (c.dtype() != float16 && c.dtype() != bfloat16 && c.dtype() != float32)
    refuse("c is not float16, bfloat16 or float32", facts(), "give it one of these types");
  if (!is_half && (o.a_is_km || o.b_is_kn))
    refuse("float8_e4m3 operands have k contiguous", facts(), "transpose them: a is [m, k], b is [n, k]");
  const auto check_rows = [&](std::string_view operand, std::string_view name, int64_t size) {
    const int64_t unit = 128 / a.dtype().bits();
    if (size % unit != 0)
      refuse(fmt::format("{} is {}, rows of it in {} do not begin at multiples of 16 bytes", name, size,
                         operand),
             facts(), fmt::format("pad {} to {} with zeros", name, cdiv(size, unit) * unit));
  };
  check_rows("a", o.a_is_km ? "m" : "k", o.a_is_km ? p.m : p.k);
  check_rows("b", o.b_is_kn ? "n" : "k", o.b_is_kn ? p.n : p.k);
  for (const DeviceTensor* t : {&b, &c})
    if (&t->device().backend() != &a.device().backend())
      refuse("tensors are on different devices", facts(), "copy them to one");
  if (!a.device().can_run("sm_90a"))
    refuse(fmt::format("no kernel for {} ({})", a.device().name(), a.device().target()), facts(),
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
    const auto facts = [&] { return std::vector{text_of("bias", o.bias), text_of("c", c)}; };
    if (!is_column_bias(o.bias, p.n) && o.bias.shape() != std::vector<int64_t>{p.m, 1})
      refuse("bias does not fit c", facts(),
             fmt::format("make it [{}], one per column, or [{}, 1], one per row", p.n, p.m));
    if (o.bias.dtype() != c.dtype() && o.bias.dtype() != float32)
      refuse("bias is neither of c's type nor float32", facts(), "convert it");
  }
  if (!o.residual.is_null()) {
    check_device("residual", o.residual, a);
    if (o.residual.shape() != c.shape() || o.residual.dtype() != c.dtype())
      refuse("residual is not like c", {text_of("residual", o.residual), text_of("c", c)},
             "give it c's shape and type");
  }
}

/// What a product's kernel depends on.
struct Call {
  const void* device;
  int64_t m, n, k;
  int bits, c_bits;  // of an element
  bool a_is_km, b_is_kn, is_plain;
  friend auto operator<=>(const Call&, const Call&) = default;
};

/// The choice for a call; it depends on the size of an element too.
Variant choose(const Call& call, int multiprocessors) {
  const int halves = 16 / call.bits;  // elements per 16 bits: rows of equally many bytes take equally long
  const bool has_tma_rows = call.n * call.c_bits % 128 == 0;
  Variant variant{
      choose_matmul(call.m, call.n, cdiv(call.k, halves), has_tma_rows, call.is_plain, multiprocessors),
      call.a_is_km, call.b_is_kn};
  variant.choice.block_k *= halves;
  return variant;
}

/// The kernel for a call. Choosing takes longer than a launch should, so choices are kept.
const Launch& find(const Call& call, const Device& device) {
  constexpr size_t kMost = 4096;
  static std::mutex turn;
  static auto& known = *new std::map<Call, const Launch*>;
  const std::lock_guard lock(turn);
  if (known.size() > kMost) known.clear();
  const Launch*& launch = known[call];
  if (launch == nullptr) launch = &find(choose(call, device.multiprocessors()), call.c_bits, device);
  return *launch;
}

}  // namespace

std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors) {
  return choose_matmul(m, n, k, n % kUnit == 0, true, multiprocessors).text();
}

namespace {

LaunchReport run(Until until, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                 const MatmulOptions& options) {
  const Problem p = check(a, b, c, options);
  check_options(p, a, c, options);
  const bool is_plain = c.dtype().bits() == 16 && options.alpha == 1 && options.beta == 0 &&
                        options.scale_a.is_null() && options.scale_b.is_null() && options.bias.is_null() &&
                        options.activation == Activation::kNone;
  const Call call{
      &a.device().backend(), p.m,     p.n, p.k, a.dtype().bits(), c.dtype().bits(), options.a_is_km,
      options.b_is_kn,       is_plain};
  return find(call, a.device())(until, p.m, p.n, p.k, a, b, c, options);
}

}  // namespace

LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options) {
  return run(Until::kLaunched, a, b, c, options);
}

void prepare_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                    const MatmulOptions& options) {
  run(Until::kCompiled, a, b, c, options);
}

}  // namespace imbrex
