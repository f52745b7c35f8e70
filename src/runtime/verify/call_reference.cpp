// SPDX-License-Identifier: Apache-2.0
#include "runtime/verify/call_reference.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "imbrex/core/error.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::runtime {
namespace {

using Sizes = std::map<std::string, int64_t>;

constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a call whose tensors are made a second time
constexpr uint64_t kSeed = 1;

/// The shape of the call that the case makes of these sizes; none for sizes that the kernel does not take.
std::optional<std::vector<int64_t>> shape_of(const RegisteredKernel& kernel, const Sizes& sizes) {
  try {
    Case c(Case::Mode::kTrace, std::nullopt, sizes, kSeed);
    kernel.run(c, std::nullopt, kernel.space.configurations().front());
    return c.shape;
  } catch (const Error&) {
    return std::nullopt;
  }
}

Sizes defaults_of(const RegisteredKernel& kernel) {
  Sizes sizes;
  for (const SizeOption& option : kernel.description.sizes) sizes[option.name] = option.otherwise;
  return sizes;
}

/// The sizes of which the case makes a call of this shape. Nobody says which number of a call is which size: each size is
/// doubled once to see what doubles with it, and what was found is tried.
std::optional<Sizes> sizes_for(const RegisteredKernel& kernel, const std::vector<int64_t>& shape) {
  Sizes sizes = defaults_of(kernel);
  const std::optional<std::vector<int64_t>> usual = shape_of(kernel, sizes);
  if (!usual || usual->size() != shape.size()) return std::nullopt;
  if (*usual == shape) return sizes;
  for (const auto& [name, value] : defaults_of(kernel)) {
    Sizes other = defaults_of(kernel);
    other[name] = 2 * value;
    const std::optional<std::vector<int64_t>> moved = shape_of(kernel, other);
    for (size_t i = 0; moved && i < shape.size(); ++i)
      if ((*usual)[i] == value && (*moved)[i] == 2 * value && value != 0) sizes[name] = shape[i];
  }
  if (shape_of(kernel, sizes) != shape) return std::nullopt;
  return sizes;
}

/// A problem of a registered kernel, with its tensors and its reference, for as many configurations as are asked about.
class Problem {
 public:
  Problem(const RegisteredKernel& kernel, const Device& device, Sizes sizes)
      : kernel_(kernel), device_(device), sizes_(std::move(sizes)) {}

  /// What is wrong with a configuration's results, or "".
  std::string verify(const std::string& configuration) {
    try {
      Case c(Case::Mode::kRun, device_, sizes_, kSeed);
      data_->restore_inputs();  // which a kernel may add to
      c.share(data_);
      kernel_.run(c, device_, kernel_.space.parse(configuration));
      if (!c.report.clean()) return "findings of the virtual GPU";
      for (const Comparison& comparison : c.comparisons)
        if (!comparison.passed) return comparison.format();
    } catch (const CompileError&) {
      // Not at these sizes: nothing can be said of it.
    }
    return "";
  }
  std::string text() const {
    std::string text;
    for (const auto& [name, value] : sizes_)
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
    return text;
  }

 private:
  const RegisteredKernel& kernel_;
  Device device_;
  Sizes sizes_;
  std::shared_ptr<CaseData> data_ = std::make_shared<CaseData>();
};

/// How many times the work of the default sizes, by the product of all: what references take.
double work(const RegisteredKernel& kernel, const Sizes& sizes) {
  double times = 1;
  for (const auto& [name, value] : defaults_of(kernel))
    if (value > 0) times *= static_cast<double>(sizes.at(name)) / static_cast<double>(value);
  return times;
}

}  // namespace

CallReference find_call_reference(const KernelEntry& entry, const Device& device,
                                  const std::vector<int64_t>& shape, int64_t bytes, double seconds) {
  for (const auto& [name, kernel] : registered_kernels()) {
    if (kernel.entry != &entry) continue;
    const std::optional<Sizes> sizes = sizes_for(kernel, shape);
    if (!sizes) continue;
    const Sizes defaults = defaults_of(kernel);
    auto problem = std::make_shared<Problem>(kernel, device, defaults);
    if (*sizes != defaults && bytes <= kMostBytes) {
      const auto begin = std::chrono::steady_clock::now();
      problem->verify(kernel.space.to_string(kernel.space.configurations().front()));
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (took * work(kernel, *sizes) <= seconds) problem = std::make_shared<Problem>(kernel, device, *sizes);
    }
    return {fmt::format("the reference of {} with {}", name, problem->text()),
            [problem](const std::string& configuration) { return problem->verify(configuration); }};
  }
  return {};
}

}  // namespace imbrex::runtime
