// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "imbrex/runtime/host_tensor.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

namespace {

class HostCollectives : public Collectives {
 public:
  explicit HostCollectives(RankLink& link) : link_(link) {}
  std::string name() const override { return "the ranks' host programs"; }
  void abort() noexcept override {}

  void all_reduce(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) override {
    const HostTensor sum =
        sum_of(told_by_all("all-reduce", from, bytes_of(count, dtype), stream), 0, count, dtype);
    link_.device.backend().copy_to_device(to, sum.bytes().data(), bytes_of(count, dtype));
  }
  void all_gather(uint64_t from, uint64_t to, int64_t bytes, CUstream_st* stream) override {
    std::string rows;
    for (const Brought& brought : told_by_all("all-gather", from, bytes, stream)) rows += brought.text;
    link_.device.backend().copy_to_device(to, rows.data(), std::ssize(rows));
  }
  void reduce_scatter(uint64_t from, uint64_t to, int64_t count, DataType dtype,
                      CUstream_st* stream) override {
    const auto all = told_by_all("reduce-scatter", from, bytes_of(count * link_.size, dtype), stream);
    const HostTensor sum = sum_of(all, link_.rank * count, count, dtype);
    link_.device.backend().copy_to_device(to, sum.bytes().data(), bytes_of(count, dtype));
  }

 private:
  static int64_t bytes_of(int64_t count, DataType dtype) { return count * dtype.bits() / 8; }

  std::vector<Brought> told_by_all(const char* call, uint64_t from, int64_t bytes, CUstream_st* stream) {
    refuse_capture(call, link_.device.backend(), stream);
    std::string mine(static_cast<size_t>(bytes), '\0');
    link_.device.backend().copy_from_device(mine.data(), from, bytes);
    return link_.meet(call, {std::move(mine), nullptr}, {});
  }
  /// In float64, in the order of the ranks, then rounded.
  static HostTensor sum_of(const std::vector<Brought>& all, int64_t first, int64_t count, DataType dtype) {
    HostTensor part(dtype, {count}), sum(dtype, {count});
    std::vector<double> sums(static_cast<size_t>(count));
    for (const Brought& brought : all) {
      std::memcpy(part.bytes().data(), brought.text.data() + bytes_of(first, dtype), part.bytes().size());
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += part.get(i);
    }
    for (int64_t i = 0; i < count; ++i) sum.set(i, sums[static_cast<size_t>(i)]);
    return sum;
  }

  RankLink& link_;  // which has this
};

}  // namespace

std::shared_ptr<Collectives> collectives_by_host(RankLink& link) {
  return std::make_shared<HostCollectives>(link);
}

}  // namespace imbrex::runtime
