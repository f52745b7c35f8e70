// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/sm_groups.h"

#include <algorithm>

namespace imbrex::vgpu {

namespace {

constexpr int kGroups = 8;  // D: of Hopper's and Blackwell's whole chips
constexpr int kPair = 2;    // D: SMs of a TPC, which are on or off together

/// M: of Hopper's chips with 132 SMs (H100 and H200 SXM), as their drivers (580) count for cudaOccupancyMaxActiveClusters: 13 sizes
/// of cluster from 1 to 16, of 1, 2, 3, 4, 5 and 8 CTAs an SM, all 78 as here; launches of one more took two turns. A cluster
/// goes to a group with an SM for each of its CTAs, though several may then share one. Where the eight SMs of the last pairs
/// lie is not known: clusters of more than two never come there.
constexpr int kHopper[] = {18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2};
constexpr int kHopperSms = 132;
constexpr int64_t kMostCtasOfClusters = 8;  // M: on an SM, where 32 would fit

}  // namespace

int64_t active_clusters(int sm, int sms, int64_t ctas, int64_t per_sm) {
  int64_t clusters = 0;
  for (const int group : sm_groups(sm, sms, sms))
    if (group >= ctas) clusters += std::min(per_sm, kMostCtasOfClusters) * group / ctas;
  return clusters;
}

std::vector<int> sm_groups(int sm, int sms, int of_chip) {
  std::vector<int> groups;
  if (sm >= 90 && sm < 100 && of_chip == kHopperSms) {
    groups.assign(std::begin(kHopper), std::end(kHopper));
  } else {  // A: as even as pairs allow
    const int pairs = of_chip / kPair;
    for (int i = 0; i < kGroups; ++i) groups.push_back(kPair * (pairs / kGroups + (i < pairs % kGroups)));
    groups.back() += of_chip % kPair;
  }
  for (int& group : groups) {
    group = std::min(group, sms);
    sms -= group;
  }
  std::erase(groups, 0);
  if (sms > 0) groups.push_back(sms);  // more than the chip has
  return groups;
}

std::vector<int> cluster_places(const std::vector<int>& groups, int64_t ctas) {
  std::vector<int> places;
  int64_t begin = 0;
  for (const int group : groups) {
    for (int64_t at = begin; at + ctas <= begin + group; at += ctas) places.push_back(static_cast<int>(at));
    begin += group;
  }
  if (places.empty()) places.push_back(0);
  return places;
}

}  // namespace imbrex::vgpu
