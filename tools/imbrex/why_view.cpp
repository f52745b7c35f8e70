// SPDX-License-Identifier: Apache-2.0
#include "why_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "kernel_study.h"
#include "timeline_text.h"

namespace imbrex::command {

namespace {

using vgpu::Resource;
using vgpu::TimelineExplanation;

/// Below this a resource is not called the limit.
constexpr double kLeastGain = 0.03;
/// Shares below this are left out of the text.
constexpr double kShown = 0.01;
constexpr size_t kWaitsShown = 8, kPartsShown = 8;

/// Whether most of what the critical path waits for at L2 are stores and updates by threads.
bool waits_for_stores(const vgpu::Timeline& t) {
  double stores = 0, all = 0;
  for (const TimelineExplanation::Part& part : t.why->parts) {
    if (part.resource != Resource::kL2Bandwidth) continue;
    all += part.cycles;
    const std::string ptx = part.place < 0 ? "" : t.places[static_cast<size_t>(part.place)].ptx;
    for (const char* name : {"st.", "red.", "atom."})
      if (ptx.starts_with(name) || ptx.find(std::string(" ") + name) != std::string::npos) {
        stores += part.cycles;
        break;
      }
  }
  return stores > all / 2;
}

/// What helps where a resource is the limit, of a kernel that multiplies matrices or of one that does not.
const char* remedy(Resource resource, bool multiplies, bool stores) {
  switch (resource) {
    case Resource::kStart:
      return "give each CTA more work, or keep CTAs resident (persistent CTAs)";
    case Resource::kInstructions:
      return "execute fewer or wider instructions per element, or let more warps share the work";
    case Resource::kSharedMemory:
      return "remove bank conflicts (imbrex banks), or move fewer bytes through shared memory";
    case Resource::kTensorCore:
      return "only a narrower type or less arithmetic is faster, as nothing else holds the tensor core up";
    case Resource::kTma:
      return "copy larger boxes, and issue them earlier";
    case Resource::kL2Bandwidth:
      if (multiplies && stores)
        return "store whole sectors of 32 bytes, through shared memory and by TMA, or while the next tile is "
               "computed";
      return multiplies ? "load fewer bytes per product: larger tiles, or multicast within a cluster"
                        : "move fewer bytes: each element once, whole sectors of 32 bytes, narrower types";
    case Resource::kL2Latency:
      return "have more loads in flight: more stages, or loads issued earlier";
    case Resource::kMemoryBandwidth:
      return multiplies ? "move fewer bytes: larger tiles, an order of tiles that reuses L2, narrower types"
                        : "move fewer bytes: each element once, in one kernel with what comes before or "
                          "after, narrower types";
    case Resource::kMemoryLatency:
      return "have more loads in flight: more stages, or loads issued earlier";
    case Resource::kSynchronisation:
      return "synchronise less often: more work between two barriers, or one barrier for several loads";
    case Resource::kTensorMemory:
      return "overlap the movement of sums with products: two sets of columns in turn";
    case Resource::kLaunchControl:
      return "ask for the next tile earlier";
  }
  return "";
}

/// Units that each multiprocessor has for itself: where many of these stand idle, the others' limit is no limit of the chip.
bool is_of_each_sm(Resource resource) {
  return resource == Resource::kInstructions || resource == Resource::kSharedMemory ||
         resource == Resource::kTensorCore || resource == Resource::kTma ||
         resource == Resource::kTensorMemory;
}

/// The part of the multiprocessors at work below which sharing the work among more of them is the first thing to try.
constexpr double kEnoughSms = 0.9;

/// "full_barriers[2]" as "full_barriers".
std::string without_index(const std::string& name) { return name.substr(0, name.find('[')); }

std::string signed_percent(double share) {
  return fmt::format("{}{:.1f} %", share < 0 ? "−" : "+", std::abs(share) * 100);
}

}  // namespace

Resource RoleWait::main_cause() const {
  return static_cast<Resource>(std::max_element(because.begin(), because.end()) - because.begin());
}

double WhyView::share(Resource resource) const {
  return timeline->why->path[static_cast<size_t>(resource)] /
         std::max<double>(1, static_cast<double>(timeline->cycles));
}

double WhyView::gain(const TimelineExplanation::WhatIf& what_if) const {
  return 1 - static_cast<double>(what_if.cycles) / std::max<double>(1, static_cast<double>(timeline->cycles));
}

std::optional<TimelineExplanation::WhatIf> WhyView::limit() const {
  const std::vector<TimelineExplanation::WhatIf>& all = timeline->why->what_if;
  if (all.empty() || gain(all.front()) < kLeastGain) return std::nullopt;
  return all.front();
}

WhyView why_view(const TimelineView& lanes) {
  WhyView view;
  view.timeline = lanes.timeline;
  const vgpu::Timeline& t = *lanes.timeline;
  const TimelineExplanation& why = *t.why;
  std::map<std::pair<int, int>, std::string> roles;  // by rank and warp
  int warps = 1;
  for (const LaneView& lane : lanes.lanes)
    if (lane.lane->kind == vgpu::LaneKind::kWarp) {
      // "consumer (warps 0–3)"; warps that the source gives no name: "warps 0–3".
      roles[{lane.lane->rank, lane.lane->index}] = lane.detail.empty() ? lane.name
                                                   : lane.name == lane.lane->name
                                                       ? lane.detail
                                                       : fmt::format("{} ({})", lane.name, lane.detail);
      warps = std::max(warps, lane.lane->index + 1);
    }
  std::map<std::string, double> lived;
  for (const auto& [who, role] : roles) {
    const auto at = static_cast<size_t>(who.first * warps + who.second);
    if (at < why.lived.size()) lived[role] += why.lived[at];
  }
  std::map<std::tuple<std::string, std::string, std::string>, RoleWait> merged;
  for (const TimelineExplanation::Wait& wait : why.waits) {
    const std::string& role = roles[{wait.rank, wait.warp}];
    const auto named = lanes.barriers.find(wait.what);
    const std::string what = without_index(named == lanes.barriers.end() ? wait.what : named->second);
    std::string source;
    if (wait.place >= 0) {
      const vgpu::TimelinePlace& place = t.places[static_cast<size_t>(wait.place)];
      if (!place.file.empty()) source = place_text(place.file, place.line);
    }
    RoleWait& all = merged[{role, what, source}];
    all.role = role;
    all.what = what;
    all.source = source;
    all.share += wait.cycles / std::max(1.0, lived[role]);
    for (size_t i = 0; i < wait.because.size(); ++i) all.because[i] += wait.because[i];
  }
  for (auto& [key, wait] : merged) {
    double sum = 0;
    for (double cycles : wait.because) sum += cycles;
    if (sum > 0)
      for (double& cycles : wait.because) cycles /= sum;
    view.waits.push_back(wait);
  }
  std::ranges::stable_sort(view.waits, [](const auto& a, const auto& b) { return a.share > b.share; });
  return view;
}

std::string verdict(const WhyView& view) {
  const auto limit = view.limit();
  if (!limit)
    return "No single resource limits it: with any one of them free it would be less than 3 % faster.";
  const vgpu::Timeline& t = *view.timeline;
  const double microseconds = static_cast<double>(limit->cycles) / (t.clock_ghz * 1e3);
  std::string text = fmt::format(
      "The limit is {}: {} of the critical path. If it cost nothing, the launch would take {} ({}).",
      name(limit->free), percent(view.share(limit->free)), duration(microseconds),
      signed_percent(-view.gain(*limit)));
  // The wait that this resource makes longest.
  const RoleWait* longest = nullptr;
  const auto cost = [&](const RoleWait& wait) {
    return wait.share * wait.because[static_cast<size_t>(limit->free)];
  };
  for (const RoleWait& wait : view.waits)
    if (longest == nullptr || cost(wait) > cost(*longest)) longest = &wait;
  if (longest != nullptr && cost(*longest) >= 0.05)
    text += fmt::format("\n{} waits {} of its time for {}{}, {} of that because of {}.", longest->role,
                        percent(longest->share), longest->what,
                        longest->source.empty() ? "" : fmt::format(" ({})", longest->source),
                        percent(longest->because[static_cast<size_t>(limit->free)]), name(limit->free));
  std::string helps = remedy(limit->free, t.use.tensor_core > 0, waits_for_stores(t));
  if (is_of_each_sm(limit->free) && t.active_sms < kEnoughSms * t.sms)
    helps = fmt::format(
        "only {} of {} SMs have work, and smaller tiles, or CTAs that divide a tile's sum, would share it; "
        "else {}",
        t.active_sms, t.sms, helps);
  return text + fmt::format("\nWhat helps: {}.", helps);
}

namespace {

std::string path_text(const WhyView& view) {
  const vgpu::Timeline& t = *view.timeline;
  std::string text = "\nThe critical path, by what its time goes to; and the launch if that cost nothing:\n";
  std::vector<std::pair<double, Resource>> shares;
  for (int i = 0; i < vgpu::kResources; ++i)
    shares.emplace_back(view.share(static_cast<Resource>(i)), static_cast<Resource>(i));
  std::ranges::stable_sort(shares, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [share, resource] : shares) {
    if (share < kShown) continue;
    text += fmt::format("  {:>6}  {:<17}", percent(share), name(resource));
    for (const TimelineExplanation::WhatIf& what_if : t.why->what_if)
      if (what_if.free == resource)
        text +=
            fmt::format(" {:>9}  {:>8}", duration(static_cast<double>(what_if.cycles) / (t.clock_ghz * 1e3)),
                        signed_percent(-view.gain(what_if)));
    text += "\n";
  }
  text += "\nIts longest parts, by line:\n";
  // Instructions of one line are one part.
  std::vector<std::pair<double, std::string>> lines;
  for (const TimelineExplanation::Part& part : t.why->parts) {
    std::string words = fmt::format("{:<17}", name(part.resource));
    if (part.place >= 0) {
      const vgpu::TimelinePlace& place = t.places[static_cast<size_t>(part.place)];
      words += place.file.empty() ? fmt::format("  PTX line {}: {}", place.ptx_line, place.ptx)
                                  : fmt::format("  {}: {}", place_text(place.file, place.line),
                                                trimmed_line(place.file, place.line));
    }
    const auto known = std::ranges::find(lines, words, &std::pair<double, std::string>::second);
    (known == lines.end() ? lines.emplace_back(0.0, words) : *known).first += part.cycles;
  }
  std::ranges::stable_sort(lines, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < std::min(lines.size(), kPartsShown); ++i) {
    const double share = lines[i].first / std::max<double>(1, static_cast<double>(t.cycles));
    if (share >= kShown) text += fmt::format("  {:>6}  {}\n", percent(share), lines[i].second);
  }
  return text;
}

std::string waits_text(const WhyView& view) {
  std::string text = "\nWho waits for what, in CTA 0 and its cluster:\n";
  size_t shown = 0;
  for (const RoleWait& wait : view.waits) {
    if (wait.share < kShown || ++shown > kWaitsShown) break;
    std::vector<std::pair<double, Resource>> causes;
    for (int i = 0; i < vgpu::kResources; ++i)
      causes.emplace_back(wait.because[static_cast<size_t>(i)], static_cast<Resource>(i));
    std::ranges::stable_sort(causes, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> words;
    for (size_t i = 0; i < 3 && causes[i].first >= 0.05; ++i)
      words.push_back(fmt::format("{} {}", name(causes[i].second), percent(causes[i].first)));
    text +=
        fmt::format("  {:>6}  {} for {}{}: {}\n", percent(wait.share), wait.role, wait.what,
                    wait.source.empty() ? "" : fmt::format(" at {}", wait.source), fmt::join(words, ", "));
  }
  return shown == 0 ? "" : text;
}

std::string trials_text(const WhyView& view) {
  const Trials& trials = view.trials;
  if (trials.tried.empty()) return "";
  const double now = view.timeline->microseconds();
  std::string text = "\nWhat its tuning space has beside this configuration, predicted:\n";
  size_t slower = 0, refused = 0;
  for (const Trial& trial : trials.tried) {
    if (!trial.refused.empty())
      ++refused;
    else if (trial.microseconds > 0.995 * now)
      ++slower;
    else
      text += fmt::format("  {:<44} {:>9}  {:>8}\n", trial.change, duration(trial.microseconds),
                          signed_percent(trial.microseconds / now - 1));
  }
  if (slower > 0) text += fmt::format("  {} {} no faster\n", slower, slower == 1 ? "other is" : "others are");
  if (refused > 0) text += fmt::format("  {} cannot be launched with these sizes\n", refused);
  if (trials.left_out > 0)
    text += fmt::format("  {} not tried for want of time (--seconds)\n", trials.left_out);
  return text;
}

}  // namespace

std::string why_text(const WhyView& view) {
  return fmt::format("{}  {}  {}\n{}\n{}\n{}{}{}", view.kernel, view.sizes, view.configuration,
                     prediction_text(*view.timeline), verdict(view), path_text(view), waits_text(view),
                     trials_text(view));
}

nlohmann::ordered_json why_json(const WhyView& view) {
  using Json = nlohmann::ordered_json;
  const vgpu::Timeline& t = *view.timeline;
  Json path = Json::array(), parts = Json::array(), waits = Json::array(), trials = Json::array();
  const auto what_if_of = [&](Resource resource) -> const TimelineExplanation::WhatIf* {
    for (const TimelineExplanation::WhatIf& what_if : t.why->what_if)
      if (what_if.free == resource) return &what_if;
    return nullptr;
  };
  for (int i = 0; i < vgpu::kResources; ++i) {
    const auto resource = static_cast<Resource>(i);
    if (t.why->path[static_cast<size_t>(i)] <= 0) continue;
    Json entry{{"resource", name(resource)}, {"share", view.share(resource)}};
    if (const auto* what_if = what_if_of(resource)) {
      entry["cycles_if_free"] = what_if->cycles;
      entry["gain_if_free"] = view.gain(*what_if);
    }
    path.push_back(std::move(entry));
  }
  for (const TimelineExplanation::Part& part : t.why->parts) {
    Json entry{{"resource", name(part.resource)}, {"cycles", part.cycles}, {"warp", part.warp}};
    if (part.place >= 0) {
      const vgpu::TimelinePlace& place = t.places[static_cast<size_t>(part.place)];
      entry.update(
          {{"file", place.file}, {"line", place.line}, {"ptx_line", place.ptx_line}, {"ptx", place.ptx}});
    }
    parts.push_back(std::move(entry));
  }
  for (const RoleWait& wait : view.waits) {
    Json because = Json::object();
    for (int i = 0; i < vgpu::kResources; ++i)
      if (wait.because[static_cast<size_t>(i)] > 0)
        because[name(static_cast<Resource>(i))] = wait.because[static_cast<size_t>(i)];
    waits.push_back({{"role", wait.role},
                     {"what", wait.what},
                     {"source", wait.source},
                     {"share", wait.share},
                     {"because", because}});
  }
  for (const Trial& trial : view.trials.tried)
    trials.push_back(
        {{"change", trial.change}, {"predicted_us", trial.microseconds}, {"refused", trial.refused}});
  const auto limit = view.limit();
  return {{"kernel", view.kernel},
          {"sizes", view.sizes},
          {"config", view.configuration},
          {"gpu", t.chip},
          {"cycles", t.cycles},
          {"predicted_us", t.microseconds()},
          {"limit", limit ? Json(name(limit->free)) : Json()},
          {"verdict", verdict(view)},
          {"critical_path", path},
          {"parts", parts},
          {"waits", waits},
          {"tried", trials},
          {"not_tried", view.trials.left_out}};
}

}  // namespace imbrex::command
