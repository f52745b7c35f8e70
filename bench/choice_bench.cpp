// SPDX-License-Identifier: Apache-2.0
// Times of what imbrex::matmul can choose from, for fitting its model: given shapes, each with candidates that need not be
// among those that ship, beside cuBLASLt's best suggestion, by the kernels that matmul() launches (bench_hopper's carry no
// steps). Operands are views of one pool, so that a shape costs no copies, and rotate so that they come from memory.
//
//   bench_choice [--dtype bf16] [--turns 3] [--ms 1] [--seconds 90] [--csv FILE] CASES
//
// CASES has a line per shape: MxNxK and candidates such as "h8:128,96,7,2,1,1,2", the numbers being block_m, block_n,
// stages, consumers, split_k, cluster_m, cluster_n and, if any, store_stages. "h8" and "h8t" are HopperMatmulH8 and the same
// transposed; "parts", "partst" with the number of parts of k first; "turns", "turnst" of two consumers that take turns;
// "stream", "streamt"; "skinny:block_m,stages,cluster_n".
// "auto" is the model's choice. Results are compared with float64 in sampled elements of the first and last tiles.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "contenders.h"
#include "imbrex/core/error.h"
#include "matmul/matmul_launch.h"
#include "runtime/device/backend.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/cublas_lt.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using Shape = bench::MatmulSize;
using Method = MatmulChoice::Method;

MatmulChoice parse_candidate(const std::string& spec, const Shape& s, int multiprocessors) {
  if (spec == "auto") return choose_matmul(s.m, s.n, s.k, true, multiprocessors);
  const size_t colon = spec.find(':');
  std::string method = spec.substr(0, colon);
  std::vector<int> numbers;
  for (const std::string& word : bench::split(spec.substr(colon + 1), ','))
    numbers.push_back(std::stoi(word));
  MatmulChoice c;
  c.ctas = multiprocessors;
  if (method == "skinny") {
    c.method = Method::kSkinny;
    c.block_m = numbers.at(0), c.stages = numbers.at(1), c.cluster_n = numbers.at(2);
    c.block_n = 64, c.block_k = 128, c.consumers = 1, c.swap_ab = true, c.ctas = 0;
    return c;
  }
  if (method.back() == 't') method.pop_back(), c.swap_ab = true;
  if (method == "parts") {
    c.method = Method::kParts;
    c.parts = numbers.at(0);
    numbers.erase(numbers.begin());
  } else if (method == "stream") {
    c.method = Method::kStreamK;
  } else if (method == "turns") {
    c.takes_turns = true;
  } else if (method != "h8") {
    throw std::runtime_error("no candidate is called " + spec);
  }
  c.block_m = numbers.at(0), c.block_n = numbers.at(1), c.stages = numbers.at(2), c.consumers = numbers.at(3);
  c.split_k = numbers.at(4), c.cluster_m = numbers.at(5), c.cluster_n = numbers.at(6);
  if (numbers.size() > 7) c.store_stages = numbers[7];
  // As many CTAs as the waves need, as choose_matmul() has it.
  const auto up = [](int64_t x, int64_t y) { return (x + y - 1) / y; };
  const int64_t cluster = c.cluster_m * c.cluster_n * c.split_k, all = multiprocessors / cluster,
                at_once = cluster <= 2 ? all : all * 15 / 16,
                tiles = std::max(
                    up(s.m, c.block_m * c.cluster_m) * up(s.n, c.block_n * c.cluster_n) * c.parts, at_once);
  if (c.method == Method::kGeneral || c.method == Method::kParts)
    c.ctas = static_cast<int>(cluster * up(tiles, up(tiles, at_once)));
  return c;
}

struct Operands {
  DeviceTensor a, b, c;
};

class Bench {
 public:
  explicit Bench(DataType dtype)
      : device_(Device::cuda()),
        timer_(device_),
        dtype_(dtype),
        c_type_(dtype.bits() == 8 ? bfloat16 : dtype) {
    pool_ = bench::repeated_random(device_, dtype, {kPoolBytes * 8 / dtype.bits()}, 1);
  }

  void read(const std::string& file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      std::vector<std::string> words = bench::split(line, ' ');
      if (words.empty()) continue;
      cases_.push_back({bench::parse_size(words.front()), {}});
      for (size_t i = 1; i < words.size(); ++i) cases_.back().specs.push_back(words[i]);
    }
    if (cases_.empty()) throw std::runtime_error("no cases in " + file);
  }

  /// On all cores: what is not compiled takes no part.
  void compile() {
    const auto began = std::chrono::steady_clock::now();
    std::map<std::tuple<Variant, int64_t, bool>, std::pair<Launch*, Product>> all;
    for (const Case& each : cases_)
      for (const std::string& spec : each.specs) {
        Product p = product(each.shape, operands(each.shape).front());
        const Variant variant = variant_of(spec, each.shape, &p);
        const int64_t ring = int64_t{variant.choice.block_k} * variant.choice.stages;
        all.try_emplace({variant, std::gcd(p.n, int64_t{16}), p.k % ring == 0}, &launch_of(variant), p);
      }
    std::vector<std::pair<Launch*, Product>> jobs;
    std::vector<Variant> variants;
    for (const auto& [key, job] : all) jobs.push_back(job), variants.push_back(std::get<0>(key));
    std::vector<std::string> errors(jobs.size());
    runtime::parallel_for(jobs.size(), std::thread::hardware_concurrency(), [&](size_t i) {
      try {
        jobs[i].first->run(Until::kCompiled, jobs[i].second, Stream());
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
    for (size_t i = 0; i < jobs.size(); ++i)
      if (!errors[i].empty()) {
        refused_.insert(variants[i]);
        fmt::print("refused: {} {}\n", variants[i].choice.text(), errors[i].substr(0, errors[i].find('\n')));
      }
    fmt::print("{} kernels compiled in {:.1f} s\n", jobs.size(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }

  void measure(const runtime::GpuTimer::Runs& runs, double seconds, std::ofstream& csv) {
    const auto began = std::chrono::steady_clock::now();
    size_t done = 0;
    for (const Case& each : cases_) {
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > seconds) break;
      measure(each, runs, csv);
      ++done;
    }
    fmt::print("{} of {} cases\n", done, cases_.size());
  }

 private:
  static constexpr int64_t kPoolBytes = int64_t{3} << 30;
  struct Case {
    Shape shape;
    std::vector<std::string> specs;
  };

  /// Places in the pool, so many that they exceed twice the L2 cache.
  std::vector<Operands> operands(const Shape& s) const {
    std::vector<Operands> all;
    uint64_t at = pool_.address();
    int64_t bytes = 0;
    const auto take = [&](DataType type, int64_t rows, int64_t columns) {
      DeviceTensor t = DeviceTensor::view(device_, at, type, {rows, columns});
      at += static_cast<uint64_t>((t.bytes() + 4095) / 4096 * 4096 + 4096), bytes += t.bytes();
      return t;
    };
    // Results come from the pool's end on, lest they overwrite operands of other shapes.
    do {
      Operands next{take(dtype_, s.m, s.k), take(dtype_, s.n, s.k), {}};
      const auto index = static_cast<int64_t>(all.size());
      const int64_t stride = (c_type_.bits() / 8 * s.m * s.n + 4095) / 4096 * 4096 + 4096;
      next.c = DeviceTensor::view(device_, results_.address() + static_cast<uint64_t>(index * stride),
                                  c_type_, {s.m, s.n});
      bytes += next.c.bytes();
      all.push_back(next);
    } while (bytes < 2 * device_.backend().l2_bytes());
    return all;
  }

  Product product(const Shape& s, const Operands& t) const {
    return {.m = s.m,
            .n = s.n,
            .k = s.k,
            .dtype = dtype_,
            .c_type = c_type_,
            .a = t.a.address(),
            .b = t.b.address(),
            .c = t.c.address(),
            .a_is_km = false,
            .b_is_kn = false,
            .alpha = 1,
            .scales_a = kernels::Factors::kNone,
            .scales_b = kernels::Factors::kNone,
            .scale_a = t.c.address(),
            .scale_b = t.c.address(),
            .bias = {},
            .is_column_bias = false,
            .beta = 0,
            .residual = t.c.address(),
            .activation = Activation::kNone,
            .strides = {}};
  }

  /// The kernel of a candidate; `p` gets its CTAs and parts.
  Variant variant_of(const std::string& spec, const Shape& s, Product* p) const {
    Shape halves = s;
    halves.k = (s.k * dtype_.bits() + 15) / 16;
    MatmulChoice choice = parse_candidate(spec, halves, device_.multiprocessors());
    p->ctas = std::exchange(choice.ctas, 0), p->parts = std::exchange(choice.parts, 1);
    choice.block_k *= 16 / dtype_.bits();
    choice.is_tight = false;
    return {choice};
  }
  Launch& launch_of(const Variant& variant) {
    auto [at, is_new] = launches_.try_emplace(variant);
    if (is_new) at->second = make_dense_launch(variant, device_);
    return at->second;
  }

  /// Some elements of C, and what they are.
  struct Sample {
    int64_t row;
    std::vector<int64_t> columns;
    std::vector<double> wanted;
  };
  std::vector<Sample> samples(const Shape& s, const Operands& t) const {
    std::vector<Sample> all;
    std::vector<double> x(static_cast<size_t>(s.k)), y(x.size());
    std::vector<int64_t> columns;
    for (int64_t column : {int64_t{0}, s.n / 3, s.n / 2 + 5, s.n - 1})
      columns.push_back(std::min(column, s.n - 1));
    std::vector<HostTensor> rows_of_b;
    for (int64_t column : columns) rows_of_b.push_back(t.b[column].to_host());
    for (int64_t row : std::set{int64_t{0}, s.m / 2, s.m - 1}) {
      const HostTensor a = t.a[row].to_host();
      a.to_doubles(0, s.k, x.data());
      Sample sample{row, columns, {}};
      for (const HostTensor& b : rows_of_b) {
        b.to_doubles(0, s.k, y.data());
        double sum = 0;
        for (int64_t l = 0; l < s.k; ++l) sum += x[static_cast<size_t>(l)] * y[static_cast<size_t>(l)];
        sample.wanted.push_back(sum);
      }
      all.push_back(std::move(sample));
    }
    return all;
  }
  bool is_right(const std::vector<Sample>& samples, const Operands& t, int64_t k) const {
    const double scale = std::sqrt(static_cast<double>(k));
    const double allowed = dtype_.bits() == 8 ? 0.03 : 0.01;
    for (const Sample& sample : samples) {
      const HostTensor row = t.c[sample.row].to_host();
      for (size_t i = 0; i < sample.columns.size(); ++i) {
        const double got = row.get(sample.columns[i]), wanted = sample.wanted[i];
        if (!(std::abs(got - wanted) <= allowed * (std::abs(wanted) + scale))) return false;
      }
    }
    return true;
  }

  void measure(const Case& each, const runtime::GpuTimer::Runs& runs, std::ofstream& csv) {
    const Shape& s = each.shape;
    const std::vector<Operands> all = operands(s);
    std::string why_not;
    const std::shared_ptr<runtime::CublasLtMatmul> rival =
        runtime::CublasLtMatmul::make(all[0].a, all[0].b, all[0].c, timer_, &why_not);
    std::vector<std::string> names;
    std::vector<runtime::GpuTimer::NumberedLaunch> launches;
    const auto of = [&all](int i) -> const Operands& { return all[static_cast<size_t>(i) % all.size()]; };
    if (rival) {
      names.emplace_back("cublaslt");
      launches.emplace_back([&, rival](int i) { rival->launch(of(i).a, of(i).b, of(i).c); });
    }
    const std::vector<Sample> expected = samples(s, all[0]);
    std::set<std::string> seen;
    for (const std::string& spec : each.specs) try {
        std::vector<Product> products;
        Variant variant;
        for (const Operands& t : all) {
          products.push_back(product(s, t));
          variant = variant_of(spec, s, &products.back());
        }
        if (refused_.contains(variant)) continue;
        Launch& launch = launch_of(variant);
        DeviceTensor(all[0].c).poison();
        launch.run(Until::kLaunched, products[0], Stream());
        if (!is_right(expected, all[0], s.k)) {
          fmt::print("WRONG: {}x{}x{} {}\n", s.m, s.n, s.k, spec);
          continue;
        }
        MatmulChoice named = variant.choice;
        named.ctas = products[0].ctas, named.parts = products[0].parts;
        names.push_back(spec == "auto" ? "auto " + named.text() : spec);
        launches.emplace_back([&launch, products](int i) {
          launch.run(Until::kLaunched, products[static_cast<size_t>(i) % products.size()], Stream());
        });
      } catch (const std::exception& error) {
        const std::string text = error.what();
        fmt::print("{}x{}x{} {}: {}\n", s.m, s.n, s.k, spec, text.substr(0, text.find('\n')));
      }
    const auto times = timer_.measure_runs(launches, runs);
    for (size_t i = 0; i < names.size(); ++i)
      csv << fmt::format("{},{},{},{},{:.3f},{:.3f}\n", s.m, s.n, s.k, '"' + names[i] + '"',
                         runtime::quartiles(times[i]).median,
                         *std::min_element(times[i].begin(), times[i].end()));
    csv.flush();
  }

  Device device_;
  runtime::GpuTimer timer_;
  DataType dtype_, c_type_;
  DeviceTensor pool_, results_ = DeviceTensor::empty(device_, uint8, {int64_t{2} << 30});
  std::vector<Case> cases_;
  std::map<Variant, Launch> launches_;
  std::set<Variant> refused_;
};

int run(int argc, char** argv) {
  runtime::GpuTimer::Runs runs{.turns = 3, .milliseconds = 1, .most = 64};
  double seconds = 90;
  std::string file, csv = "choice.csv";
  DataType dtype = bfloat16;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--turns")
      runs.turns = std::stoi(value());
    else if (word == "--ms")
      runs.milliseconds = std::stod(value());
    else if (word == "--most")
      runs.most = std::stoi(value());
    else if (word == "--seconds")
      seconds = std::stod(value());
    else if (word == "--csv")
      csv = value();
    else if (word == "--dtype")
      dtype = value() == "fp8" ? float8_e4m3 : bfloat16;
    else
      file = word;
  }
  std::ofstream lines(csv, std::ios::app);
  Bench bench(dtype);
  bench.read(file);
  bench.compile();
  bench.measure(runs, seconds, lines);
  return 0;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  return imbrex::bench::run_main("bench_choice", [&] { return imbrex::run(argc, argv); });
}
