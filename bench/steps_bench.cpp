// SPDX-License-Identifier: Apache-2.0
// Matmuls with steps behind them on a CUDA GPU: imbrex::matmul and steps of the Hopper ladder against
// cuBLASLt with its own epilogue of the same kind, where it has one, and against its plain product.
//
//   bench_steps [--rounds 15] [--sizes 4096x4096x4096,...]
//               [--steps plain,bias,gelu,gelu_fast,gelu_erf,silu,residual]
//               auto h7 h9 h9:block_m=128,block_n=128,stages=6,store_stages=1 ...
//
// Contenders take turns, each launch with a cold L2 cache; figures are medians, ratios those to the first.
// Each result must agree with the first kernel's before it is timed. Kernels are compiled by all cores.
#include <fmt/format.h>

#include <array>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "contenders.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/matmul/matmul_h9.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/tuner.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/cublas_lt.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using bench::Contender;
using bench::split;
using Rival = runtime::CublasLtMatmul;
using RivalEpilogue = runtime::CublasLtEpilogue;

struct Problem {
  int64_t m, n, k;
  DeviceTensor a, b, bias, residual;
};

/// What follows the product.
struct Steps {
  std::string name;
  bool bias, residual;
  Activation activation;
  std::string rival;  // cuBLASLt's nearest, if it has any
  RivalEpilogue::Activation rival_activation = RivalEpilogue::Activation::kNone;
};
const std::vector<Steps> kSteps{
    {"plain", false, false, Activation::kNone, ""},
    {"bias", true, false, Activation::kNone, "bias"},
    {"gelu", true, false, Activation::kGelu, "bias, GELU", RivalEpilogue::Activation::kGelu},
    {"gelu_fast", true, false, Activation::kGeluFast, "bias, GELU", RivalEpilogue::Activation::kGelu},
    {"gelu_erf", true, false, Activation::kGeluErf, "bias, GELU (its tanh form)",
     RivalEpilogue::Activation::kGelu},
    {"silu", true, false, Activation::kSilu, ""},
    {"residual", false, true, Activation::kNone, "beta"}};

using Launcher = std::function<void(const Problem&, const Steps&, const DeviceTensor& c)>;

/// What a call passes for the steps of ladder_kernel(), in their order.
struct StepArguments {
  bool has_bias;
  DataType bias_type;
  const DeviceTensor& bias;
  bool has_residual;
  float residual_factor;
  const DeviceTensor& residual;
  Activation activation;

  auto arguments() const {
    return std::tie(has_bias, bias_type, bias, has_residual, residual_factor, residual, activation);
  }
};

/// A kernel of the ladder, with the steps that are asked for; what is not used leaves no trace in it.
template <template <class...> class Tiles>
Launcher ladder_kernel(const std::string& configuration, const Device& device) {
  using namespace kernels;
  using K = Tiles<Optional<ColumnBias>, Optional<Residual>, Activate>;
  auto kernel = std::make_shared<Kernel<K>>(bench::configured<K>(configuration), device);
  return [kernel](const Problem& p, const Steps& steps, const DeviceTensor& c) {
    (*kernel)(p.m, p.n, p.k, bfloat16, p.a, p.b, c,
              StepArguments{.has_bias = steps.bias,
                            .bias_type = bfloat16,
                            .bias = p.bias,
                            .has_residual = steps.residual,
                            .residual_factor = 1,
                            .residual = p.residual,
                            .activation = steps.activation});
  };
}

Launcher launcher(const std::string& spec, const Device& device) {
  if (spec == "auto")
    return [](const Problem& p, const Steps& steps, const DeviceTensor& c) {
      MatmulOptions options{.activation = steps.activation};
      if (steps.bias) options.bias = p.bias;
      if (steps.residual) options.beta = 1, options.residual = p.residual;
      matmul(p.a, p.b, c, options);
    };
  const size_t colon = spec.find(':');
  const std::string step = spec.substr(0, colon);
  const std::string configuration = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (step == "h7") return ladder_kernel<kernels::HopperMatmulH7>(configuration, device);
  if (step == "h9") return ladder_kernel<kernels::HopperMatmulH9>(configuration, device);
  throw std::runtime_error("no kernel '" + step + "'; there are auto, h7 and h9");
}

/// Every kernel with every set of steps, of one problem.
void run_problem(const Device& device, runtime::GpuTimer& timer, const bench::MatmulSize& size,
                 const std::vector<Steps>& all_steps, const std::vector<std::string>& specs, int rounds) {
  const auto [m, n, k] = size;
  const Problem p{m,
                  n,
                  k,
                  DeviceTensor::random(device, bfloat16, {m, k}, 1),
                  DeviceTensor::random(device, bfloat16, {n, k}, 2),
                  DeviceTensor::random(device, bfloat16, {n}, 3),
                  DeviceTensor::random(device, bfloat16, {m, n}, 4)};
  const DeviceTensor c = DeviceTensor::empty(device, bfloat16, {m, n}),
                     reference = DeviceTensor::empty(device, bfloat16, {m, n});
  std::vector<Launcher> launchers;
  for (const std::string& spec : specs) launchers.push_back(launcher(spec, device));
  std::vector<std::string> errors(launchers.size() * all_steps.size());
  runtime::parallel_for(errors.size(), std::thread::hardware_concurrency(), [&](size_t i) {
    try {
      launchers[i % launchers.size()](p, all_steps[i / launchers.size()], c);
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  });
  device.synchronize();

  std::string why_not;
  const auto plain = Rival::make(p.a, p.b, c, timer, &why_not);
  if (!plain) fmt::print("  {}\n", why_not);
  for (size_t s = 0; s < all_steps.size(); ++s) {
    const Steps& steps = all_steps[s];
    fmt::print("{} {}x{}x{}\n", steps.name, m, n, k);
    std::vector<Contender> contenders;
    std::unique_ptr<Rival> rival;
    if (!steps.rival.empty()) {
      RivalEpilogue epilogue{.activation = steps.rival_activation};
      if (steps.bias) epilogue.bias = p.bias;
      if (steps.residual) epilogue.beta = 1, epilogue.residual = p.residual;
      rival = Rival::make(p.a, p.b, c, timer, &why_not, epilogue);
      if (rival)
        contenders.push_back({rival->name() + ", " + steps.rival, [&] { rival->launch(); }});
      else
        fmt::print("  {}: {}\n", steps.rival, why_not);
    }
    if (plain) contenders.push_back({plain->name() + ", plain", [&] { plain->launch(); }});
    const size_t rivals = contenders.size();
    for (size_t i = 0; i < specs.size(); ++i)
      if (const std::string& error = errors[s * specs.size() + i]; error.empty())
        contenders.push_back({specs[i], [&, i] { launchers[i](p, steps, c); }});
      else
        fmt::print("  {:52} {}\n", specs[i], error);
    if (contenders.size() == rivals) continue;

    // Rows apart by a number that tiles have no factor in common with: some of each tile.
    constexpr int64_t kStride = 61;
    launchers[0](p, steps, reference);
    std::vector<Contender> good;
    for (size_t i = 0; i < contenders.size(); ++i) {
      DeviceTensor(c).poison();
      contenders[i].launch();
      device.synchronize();
      const bool other_steps = i < rivals && i + 1 == rivals && !steps.rival.empty();
      const double off = other_steps || (i < rivals && steps.name != "plain" && !rival)
                             ? 0
                             : bench::difference(c, reference, kStride);
      if (off < 0.03)
        good.push_back(std::move(contenders[i]));
      else
        fmt::print("  {:52} WRONG: differs by {:.4f}\n", contenders[i].name, off);
    }
    bench::measure(timer, good, size.flops(), rounds);
  }
}

int run(int argc, char** argv) {
  int rounds = 15;
  std::string sizes = "8192x8192x8192,4096x4096x4096,16384x4096x1024,8192x8192x512", names;
  std::vector<std::string> specs;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--rounds")
      rounds = std::stoi(value());
    else if (word == "--sizes")
      sizes = value();
    else if (word == "--steps")
      names = value();
    else
      specs.push_back(word);
  }
  if (specs.empty()) specs = {"auto", "h7", "h9"};
  std::vector<Steps> all_steps;
  for (const Steps& steps : kSteps)
    if (const auto wanted = split(names, ',');
        wanted.empty() || std::find(wanted.begin(), wanted.end(), steps.name) != wanted.end())
      all_steps.push_back(steps);
  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  fmt::print("{}\n", device.name());
  for (const std::string& size : split(sizes, ','))
    run_problem(device, timer, bench::parse_size(size), all_steps, specs, rounds);
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  return imbrex::bench::run_main("bench_steps", [&] { return imbrex::run(argc, argv); });
}
