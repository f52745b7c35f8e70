// SPDX-License-Identifier: Apache-2.0
// The Hopper ladder and imbrex::matmul against cuBLASLt on a CUDA GPU: verified first, then timed in turns,
// so that all meet the same clock.
//
//   bench_hopper [--sizes 8192,4096x4096x14336] [--ragged SEED] [--dtype bf16|fp16|fp8] [--rounds 7] [--ms 20]
//                [--idle 0] [--copies 0] [--threads CORES] [--json FILE] h0 h7 h7:ctas=128 auto ...
//
// Every turn launches one contender back to back; the figure is the median turn's, the ratio that of the
// medians.
//
//   --sizes   m, or mxnxk
//   --cases   a file with a line for each problem: mxnxk and its contenders
//   --ragged  twenty random sizes, of which every other has n a multiple of 8
//   --ms      of device time, about: the length of a turn
//   --idle    seconds before each turn
//   --copies  of A, B and C, among which launches rotate; 0: as many as exceed twice the L2, so that operands
//             come from memory; 1: they stay in the cache if they fit
//   --json    appends a line per size and contender, for fitting the model of imbrex::matmul
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "contenders.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/hopper_matmul/matmul_h0.h"
#include "imbrex/kernels/hopper_matmul/matmul_h1.h"
#include "imbrex/kernels/hopper_matmul/matmul_h2.h"
#include "imbrex/kernels/hopper_matmul/matmul_h3.h"
#include "imbrex/kernels/hopper_matmul/matmul_h4.h"
#include "imbrex/kernels/hopper_matmul/matmul_h5.h"
#include "imbrex/kernels/hopper_matmul/matmul_h6.h"
#include "imbrex/kernels/hopper_matmul/matmul_h7.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/matmul/matmul_h8.h"
#include "imbrex/kernels/matmul/matmul_skinny.h"
#include "imbrex/kernels/matmul/matmul_stream_k.h"
#include "imbrex/kernels/matmul/sum_of_k_parts.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/workspace.h"
#include "runtime/device/backend.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/cublas_lt.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using bench::split;
using Problem = bench::MatmulSize;

/// Tensors of one product.
struct Operands {
  DeviceTensor a, b, c;
};
using Launcher = std::function<void(const Problem&, DataType, const Operands&)>;

struct Entry {
  std::string name = {};
  Launcher launch = {};
};

template <class K>
Entry ladder_entry(const std::string& spec, const std::string& configuration, const Device& device) {
  const K shape = bench::configured<K>(configuration);
  auto kernel = std::make_shared<Kernel<K>>(shape, device);
  return {spec, [kernel, shape](const Problem& p, DataType dtype, const Operands& t) {
            (*kernel)(kernels::product_sizes(shape, p.m, p.n, p.k), dtype, t.a, t.b, t.c);
          }};
}

Entry stream_k_entry(const std::string& spec, const std::string& configuration, const Device& device) {
  const auto shape = bench::configured<kernels::HopperMatmulStreamK<>>(configuration);
  const int64_t ctas = device.multiprocessors();
  auto kernel = std::make_shared<Kernel<kernels::HopperMatmulStreamK<>>>(shape, device);
  // Launches of a turn follow each other on one stream: they share the partial sums.
  auto partials =
      std::make_shared<DeviceTensor>(DeviceTensor::empty(device, float32, {shape.partial_elements(ctas)}));
  auto turns = std::make_shared<DeviceTensor>(
      DeviceTensor::from_host(device, HostTensor(int32, {shape.turn_elements(ctas)})));
  return {spec, [=](const Problem& p, DataType dtype, const Operands& t) {
            (*kernel)(kernels::ProductSizesArguments(p.m, p.n, p.k, 0, ctas), dtype, t.a, t.b, t.c, *partials,
                      *turns);
          }};
}

/// "parts:7,block_m=128,...": k in seven parts.
Entry parts_entry(const std::string& spec, const std::string& configuration, const Device& device) {
  using namespace kernels;
  const size_t comma = configuration.find(',');
  const int64_t parts = std::stoll(configuration);
  const std::string tile = comma == std::string::npos ? "" : configuration.substr(comma + 1);
  // The kernels are the same for any number of parts.
  static std::map<std::string, std::shared_ptr<Kernel<HopperMatmulH8<PartsOfK>>>> made;
  static const auto add = std::make_shared<Kernel<SumOfKParts<>>>(SumOfKParts<>(), device);
  auto& multiply = made[tile];
  if (!multiply)
    multiply = std::make_shared<Kernel<HopperMatmulH8<PartsOfK>>>(
        bench::configured<HopperMatmulH8<PartsOfK>>(tile), device);
  return {spec, [=, multiply = multiply, ctas = device.multiprocessors()](const Problem& p, DataType dtype,
                                                                          const Operands& t) {
            const Workspace sums = Workspace::on(Stream(), device, 4 * parts * p.m * p.n);
            (*multiply)(ProductSizesArguments(p.m, p.n, p.k, 0, ctas), dtype, t.a, t.b, sums.address(),
                        parts);
            (*add)(ProductSizesArguments(p.m, p.n, 1, 0, 0), parts, dtype, sums.address(), t.c);
          }};
}

Entry entry(const std::string& spec, const Device& device) {
  using namespace kernels;
  if (spec == "auto")
    return {spec, [](const Problem&, DataType, const Operands& t) { matmul(t.a, t.b, t.c); }};
  const size_t colon = spec.find(':');
  const std::string step = spec.substr(0, colon);
  const std::string configuration = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (step == "h0") return ladder_entry<HopperMatmulH0>(spec, configuration, device);
  if (step == "h1") return ladder_entry<HopperMatmulH1>(spec, configuration, device);
  if (step == "h2") return ladder_entry<HopperMatmulH2>(spec, configuration, device);
  if (step == "h3") return ladder_entry<HopperMatmulH3>(spec, configuration, device);
  if (step == "h4") return ladder_entry<HopperMatmulH4>(spec, configuration, device);
  if (step == "h5") return ladder_entry<HopperMatmulH5>(spec, configuration, device);
  if (step == "h6") return ladder_entry<HopperMatmulH6>(spec, configuration, device);
  if (step == "h7") return ladder_entry<HopperMatmulH7<>>(spec, configuration, device);
  if (step == "h8") return ladder_entry<HopperMatmulH8<>>(spec, configuration, device);
  if (step == "skinny") return ladder_entry<HopperMatmulSkinny<>>(spec, configuration, device);
  if (step == "parts") return parts_entry(spec, configuration, device);
  if (step == "stream_k") return stream_k_entry(spec, configuration, device);
  throw std::runtime_error("no step '" + step +
                           "'; steps are h0 ... h8, skinny, stream_k and parts, or auto");
}

size_t host_threads = std::max(1u, std::thread::hardware_concurrency());

/// How many elements are farther from the sums in float32 than rounding explains: a unit in the last place,
/// of values that are sums of k products of size one.
int64_t wrong_elements(const DeviceTensor& c, const HostTensor& reference, DataType operands, int64_t k) {
  const HostTensor got = c.to_host();
  const double unit = c.dtype() == bfloat16 ? 1.0 / 128 : 1.0 / 1024,
               floor = std::sqrt(static_cast<double>(k)) / 64;
  // The tensor cores cut sums of float8 to 13 bits at each 32 of k, and those of two products at other places.
  const double cut =
      operands == float8_e4m3 ? std::sqrt(static_cast<double>(k)) * static_cast<double>(k) / 32 / 8192 : 0;
  const int64_t rows = c.shape()[0], columns = c.shape()[1];
  std::atomic<int64_t> wrong = 0;
  runtime::parallel_for(static_cast<size_t>(rows), host_threads, [&](size_t i) {
    const auto row = static_cast<int64_t>(i);
    std::vector<double> values(static_cast<size_t>(columns)), wanted(values.size());
    got.to_doubles(row * columns, columns, values.data());
    reference.to_doubles(row * columns, columns, wanted.data());
    int64_t count = 0;
    for (size_t j = 0; j < values.size(); ++j)
      count += !(std::abs(values[j] - wanted[j]) <= unit * std::max(std::abs(wanted[j]), floor) + cut);
    wrong += count;
  });
  return wrong;
}

/// Twenty problems that no tile divides, their sizes evenly spread on a logarithmic scale.
std::vector<Problem> ragged_problems(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](double low, double high) {
    const double at = static_cast<double>(random() >> 11) / static_cast<double>(uint64_t{1} << 53);
    return static_cast<int64_t>(low * std::pow(high / low, at));
  };
  std::vector<Problem> problems;
  for (int i = 0; i < 20; ++i) {
    Problem p{between(100, 8000), between(200, 8000), between(32, 1024) * 8};
    if (i % 2 == 0) p.n = p.n / 8 * 8;
    problems.push_back(p);
  }
  return problems;
}

/// The kernels, compiled on several threads. Those that cannot be compiled are left out, with
/// the reason printed.
std::vector<Entry> compiled(const std::vector<std::string>& specs, const Device& device, const Problem& p,
                            DataType dtype, const Operands& operands) {
  static std::map<std::string, Entry> made;  // most kernels serve all problems
  for (const std::string& spec : specs)
    if (!made.contains(spec)) try {
        made[spec] = entry(spec, device);
      } catch (const std::exception& error) {
        fmt::print("  {:40} {}\n", spec, error.what());
      }
  std::vector<Entry> entries(specs.size());
  std::vector<std::string> errors(specs.size());
  runtime::parallel_for(specs.size(), host_threads, [&](size_t i) {
    try {
      entries[i] = made.at(specs[i]);
      entries[i].launch(p, dtype, operands);
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  });
  std::vector<Entry> good;
  for (size_t i = 0; i < specs.size(); ++i)
    if (errors[i].empty())
      good.push_back(std::move(entries[i]));
    else
      fmt::print("  {:40} {}\n", specs[i], errors[i]);
  return good;
}

/// Of float8 products: bfloat16.
DataType result_type(DataType operands) { return operands.bits() == 8 ? bfloat16 : operands; }

/// Operands of random normal numbers, and copies of them that launches use in rotation: so many that they
/// exceed twice the L2, or `copies` if that is not 0.
std::vector<Operands> make_operands(const Device& device, const Problem& p, DataType dtype, int copies) {
  const HostTensor a = HostTensor::random(dtype, {p.m, p.k}, 1), b = HostTensor::random(dtype, {p.n, p.k}, 2);
  std::vector<Operands> all;
  int64_t bytes = 0;
  do {
    all.push_back({DeviceTensor::from_host(device, a), DeviceTensor::from_host(device, b),
                   DeviceTensor::empty(device, result_type(dtype), {p.m, p.n})});
    bytes += all.back().a.bytes() + all.back().b.bytes() + all.back().c.bytes();
  } while (copies > 0 ? all.size() < static_cast<size_t>(copies) : bytes < 2 * device.backend().l2_bytes());
  return all;
}

DataType dtype_of(const std::string& name) {
  if (name == "bf16") return bfloat16;
  if (name == "fp16") return float16;
  if (name == "fp8") return float8_e4m3;
  throw std::runtime_error("--dtype is bf16, fp16 or fp8, not " + name);
}

int run(int argc, char** argv) {
  std::vector<Problem> problems;
  std::vector<std::string> specs;
  std::vector<std::vector<std::string>> specs_of;  // of each problem, where they have their own
  std::string sizes, json;
  DataType dtype = bfloat16;
  runtime::GpuTimer::Runs runs;
  int copies = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--sizes")
      sizes = value();
    else if (word == "--cases") {
      std::ifstream cases(value());
      for (std::string line; std::getline(cases, line);) {
        std::vector<std::string> words = split(line, ' ');
        problems.push_back(bench::parse_size(words.front()));
        specs_of.emplace_back(words.begin() + 1, words.end());
      }
    } else if (word == "--ragged")
      problems = ragged_problems(std::stoull(value()));
    else if (word == "--threads")
      host_threads = std::stoull(value());
    else if (word == "--json")
      json = value();
    else if (word == "--dtype")
      dtype = dtype_of(value());
    else if (word == "--rounds")
      runs.turns = std::stoi(value());
    else if (word == "--idle")
      runs.idle_s = std::stod(value());
    else if (word == "--copies")
      copies = std::stoi(value());
    else if (word == "--ms")
      runs.milliseconds = std::stod(value());
    else
      specs.push_back(word);
  }
  if (sizes.empty() && problems.empty()) sizes = "8192";
  for (const std::string& size : split(sizes, ',')) problems.push_back(bench::parse_size(size));

  const Device device = Device::cuda();
  runtime::GpuTimer timer(device);
  std::map<std::string, std::pair<double, int>> logarithms;  // of ratios, by contender: sum and count
  std::ofstream lines;
  if (!json.empty()) lines.open(json, std::ios::app);
  for (size_t at = 0; at < problems.size(); ++at) {
    const Problem& p = problems[at];
    if (at < specs_of.size()) specs = specs_of[at];
    const std::vector<Operands> operands = make_operands(device, p, dtype, copies);
    auto [a, b, c] = operands[0];
    fmt::print("{} {}x{}x{} {}, {} copies\n", device.name(), p.m, p.n, p.k, dtype.name(), operands.size());

    // The reference is cuBLASLt's product in float32, whose sums are never rounded to fewer bits, as they are
    // where it splits k of a 16-bit product.
    std::string why_not;
    DeviceTensor sums = DeviceTensor::empty(device, float32, {p.m, p.n});
    sums.poison();
    const auto exact = runtime::CublasLtMatmul::make(a, b, sums, timer, &why_not);
    const std::shared_ptr<runtime::CublasLtMatmul> rival =
        runtime::CublasLtMatmul::make(a, b, c, timer, &why_not);
    if (!exact || !rival) throw std::runtime_error(why_not);
    exact->launch();
    const HostTensor reference = sums.to_host();
    sums.release();
    rival->launch();
    if (const int64_t wrong = wrong_elements(c, reference, dtype, p.k))
      fmt::print("  cuBLASLt itself is off in {} elements of {}: it rounds partial sums\n", wrong, p.m * p.n);

    std::vector<Entry> entries{{rival->name(), [rival](const Problem&, DataType, const Operands& t) {
                                  rival->launch(t.a, t.b, t.c);
                                }}};
    for (Entry& candidate : compiled(specs, device, p, dtype, operands[0])) try {
        device.synchronize();
        c.poison();
        candidate.launch(p, dtype, operands[0]);
        if (const int64_t wrong = wrong_elements(c, reference, dtype, p.k))
          fmt::print("  {:40} WRONG: {} elements\n", candidate.name, wrong);
        else
          entries.push_back(std::move(candidate));
      } catch (const std::exception& error) {
        fmt::print("  {:40} {}\n", candidate.name, error.what());
      }

    std::vector<runtime::GpuTimer::NumberedLaunch> launches;
    for (const Entry& e : entries)
      launches.push_back(
          [&](int i) { e.launch(p, dtype, operands[static_cast<size_t>(i) % operands.size()]); });
    const std::vector<std::vector<double>> times = timer.measure_runs(launches, runs);
    const double rival_us = runtime::quartiles(times[0]).median;
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string& name = entries[i].name;
      const double us = runtime::quartiles(times[i]).median, ratio = rival_us / us;
      const auto [least, most] = std::minmax_element(times[i].begin(), times[i].end());
      const auto tflops = [&](double time) { return 1e-6 * p.flops() / time; };
      logarithms[name].first += std::log(ratio);
      logarithms[name].second += 1;
      fmt::print("  {:40} {:8.2f} us {:7.1f} TFLOPS  {:.3f}  ({:.1f} ... {:.1f})\n", name, us, tflops(us),
                 ratio, tflops(*most), tflops(*least));
      if (lines.is_open())
        lines
            << fmt::format(
                   R"({{"m":{},"n":{},"k":{},"dtype":"{}","copies":{},"kernel":"{}","us":{:.3f},"ratio":{:.4f}}})",
                   p.m, p.n, p.k, dtype.name(), operands.size(), name, us, ratio)
            << std::endl;
    }
    std::fflush(stdout);
  }
  for (const auto& [name, sum] : logarithms)
    if (sum.second > 1)
      fmt::print("geometric mean of {} ratios: {:40} {:.3f}\n", sum.second, name,
                 std::exp(sum.first / sum.second));
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);  // a crash keeps what was printed
  return imbrex::bench::run_main("bench_hopper", [&] { return imbrex::run(argc, argv); });
}
