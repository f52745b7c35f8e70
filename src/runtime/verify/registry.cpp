// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "runtime/host/parallel.h"
#include "runtime/verify/call_reference.h"

namespace imbrex {
namespace {

std::map<std::string, RegisteredKernel>& mutable_kernels() {
  static std::map<std::string, RegisteredKernel> kernels;
  return kernels;
}

}  // namespace

const std::map<std::string, RegisteredKernel>& registered_kernels() { return mutable_kernels(); }

const RegisteredKernel& registered_kernel(const std::string& name) {
  const auto& kernels = mutable_kernels();
  if (auto found = kernels.find(name); found != kernels.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, kernel] : kernels) names.push_back(known);
  std::string near = nearest_word(name, names);
  throw LaunchError(
      Diagnostic{{},
                 fmt::format("no kernel is called '{}'", name),
                 {},
                 near.empty() ? "see the names with: imbrex list" : fmt::format("did you mean '{}'?", near)});
}

void detail::add_registered_kernel(RegisteredKernel kernel) {
  runtime::call_references = &runtime::find_call_reference;
  std::string name = kernel.description.name;
  if (!mutable_kernels().emplace(name, std::move(kernel)).second)
    throw InternalError("two kernels are registered as '" + name + "'");
}

Case::Case(Mode mode, std::optional<Device> device, std::map<std::string, int64_t> sizes, uint64_t seed)
    : mode_(mode), device_(std::move(device)), sizes_(std::move(sizes)), seed_(seed) {}

int64_t Case::size(const std::string& name) const {
  auto found = sizes_.find(name);
  if (found == sizes_.end()) throw InternalError("the kernel's description declares no size '" + name + "'");
  return found->second;
}

void CaseData::restore_inputs() {
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_from(hosts[i]);
}

bool CaseData::are_inputs_intact() const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!std::ranges::equal(inputs[i].to_host().bytes(), hosts[i].bytes())) return false;
  return true;
}

DeviceTensor Case::shared_input() {
  const DeviceTensor& tensor = data_->inputs[next_input_++];
  tensor_bytes_ += tensor.bytes();
  return tensor;
}

DeviceTensor Case::input(DataType dtype, std::vector<int64_t> shape, double deviation) {
  if (mode_ == Mode::kTrace) return DeviceTensor::shape_only(dtype, std::move(shape));
  if (data_ && next_input_ < data_->inputs.size()) return shared_input();
  HostTensor host = random(dtype, std::move(shape), deviation);
  if (!data_) return input(host);
  DeviceTensor tensor = DeviceTensor::from_host(*device_, host);
  data_->inputs.push_back(tensor);
  data_->hosts.push_back(std::move(host));  // large ones take long to copy
  ++next_input_;
  tensor_bytes_ += tensor.bytes();
  return tensor;
}

HostTensor Case::random(DataType dtype, std::vector<int64_t> shape, double deviation) {
  const uint64_t stream = seed_ * 1000003 + next_stream_++;
  return HostTensor::random(dtype, std::move(shape), stream, deviation);
}

DeviceTensor Case::input(const HostTensor& host) {
  if (mode_ == Mode::kTrace) return DeviceTensor::shape_only(host.dtype(), host.shape());
  if (data_ && next_input_ < data_->inputs.size()) return shared_input();
  DeviceTensor tensor = DeviceTensor::from_host(*device_, host);
  if (data_) {
    data_->inputs.push_back(tensor);
    data_->hosts.push_back(host);
    ++next_input_;
  } else {
    inputs_.emplace_back(tensor.address(), host);
  }
  tensor_bytes_ += tensor.bytes();
  return tensor;
}

DeviceTensor Case::output(DataType dtype, std::vector<int64_t> shape) {
  if (mode_ == Mode::kTrace) return DeviceTensor::shape_only(dtype, std::move(shape));
  if (data_ && next_output_ < data_->outputs.size()) {
    DeviceTensor tensor = data_->outputs[next_output_++];
    if (mode_ == Mode::kRun) tensor.poison();
    tensor_bytes_ += tensor.bytes();
    return tensor;
  }
  DeviceTensor tensor = DeviceTensor::empty(*device_, dtype, std::move(shape));
  tensor.poison();
  if (data_) {
    data_->outputs.push_back(tensor);
    ++next_output_;
  }
  tensor_bytes_ += tensor.bytes();
  return tensor;
}

namespace {

/// All elements, read by all cores.
std::vector<double> doubles_of(const HostTensor& host) {
  std::vector<double> values(static_cast<size_t>(host.elements()));
  runtime::parallel_rows(host.elements(), [&](int64_t first, int64_t last) {
    host.to_doubles(first, last - first, values.data() + first);
  });
  return values;
}

}  // namespace

std::vector<double> Case::values(const DeviceTensor& input) const {
  for (const auto& [address, host] : inputs_)
    if (address == input.address()) return doubles_of(host);
  if (data_)
    for (size_t i = 0; i < data_->inputs.size(); ++i)
      if (data_->inputs[i].address() == input.address()) return doubles_of(data_->hosts[i]);
  return {};
}

std::vector<double> Case::reference(const std::function<std::vector<double>()>& make) {
  if (!data_) return make();
  if (next_reference_ == data_->references.size()) data_->references.push_back(make());
  return data_->references[next_reference_++];
}

void Case::expect(const DeviceTensor& output, const std::function<void(std::span<double>)>& fill,
                  double tolerance) {
  if (!is_launched_) return;
  HostTensor got = output.to_host();
  const std::vector<double> expected = reference([&] {
    std::vector<double> values(static_cast<size_t>(got.elements()));
    fill(values);
    return values;
  });
  comparisons.push_back(compare(got, expected, tolerance < 0 ? default_tolerance(got.dtype()) : tolerance));
}

void Case::expect_samples(const DeviceTensor& output, const std::function<double(int64_t)>& element,
                          int64_t samples, double tolerance) {
  if (!is_launched_) return;
  compare_samples(output.to_host(), samples, tolerance, [&](std::span<const int64_t> indices) {
    std::vector<double> values;
    for (int64_t index : indices) values.push_back(element(index));
    return values;
  });
}

namespace {

/// Row-major indices of all elements; if there are more than `samples`, of the corners and a random choice.
std::vector<int64_t> sampled(const HostTensor& got, int64_t samples, uint64_t seed) {
  const int64_t n = got.elements();
  std::vector<int64_t> indices;
  if (n <= samples) {
    for (int64_t i = 0; i < n; ++i) indices.push_back(i);
  } else {
    const int64_t columns = got.shape().back();
    indices = {0, columns - 1, n - columns, n - 1};
    uint64_t state = seed;
    while (static_cast<int64_t>(indices.size()) < samples) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      indices.push_back(static_cast<int64_t>((state >> 33) * 0x100000001u % static_cast<uint64_t>(n)));
    }
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  }
  return indices;
}

}  // namespace

void Case::expect_within(const DeviceTensor& output, const std::function<Bounded(int64_t)>& element,
                         int64_t samples) {
  if (!is_launched_) return;
  const HostTensor got = output.to_host();
  const std::vector<int64_t> indices = sampled(got, samples, seed_);
  const std::vector<double> numbers = reference([&] {  // values, each with its bound
    std::vector<double> made;
    for (int64_t index : indices) {
      const Bounded b = element(index);
      made.insert(made.end(), {b.value, b.allowed});
    }
    return made;
  });
  std::vector<Bounded> expected;
  for (size_t i = 0; i < indices.size(); ++i) expected.push_back({numbers[2 * i], numbers[2 * i + 1]});
  comparisons.push_back(compare_at(got, indices, expected));
}

void Case::compare_samples(const HostTensor& got, int64_t samples, double tolerance,
                           const std::function<std::vector<double>(std::span<const int64_t>)>& make) {
  const std::vector<int64_t> indices = sampled(got, samples, seed_);
  const std::vector<double> expected = reference([&] { return make(indices); });
  comparisons.push_back(
      compare_at(got, indices, expected, tolerance < 0 ? default_tolerance(got.dtype()) : tolerance));
}

bool Case::verified() const {
  return is_launched_ && !comparisons.empty() &&
         std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.passed; });
}

double Case::max_rel_err() const {
  double worst = 0;
  for (const Comparison& c : comparisons) worst = std::max(worst, c.max_rel_err);
  return worst;
}

}  // namespace imbrex
