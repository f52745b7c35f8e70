// SPDX-License-Identifier: Apache-2.0
#include "coalescing_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "kernel_study.h"
#include "timeline_view.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

/// The counts of a line or of an instruction.
struct Counts {
  int64_t requests = 0, sectors = 0, ideal = 0, bytes_asked = 0;
  int bytes = 0;  // of a lane, the widest

  void add(const vgpu::SectorUse& use) {
    requests += use.requests;
    sectors += use.sectors;
    ideal += use.ideal;
    bytes_asked += use.bytes_asked;
    bytes = std::max(bytes, use.bytes);
  }
  double per_request() const { return static_cast<double>(sectors) / static_cast<double>(requests); }
  double ideal_per_request() const { return static_cast<double>(ideal) / static_cast<double>(requests); }
  /// Above 1: so many times the sectors that the bytes would fill.
  double excess() const { return static_cast<double>(sectors) / static_cast<double>(ideal); }
};

Counts counts_of(const vgpu::SectorUse& use) {
  Counts counts;
  counts.add(use);
  return counts;
}

/// A line of the source (file, line, 0), or of PTX that names none ("", 0, line).
struct Line {
  std::string file;
  int line = 0, ptx_line = 0;
  vgpu::GlobalAccess access = vgpu::GlobalAccess::kLoad;

  explicit Line(const vgpu::SectorUse& use)
      : file(use.place.file),
        line(use.place.line),
        ptx_line(use.place.file.empty() ? use.place.ptx_line : 0),
        access(use.access) {}
  bool operator<(const Line& other) const {
    return std::tie(file, line, ptx_line, access) <
           std::tie(other.file, other.line, other.ptx_line, other.access);
  }
  std::string place() const {
    return file.empty() ? fmt::format("PTX line {}", ptx_line) : place_text(file, line);
  }
};

std::map<Line, Counts> by_line(const std::vector<vgpu::SectorUse>& uses) {
  std::map<Line, Counts> lines;
  for (const vgpu::SectorUse& use : uses) lines[Line(use)].add(use);
  return lines;
}

void add_counts(Json& json, const Counts& c) {
  json["bytes"] = c.bytes;
  json["requests"] = c.requests;
  json["sectors"] = c.sectors;
  json["ideal"] = c.ideal;
  json["bytes_asked"] = c.bytes_asked;
  json["sectors_per_request"] = c.per_request();
  json["bytes_per_sector"] = static_cast<double>(c.bytes_asked) / static_cast<double>(c.sectors);
}

}  // namespace

std::string coalescing_text(const std::vector<vgpu::SectorUse>& uses, bool with_instructions) {
  if (uses.empty())
    return "no thread reads or writes global memory; bulk and tensor copies move whole boxes\n";
  const std::map<Line, Counts> lines = by_line(uses);
  Counts all;
  for (const vgpu::SectorUse& use : uses) all.add(use);
  size_t width = 6;
  for (const auto& [line, counts] : lines) width = std::max(width, line.place().size());
  std::string text = fmt::format("  {:{}} {:10} {:>5} {:>12} {:>12} {:>12} {:>8} {:>8}\n", "line", width,
                                 "access", "bytes", "requests", "sectors", "per request", "ideal", "excess");
  for (const auto& [line, c] : lines)
    text += fmt::format("  {:{}} {:10} {:>5} {:>12} {:>12} {:>12.2f} {:>8.2f} {:>7.2f}×  {}\n", line.place(),
                        width, vgpu::name(line.access), c.bytes, c.requests, c.sectors, c.per_request(),
                        c.ideal_per_request(), c.excess(),
                        line.file.empty() ? "" : trimmed_line(line.file, line.line));
  text +=
      fmt::format("  {:{}} {:10} {:>5} {:>12} {:>12}\n\n", "all", width, "", "", all.requests, all.sectors);
  if (all.sectors == all.ideal)
    text += "coalesced: no request touches more sectors than its bytes fill\n";
  else
    text +=
        fmt::format("{} of {} sectors, {:.1f} %, are more than the bytes of their requests would fill\n",
                    all.sectors - all.ideal, all.sectors,
                    100.0 * static_cast<double>(all.sectors - all.ideal) / static_cast<double>(all.sectors));
  if (!with_instructions) return text;
  text += fmt::format("\n  {:>8} {:>12} {:>12} {:>12} {:>8}\n", "PTX line", "requests", "sectors",
                      "per request", "ideal");
  for (const vgpu::SectorUse& use : uses) {
    const Counts c = counts_of(use);
    text += fmt::format("  {:>8} {:>12} {:>12} {:>12.2f} {:>8.2f}  {}\n", use.place.ptx_line, c.requests,
                        c.sectors, c.per_request(), c.ideal_per_request(), use.place.ptx);
  }
  return text;
}

Json coalescing_json(const std::vector<vgpu::SectorUse>& uses) {
  Json out = {{"lines", Json::array()}, {"instructions", Json::array()}};
  for (const auto& [line, counts] : by_line(uses)) {
    Json entry = {{"file", line.file}, {"line", line.line}, {"access", vgpu::name(line.access)}};
    if (line.file.empty()) entry["ptx_line"] = line.ptx_line;
    add_counts(entry, counts);
    out["lines"].push_back(entry);
  }
  for (const vgpu::SectorUse& use : uses) {
    Json entry = {{"ptx_line", use.place.ptx_line},
                  {"ptx", use.place.ptx},
                  {"line", use.place.line},
                  {"access", vgpu::name(use.access)}};
    add_counts(entry, counts_of(use));
    out["instructions"].push_back(entry);
  }
  return out;
}

}  // namespace imbrex::command
