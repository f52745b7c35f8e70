// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/sampling.h"

#include <algorithm>
#include <cmath>

#include "vgpu/timeline/what_if.h"

namespace imbrex::vgpu {

namespace {

/// Waves that are replayed, and from how many on fewer than all are.
constexpr int64_t kWaves = 7, kLeastWaves = 10;
/// The first of these by which the others are judged: until then CTAs that began together have drifted apart.
constexpr int64_t kFirstWave = 3;
/// Works of all clusters together that are recorded of a persistent kernel: about a second of replaying.
constexpr int64_t kRecordedWorks = 400'000;
/// Clusters of a persistent kernel that run to their end.
constexpr int64_t kRunToTheirEnd = 6;
constexpr int64_t kLeastRecordedWorks = 2'000, kMostRecordedWorks = 20'000;  // of a cluster
/// Bursts of stores from which a rate is taken: the first is not like the others.
constexpr size_t kLeastBursts = 3;

using Store = ReplayLog::Store;

/// The last store of each burst, with all bytes stored until then. Where pauses differ little there are no bursts, and
/// each store counts for itself.
std::vector<Store> bursts_of(const std::vector<Store>& stores) {
  double longest = 0;
  for (size_t i = 1; i < stores.size(); ++i) longest = std::max(longest, stores[i].time - stores[i - 1].time);
  std::vector<Store> bursts;
  int64_t bytes = 0;
  for (size_t i = 0; i < stores.size(); ++i) {
    bytes += stores[i].bytes;
    const bool ends = i + 1 == stores.size() || stores[i + 1].time - stores[i].time > longest / 2;
    if (ends) bursts.push_back({stores[i].time, bytes});
  }
  return bursts;
}

/// Unless it has as many bytes as the one before, it may have ended with the recording.
bool is_last_cut(const std::vector<Store>& bursts) {
  const Store* last = &bursts.back();
  return last[0].bytes - last[-1].bytes != last[-1].bytes - last[-2].bytes;
}

/// Everything that was counted, for a launch that takes `cycles` and does `times` as much.
void stretch(Timeline& t, double cycles, double times) {
  t.replayed = std::min(1.0, static_cast<double>(t.cycles) / cycles);
  t.cycles = std::llround(cycles);
  t.hbm_bytes = std::llround(static_cast<double>(t.hbm_bytes) * times);
  t.l2_bytes = std::llround(static_cast<double>(t.l2_bytes) * times);
}

void extrapolate_waves(Timeline& t, const ReplayLog& log, const SamplePlan& plan) {
  const auto end_of_wave = [&](int64_t wave) { return log.ends[static_cast<size_t>(wave * plan.slots - 1)]; };
  double least = 0, most = 0;
  for (int64_t wave = kFirstWave; wave < kWaves; ++wave) {
    const double took = end_of_wave(wave) - end_of_wave(wave - 1);
    least = wave == kFirstWave ? took : std::min(least, took);
    most = std::max(most, took);
  }
  const double period = (end_of_wave(kWaves - 1) - end_of_wave(kFirstWave - 1)) / (kWaves - kFirstWave);
  const int64_t left = (plan.clusters - std::ssize(plan.chosen)) / plan.slots;
  const double rest = period * static_cast<double>(left);
  const double cycles = static_cast<double>(t.cycles) + rest;
  // The mean of k waves is known better than each by the root of k.
  t.sampling_error =
      (most - least) / 2 / std::max(1.0, period) / std::sqrt(kWaves - kFirstWave) * rest / cycles;
  t.ctas = t.ctas / std::ssize(plan.chosen) * plan.clusters;
  stretch(t, cycles, static_cast<double>(plan.clusters) / static_cast<double>(plan.chosen.size()));
}

/// Bytes that each cluster stores in all. Those between two that ran to their end are taken to store as much as the one of
/// these that stores more, since work is dealt out in turn: the launch ends with the cluster that has most.
std::vector<int64_t> stored_in_all(const std::vector<Recording>& recordings) {
  std::vector<int64_t> stored(recordings.size());
  int64_t before = 0, after = 0;
  size_t next = 0;
  for (size_t i = 0; i < recordings.size(); ++i) {
    if (next <= i)
      for (next = i; next < recordings.size(); ++next)
        if (!recordings[next].is_ended) break;
    after = next < recordings.size() ? recordings[next].stored_bytes : before;
    if (!recordings[i].is_ended) before = recordings[i].stored_bytes;
    stored[i] = recordings[i].is_ended ? std::max(before, after) : before;
  }
  return stored;
}

/// False where nothing can be said.
bool extrapolate_rounds(Timeline& t, const ReplayLog& log, const std::vector<Recording>& recordings) {
  struct Rate {
    Store last;
    double clocks_per_byte;
  };
  std::vector<std::optional<Rate>> rates(recordings.size());
  double clocks = 0, bytes = 0, least = 0, most = 0, whole = 0, rest_of_last = 0;
  for (size_t i = 0; i < recordings.size(); ++i) {
    if (!recordings[i].is_cut) {  // it is over
      if (!log.stores[i].empty()) whole = std::max(whole, log.stores[i].back().time);
      continue;
    }
    std::vector<Store> bursts = bursts_of(log.stores[i]);
    if (bursts.size() >= kLeastBursts && is_last_cut(bursts)) bursts.pop_back();
    if (bursts.size() < kLeastBursts) return false;
    const double took = bursts.back().time - bursts.front().time;
    const auto stored = static_cast<double>(bursts.back().bytes - bursts.front().bytes);
    if (took <= 0 || stored <= 0) return false;
    rates[i] = {bursts.back(), took / stored};
    clocks += took;
    bytes += stored;
    for (size_t b = 1; b < bursts.size(); ++b) {
      const double rate = (bursts[b].time - bursts[b - 1].time) /
                          std::max<double>(1, static_cast<double>(bursts[b].bytes - bursts[b - 1].bytes));
      least = least == 0 ? rate : std::min(least, rate);
      most = std::max(most, rate);
    }
  }
  const std::vector<int64_t> in_all = stored_in_all(recordings);
  const double mean = clocks / bytes;  // clusters share the chip: none is faster than the others for long
  double from = 0;
  for (size_t i = 0; i < recordings.size(); ++i)
    if (rates[i]) {
      const double rest = static_cast<double>(in_all[i] - rates[i]->last.bytes) * mean;
      const double end = rates[i]->last.time + rest;
      if (end > whole) {
        whole = end;
        rest_of_last = rest;
      }
      from = std::max(from, rates[i]->last.time);
    }
  t.sampling_error = (most - least) / 2 / mean / std::sqrt(static_cast<double>(recordings.size())) *
                     rest_of_last / std::max(1.0, whole);
  int64_t recorded = 0, stored = 0;
  for (size_t i = 0; i < recordings.size(); ++i) {
    for (const Store& store : log.stores[i]) recorded += store.bytes;
    stored += in_all[i];
  }
  t.complete = true;
  stretch(t, whole, static_cast<double>(stored) / static_cast<double>(std::max<int64_t>(1, recorded)));
  t.replayed = std::min(1.0, from / whole);
  return true;
}

}  // namespace

SamplePlan plan_sample(const LaunchContext& launch, int64_t slots, bool is_cooperative) {
  const TimelineOptions& asked = launch.options.timeline;
  SamplePlan plan{.clusters = launch.clusters().count(), .slots = slots};
  const bool is_possible = asked.record && asked.sample && !asked.explain && asked.cta < 0 &&
                           !is_cooperative && launch.footprint == nullptr &&
                           !launch.program.habits.heeds_other_clusters;
  if (!is_possible) return plan;
  if (plan.clusters >= kLeastWaves * slots) {
    const int64_t first = kWaves * slots, last = plan.clusters % slots;
    for (int64_t i = 0; i < first; ++i) plan.chosen.push_back(i);
    for (int64_t i = plan.clusters - last; i < plan.clusters; ++i) plan.chosen.push_back(i);
  } else if (plan.clusters <= slots) {
    plan.recorded_works = std::clamp(kRecordedWorks / plan.clusters, kLeastRecordedWorks, kMostRecordedWorks);
    const int64_t count = std::min(kRunToTheirEnd, plan.clusters), last = plan.clusters - 1;
    for (int64_t i = 0; i < count; ++i) plan.whole.push_back(count == 1 ? 0 : i * last / (count - 1));
  }
  return plan;
}

std::optional<Timeline> predict_sample(ReplayContext context, const std::vector<Recording>& recordings,
                                       const SamplePlan& plan) {
  ReplayLog log;
  const bool is_cut =
      std::any_of(recordings.begin(), recordings.end(), [](const Recording& r) { return r.is_cut; });
  if (!plan.chosen.empty() || is_cut) context.log = &log;
  Timeline timeline = replay(context, recordings);
  if (context.explain) explain_by_replays(context, recordings, timeline);
  if (is_cut && !extrapolate_rounds(timeline, log, recordings)) return std::nullopt;
  if (!plan.chosen.empty() && timeline.complete) extrapolate_waves(timeline, log, plan);
  return timeline;
}

}  // namespace imbrex::vgpu
