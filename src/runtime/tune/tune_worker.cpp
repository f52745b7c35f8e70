// SPDX-License-Identifier: Apache-2.0
// The worker of the tuner: runs candidates where they may hang, trap, or take the process with them.
//
// What the tuner and it say to each other, one JSON object a line:
//
//   {"do": "open", "kernel", "device", "sizes", "seed"}   -> {"device", "multiprocessors"} or {"error"}
//   {"do": "try", "config", "verify", "launches", "limit_us"}
//        -> {"stage": "launching"}, {"stage": "checking"}, {"stage": "measuring"}: what is going on now
//        -> {"status": "right", "times": [us, ...]}, or {"status": "wrong" | "failed" | "trapped" | "slow",
//        "reason"}
//   {"do": "assemble", "config"}                          -> {"status": "right"}, or as above
//
// A worker whose device is lost ("trapped") ends after its answer.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "imbrex/core/error.h"
#include "imbrex/runtime/tuner.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

using nlohmann::json;

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
  bool answer(const json& request) {
    const std::string what = request.value("do", "");
    json reply;
    try {
      if (what == "open")
        reply = open(request);
      else if (what == "try" || what == "assemble")
        reply = attempt(request, what == "assemble");
      else
        reply = {{"error", "unknown request " + what}};
    } catch (const CompileError& error) {
      reply = {{"status", "slow"}, {"reason", brief(error)}, {"error", brief(error)}};
    } catch (const LaunchError& error) {
      reply = {{"status", "failed"}, {"reason", brief(error)}, {"error", brief(error)}};
    } catch (const DeviceError& error) {
      reply = {{"status", "trapped"}, {"reason", brief(error)}, {"error", brief(error)}};
    }
    say(reply);
    return reply.value("status", "") != "trapped";
  }

 private:
  json open(const json& request) {
    kernel_ = &registered_kernel(request.at("kernel"));
    sizes_ = request.at("sizes").get<std::map<std::string, int64_t>>();
    seed_ = request.at("seed");
    vgpu::Options machine;
    machine.timeline.record = true;
    device_ = Device::open(request.at("device").get<std::string>(), kernel_->target, machine);
    data_ = std::make_shared<CaseData>();
    return {{"device", device_->name()}, {"multiprocessors", device_->multiprocessors()}};
  }

  json attempt(const json& request, bool only_assemble) {
    const Configuration configuration = kernel_->space.parse(request.at("config").get<std::string>());
    LaunchReport report;
    if (only_assemble) {
      Case c(Case::Mode::kMeasure, device_, sizes_, seed_);
      c.share(data_);
      c.measure = [](const Case::Launcher&) {};
      kernel_->run(c, device_, configuration);
      return {{"status", "right"}};
    }
    if (request.value("verify", true)) {
      Case c(Case::Mode::kRun, device_, sizes_, seed_);
      c.share(data_);
      c.launching = [&] { say({{"stage", "launching"}}); };
      c.launched = [&] { say({{"stage", "checking"}}); };
      if (request.value("restore", false)) data_->restore_inputs();
      kernel_->run(c, device_, configuration);
      report = c.report;
      if (const std::string wrong = what_is_wrong(c); !wrong.empty()) {
        data_->restore_inputs();  // whatever it wrote over
        return {{"status", "wrong"}, {"reason", wrong}};
      }
    }
    if (device_->is_virtual()) {  // nothing to measure: what the cost model predicts for the chip
      const std::shared_ptr<const vgpu::Timeline>& timeline = report.virtual_report.timeline;
      if (timeline == nullptr || !timeline->complete)
        return {{"status", "failed"}, {"reason", "its time cannot be predicted: the timeline got stuck"}};
      return {{"status", "right"}, {"times", {timeline->microseconds()}}};
    }
    if (!timer_) timer_ = std::make_unique<runtime::GpuTimer>(*device_);
    std::vector<double> times;
    Case c(Case::Mode::kMeasure, device_, sizes_, seed_);
    c.share(data_);
    c.measure = [&](const Case::Launcher& launch) {
      say({{"stage", "measuring"}});
      launch(true);  // compiles and loads, which is not the kernel's time
      times = timer_->measure({[&] { launch(false); }}, request.value("launches", 5), true,
                              request.value("limit_us", 0.0))[0];
    };
    kernel_->run(c, device_, configuration);
    return {{"status", "right"}, {"times", times}};
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

  void say(const json& line) {
    const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    std::fputs(text.c_str(), out_);
    std::fflush(out_);
  }

  FILE* out_;
  const RegisteredKernel* kernel_ = nullptr;
  std::map<std::string, int64_t> sizes_;
  uint64_t seed_ = 0;
  std::optional<Device> device_;
  std::shared_ptr<CaseData> data_;
  std::unique_ptr<runtime::GpuTimer> timer_;
};

}  // namespace

int tune_worker_main() {
  // What kernels print belongs to nobody's answer.
  FILE* out = fdopen(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  if (out == nullptr) return 2;
  Worker worker(out);
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line, nullptr, false);
    if (!request.is_object()) return 2;
    if (!worker.answer(request)) break;
  }
  // No destructors: those of a lost device would fail, and nobody needs the others.
  std::fflush(out);
  _exit(0);
}

}  // namespace imbrex
