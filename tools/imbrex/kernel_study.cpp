// SPDX-License-Identifier: Apache-2.0
#include "kernel_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "imbrex/runtime/machine_code.h"

namespace imbrex::command {

std::string sizes_text(const KernelChoice& choice) {
  std::vector<std::string> words;
  const std::map<std::string, int64_t> sizes = choice.sizes();
  for (const SizeOption& size : choice.kernel().description.sizes)
    words.push_back(fmt::format("{}={}", size.name, sizes.at(size.name)));
  return fmt::format("{}", fmt::join(words, " "));
}

Case traced_kernel(const KernelChoice& choice) {
  Case traced(Case::Mode::kTrace, std::nullopt, choice.sizes(), 0);
  choice.kernel().run(traced, std::nullopt, choice.configuration());
  return traced;
}

KernelTraffic counted_traffic(const KernelChoice& choice) {
  const Case traced = traced_kernel(choice);
  return kernel_traffic(*traced.function, run_time_integers(choice.kernel().entry->parameters, traced.shape));
}

StudyRun study_run(const KernelChoice& choice, const GpuModel& gpu, bool with_timeline) {
  const RegisteredKernel& kernel = choice.kernel();
  vgpu::Options machine;
  machine.target = gpu.target;
  machine.num_sms = gpu.sms;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kFast;
  machine.count_banks = true;
  machine.count_sectors = true;
  if (with_timeline) predict_from_machine_code();
  if (with_timeline)
    machine.timeline = {.record = true, .cta = 0, .gpu = std::make_shared<const GpuModel>(gpu)};
  const Device device = Device::virtual_gpu(machine);
  Case c(Case::Mode::kRun, device, choice.sizes(), 0);
  kernel.run(c, device, choice.configuration());
  return {std::move(c.report.virtual_report), c.verified(), c.max_rel_err()};
}

Device predicting_device(const GpuModel& gpu, int sms, vgpu::TimelineOptions timeline) {
  predict_from_machine_code();
  vgpu::Options machine;
  machine.target = gpu.target;
  machine.num_sms = sms > 0 ? sms : gpu.sms;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kNone;
  machine.timeline = std::move(timeline);
  machine.timeline.record = true;
  machine.timeline.gpu = std::make_shared<const GpuModel>(gpu);
  return Device::virtual_gpu(machine);
}

vgpu::Report predicted_launch(const KernelChoice& choice, const Device& device,
                              const Configuration& configuration, const std::shared_ptr<CaseData>& data) {
  Case c(Case::Mode::kMeasure, device, choice.sizes(), 0);
  c.share(data);
  vgpu::Report report;
  c.measure = [&](const Case::Launcher& launcher) { report = launcher(true).virtual_report; };
  choice.kernel().run(c, device, configuration);
  return report;
}

TrafficCounts counts_of(const vgpu::Statistics& s) {
  return {.global_bytes_read = s.global_bytes_read,
          .global_bytes_written = s.global_bytes_written,
          .shared_bytes_read = s.shared_bytes_read,
          .shared_bytes_written = s.shared_bytes_written,
          .cp_async_bytes = s.cp_async_bytes,
          .tma_bytes_loaded = s.tma_bytes_loaded,
          .tma_bytes_repeated = s.tma_bytes_repeated,
          .tma_bytes_stored = s.tma_bytes_stored,
          .tensor_memory_bytes = s.tensor_memory_bytes,
          .operand_bytes = s.operand_bytes,
          .tensor_flops = s.tensor_flops};
}

std::vector<std::string> differences(const TrafficCounts& a, const TrafficCounts& b) {
  static constexpr std::pair<const char*, int64_t TrafficCounts::*> kCounts[] = {
      {"global bytes read", &TrafficCounts::global_bytes_read},
      {"global bytes written", &TrafficCounts::global_bytes_written},
      {"shared bytes read", &TrafficCounts::shared_bytes_read},
      {"shared bytes written", &TrafficCounts::shared_bytes_written},
      {"cp.async bytes", &TrafficCounts::cp_async_bytes},
      {"TMA bytes loaded", &TrafficCounts::tma_bytes_loaded},
      {"TMA bytes repeated", &TrafficCounts::tma_bytes_repeated},
      {"TMA bytes stored", &TrafficCounts::tma_bytes_stored},
      {"tensor memory bytes", &TrafficCounts::tensor_memory_bytes},
      {"operand bytes", &TrafficCounts::operand_bytes},
      {"tensor operations", &TrafficCounts::tensor_flops}};
  std::vector<std::string> out;
  for (const auto& [name, count] : kCounts)
    if (a.*count != b.*count)
      out.push_back(fmt::format("{}: {} from the IR, {} in the run", name, a.*count, b.*count));
  return out;
}

namespace {

using Lines = std::map<std::tuple<std::string, int, bool>, LineBanks>;

template <class Use>
void add(Lines& lines, const std::string& file, int line, bool writes, const Use& use) {
  LineBanks& b = lines[{file, line, writes}];
  b.file = file;
  b.line = line;
  b.writes = writes;
  b.bytes = std::max(b.bytes, use.bytes);
  b.accesses += use.accesses;
  b.wavefronts += use.wavefronts;
  b.ideal += use.ideal;
  b.degree = std::max(b.degree, use.degree);
}

std::vector<LineBanks> values(const Lines& lines) {
  std::vector<LineBanks> out;
  for (const auto& [place, banks] : lines) out.push_back(banks);
  return out;
}

}  // namespace

std::vector<LineBanks> banks_by_line(const std::vector<vgpu::BankUse>& counted) {
  Lines lines;
  for (const vgpu::BankUse& use : counted) add(lines, use.place.file, use.place.line, use.writes, use);
  return values(lines);
}

std::vector<LineBanks> banks_by_line(const std::vector<BankPrediction>& predicted) {
  Lines lines;
  for (const BankPrediction& use : predicted)
    add(lines, use.where.file, static_cast<int>(use.where.line), use.writes, use);
  return values(lines);
}

std::string scaled(double value) {
  static constexpr std::pair<double, const char*> kPrefixes[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [factor, prefix] : kPrefixes)
    if (value >= factor) return fmt::format("{:.4g} {}", value / factor, prefix);
  return fmt::format("{:.4g} ", value);
}

std::string place_text(const std::string& file, int64_t line) {
  return fmt::format("{}:{}", file.substr(file.find_last_of('/') + 1), line);
}

}  // namespace imbrex::command
