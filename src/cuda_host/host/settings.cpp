// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <memory>

#include "cuda_host/image/assemble.h"
#include "imbrex/core/error.h"
#include "imbrex/vgpu/timeline_assembler.h"

namespace imbrex::cuda {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse_variable(const std::string& name, const std::string& value,
                                  const std::string& allowed) {
  throw LaunchError({{}, fmt::format("{} is '{}'", name, value), {}, "it may be " + allowed});
}

bool parse_whole(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

int64_t number(const char* name, int64_t otherwise, int64_t least, int64_t most) {
  const std::string text = variable(name);
  int64_t value = otherwise;
  if (!text.empty() && (!parse_whole(text, value) || value < least || value > most))
    refuse_variable(name, text, fmt::format("a whole number from {} to {}", least, most));
  return value;
}

vgpu::CheckSet checks() {
  const std::string text = variable("IMBREX_CHECKS");
  if (text.empty() || text == "on") return {};
  if (text == "off") return vgpu::CheckSet::none();
  if (text == "all") return vgpu::CheckSet::all();
  refuse_variable("IMBREX_CHECKS", text, "on, off or all");
}

vgpu::Strictness strictness() {
  const std::string text = variable("IMBREX_STRICTNESS");
  if (text.empty() || text == "practical") return vgpu::Strictness::kPractical;
  if (text == "strict") return vgpu::Strictness::kStrict;
  refuse_variable("IMBREX_STRICTNESS", text, "practical or strict");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

}  // namespace

LaunchSelection LaunchSelection::parse(const std::string& text) {
  LaunchSelection selection;
  const std::string_view view = text;
  bool good = false;
  if (view.empty()) {
    good = true;
  } else if (view.starts_with("first:")) {
    good = parse_whole(view.substr(6), selection.last) && selection.last >= 0;
  } else if (view.starts_with("every:")) {
    good = parse_whole(view.substr(6), selection.every) && selection.every >= 1;
  } else if (const size_t dash = view.find('-'); dash != std::string_view::npos) {
    good = parse_whole(view.substr(0, dash), selection.first) &&
           parse_whole(view.substr(dash + 1), selection.last) && selection.first >= 1 &&
           selection.last >= selection.first;
  } else if (parse_whole(view, selection.first) && selection.first >= 1) {
    selection.last = selection.first;
    good = true;
  }
  if (!good) refuse_variable("IMBREX_LAUNCHES", text, "first:3, every:10, 5-9 or 7, counted from 1");
  return selection;
}

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*')
    return matches(pattern.substr(1), name) || (!name.empty() && matches(pattern, name.substr(1)));
  return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
         matches(pattern.substr(1), name.substr(1));
}

Settings Settings::from_environment() {
  Settings settings;
  const std::string gpu = variable("IMBREX_GPU");
  settings.gpu = gpu_model(gpu.empty() ? "h200" : gpu);
  settings.gpus = static_cast<int>(number("IMBREX_GPUS", 1, 1, 16));
  settings.options.target = settings.gpu.target;
  settings.options.num_sms = settings.gpu.sms;
  // Freed addresses stay unused as long as there are others, so that late accesses are recognised: twice as many as bytes.
  settings.options.memory_bytes = 2 * settings.gpu.hbm_bytes;
  settings.options.checks = checks();
  settings.options.strictness = strictness();
  // Loops in which nothing can change are found long before. What counts on for ever is told of by the progress, and ended
  // after minutes: kernels that compute from random numbers store nothing for long either.
  settings.options.stall_budget = number("IMBREX_STALL_BUDGET", int64_t{1} << 32, 1, INT64_MAX);
  settings.options.sampled_ctas = number("IMBREX_CTAS", 0, 0, INT64_MAX);
  settings.options.seed = static_cast<uint64_t>(number("IMBREX_SEED", 0, 0, INT64_MAX));
  settings.launches = LaunchSelection::parse(variable("IMBREX_LAUNCHES"));
  settings.kernels = split(variable("IMBREX_KERNELS"));
  settings.suppressions = variable("IMBREX_SUPPRESSIONS");
  settings.run_folder = variable("IMBREX_RUN_FOLDER");
  settings.saved_ptx = variable("IMBREX_SAVE_PTX");
  settings.notes = variable("IMBREX_NOTES") == "1";
  if (variable("IMBREX_TIMELINE") == "1") {
    settings.options.timeline.record = true;
    if (const std::string ptxas = variable("IMBREX_TIMELINE_PTXAS"); !ptxas.empty())
      vgpu::set_timeline_assembler(
          [ptxas](const std::string& ptx, const std::string&, const std::string& target) {
            return assemble(ptxas, ptx, target);
          });
    settings.options.timeline.gpu = std::make_shared<const GpuModel>(settings.gpu);
    settings.options.timeline.clock_ghz = 1e-3 * static_cast<double>(number("IMBREX_CLOCK_MHZ", 0, 0, 10000));
  }
  settings.stop_at_first = variable("IMBREX_STOP_AT_FIRST") == "1";
  settings.progress = variable("IMBREX_PROGRESS") != "0";
  return settings;
}

}  // namespace imbrex::cuda
