// SPDX-License-Identifier: Apache-2.0
// imbrex::gated_matmul and imbrex::quantised_matmul: the grouped kernel of one group, with what it can do to whole tiles.
#include "imbrex/kernels/fused_matmul.h"

#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/hopper_grouped.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"
#include "tensor_fact.h"

namespace imbrex {
namespace {

using FusedKernel =
    kernels::HopperGroupedMatmul<kernels::OneGroup, kernels::ScaleByFactors, kernels::ScaleByFactors,
                                 kernels::GatedBy, kernels::QuantiseBlocks, kernels::Activate,
                                 kernels::Convert>;

/// A call, checked.
class FusedCall {
 public:
  FusedCall(const char* function, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor* up,
            const DeviceTensor& c, const FusedMatmulOptions& o)
      : function_(function), a_(a), tensors_{{"a", &a}, {"b", &b}, {"c", &c}} {
    if (up != nullptr) tensors_.insert(tensors_.begin() + 2, {"up", up});
    for (const auto& [name, t] : tensors_) check_matrix(name, *t);
    if (!a.device().can_run("sm_90a"))
      refuse(fmt::format("no kernel for {}", a.device().name()), "it runs on devices of target sm_90a");
    m = a.shape()[0], n = b.shape()[0], k = a.shape()[1];
    expect_shape("b", b, {n, k});
    if (up != nullptr) expect_shape("up", *up, {n, k});
    expect_shape("c", c, {m, n});
    const DataType type = a.dtype();
    if (type != float16 && type != bfloat16 && type != float8_e4m3)
      refuse(fmt::format("a is of {}", type.name()), "it is float16, bfloat16 or float8_e4m3");
    for (const DeviceTensor* t : {&b, up})
      if (t != nullptr && t->dtype() != type) refuse("a and b are not of one type", "convert them");
    const bool quantises = c.dtype() == float8_e4m3;
    if (!quantises && c.dtype() != type && !(type == float8_e4m3 && c.dtype().bits() == 16))
      refuse(fmt::format("c is of {}", c.dtype().name()), "it is of a's type of 16 bits, or float8_e4m3");
    const int64_t k_unit = 128 / type.bits(), n_unit = quantises ? 16 : 8;
    if (k % k_unit != 0 || n % n_unit != 0)
      refuse(fmt::format("k is {} and n {}, not multiples of {} and {}", k, n, k_unit, n_unit),
             "pad them: TMA moves units of 16 bytes");
    check_factors("scale_a", o.scale_a, {m});
    if (up == nullptr)
      check_factors("scale_b", o.scale_b, {n});
    else
      check_factors("scale_b", o.scale_b, {2, n});
    if (quantises == o.scale_c.is_null())
      refuse(quantises ? "c is float8_e4m3, and scale_c is null" : "c is not quantised, and there is scale_c",
             "give scale_c [n / 128, m] with c of float8_e4m3, and only then");
    if (quantises) {
      check_device("scale_c", o.scale_c);
      expect_shape("scale_c", o.scale_c, {(n + 127) / 128, m});
      if (o.scale_c.dtype() != float32 || (m > 1 && o.scale_c.strides()[1] != 1))
        refuse("scale_c is not float32 whose rows are dense", "make it [n / 128, m]");
    }
  }
  int64_t m = 0, n = 0, k = 0;

  [[noreturn]] void refuse(const std::string& message, const std::string& help) const {
    Diagnostic told{{}, fmt::format("{}: {}", function_, message), {}, help};
    for (const auto& [name, t] : tensors_) add_fact(told, name, *t);
    throw LaunchError(std::move(told));
  }

 private:
  void check_device(const char* name, const DeviceTensor& t) const {
    if (t.is_null() || t.address() == 0)
      refuse(fmt::format("{} is null or released", name), "make it before the call, and release it after");
    if (&t.device().backend() != &a_.device().backend())
      refuse(fmt::format("{} is on '{}', a on '{}'", name, t.device().name(), a_.device().name()),
             "copy it to the same device");
  }
  void check_matrix(const char* name, const DeviceTensor& t) const {
    check_device(name, t);
    if (t.shape().size() != 2 || t.shape()[0] < 1 || t.shape()[1] < 1)
      refuse(fmt::format("{} is not a matrix", name), "it has two extents of 1 or more");
    if (!t.is_dense() || t.address() % 16 != 0)
      refuse(fmt::format("{} is not dense, or does not begin at a multiple of 16 bytes", name), "copy it");
  }
  void check_factors(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.is_null()) return;
    check_device(name, t);
    if (t.dtype() != float32 || !t.is_dense() || (t.bytes() != 4 && t.shape() != shape))
      refuse(fmt::format("{} is neither one float32 nor dense float32 [{}]", name, fmt::join(shape, ", ")),
             "see FusedMatmulOptions");
  }
  void expect_shape(const char* name, const DeviceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.shape() != shape)
      refuse(fmt::format("{} is [{}], not [{}]", name, fmt::join(t.shape(), ", "), fmt::join(shape, ", ")),
             "a is [m, k], b [n, k] and c [m, n]");
  }

  const char* function_;
  const DeviceTensor& a_;
  std::vector<std::pair<const char*, const DeviceTensor*>> tensors_;
};

/// A kernel for each width of operands with large tiles and small ones, as they were first needed.
Kernel<FusedKernel>& kernel_for(const Device& device, int bits, bool has_small_tiles) {
  static std::mutex turn;
  // Never freed: at exit the driver may be unloaded first.
  static auto& kernels =
      *new std::map<std::tuple<const void*, int, bool>, std::unique_ptr<Kernel<FusedKernel>>>;
  const std::lock_guard lock(turn);
  std::unique_ptr<Kernel<FusedKernel>>& kernel = kernels[{&device.backend(), bits, has_small_tiles}];
  if (!kernel) {
    FusedKernel instance;
    instance.ctas = device.multiprocessors();
    instance.block_k = 1024 / bits;
    if (has_small_tiles)
      instance.block_m = 64, instance.consumers = 1, instance.cluster_m = instance.cluster_n = 1,
      instance.stages = 5;
    kernel = std::make_unique<Kernel<FusedKernel>>(library_kernel(instance, device));
  }
  return *kernel;
}

/// Calls whose steps leave the large tile too few registers: they are not compiled for it again.
class SmallTiles {
 public:
  using Call =
      std::tuple<const void*, int64_t, int64_t, DataType::Code, DataType::Code, bool, int, int, Activation>;
  bool serve(const Call& call) {
    const std::lock_guard lock(turn_);
    return calls_.contains(call);
  }
  void add(const Call& call) {
    const std::lock_guard lock(turn_);
    calls_.insert(call);
  }

 private:
  std::mutex turn_;
  std::set<Call> calls_;
};

LaunchReport run(const char* function, const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor* up,
                 const DeviceTensor& c, const FusedMatmulOptions& o) {
  const FusedCall call(function, a, b, up, c, o);
  if (up == nullptr && o.scale_c.is_null())
    call.refuse("scale_c is null", "give it [n / 128, m], and c float8_e4m3");
  const auto factors_of = [](const DeviceTensor& t, kernels::Factors several) {
    if (t.is_null()) return static_cast<int>(kernels::Factors::kNone);
    return static_cast<int>(t.bytes() == 4 ? kernels::Factors::kOne : several);
  };
  // Addresses that a call does not use are c's, and not read.
  const auto address_of = [&](const DeviceTensor& t) { return t.is_null() ? c.address() : t.address(); };
  const bool quantises = !o.scale_c.is_null();
  const int factors_a = factors_of(o.scale_a, kernels::Factors::kPerRow),
            factors_b = factors_of(o.scale_b, kernels::Factors::kPerColumn);
  const auto launch = [&](bool has_small_tiles) {
    return kernel_for(a.device(), a.dtype().bits(), has_small_tiles)
        .on(o.stream)(call.m, call.n, call.k, 1, 1, false, 0, a.dtype(), c.address(), a.address(),
                      b.address(), c.address(), factors_a, address_of(o.scale_a), factors_b,
                      address_of(o.scale_b), up != nullptr, o.activation,
                      up != nullptr ? up->address() : c.address(), quantises, address_of(o.scale_c),
                      quantises ? o.scale_c.strides()[0] : int64_t{0},
                      up != nullptr ? Activation::kNone : o.activation, c.dtype());
  };
  constexpr int64_t kFew = 64;
  static SmallTiles small_tiles;
  const SmallTiles::Call key{&a.device().backend(), call.n,    call.k,    a.dtype().code, c.dtype().code,
                             up != nullptr,         factors_a, factors_b, o.activation};
  if (call.m <= kFew || small_tiles.serve(key)) return launch(true);
  try {
    return launch(false);
  } catch (const CompileError&) {
    LaunchReport report = launch(true);
    small_tiles.add(key);
    return report;
  }
}

}  // namespace

LaunchReport gated_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& up,
                          const DeviceTensor& c, const FusedMatmulOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  return run("gated_matmul", a, b, &up, c, options);
}

LaunchReport quantised_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                              const FusedMatmulOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  return run("quantised_matmul", a, b, nullptr, c, options);
}

}  // namespace imbrex
