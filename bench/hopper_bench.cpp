// SPDX-License-Identifier: Apache-2.0
// The Hopper ladder against cuBLAS on a CUDA GPU: verified first, then timed in turns, so that both meet the
// same clock.
//
//   bench_hopper [--sizes 8192,4096x4096x14336] [--ragged SEED] [--dtype bf16] [--rounds 7] [--ms 20]
//                [--idle 0] [--weights 1] [--threads CORES] [--json FILE] h0 h7 h7:ctas=128 ...
//
// A size is m, or mxnxk; --ragged stands for twenty random ones, of which every other has n a multiple of 8.
// Every turn launches each kernel back to back for about --ms milliseconds, after --idle seconds; the figure
// is the median turn's, the ratio that of the medians. --weights: launches go round so many copies of B, so
// that it comes from memory. --json: a line a size and kernel, for fitting the model of imbrex::matmul.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hopper_matmul/matmul_h0.h"
#include "hopper_matmul/matmul_h1.h"
#include "hopper_matmul/matmul_h2.h"
#include "hopper_matmul/matmul_h3.h"
#include "hopper_matmul/matmul_h4.h"
#include "hopper_matmul/matmul_h5.h"
#include "hopper_matmul/matmul_h6.h"
#include "hopper_matmul/matmul_h7.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/kernel.h"
#include "matmul/matmul_h8.h"
#include "matmul/matmul_skinny.h"

namespace imbrex {
namespace {

struct Problem {
  int64_t m, n, k;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// C = A B^T by cublasGemmEx, with float32 accumulation.
class Cublas {
 public:
  Cublas() {
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if ((library_ = dlopen(name, RTLD_NOW))) break;
    if (!library_) throw std::runtime_error("no cuBLAS: " + std::string(dlerror()));
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library_, "cublasCreate_v2"));
    gemm_ = reinterpret_cast<Gemm>(dlsym(library_, "cublasGemmEx"));
    if (!create || !gemm_ || create(&handle_) != 0) throw std::runtime_error("cuBLAS cannot be used");
  }

  /// C may be float32: then no sum is ever rounded to fewer bits, as cuBLAS's are where it splits k.
  void operator()(const Problem& p, DataType dtype, const DeviceTensor& a, const DeviceTensor& b,
                  const DeviceTensor& c) const {
    const auto code = [](DataType t) { return t == bfloat16 ? 14 : t == float16 ? 2 : 0; };  // cudaDataType
    const int type = code(dtype);
    const float one = 1, zero = 0;
    const auto m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    constexpr int kTransposed = 1, kPlain = 0, kCompute32F = 68, kDefault = -1;
    // Column-major, it computes the transpose.
    const int status =
        gemm_(handle_, kTransposed, kPlain, n, m, k, &one, reinterpret_cast<void*>(b.address()), type, k,
              reinterpret_cast<void*>(a.address()), type, k, &zero, reinterpret_cast<void*>(c.address()),
              code(c.dtype()), n, kCompute32F, kDefault);
    if (status != 0) throw std::runtime_error(fmt::format("cublasGemmEx: error {}", status));
  }

 private:
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int,
                       int, const void*, void*, int, int, int, int);
  void* library_ = nullptr;
  void* handle_ = nullptr;
  Gemm gemm_ = nullptr;
};

struct Entry {
  std::string name = {};
  std::function<void(const Problem&, DataType, const DeviceTensor&, const DeviceTensor&, const DeviceTensor&)>
      launch = {};
  std::vector<double> tflops = {};  // of each turn
  double median() {
    std::sort(tflops.begin(), tflops.end());
    return tflops.empty() ? 0 : tflops[tflops.size() / 2];
  }
};

template <class K>
Entry ladder_entry(const std::string& spec, const std::string& configuration, const Device& device) {
  K instance;
  if (!configuration.empty()) {
    std::string text = configuration;
    std::replace(text.begin(), text.end(), ',', ' ');
    tuning_space<K>().apply(&instance, tuning_space<K>().parse(text));
  }
  auto kernel = std::make_shared<Kernel<K>>(instance, device);
  return {spec, [kernel](const Problem& p, DataType dtype, const DeviceTensor& a, const DeviceTensor& b,
                         const DeviceTensor& c) { (*kernel)(p.m, p.n, p.k, dtype, a, b, c); }};
}

Entry entry(const std::string& spec, const Device& device) {
  using namespace kernels;
  if (spec == "auto")
    return {spec, [](const Problem&, DataType, const DeviceTensor& a, const DeviceTensor& b,
                     const DeviceTensor& c) { matmul(a, b, c); }};
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
  throw std::runtime_error("no step '" + step + "'; steps are h0 ... h8 and skinny, or auto");
}

/// Waits for everything on the device: cuBLAS works in another stream than our kernels.
void wait_for_all() {
  static const auto wait =
      reinterpret_cast<int (*)()>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSynchronize"));
  if (const int status = wait())
    throw std::runtime_error(fmt::format("the device fails: CUDA error {}", status));
}

double seconds_of(const std::function<void()>& work) {
  wait_for_all();
  const auto begin = std::chrono::steady_clock::now();
  work();
  wait_for_all();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int64_t host_threads = std::max(1u, std::thread::hardware_concurrency());

/// body(i) for i < count, each by one of host_threads.
template <class Body>
void on_all_cores(int64_t count, const Body& body) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i; (i = next++) < count;) body(i);
  };
  std::vector<std::thread> threads;
  for (int64_t t = 1; t < std::min(host_threads, count); ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

/// Elements farther from the sums in float32 than rounding explains: a unit in the last place, of values that
/// are sums of k products of size one.
int64_t wrong_elements(const DeviceTensor& c, const HostTensor& reference, DataType dtype, int64_t k) {
  const HostTensor got = c.to_host();
  const double unit = dtype == bfloat16 ? 1.0 / 128 : 1.0 / 1024,
               floor = std::sqrt(static_cast<double>(k)) / 64;
  const int64_t rows = c.shape()[0], columns = c.shape()[1];
  std::atomic<int64_t> wrong = 0;
  on_all_cores(rows, [&](int64_t row) {
    std::vector<double> values(static_cast<size_t>(columns)), wanted(values.size());
    got.to_doubles(row * columns, columns, values.data());
    reference.to_doubles(row * columns, columns, wanted.data());
    int64_t count = 0;
    for (size_t j = 0; j < values.size(); ++j)
      count += !(std::abs(values[j] - wanted[j]) <= unit * std::max(std::abs(wanted[j]), floor));
    wrong += count;
  });
  return wrong;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) out.push_back(part);
  return out;
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

/// The kernels, compiled by as many threads as there are cores: those that cannot be say why and are left
/// out.
std::vector<Entry> compiled(const std::vector<std::string>& specs, const Device& device, const Problem& p,
                            DataType dtype, const DeviceTensor& a, const DeviceTensor& b,
                            const DeviceTensor& c) {
  std::vector<Entry> entries(specs.size());
  std::vector<std::string> errors(specs.size());
  on_all_cores(static_cast<int64_t>(specs.size()), [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    try {
      entries[i] = entry(specs[i], device);
      entries[i].launch(p, dtype, a, b, c);
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

int run(int argc, char** argv) {
  std::vector<Problem> problems;
  std::vector<std::string> specs;
  std::string sizes, json;
  DataType dtype = bfloat16;
  int rounds = 7;
  double milliseconds = 20, idle = 0;
  int weights = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--sizes")
      sizes = value();
    else if (word == "--ragged")
      problems = ragged_problems(std::stoull(value()));
    else if (word == "--threads")
      host_threads = std::stoll(value());
    else if (word == "--json")
      json = value();
    else if (word == "--dtype")
      dtype = value() == "fp16" ? float16 : bfloat16;
    else if (word == "--rounds")
      rounds = std::stoi(value());
    else if (word == "--idle")
      idle = std::stod(value());
    else if (word == "--weights")
      weights = std::stoi(value());
    else if (word == "--ms")
      milliseconds = std::stod(value());
    else
      specs.push_back(word);
  }
  if (sizes.empty() && problems.empty()) sizes = "8192";
  for (const std::string& size : split(sizes, ',')) {
    const std::vector<std::string> extents = split(size, 'x');
    const int64_t m = std::stoll(extents[0]);
    problems.push_back(extents.size() == 3 ? Problem{m, std::stoll(extents[1]), std::stoll(extents[2])}
                                           : Problem{m, m, m});
  }

  const Device device = Device::cuda();
  std::map<std::string, std::pair<double, int>> logarithms;  // of ratios, by kernel: sum and count
  const Cublas cublas;
  std::ofstream lines;
  if (!json.empty()) lines.open(json, std::ios::app);
  for (const Problem& p : problems) {
    DeviceTensor a = DeviceTensor::random(device, dtype, {p.m, p.k}, 1),
                 c = DeviceTensor::empty(device, dtype, {p.m, p.n});
    const HostTensor host_b = HostTensor::random(dtype, {p.n, p.k}, 2);
    std::vector<DeviceTensor> all_b;  // more than one: what the L2 cache holds is of another
    for (int i = 0; i < weights; ++i) all_b.push_back(DeviceTensor::from_host(device, host_b));
    const DeviceTensor& b = all_b[0];
    fmt::print("{} {}x{}x{} {}\n", device.name(), p.m, p.n, p.k, dtype.name());
    std::vector<Entry> entries{{"cublas", std::cref(cublas)}};
    DeviceTensor sums = DeviceTensor::empty(device, float32, {p.m, p.n});
    sums.poison();
    device.synchronize();
    cublas(p, dtype, a, b, sums);
    wait_for_all();
    const HostTensor reference = sums.to_host();
    sums.release();
    cublas(p, dtype, a, b, c);
    wait_for_all();
    if (const int64_t wrong = wrong_elements(c, reference, dtype, p.k))
      fmt::print("  cuBLAS itself is off in {} elements of {}: it rounds partial sums\n", wrong, p.m * p.n);
    for (Entry& candidate : compiled(specs, device, p, dtype, a, b, c)) try {
        wait_for_all();
        c.poison();
        candidate.launch(p, dtype, a, b, c);
        wait_for_all();
        if (const int64_t wrong = wrong_elements(c, reference, dtype, p.k))
          fmt::print("  {:40} WRONG: {} elements\n", candidate.name, wrong);
        else
          entries.push_back(std::move(candidate));
      } catch (const std::exception& error) {
        fmt::print("  {:40} {}\n", candidate.name, error.what());
      }
    for (int round = 0; round < rounds; ++round)
      for (Entry& e : entries) {
        size_t turn = 0;
        const auto launch = [&] { e.launch(p, dtype, a, all_b[turn++ % all_b.size()], c); };
        std::this_thread::sleep_for(std::chrono::duration<double>(idle));
        launch();
        const double once = seconds_of(launch);
        const auto count = static_cast<int>(std::clamp(milliseconds * 1e-3 / once, 3.0, 2000.0));
        const double time = seconds_of([&] {
          for (int i = 0; i < count; ++i) launch();
        });
        e.tflops.push_back(1e-12 * p.flops() * count / time);
      }
    const double rival = entries[0].median();
    for (Entry& e : entries) {
      const double median = e.median();  // sorted now
      logarithms[e.name].first += std::log(median / rival);
      logarithms[e.name].second += 1;
      fmt::print("  {:40} {:8.2f} us {:7.1f} TFLOPS  {:.3f}  ({:.1f} ... {:.1f})\n", e.name,
                 1e-6 * p.flops() / median, median, median / rival, e.tflops.front(), e.tflops.back());
      if (lines.is_open())
        lines
            << fmt::format(
                   R"({{"m":{},"n":{},"k":{},"dtype":"{}","weights":{},"kernel":"{}","us":{:.3f},"ratio":{:.4f}}})",
                   p.m, p.n, p.k, dtype.name(), weights, e.name, 1e-6 * p.flops() / median, median / rival)
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
  try {
    return imbrex::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_hopper: {}\n", error.what());
    return 1;
  }
}
