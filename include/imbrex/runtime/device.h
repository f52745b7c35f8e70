// SPDX-License-Identifier: Apache-2.0
// Devices: a CUDA GPU through its driver, or the virtual GPU on the CPU. Both run the same PTX through one
// interface.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "imbrex/vgpu/options.h"
#include "imbrex/vgpu/report.h"

namespace imbrex {

namespace runtime {
class DeviceBackend;
}
namespace vgpu {
class VirtualGpu;  // imbrex/vgpu/virtual_gpu.h
}

/// What is known after a launch. On a CUDA GPU only `milliseconds` is filled, and only if the
/// launch was timed.
struct LaunchReport {
  bool is_virtual = false;
  double milliseconds = 0;      ///< wall-clock time on the virtual GPU, device time on a CUDA GPU
  vgpu::Report virtual_report;  ///< findings, statistics, printf output

  /// False when the virtual GPU found something or the kernel did not run to its end.
  bool clean() const { return !is_virtual || virtual_report.clean(); }
  /// Throws DeviceError with the virtual GPU's findings unless clean().
  void expect_clean() const {
    if (is_virtual) virtual_report.expect_clean();
  }
};

/// A device. A handle: cheap to copy; what it stands for lives until the last handle and tensor are gone.
/// Any thread may use a device and the kernels and tensors on it, several threads at once; on the virtual GPU one
/// launch runs at a time. A CUDA context has one device, however often it is asked for, which lives as long as the
/// process. Calls make that context current while they run, and afterwards again the one that was; where none was, it
/// stays.
class Device {
 public:
  /// The virtual GPU on this machine's CPU. LaunchError for an unknown target.
  static Device virtual_gpu(vgpu::Options options = {});
  /// CUDA device `ordinal`, by its primary context, which CUDA's runtime uses too. DeviceError says what is missing: driver, device, or a new enough driver.
  static Device cuda(int ordinal = 0);
  /// The device of the CUDA context that is current on this thread, be it a GPU's primary context or one that the
  /// program made, which must outlive what is made here. DeviceError where none is, and as cuda().
  static Device current();
  /// True when cuda(0) would work. `why_not`, if given, receives the reason otherwise.
  static bool has_cuda(std::string* why_not = nullptr);
  /// "auto" (a CUDA GPU that runs `target`, else the virtual GPU), "virtual" or "cuda". The virtual GPU
  /// is one for `target` with these options. LaunchError for another word, DeviceError where there is
  /// no CUDA GPU.
  static Device open(std::string_view kind, const std::string& target, vgpu::Options options = {});

  bool is_virtual() const;
  /// "NVIDIA H200", "virtual GPU (sm_100a)".
  std::string name() const;
  /// The newest target whose PTX the device runs: "sm_90a", ...
  std::string target() const;
  /// True when the device runs kernels written for `target`: its own, a plain one (without "a") up to its own, or an
  /// earlier one of its family, such as "sm_100a" on an sm_103a, for which kernels are compiled anew.
  bool can_run(const std::string& target) const;
  /// How many multiprocessors (SMs) the device has, or models.
  int multiprocessors() const;
  /// Waits until everything launched has ended, on all streams. DeviceError when any of it failed.
  void synchronize() const;

  /// The virtual GPU behind the device. LaunchError on a CUDA device.
  vgpu::VirtualGpu& virtual_machine() const;

  explicit Device(std::shared_ptr<runtime::DeviceBackend> backend) : backend_(std::move(backend)) {}
  runtime::DeviceBackend& backend() const { return *backend_; }
  const std::shared_ptr<runtime::DeviceBackend>& shared_backend() const { return backend_; }

 private:
  std::shared_ptr<runtime::DeviceBackend> backend_;
};

}  // namespace imbrex
