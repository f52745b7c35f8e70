// SPDX-License-Identifier: Apache-2.0
// GPUs that cannot reach each other's memory: how it is known, and what there is in place of symmetric memory.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/cuda_driver.h"
#include "runtime/parallel/nccl.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

namespace {

const CudaDriver& driver() { return CudaDriver::get(); }

bool is_without_peers_by_wish() {
  const char* const told = std::getenv("IMBREX_NO_PEERS");
  return told != nullptr && std::string_view(told) == "1";
}

bool can_reach(CUdevice from, CUdevice to) {
  int can = 0;
  driver().check(driver().cuDeviceCanAccessPeer(&can, from, to), "access of a GPU to another's memory");
  return can != 0;
}

/// Memory of this rank, and no way to that of others.
class MemoryWithoutPeers : public SymmetricMemory {
 public:
  explicit MemoryWithoutPeers(Device device) : device_(std::move(device)) {}
  ~MemoryWithoutPeers() override {
    for (const uint64_t address : addresses_) device_.backend().free(address);
  }
  uint64_t allocate(RankLink& link, uint64_t bytes, const std::string& call, SourceLocation where) override {
    std::string failure;
    try {
      addresses_.push_back(device_.backend().allocate(static_cast<int64_t>(std::max<uint64_t>(bytes, 1))));
    } catch (const Error& error) {
      failure = error.diagnostics().front().message;
    }
    const std::vector<Brought> all = link.meet(call + ", its memory", {failure, nullptr}, where);
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (!all[rank].text.empty())
        throw DeviceError(
            Diagnostic{where, fmt::format("{}: rank {} has failed", call, rank), {all[rank].text}, ""});
    return addresses_.back();
  }
  int64_t rank_stride_bytes() const override { return 0; }

 private:
  Device device_;
  std::vector<uint64_t> addresses_;
};

}  // namespace

std::string place_of_gpu(const Device& device) {
  char bus[32] = {};
  driver().check(driver().cuDeviceGetPCIBusId(bus, sizeof bus, device.backend().ordinal()), "bus of a GPU");
  return bus;
}

bool can_reach_all(const std::vector<Device>& devices) {
  if (is_without_peers_by_wish()) return false;
  for (const Device& a : devices)
    for (const Device& b : devices)
      if (a.backend().ordinal() != b.backend().ordinal() &&
          !can_reach(a.backend().ordinal(), b.backend().ordinal()))
        return false;
  return true;
}

bool can_reach_all(RankLink& link) {
  const std::string mine = place_of_gpu(link.device);
  bool reaches = !is_without_peers_by_wish();
  for (const Brought& other : link.meet("places of GPUs", {mine, nullptr}, {})) {
    CUdevice device = 0;
    // Of a GPU that this process does not see, mapping its memory will tell.
    if (other.text == mine || driver().cuDeviceGetByPCIBusId(&device, other.text.c_str()) != 0) continue;
    reaches = reaches && can_reach(link.device.backend().ordinal(), device);
  }
  for (const Brought& other : link.meet("access between GPUs", {reaches ? "yes" : "no", nullptr}, {}))
    reaches = reaches && other.text == "yes";
  return reaches;
}

void use_nccl(RankLink& link) {
  std::string why_not;
  link.collectives = Nccl::make(link, &why_not);
  if (link.collectives == nullptr)
    throw DeviceError(Diagnostic{
        {},
        "the GPUs cannot reach each other's memory, and there is no NCCL to use instead",
        {why_not,
         "kernels that read each other's memory need GPUs joined by NVLink, or a PCIe topology with "
         "peer access"},
        "install NCCL 2.19 or later, or name its libnccl.so.2 by IMBREX_NCCL"});
  if (link.rank == 0)
    say("imbrex: the GPUs cannot reach each other's memory: collectives go through {}, and kernels "
        "cannot use that of other ranks\n",
        link.collectives->name());
}

void part_if_wished(RankLink& link) {
  if (!link.device.is_virtual() || !is_without_peers_by_wish()) return;
  link.memory = memory_without_peers(link.device);
  link.collectives = collectives_by_host(link);
}

std::shared_ptr<SymmetricMemory> memory_without_peers(const Device& device) {
  return std::make_shared<MemoryWithoutPeers>(device);
}

}  // namespace imbrex::runtime
