// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/first_call_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "imbrex/core/error.h"
#include "imbrex/runtime/compare.h"
#include "imbrex/vgpu/timeline.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex {

std::string AutotuneReport::text() const {
  return fmt::format(
      "{} on {}: {} ({:.4g} us; the default takes {:.4g} us); {} measured, {} rejected, {} wrong, {} not "
      "reached, in "
      "{:.1f} s; compared with {}",
      kernel, device, config, microseconds, default_microseconds, measured, rejected, wrong, not_reached,
      seconds, compared_with);
}

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLaunches = 7;      // of a candidate, timed
constexpr double kDropAt = 2;     // times the best: dropped after its first launch
constexpr double kTolerance = 2;  // times that of one rounding: both results have their own

/// Predictions of the virtual GPU's timeline for a scope: what is faster there does not depend on this machine.
class Predicted {
 public:
  explicit Predicted(const Device& device) {
    if (!device.is_virtual()) return;
    gpu_ = &device.virtual_machine();
    before_ = gpu_->options();
    vgpu::Options options = before_;
    options.timeline.record = true;
    gpu_->set_options(options);
  }
  ~Predicted() {
    if (gpu_ != nullptr) gpu_->set_options(before_);
  }
  Predicted(const Predicted&) = delete;
  Predicted& operator=(const Predicted&) = delete;

 private:
  vgpu::VirtualGpu* gpu_ = nullptr;
  vgpu::Options before_;
};

/// The tensors that are written: as they were, and as the default configuration leaves them.
class SavedTensors {
 public:
  explicit SavedTensors(const std::vector<DeviceTensor>& tensors) : tensors_(tensors) {
    for (const DeviceTensor& tensor : tensors_) {
      copies_.push_back(DeviceTensor::empty(tensor.device(), tensor.dtype(), tensor.shape()));
      copies_.back().copy_from(tensor);
    }
  }
  void restore() {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_from(copies_[i]);
  }
  void keep_as_expected() {
    for (const DeviceTensor& tensor : tensors_) expected_.push_back(tensor.to_host().to_doubles());
  }
  void forget_expected() { expected_.clear(); }
  bool is_as_expected() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const HostTensor got = tensors_[i].to_host();
      if (!compare(got, expected_[i], kTolerance * default_tolerance(got.dtype())).passed) return false;
    }
    return true;
  }

 private:
  std::vector<DeviceTensor> tensors_, copies_;
  std::vector<std::vector<double>> expected_;
};

/// Whatever ends the tuning, the memory is as it was, for calls on any stream.
class RestoredAtEnd {
 public:
  RestoredAtEnd(SavedTensors& saved, Device device) : saved_(saved), device_(std::move(device)) {}
  ~RestoredAtEnd() {
    try {
      saved_.restore();
      device_.synchronize();
    } catch (const Error&) {
      // The device is lost, and the memory with it.
    }
  }

 private:
  SavedTensors& saved_;
  Device device_;
};

double microseconds(const LaunchReport& report) {
  const std::shared_ptr<const vgpu::Timeline>& timeline = report.virtual_report.timeline;
  return timeline != nullptr && timeline->complete ? timeline->microseconds() : 1e3 * report.milliseconds;
}

}  // namespace

bool is_autotuning_allowed() {
  const char* told = std::getenv("IMBREX_AUTOTUNE");
  return told == nullptr || (std::string_view(told) != "off" && std::string_view(told) != "0");
}

AutotuneReport tune_first_call(const FirstCallTuning& tuning) {
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  // The arguments may still be written on other streams.
  tuning.device.synchronize();
  const Predicted predicted(tuning.device);
  SavedTensors saved(tuning.written);
  const RestoredAtEnd restored(saved, tuning.device);
  AutotuneReport report;
  report.device = tuning.device.name();
  std::exception_ptr failure;
  std::string mistake;                                   // of the last one that is wrong by the reference
  std::vector<std::pair<double, std::string>> measured;  // whose outputs are the first one's
  const auto is_right = [&](const std::string& configuration) {
    const std::string wrong = tuning.reference.verify ? tuning.reference.verify(configuration) : "";
    if (wrong.empty()) return true;
    mistake = fmt::format("{}: {}", configuration.empty() ? "its only configuration" : configuration, wrong);
    ++report.wrong;
    return false;
  };
  double best = 0;
  for (const std::string& configuration : tuning.configurations) {
    if (!measured.empty() && elapsed() > tuning.seconds) {
      ++report.not_reached;
      continue;
    }
    double time = 0;
    try {
      tuning.prepare(configuration);
      saved.restore();
      const LaunchReport first = tuning.launch(configuration);
      if (!first.clean()) {
        if (measured.empty()) first.expect_clean();  // which is to be heard of, whatever the configuration
        ++report.wrong;
        continue;
      }
      time = microseconds(first);
    } catch (const CompileError&) {
      if (!failure) failure = std::current_exception();
      ++report.rejected;
      continue;
    } catch (const LaunchError&) {
      if (!failure) failure = std::current_exception();
      ++report.rejected;
      continue;
    }
    if (measured.empty()) {
      saved.keep_as_expected();
      if (!is_right(configuration)) {
        saved.forget_expected();
        continue;
      }
      report.compared_with = fmt::format(
          "{} output{} of {}", tuning.written.size(), tuning.written.size() == 1 ? "" : "s",
          report.rejected + report.wrong == 0 ? "the default configuration"
                                              : "the first configuration that runs: " + configuration);
      if (tuning.reference.verify) report.compared_with += ", and " + tuning.reference.text;
    } else if (!saved.is_as_expected()) {
      ++report.wrong;
      continue;
    }
    if (!tuning.device.is_virtual() && (measured.empty() || time < kDropAt * best)) {
      std::vector<double> times;
      for (int i = 0; i < kLaunches; ++i) times.push_back(microseconds(tuning.launch(configuration)));
      std::ranges::nth_element(times, times.begin() + kLaunches / 2);
      time = times[kLaunches / 2];
    }
    if (measured.empty()) report.default_microseconds = time;
    best = measured.empty() ? time : std::min(best, time);
    measured.emplace_back(time, configuration);
  }
  const std::string first = measured.empty() ? "" : measured.front().second;
  std::ranges::stable_sort(measured, {}, &std::pair<double, std::string>::first);
  // Of the others one can be wrong where this call's numbers do not show it: the winner faces the reference as well.
  while (!measured.empty() && measured.front().second != first && !is_right(measured.front().second))
    measured.erase(measured.begin());
  if (measured.empty()) {
    if (mistake.empty()) std::rethrow_exception(failure);
    throw LaunchError(
        Diagnostic{{},
                   "no configuration gives what the kernel's registered reference does",
                   {tuning.reference.text, mistake},
                   "imbrex run shows the first difference; IMBREX_AUTOTUNE=off launches all the same"});
  }
  report.measured = static_cast<int>(measured.size());
  report.microseconds = measured.front().first;
  report.config = measured.front().second;
  report.seconds = elapsed();
  return report;
}

}  // namespace runtime
}  // namespace imbrex
