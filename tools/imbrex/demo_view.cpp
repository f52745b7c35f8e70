// SPDX-License-Identifier: Apache-2.0
#include "demo_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <regex>

namespace imbrex::command {
namespace {

constexpr int kBar = 10;

}  // namespace

Palette Palette::of_stdout() {
  if (isatty(STDOUT_FILENO) == 0) return {};
  return {"\033[32m", "\033[31m", "\033[2m", "\033[1m", "\033[36m", "\033[0m"};
}

std::string bar(double share) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBar * 8 + 0.5);
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < kBar; ++i) out += "·";
  return out;
}

std::string short_number(double value, const char* unit) {
  const char* prefix[] = {"", "k", "M", "G", "T"};
  int i = 0;
  while (value >= 1000 && i < 4) value /= 1000, ++i;
  if (value == 0) return "-";
  const int digits = i == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", value, digits, prefix[i], unit);
}

std::string verdict(bool verified, bool good, const Palette& palette) {
  return fmt::format("{}{:<8}{}", good ? palette.good : palette.bad, verified ? "verified" : "WRONG",
                     palette.off);
}

std::string Ladder::title() const {
  std::string title = name.substr(0, name.size() - 2);
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::vector<Ladder> ladders() {
  static const std::regex kStep(R"((.+_[a-z])\d+)");
  std::map<std::string, Ladder> found;
  for (const auto& [name, kernel] : registered_kernels()) {
    std::smatch match;
    if (!std::regex_match(name, match, kStep)) continue;
    found[match[1]].name = match[1];
    found[match[1]].steps.push_back(&kernel);
  }
  std::vector<Ladder> out;
  for (auto& [name, ladder] : found)
    if (ladder.steps.size() > 1) out.push_back(std::move(ladder));
  return out;
}

std::map<std::string, int64_t> sizes_with(const RegisteredKernel& kernel,
                                          const std::map<std::string, int64_t>& wanted) {
  std::map<std::string, int64_t> sizes;
  for (const SizeOption& size : kernel.description.sizes)
    sizes[size.name] = wanted.contains(size.name) ? wanted.at(size.name) : size.otherwise;
  return sizes;
}

std::string shape_text(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> extents;
  for (const SizeOption& size : kernel.description.sizes)
    if (size.otherwise > 1) extents.push_back(sizes.at(size.name));
  return fmt::format("{}", fmt::join(extents, "×"));
}

}  // namespace imbrex::command
