// SPDX-License-Identifier: Apache-2.0
#include "core/target.h"

#include <charconv>

namespace imbrex {
namespace {

constexpr int64_t kKiB = 1024;

/// What differs between chips. Shared memory, threads and CTAs are those of CUDA 13's occupancy header.
struct Chip {
  int sm;
  std::string_view variants;  // the names it has beside the plain one
  MatrixUnit matrix_unit;
  int64_t shared_kib, threads, ctas;  // per SM
  int64_t portable_cluster, cluster;
  int64_t tensor_memory_columns;
};

constexpr Chip kChips[] = {
    {80, "", MatrixUnit::kMma, 164, 2048, 32, 1, 1, 0},            // A100
    {86, "", MatrixUnit::kMma, 100, 1536, 16, 1, 1, 0},            // GeForce RTX 30, A10
    {87, "", MatrixUnit::kMma, 164, 1536, 16, 1, 1, 0},            // Jetson Orin
    {89, "", MatrixUnit::kMma, 100, 1536, 24, 1, 1, 0},            // GeForce RTX 40, L4, L40S
    {90, "a", MatrixUnit::kWgmma, 228, 2048, 32, 8, 16, 0},        // H100, H200, GH200
    {100, "fa", MatrixUnit::kTcgen05, 228, 2048, 32, 8, 16, 512},  // B200, GB200
    {103, "fa", MatrixUnit::kTcgen05, 228, 2048, 32, 8, 16, 512},  // B300, GB300
    {110, "fa", MatrixUnit::kTcgen05, 228, 1536, 24, 8, 16, 512},  // Jetson Thor
    {120, "fa", MatrixUnit::kMma, 100, 1536, 24, 8, 8, 0},         // GeForce RTX 50, RTX PRO Blackwell
    {121, "fa", MatrixUnit::kMma, 100, 1536, 24, 8, 8, 0},         // DGX Spark
};

/// Names live as long as the program; a chip with variants has three at most.
std::vector<std::string> make_names() {
  std::vector<std::string> names;
  for (const Chip& chip : kChips) {
    names.push_back("sm_" + std::to_string(chip.sm));
    for (const char variant : chip.variants) names.push_back("sm_" + std::to_string(chip.sm) + variant);
  }
  return names;
}

Target make_target(const Chip& chip, std::string_view name, char variant) {
  const bool has_async_units = chip.sm >= 90;
  return {.name = name,
          .sm = chip.sm,
          .variant = variant,
          // Plain code is for later generations too, which have other units.
          .matrix_unit = variant == 0 ? MatrixUnit::kMma : chip.matrix_unit,
          .max_shared_bytes = (chip.shared_kib - 1) * kKiB,
          .reserved_shared_bytes = 1 * kKiB,
          .shared_base = has_async_units ? 1 * kKiB : 0,
          .shared_bytes_per_sm = chip.shared_kib * kKiB,
          .registers_per_sm = 65536,
          .max_registers_per_thread = 255,
          .max_threads = 1024,
          .max_threads_per_sm = chip.threads,
          .max_ctas_per_sm = chip.ctas,
          .max_portable_cluster = chip.portable_cluster,
          .max_cluster = chip.cluster,
          .tensor_memory_columns = variant == 0 ? 0 : chip.tensor_memory_columns,
          .named_barriers = 16,
          .max_parameter_bytes = 4096};
}

const std::vector<Target>& all_targets() {
  static const std::vector<std::string> names = make_names();
  static const std::vector<Target> targets = [] {
    std::vector<Target> made;
    for (const Chip& chip : kChips) {
      made.push_back(make_target(chip, names[made.size()], 0));
      for (const char variant : chip.variants) made.push_back(make_target(chip, names[made.size()], variant));
    }
    return made;
  }();
  return targets;
}

/// The number at the start of `text`, which it is taken off.
int take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc{} ? value : 0;
}

}  // namespace

std::optional<TargetName> TargetName::parse(std::string_view name) {
  if (!name.starts_with("sm_")) return std::nullopt;
  name.remove_prefix(3);
  TargetName target;
  target.sm = take_number(name);
  if (target.sm <= 0 || target.sm > 9999) return std::nullopt;
  if (!name.empty()) target.variant = name[0];
  if (name.size() > 1 || (target.variant != 0 && target.variant != 'a' && target.variant != 'f'))
    return std::nullopt;
  return target;
}

bool meets(TargetName target, std::string_view requirement) {
  if (requirement.empty()) return true;
  std::string_view kind = requirement;
  const int sm = take_number(kind);
  if (kind.empty()) return target.sm >= sm;
  if (kind == "a") return target.sm == sm && target.variant == 'a';
  if (kind == "a+") return target.sm >= sm && target.variant != 0;
  const int next_generation = sm < 120 ? 120 : sm / 10 * 10 + 10;  // "100f", "120f"
  return target.sm >= sm && target.sm < next_generation && target.variant != 0;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : all_targets())
    if (target.name == name) return &target;
  return nullptr;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Target& target : all_targets()) names.emplace_back(target.name);
  return names;
}

bool target_has(const Target& target, std::string_view since) {
  const std::optional<TargetName> first = TargetName::parse(since);
  if (!first) return false;
  if (first->variant == 0) return target.sm >= first->sm;
  if (first->sm < 100) return target.sm == first->sm && target.is_specific();
  return meets(target.parsed(), std::to_string(first->sm) + "f");
}

bool runs_code_of(std::string_view gpu, std::string_view code) {
  if (gpu == code) return true;
  const std::optional<TargetName> own = TargetName::parse(gpu), wanted = TargetName::parse(code);
  if (!own || !wanted || wanted->sm > own->sm || wanted->variant == 'a') return false;
  // The variants of one chip are the same machine, so that "a" runs "f" of the family, but a plain name promises nothing.
  return wanted->variant == 0 || (own->variant != 0 && wanted->family() == own->family());
}

std::optional<std::string> target_for(std::string_view wanted, std::string_view gpu) {
  const Target *code = find_target(wanted), *own = find_target(gpu);
  if (runs_code_of(gpu, wanted)) {
    const bool fits = code == nullptr || own == nullptr || code->max_shared_bytes <= own->max_shared_bytes;
    return std::string(fits ? wanted : gpu);
  }
  if (code == nullptr || own == nullptr || !code->is_specific() || !own->is_specific() ||
      code->parsed().family() != own->parsed().family() || own->sm < code->sm)
    return std::nullopt;
  return std::string(gpu);
}

}  // namespace imbrex
