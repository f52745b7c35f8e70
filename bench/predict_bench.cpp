// SPDX-License-Identifier: Apache-2.0
// What predicting a launch takes beside running it unchecked on the virtual GPU: processor time of one host thread. Bar: 1.5 times.
// From PTX alone, since assembling is kept in the cache.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/inspect/gpu_model.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

double processor_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

struct Problem {
  const char* kernel;
  std::map<std::string, int64_t> sizes;  // others as in its description
};

/// One way to launch, on a device of its own.
class Way {
 public:
  explicit Way(const vgpu::Options& machine) : device_(Device::virtual_gpu(machine)) {}
  double seconds(const Problem& problem) {
    const RegisteredKernel& kernel = registered_kernel(problem.kernel);
    std::map<std::string, int64_t> sizes;
    for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
    for (const auto& [name, value] : problem.sizes) sizes[name] = value;
    Case c(Case::Mode::kMeasure, device_, sizes, 0);
    c.share(data_);
    double least = 0;
    c.measure = [&](const Case::Launcher& launch) {
      launch(true);  // compiles
      for (int i = 0; i < 3; ++i) {
        const double begin = processor_seconds();
        launch(true);
        const double took = processor_seconds() - begin;
        least = i == 0 ? took : std::min(least, took);
      }
    };
    kernel.run(c, device_, kernel.space.configuration(0));
    return least;
  }

 private:
  Device device_;
  std::shared_ptr<CaseData> data_ = std::make_shared<CaseData>();
};

void run() {
  const std::vector<Problem> problems = {
      {"hopper_matmul_h2", {{"m", 2048}, {"n", 2048}, {"k", 2048}}},
      {"hopper_matmul_h7", {{"m", 4096}, {"n", 4096}, {"k", 4096}}},
      {"ampere_matmul_v4", {{"m", 1024}, {"n", 1024}, {"k", 1024}}},
      {"attention", {{"heads", 16}, {"q", 1024}, {"kv", 1024}}},
      {"attention_decode", {{"batch", 16}, {"heads", 8}, {"kv", 2048}}},
      {"low_precision_decode", {{"n", 4096}, {"k", 4096}}},
      {"softmax", {{"m", 4096}, {"n", 1024}}},
      {"transpose", {{"m", 4096}, {"n", 4096}}},
      {"histogram", {{"n", 4194304}}},
  };
  vgpu::Options plain;
  plain.target = "sm_90a";
  plain.num_sms = 132;
  plain.host_threads = 1;
  plain.checks = vgpu::CheckSet::none();
  plain.tensor_math = vgpu::TensorMath::kFast;
  vgpu::Options whole = plain;
  whole.tensor_math = vgpu::TensorMath::kNone;
  vgpu::Options without_products = whole;
  whole.timeline = {.record = true, .gpu = std::make_shared<const GpuModel>(gpu_model("h200"))};
  vgpu::Options sample = whole;
  sample.timeline.sample = true;
  fmt::print("{:<22} {:>10} {:>10} {:>10} {:>6} {:>10} {:>6}   ms; ratios to the unchecked run\n", "kernel",
             "unchecked", "no product", "whole", "", "sample", "");
  for (const Problem& problem : problems) {
    const double unchecked = Way(plain).seconds(problem), bare = Way(without_products).seconds(problem),
                 all = Way(whole).seconds(problem), part = Way(sample).seconds(problem);
    fmt::print("{:<22} {:>10.1f} {:>10.1f} {:>10.1f} {:>6.2f} {:>10.1f} {:>6.2f}\n", problem.kernel,
               1e3 * unchecked, 1e3 * bare, 1e3 * all, all / unchecked, 1e3 * part, part / unchecked);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace imbrex

int main() { imbrex::run(); }
