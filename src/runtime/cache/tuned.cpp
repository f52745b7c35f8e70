// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache/tuned.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "imbrex/core/version.h"
#include "imbrex/vgpu/gpu_numbers.h"

namespace imbrex::runtime {
namespace {

/// One folder of the cache for the results of one kernel on one device.
std::string group_of(const std::string& type_name, const std::string& target, const std::string& device) {
  const size_t colon = type_name.rfind(':', type_name.find('<'));  // before template arguments
  std::string name = type_name.substr(colon == std::string::npos ? 0 : colon + 1);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return fmt::format(
      "{}-{}", name.substr(0, 40),
      sha256(fmt::format("{}\n{}\n{}\n{}", type_name, target, device, version())).substr(0, 12));
}

/// IR text without its source locations, which are " @12" or " @"file":12".
std::string without_locations(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = text.compare(i, 2, " @") == 0 && i + 2 < text.size() &&
                        (text[i + 2] == '"' || std::isdigit(static_cast<unsigned char>(text[i + 2])));
    if (!starts) {
      out += text[i];
      continue;
    }
    i += 2;
    if (text[i] == '"') i = text.find('"', i + 1) + 1;
    while (i < text.size() && (text[i] == ':' || std::isdigit(static_cast<unsigned char>(text[i])))) ++i;
    --i;
  }
  return out;
}

std::optional<TunedRecord> read_record(const std::string& payload) {
  const nlohmann::json json = nlohmann::json::parse(payload, nullptr, false);
  if (!json.is_object() || !json.contains("config")) return std::nullopt;
  TunedRecord record;
  record.shape = json.value("shape", std::vector<int64_t>());
  record.sizes = json.value("sizes", std::map<std::string, int64_t>());
  record.code = json.value("code", "");
  record.config = json.value("config", "");
  record.microseconds = json.value("microseconds", 0.0);
  record.is_modelled = json.value("modelled", false);
  return record;
}

}  // namespace

bool is_in_shape(const ParameterInfo& parameter) {
  return parameter.kind == ParameterKind::kConstant ||
         (parameter.kind == ParameterKind::kScalar && !parameter.dtype.is_float());
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("{}", fmt::join(shape.begin(), shape.end(), ","));
}

std::string code_digest(const ir::Function& traced) {
  std::string text = ir::print(traced);
  // The first line ends with the kernel's own location.
  if (const size_t from = text.find(" from "); from < text.find('\n'))
    text.erase(from, text.find('\n') - from);
  return sha256(without_locations(text));
}

std::string tuned_on(const std::string& device, bool is_virtual, const GpuModel& model) {
  return is_virtual ? device + ", model " + vgpu::gpu_numbers_digest(model).substr(0, 12) : device;
}

std::string tuned_on(const Device& device) {
  return tuned_on(device.name(), device.is_virtual(), gpu_model_for(device.target()));
}

CacheKey tuned_key(const std::string& type_name, const std::string& target, const std::string& device,
                   std::span<const int64_t> shape, const std::string& code) {
  return {"tuning",
          group_of(type_name, target, device),
          {{"kernel", type_name},
           {"target", target},
           {"device", device},
           {"shape", shape_text(shape)},
           {"code", code},
           {"imbrex", version()}}};
}

void store_tuned(Cache& cache, const CacheKey& key, const TunedRecord& record) {
  const nlohmann::json json = {{"shape", record.shape},
                               {"sizes", record.sizes},
                               {"code", record.code},
                               {"config", record.config},
                               {"microseconds", record.microseconds},
                               {"modelled", record.is_modelled}};
  cache.store(key, json.dump());
}

std::optional<TunedRecord> load_tuned(Cache& cache, const CacheKey& key) {
  const std::optional<std::string> payload = cache.load(key);
  return payload ? read_record(*payload) : std::nullopt;
}

std::vector<TunedRecord> all_tuned(const Cache& cache, const std::string& type_name,
                                   const std::string& target, const std::string& device) {
  std::vector<TunedRecord> records;
  for (const CacheEntry& entry : cache.list("tuning", group_of(type_name, target, device)))
    if (std::optional<TunedRecord> record = read_record(entry.payload)) records.push_back(std::move(*record));
  return records;
}

std::optional<Configuration> configuration_of(const TunedRecord& record, const TuningSpace& space) {
  try {
    return space.parse(record.config);
  } catch (const CompileError&) {
    return std::nullopt;
  }
}

std::vector<TunedRecord> by_distance(std::vector<TunedRecord> records, std::span<const int64_t> shape,
                                     std::span<const ParameterInfo> parameters) {
  std::vector<const ParameterInfo*> kinds;
  for (const ParameterInfo& parameter : parameters)
    if (is_in_shape(parameter)) kinds.push_back(&parameter);
  auto distance = [&](const TunedRecord& record) -> double {
    if (record.shape.size() != shape.size() || kinds.size() != shape.size()) return INFINITY;
    double sum = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      const int64_t a = record.shape[i], b = shape[i];
      if (a == b) continue;
      if (kinds[i]->dtype == any_type || a <= 0 || b <= 0) return INFINITY;
      sum += std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
    }
    return sum;
  };
  std::erase_if(records, [&](const TunedRecord& record) { return std::isinf(distance(record)); });
  std::stable_sort(records.begin(), records.end(),
                   [&](const TunedRecord& a, const TunedRecord& b) { return distance(a) < distance(b); });
  return records;
}

}  // namespace imbrex::runtime
