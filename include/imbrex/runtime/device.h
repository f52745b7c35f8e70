// SPDX-License-Identifier: Apache-2.0
// Devices: a CUDA GPU through its driver, or the virtual GPU on the CPU. Both run the same PTX through one
// interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex {

namespace runtime {
class DeviceBackend;
}

/// What a launch told. On a CUDA GPU only `milliseconds` is filled (0 unless the launch was timed).
struct LaunchReport {
  bool is_virtual = false;
  double milliseconds = 0;      // wall-clock on the virtual GPU, device time on a CUDA GPU
  vgpu::Report virtual_report;  // findings, statistics, printf output

  bool clean() const { return !is_virtual || virtual_report.clean(); }
  /// Throws DeviceError with the virtual GPU's findings unless clean().
  void expect_clean() const {
    if (is_virtual) virtual_report.expect_clean();
  }
};

/// A device. A handle: cheap to copy; its memory lives until the last handle and tensor are gone. Any thread
/// may use it, and the kernels and tensors on it, several at once; but timed launches on a CUDA GPU must come
/// from one at a time, and on the virtual GPU one launch at a time runs.
class Device {
 public:
  /// The virtual GPU on this machine's CPU.
  static Device virtual_gpu(vgpu::Options options = {});
  /// CUDA device `ordinal`. Throws DeviceError saying what is missing (driver, device, a new enough driver).
  static Device cuda(int ordinal = 0);
  /// True when cuda(0) would work. `why_not`, if given, receives the reason otherwise.
  static bool has_cuda(std::string* why_not = nullptr);
  /// "auto" (a CUDA GPU that runs `target`, else the virtual GPU), "virtual" or "cuda". Throws LaunchError
  /// for other words.
  static Device open(std::string_view kind, const std::string& target, vgpu::Options options = {});

  bool is_virtual() const;
  /// "NVIDIA H200", "virtual GPU (sm_100a)".
  std::string name() const;
  /// What PTX may be built for: "sm_90a", ...
  std::string target() const;
  /// True when the device runs PTX built for `target`: its own, or a plain target (without "a") up to its
  /// own.
  bool can_run(const std::string& target) const;
  int multiprocessors() const;  ///< how many the device has (or models)
  /// Blocks until everything launched has finished; reports asynchronous failures as DeviceError.
  void synchronize() const;

  /// The virtual GPU behind the device. Throws LaunchError on a CUDA device.
  vgpu::VirtualGpu& virtual_machine() const;

  explicit Device(std::shared_ptr<runtime::DeviceBackend> backend) : backend_(std::move(backend)) {}
  runtime::DeviceBackend& backend() const { return *backend_; }
  const std::shared_ptr<runtime::DeviceBackend>& shared_backend() const { return backend_; }

 private:
  std::shared_ptr<runtime::DeviceBackend> backend_;
};

}  // namespace imbrex
