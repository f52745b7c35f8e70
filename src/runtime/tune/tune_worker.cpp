// SPDX-License-Identifier: Apache-2.0
// The tuner's worker process: runs candidates where they may hang, trap, or end the process. What it is asked
// and answers: worker_protocol.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/runtime/machine_code.h"
#include "imbrex/runtime/tuner.h"
#include "imbrex/vgpu/timeline.h"
#include "runtime/assemble/ptxas_log.h"
#include "runtime/measure/gpu_timer.h"
#include "runtime/tune/worker_protocol.h"

namespace imbrex {
namespace {

using runtime::WorkerAnswer;
using runtime::WorkerRequest;
using runtime::WorkerVerdict;
using Stage = WorkerAnswer::Stage;
using Status = Candidate::Status;

/// The first diagnostic in one line.
std::string brief(const Error& error) {
  if (error.diagnostics().empty()) return error.what();
  const Diagnostic& first = error.diagnostics().front();
  return first.help.empty() ? first.message : first.message + "; " + first.help;
}

class Worker {
 public:
  explicit Worker(FILE* out) : out_(out) {}

  /// Returns false when the device is lost.
  bool answer(const WorkerRequest& request) {
    if (request.kind == WorkerRequest::Kind::kOpen) {
      say(opened(request.problem));
      return true;
    }
    WorkerVerdict verdict;
    try {
      verdict = request.kind == WorkerRequest::Kind::kAssemble  ? assembled(request)
                : request.kind == WorkerRequest::Kind::kPredict ? predicted(request)
                                                                : attempted(request);
    } catch (const runtime::PerformanceError& error) {
      verdict = {Status::kSlow, brief(error)};
      verdict.spill_bytes = error.log().spill_store_bytes;
    } catch (const CompileError& error) {
      verdict = {Status::kFailed, brief(error)};
    } catch (const LaunchError& error) {
      verdict = {Status::kFailed, brief(error)};
    } catch (const DeviceError& error) {
      verdict = {Status::kTrapped, brief(error)};
    }
    const bool lives = verdict.status != Status::kTrapped;
    say({.kind = WorkerAnswer::Kind::kVerdict, .verdict = std::move(verdict)});
    return lives;
  }

 private:
  WorkerAnswer opened(const runtime::WorkerProblem& problem) try {
    problem_ = problem;
    kernel_ = &registered_kernel(problem_.kernel);
    vgpu::Options machine;
    machine.timeline.record = true;
    data_ = std::make_shared<CaseData>();
    sampling_ = predicting_ = small_ = {};
    if (!problem_.gpu.empty()) {
      machine.timeline.gpu = std::make_shared<const GpuModel>(gpu_model(problem_.gpu));
      machine.num_sms = machine.timeline.gpu->sms;
    }
    device_ = problem_.device == "cuda" ? Device::cuda(problem_.ordinal)
                                        : Device::open(problem_.device, problem_.target, machine);
    machine_ = machine;
    machine_.target = problem_.target;
    writes_inputs_.reset();
    return {.kind = WorkerAnswer::Kind::kOpened};
  } catch (const Error& error) {
    return {.kind = WorkerAnswer::Kind::kError, .error = brief(error)};
  }

  /// A run of the kernel on the shared data.
  Case new_case(Case::Mode mode) {
    Case c(mode, device_, problem_.sizes, problem_.seed);
    c.share(data_);
    return c;
  }

  WorkerVerdict assembled(const WorkerRequest& request) {
    Case c = new_case(Case::Mode::kMeasure);
    c.measure = [](const Case::Launcher&) {};
    kernel_->run(c, device_, kernel_->space.parse(request.config));
    return {};
  }

  /// Nothing is checked, multiplied or compared: what there is to know is the time. Of the few that are predicted whole also by
  /// their machine code, where ptxas is found; to assemble all would take longer than to predict them.
  WorkerVerdict predicted(const WorkerRequest& request) {
    if (!request.sample) predict_from_machine_code();
    vgpu::Options machine = machine_;
    machine.checks = vgpu::CheckSet::none();
    machine.tensor_math = vgpu::TensorMath::kNone;
    machine.timeline.sample = request.sample;
    Bench& bench = request.sample ? sampling_ : predicting_;
    if (!bench.device) bench = {Device::virtual_gpu(machine), std::make_shared<CaseData>()};
    Case c(Case::Mode::kMeasure, bench.device, problem_.sizes, problem_.seed);
    c.share(bench.data);
    vgpu::Report report;
    c.measure = [&](const Case::Launcher& launch) {
      say_stage(Stage::kLaunching);
      report = launch(true).virtual_report;
    };
    kernel_->run(c, bench.device, kernel_->space.parse(request.config));
    if (!report.completed)
      return {Status::kWrong,
              report.findings.empty() ? "did not run to its end" : report.findings[0].message};
    return time_of(report);
  }

  static WorkerVerdict time_of(const vgpu::Report& report) {
    const std::shared_ptr<const vgpu::Timeline>& timeline = report.timeline;
    if (timeline == nullptr || !timeline->complete)
      return {Status::kFailed, "its time cannot be predicted: the timeline got stuck"};
    WorkerVerdict verdict{.times = {timeline->microseconds()}};
    verdict.sampling_error = timeline->sampling_error;
    return verdict;
  }

  WorkerVerdict attempted(const WorkerRequest& request) {
    const Configuration configuration = kernel_->space.parse(request.config);
    LaunchReport report;
    if (request.at_default_sizes) return verified_small(configuration);
    if (request.verify) {
      Case c = new_case(Case::Mode::kRun);
      c.launching = [&] { say_stage(Stage::kLaunching); };
      c.launched = [&] { say_stage(Stage::kChecking); };
      if (request.restore_inputs || writes_inputs_.value_or(false)) data_->restore_inputs();
      kernel_->run(c, device_, configuration);
      report = c.report;
      if (const std::string wrong = what_is_wrong(c); !wrong.empty()) {
        data_->restore_inputs();  // whatever it wrote over
        return {Status::kWrong, wrong};
      }
      if (!writes_inputs_) writes_inputs_ = !data_->are_inputs_intact();
    }
    // Nothing to measure: what the cost model predicts for the chip.
    if (device_->is_virtual()) return time_of(report.virtual_report);
    if (!timer_) timer_ = std::make_unique<runtime::GpuTimer>(*device_);
    WorkerVerdict verdict;
    Case c = new_case(Case::Mode::kMeasure);
    c.measure = [&](const Case::Launcher& launch) {
      say_stage(Stage::kMeasuring);
      launch(true);  // compiles and loads, which is not the kernel's time
      verdict.times = timer_->measure({[&] { launch(false); }},
                                      {.launches = request.launches, .limit_us = request.limit_us})[0];
    };
    kernel_->run(c, device_, configuration);
    return verdict;
  }

  /// Whether it is right with the sizes that the kernel has where none are given.
  WorkerVerdict verified_small(const Configuration& configuration) {
    if (!small_.data) small_ = {device_, std::make_shared<CaseData>()};
    std::map<std::string, int64_t> sizes;
    for (const SizeOption& size : kernel_->description.sizes) sizes[size.name] = size.otherwise;
    Case c(Case::Mode::kRun, small_.device, sizes, problem_.seed);
    c.share(small_.data);
    c.launching = [&] { say_stage(Stage::kLaunching); };
    c.launched = [&] { say_stage(Stage::kChecking); };
    small_.data->restore_inputs();
    kernel_->run(c, small_.device, configuration);
    if (const std::string wrong = what_is_wrong(c); !wrong.empty()) return {Status::kWrong, wrong};
    return time_of(c.report.virtual_report);
  }

  static std::string what_is_wrong(const Case& c) {
    if (c.report.is_virtual && !c.report.clean()) {
      const vgpu::Report& report = c.report.virtual_report;
      return report.findings.empty()
                 ? "did not run to its end"
                 : fmt::format("{}: {}", vgpu::name(report.findings[0].kind), report.findings[0].message);
    }
    for (const Comparison& comparison : c.comparisons)
      if (!comparison.passed) return comparison.format();
    return c.verified() ? "" : "nothing was compared with a reference";
  }

  void say_stage(Stage stage) { say({.kind = WorkerAnswer::Kind::kStage, .stage = stage}); }
  void say(const WorkerAnswer& answer) {
    std::fputs((to_line(answer) + "\n").c_str(), out_);
    std::fflush(out_);
  }

  FILE* out_;
  runtime::WorkerProblem problem_;
  const RegisteredKernel* kernel_ = nullptr;
  std::optional<Device> device_;
  std::shared_ptr<CaseData> data_;
  vgpu::Options machine_;
  /// A device of its own with its data: for predictions, and for the kernel's default sizes.
  struct Bench {
    std::optional<Device> device;
    std::shared_ptr<CaseData> data;
  };
  Bench sampling_, predicting_, small_;
  std::optional<bool>
      writes_inputs_;  // so that they are restored before each candidate; not known before the first
  std::unique_ptr<runtime::GpuTimer> timer_;
};

}  // namespace

int tune_worker_main() {
  // What kernels print must not get between the answers.
  FILE* out = fdopen(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  if (out == nullptr) return 2;
  Worker worker(out);
  for (std::string line; std::getline(std::cin, line);) {
    const std::optional<WorkerRequest> request = runtime::parse_request(line);
    if (!request) {
      say("imbrex worker: this is not a request: {}\n", line);
      return 2;
    }
    if (!worker.answer(*request)) break;
  }
  // No destructors: those of a lost device would fail, and the others are of no use.
  std::fflush(out);
  _exit(0);
}

}  // namespace imbrex
