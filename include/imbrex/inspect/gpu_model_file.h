// SPDX-License-Identifier: Apache-2.0
// Model files: what `imbrex calibrate` measured on a GPU, as JSON with a checksum (docs/timeline.md, Calibrating).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "imbrex/inspect/gpu_model.h"

namespace imbrex {

/// A number of the model itself by its name in a file ("l2_latency_cycles"); null: it has none of that name.
double* find_number(GpuModel& model, std::string_view name);
/// Gives a model a number: one of its own, else a constant of the SM.
void set_number(GpuModel& model, const std::string& name, double value);

/// The text of the file for a model whose numbers were measured on `device` ("NVIDIA H200").
std::string model_file_text(const GpuModel& calibrated, const std::string& device);

/// The model that a file holds. LaunchError when it cannot be read, is of another version, or was changed since.
GpuModel read_model_file(const std::string& path, const std::vector<GpuModel>& known);

/// Where the calibrated model of a GPU is kept and looked for: in the folder of the cache. "" where nothing is kept.
std::string model_file_path(const std::string& gpu);

/// Replaces models by calibrated ones: that of the file IMBREX_GPU_MODEL ("none": of none), else those that are kept.
void apply_model_files(std::vector<GpuModel>& models);

}  // namespace imbrex
