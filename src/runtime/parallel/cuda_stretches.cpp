// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/cuda_stretches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

CudaStretches::CudaStretches(int ranks, std::vector<Device> users, bool can_be_shared)
    : all_bytes_(kStride * static_cast<uint64_t>(ranks)),
      users_(std::move(users)),
      can_be_shared_(can_be_shared) {
  for (const Device& user : users_) {
    const CUmemAllocationProp properties = properties_of(user);
    size_t granularity = 0;
    driver_.check(driver_.cuMemGetAllocationGranularity(&granularity, &properties, 0),
                  "granularity of device memory");
    granularity_ = std::max<uint64_t>(granularity_, granularity);
  }
  driver_.check(driver_.cuMemAddressReserve(&base_, all_bytes_, granularity_, 0, 0),
                "addresses of symmetric memory");
  for (const Device& user : users_) user.backend().add_symmetric(base_, all_bytes_);
}

CudaStretches::~CudaStretches() {
  for (const Mapping& mapping : mappings_) {
    driver_.cuMemUnmap(mapping.address, mapping.bytes);
    driver_.cuMemRelease(mapping.handle);
  }
  if (base_ != 0) driver_.cuMemAddressFree(base_, all_bytes_);
}

CudaStretches::Part CudaStretches::take(uint64_t bytes) {
  const uint64_t left = kStride - next_;
  const uint64_t pages = (std::max<uint64_t>(bytes, 1) + granularity_ - 1) / granularity_;
  if (bytes > left || pages * granularity_ > left)
    throw DeviceError(Diagnostic{
        {},
        fmt::format("{} bytes of symmetric memory on each rank, {} of {} are left", bytes, left, kStride),
        {},
        "free what is not needed, with its communicator"});
  return {std::exchange(next_, next_ + pages * granularity_), pages * granularity_};
}

CUmemHandle CudaStretches::create(const Device& user, const Part& part) const {
  const CUmemAllocationProp properties = properties_of(user);
  CUmemHandle handle = 0;
  driver_.check(driver_.cuMemCreate(&handle, part.bytes, &properties, 0),
                fmt::format("{} bytes of symmetric memory on {}", part.bytes, user.name()));
  return handle;
}

void CudaStretches::map(CUmemHandle handle, int rank, const Part& part) {
  const CUdeviceptr address = base_ + static_cast<uint64_t>(rank) * kStride + part.offset;
  const std::string what = fmt::format("access to the symmetric memory of rank {}", rank);
  if (const auto result = driver_.cuMemMap(address, part.bytes, 0, handle, 0); result != 0) {
    driver_.cuMemRelease(handle);
    driver_.check(result, what);
  }
  mappings_.push_back({address, part.bytes, handle});
  std::vector<CUmemAccessDesc> access(users_.size());
  for (size_t user = 0; user < users_.size(); ++user)
    access[user].location = users_[user].backend().ordinal();
  driver_.check(driver_.cuMemSetAccess(address, part.bytes, access.data(), access.size()), what);
}

CUmemAllocationProp CudaStretches::properties_of(const Device& user) const {
  CUmemAllocationProp properties;
  properties.location = user.backend().ordinal();
  if (can_be_shared_) properties.handle_types = kMemHandleIsFile;
  return properties;
}

}  // namespace imbrex::runtime
