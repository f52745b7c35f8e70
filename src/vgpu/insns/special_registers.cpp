// SPDX-License-Identifier: Apache-2.0
// Special registers: those that stay what they are while a warp runs are written into slots when it starts.
#include "ptx/ptx.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::SpecialReg;

uint32_t of(const std::array<uint32_t, 3>& v, int i) { return v[static_cast<size_t>(i)]; }
uint32_t of(const Dim3& d, int i) { return static_cast<uint32_t>(i == 0 ? d.x : i == 1 ? d.y : d.z); }

/// %tid of all lanes.
void fill_thread_ids(const Warp& w, int axis, uint32_t* out) {
  const Dim3& block = w.cta().cluster().launch().block;
  const int64_t first = int64_t{w.index()} * kWarpSize;
  std::array<int64_t, 3> id{first % block.x, first / block.x % block.y, first / block.x / block.y};
  for (int lane = 0; lane < kWarpSize; ++lane) {
    out[lane] = static_cast<uint32_t>(id[static_cast<size_t>(axis)]);
    if (++id[0] < block.x) continue;
    id[0] = 0;
    if (++id[1] < block.y) continue;
    id[1] = 0;
    ++id[2];
  }
}

bool differs_by_lane(SpecialReg special) {
  switch (special) {
    case SpecialReg::laneid:
    case SpecialReg::lanemask_eq:
    case SpecialReg::lanemask_le:
    case SpecialReg::lanemask_lt:
    case SpecialReg::lanemask_ge:
    case SpecialReg::lanemask_gt:
      return true;
    default:
      return false;
  }
}

/// Of all but %tid.
uint64_t value_of(const Warp& w, SpecialReg special, int lane) {
  const Cta& cta = w.cta();
  const Cluster& cluster = cta.cluster();
  const LaunchContext& launch = cluster.launch();
  const auto axis = [&](SpecialReg x) { return static_cast<int>(special) - static_cast<int>(x); };
  switch (special) {
    case SpecialReg::ntid_x:
    case SpecialReg::ntid_y:
    case SpecialReg::ntid_z:
      return of(launch.block, axis(SpecialReg::ntid_x));
    case SpecialReg::ctaid_x:
    case SpecialReg::ctaid_y:
    case SpecialReg::ctaid_z:
      return of(cta.id(), axis(SpecialReg::ctaid_x));
    case SpecialReg::nctaid_x:
    case SpecialReg::nctaid_y:
    case SpecialReg::nctaid_z:
      return of(launch.grid, axis(SpecialReg::nctaid_x));
    case SpecialReg::clusterid_x:
    case SpecialReg::clusterid_y:
    case SpecialReg::clusterid_z:
      return of(cluster.id(), axis(SpecialReg::clusterid_x));
    case SpecialReg::nclusterid_x:
    case SpecialReg::nclusterid_y:
    case SpecialReg::nclusterid_z:
      return of(launch.clusters(), axis(SpecialReg::nclusterid_x));
    case SpecialReg::cluster_ctaid_x:
    case SpecialReg::cluster_ctaid_y:
    case SpecialReg::cluster_ctaid_z: {
      const int i = axis(SpecialReg::cluster_ctaid_x);
      return of(cta.id(), i) % of(launch.cluster, i);
    }
    case SpecialReg::cluster_nctaid_x:
    case SpecialReg::cluster_nctaid_y:
    case SpecialReg::cluster_nctaid_z:
      return of(launch.cluster, axis(SpecialReg::cluster_nctaid_x));
    case SpecialReg::cluster_ctarank:
      return static_cast<uint64_t>(cta.rank());
    case SpecialReg::cluster_nctarank:
      return static_cast<uint64_t>(launch.cluster.count());
    case SpecialReg::is_explicit_cluster:
      return launch.explicit_cluster ? 1 : 0;
    case SpecialReg::laneid:
      return static_cast<uint64_t>(lane);
    case SpecialReg::warpid:
      return static_cast<uint64_t>(w.index());
    case SpecialReg::nwarpid:
      return 64;
    case SpecialReg::smid:
      return static_cast<uint64_t>(cluster.slot().index() * launch.cluster.count() + cta.rank()) %
             static_cast<uint64_t>(launch.num_sms);
    case SpecialReg::nsmid:
      return static_cast<uint64_t>(launch.num_sms);
    case SpecialReg::gridid:
      return launch.grid_id;
    case SpecialReg::lanemask_eq:
      return lane_bit(lane);
    case SpecialReg::lanemask_le:
      return lane_bit(lane) | (lane_bit(lane) - 1);
    case SpecialReg::lanemask_lt:
      return lane_bit(lane) - 1;
    case SpecialReg::lanemask_ge:
      return ~(lane_bit(lane) - 1);
    case SpecialReg::lanemask_gt:
      return ~(lane_bit(lane) | (lane_bit(lane) - 1));
    case SpecialReg::aggr_smem_size:  // with what the system keeps for itself
      return launch.program.static_shared_bytes + launch.dynamic_shared_bytes + launch.target.shared_base;
    case SpecialReg::total_smem_size:
      return launch.program.static_shared_bytes + launch.dynamic_shared_bytes;
    case SpecialReg::dynamic_smem_size:
      return launch.dynamic_shared_bytes;
    case SpecialReg::reserved_smem_offset_end:
    case SpecialReg::reserved_smem_offset_cap:
      return launch.target.shared_base;
    case SpecialReg::envreg1:
      return launch.cooperative_workspace >> 32;
    case SpecialReg::envreg2:
      return launch.cooperative_workspace & 0xFFFF'FFFF;
    default:
      return 0;  // performance counters, graph ids: this machine has none
  }
}

}  // namespace

bool is_running_counter(SpecialReg special) {
  switch (special) {
    case SpecialReg::clock:
    case SpecialReg::clock_hi:
    case SpecialReg::clock64:
    case SpecialReg::globaltimer:
    case SpecialReg::globaltimer_lo:
    case SpecialReg::globaltimer_hi:
      return true;
    default:
      return false;
  }
}

void fill_special_registers(Warp& warp) {
  const Program& program = warp.program();
  for (const SpecialSlot& s : program.specials) {
    const auto special = static_cast<SpecialReg>(s.special);
    const int axis = static_cast<int>(special) - static_cast<int>(SpecialReg::tid_x);
    if (axis >= 0 && axis < 3) {
      fill_thread_ids(warp, axis, warp.reg<uint32_t>(s.slot));
      continue;
    }
    const ptx::ScalarType type = ptx::type_of(special);
    const bool is_wide = ptx::bits(type) == 64, differs = differs_by_lane(special);
    uint64_t value = value_of(warp, special, 0);
    if (type == ptx::ScalarType::pred) {
      warp.predicate(s.slot) = value != 0 ? kAllLanes : 0;
      continue;
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
      if (differs) value = value_of(warp, special, lane);
      if (is_wide)
        warp.reg<uint64_t>(s.slot)[lane] = value;
      else
        warp.reg<uint32_t>(s.slot)[lane] = static_cast<uint32_t>(value);
    }
  }
  const uint32_t rank_bits = static_cast<uint32_t>(warp.cta().rank()) << 24;
  if (rank_bits == 0) return;
  for (const auto& [slot, wide] : program.shared_addresses)
    for (int lane = 0; lane < kWarpSize; ++lane) {
      if (wide)
        warp.reg<uint64_t>(slot)[lane] |= rank_bits;
      else
        warp.reg<uint32_t>(slot)[lane] |= rank_bits;
    }
}

}  // namespace imbrex::vgpu
