// SPDX-License-Identifier: Apache-2.0
// What a GPU can do per second and per SM: the numbers that rooflines, occupancy and time estimates start
// from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/dtype.h"

namespace imbrex {

/// One GPU. Limits per CTA and per thread are its target's; here stands what differs between GPUs of one
/// target.
struct GpuModel {
  std::string name;    ///< as the command line spells it: "a100"
  std::string title;   ///< "NVIDIA A100 SXM 80 GB"
  std::string target;  ///< the newest PTX target it runs: "sm_80"
  /// Words of the name that the driver gives such a device: "RTX 4090".
  std::string driver_name;
  int sms = 0;
  double clock_ghz = 0;  ///< the SM clock that the quoted tensor peaks are at; real clocks vary with power

  // Of the device memory, HBM or GDDR.
  int64_t hbm_bytes = 0;
  double hbm_bytes_per_second = 0;  ///< as quoted; copies reach about nine tenths
  int memory_bus_bits = 0;
  int64_t l2_bytes = 0;
  double l2_bytes_per_second = 0;       ///< an estimate: no vendor quotes it
  double shared_bytes_per_clock = 128;  ///< per SM, reads and writes together
  /// Per SM: three operands of 32 lanes in each of four sub-partitions. A bound, never quoted.
  double register_bytes_per_clock = 1536;

  double hbm_latency_cycles = 0, l2_latency_cycles = 0, shared_latency_cycles = 0;

  /// Dense tensor-core operations per clock and SM (a multiply-add is two) by operand type.
  struct Rate {
    DataType dtype;
    double ops_per_clock;
  };
  std::vector<Rate> tensor_rates;
  double float32_ops_per_clock = 0;  ///< CUDA cores, per SM
  int float32_per_float64 = 2;       ///< how many times as fast as float64 the CUDA cores compute float32

  /// True where predicted times were held against runs on this GPU. Those of others are scaled: their own clock,
  /// bandwidths and rates, and latencies that were published or those of the nearest chip that was measured.
  bool is_measured = false;
  /// Numbers of the timeline's cost model that were measured on a GPU of this model by `imbrex calibrate`, by name
  /// ("tma_latency"). They replace those of the tables, and so do the bandwidths and latencies above.
  std::map<std::string, double> constants = {};
  std::string calibration = {};  ///< the file they came from; "" for a model as Imbrex knows it

  /// Dense operations per second for operands of this type: tensor cores where they take it, CUDA cores for
  /// float32. 0 when the GPU has no such unit.
  double peak(DataType operands) const;
  /// True when it runs kernels written for this target ("sm_80").
  bool runs(std::string_view kernel_target) const;
  double shared_bytes_per_second() const { return shared_bytes_per_clock * sms * clock_ghz * 1e9; }
  double register_bytes_per_second() const { return register_bytes_per_clock * sms * clock_ghz * 1e9; }
};

/// Every GPU known, oldest target first. Of each target the one that stands for it comes first.
const std::vector<GpuModel>& gpu_models();
/// The model of this name. LaunchError with the nearest name when there is none.
const GpuModel& gpu_model(std::string_view name);
/// The GPU that stands for a target ("sm_90a", "sm_90", ...) where none is named: its first one, or that of the nearest
/// earlier target.
const GpuModel& gpu_model_for(std::string_view target);
/// The model of a device by the name that the driver gives it ("NVIDIA GeForce RTX 4090"); null where none is known.
const GpuModel* find_gpu_model_of_device(std::string_view device_name);

}  // namespace imbrex
