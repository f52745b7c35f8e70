// SPDX-License-Identifier: Apache-2.0
// tcgen05.alloc, dealloc and relinquish_alloc_permit. With cta_group::2 a warp of each CTA of the pair takes
// part: the first one waits, the second carries the request out for both.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/tensor_unit.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

struct AllocForm {
  Op op;
  int cta_group;
  AddressSource result;  // alloc
};

std::vector<uint32_t> common_places(const CtaPair& pair, uint32_t columns) {
  std::vector<uint32_t> places = tensor_unit(*pair.even).allocator.free_places(columns);
  if (pair.odd == nullptr) return places;
  const std::vector<uint32_t> other = tensor_unit(*pair.odd).allocator.free_places(columns);
  std::vector<uint32_t> common;
  std::set_intersection(places.begin(), places.end(), other.begin(), other.end(), std::back_inserter(common));
  return common;
}

CtaPair pair_of(Cta& cta, int cta_group) {
  if (cta_group == 1) return {&cta, nullptr};
  const auto rank = static_cast<uint32_t>(cta.rank());
  return {cta.cluster().cta(rank & ~1u), cta.cluster().cta(rank | 1u)};
}

Cta* peer_of(Cta& cta) { return cta.cluster().cta(static_cast<uint32_t>(cta.rank()) ^ 1u); }

bool has_room(Warp& warp, const Wait& wait) {
  return !common_places(pair_of(warp.cta(), static_cast<int>(wait.b)), static_cast<uint32_t>(wait.a)).empty();
}
std::string describe_room(Warp& warp, const Wait& wait) {
  std::string taken;
  for (const auto& block : tensor_unit(warp.cta()).allocator.blocks_of(TensorUnit::kOwner))
    taken += fmt::format("{}[{}, {})", taken.empty() ? "" : ", ", block.column, block.column + block.columns);
  return fmt::format("for {} free columns of tensor memory (taken: {})", wait.a, taken);
}

bool is_request_served(Warp& warp, const Wait&) { return tensor_unit(warp.cta()).request.insn == nullptr; }
std::string describe_peer(Warp& warp, const Wait&) {
  return fmt::format("for the CTA of rank {} to execute the same tcgen05 collective", warp.cta().rank() ^ 1);
}

void give(Cluster& cluster, const Who& who, Cta& cta, uint32_t column, const PairRequest& request) {
  TensorUnit& unit = tensor_unit(cta);
  unit.allocator.take(TensorUnit::kOwner, column, request.columns, request.insn);
  unit.permit.last_columns = request.columns;
  unit.memory.undefine_columns(column, request.columns);
  cluster.observe().tensor_allocated(who, cta, request.columns);
  const uint32_t address = TensorAddress{0, column}.bits();
  const Place place = shared_place(cta, request.result_offset);
  std::memcpy(place.host, &address, sizeof address);
  Who writer = who;
  writer.cta = &cta;
  // The lanes of the warp that executes it are together before and after.
  cluster.observe().warp_sync(writer);
  touch(cluster, writer, place, sizeof address, AccessKind::kWrite);
  cluster.observe().warp_sync(writer);
}

bool take_back(Cluster& cluster, const Who& who, Cta& cta, const PairRequest& request) {
  TensorUnit& unit = tensor_unit(cta);
  if (unit.allocator.release(TensorUnit::kOwner, request.column, request.columns)) {
    unit.memory.undefine_columns(request.column, request.columns);
    cluster.observe().tensor_freed(who, cta, request.columns);
    return true;
  }
  cluster.report_fatal(
      FindingKind::kTensorMemory, who, request.column,
      fmt::format("tcgen05.dealloc of {} columns at column {}: no allocation of this place and size",
                  request.columns, request.column),
      "dealloc takes the address and the number of columns of one alloc");
  return false;
}

// Carries a request out in every CTA concerned. kNext, or a wait for room.
Step serve(Warp& warp, const Instruction& insn, Mask active, const AllocForm& form, const CtaPair& pair,
           const PairRequest& own) {
  Cluster& cluster = warp.cta().cluster();
  const Who who = warp.thread(insn, -1);
  for (Cta* cta : {pair.even, pair.odd}) {
    if (cta == nullptr) continue;
    const PairRequest& request = cta == &warp.cta() ? own : tensor_unit(*cta).request;
    if (request.columns != own.columns || request.column != own.column ||
        request.insn->form<AllocForm>().op != form.op) {
      cluster.report_fatal(
          FindingKind::kIllegalInstruction, who, 0,
          fmt::format("the CTAs of a pair ask for different things: {} columns at {} and {} at {}",
                      own.columns, own.column, request.columns, request.column));
      return Step::kNext;
    }
  }
  uint32_t column = own.column;
  if (form.op == Op::tcgen05_alloc) {
    const std::vector<uint32_t> places = common_places(pair, own.columns);
    if (places.empty()) {
      Wait wait;
      wait.ready = has_room;
      wait.describe = describe_room;
      wait.a = own.columns;
      wait.b = static_cast<uint64_t>(form.cta_group);
      return warp.wait_and_retry(active, wait);
    }
    // Which columns one gets is not specified; a seeded run picks any, to show who counts on the first. But an
    // empty SM gives column 0, which DeepGEMM counts on.
    Random& random = cluster.random();
    const bool is_empty = places.size() == TensorMemory::kColumns / own.columns;
    column = places[random.is_plain() || is_empty ? 0 : random.below(places.size())];
  }
  for (Cta* cta : {pair.even, pair.odd}) {
    if (cta == nullptr) continue;
    TensorUnit& unit = tensor_unit(*cta);
    const PairRequest request = cta == &warp.cta() ? own : unit.request;
    switch (form.op) {
      case Op::tcgen05_alloc:
        give(cluster, who, *cta, column, request);
        break;
      case Op::tcgen05_dealloc:
        take_back(cluster, who, *cta, request);
        break;
      default:
        unit.permit.relinquished = true;
        cluster.observe().tensor_permit_relinquished(who, *cta);
    }
    unit.request = {};
  }
  cluster.note_progress();
  return Step::kNext;
}

Step exec_collective(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const AllocForm& form = insn.form<AllocForm>();
  Cluster& cluster = warp.cta().cluster();
  const int lane = first_lane(active);
  const Who who = warp.thread(insn, -1);
  TensorUnit& unit = tensor_unit(warp.cta());

  PairRequest request;
  request.insn = &insn;
  if (form.op != Op::tcgen05_relinquish_alloc_permit) request.columns = warp.reg<uint32_t>(insn.a)[lane];
  if (form.op == Op::tcgen05_alloc) {
    if (const std::string why = unit.permit.refuse(request.columns); !why.empty()) {
      cluster.report_fatal(FindingKind::kTensorMemory, who, 0, "tcgen05.alloc: " + why);
      return Step::kNext;
    }
    Place place;
    if (!locate(cluster, who, form.result.space, warp.address(form.result, lane), 4, 4, AccessKind::kWrite,
                place))
      return Step::kNext;
    request.result_offset = static_cast<uint32_t>(place.address);
  } else if (form.op == Op::tcgen05_dealloc) {
    request.column = TensorAddress::from_bits(warp.reg<uint32_t>(insn.b)[lane]).column;
    if (unit.allocator.find(TensorUnit::kOwner, request.column, request.columns) != nullptr)
      cluster.observe().tensor_released(who, warp.cta(), request.column, request.columns);
  }

  if (form.cta_group == 1) return serve(warp, insn, active, form, {&warp.cta(), nullptr}, request);

  Cta* peer = peer_of(warp.cta());
  if (peer == nullptr) {
    CtaPair pair;
    resolve_pair(cluster, who, warp.cta(), 2, pair);  // reports
    return Step::kNext;
  }
  const bool peer_waits = tensor_unit(*peer).request.insn != nullptr;
  if (peer_waits) return serve(warp, insn, active, form, pair_of(warp.cta(), 2), request);
  Wait wait;
  wait.ready = is_request_served;
  wait.describe = describe_peer;
  // Another warp of this CTA may be waiting already; then this one comes after it.
  if (unit.request.insn != nullptr) return warp.wait_and_retry(active, wait);
  unit.request = request;
  return warp.wait_then_continue(active, wait);
}

}  // namespace

bool decode_tcgen05_alloc(Decoder& decoder, Instruction& out) {
  AllocForm form{decoder.op(), decoder.has(Mod::cta_group_2) ? 2 : 1, {}};
  switch (form.op) {
    case Op::tcgen05_alloc:
      form.result = decoder.address(0);
      out.a = decoder.source(1, ScalarType::u32);
      break;
    case Op::tcgen05_dealloc:
      out.b = decoder.source(0, ScalarType::b32);
      out.a = decoder.source(1, ScalarType::u32);
      break;
    case Op::tcgen05_relinquish_alloc_permit:
      break;
    default:
      return false;
  }
  out.extra = decoder.keep(form);
  set_body(out, exec_collective);
  return true;
}

}  // namespace imbrex::vgpu
