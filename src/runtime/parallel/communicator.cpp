// SPDX-License-Identifier: Apache-2.0
#include "imbrex/parallel/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/cuda_driver.h"
#include "runtime/parallel/rank_group.h"

namespace imbrex {

namespace runtime {

namespace {

/// Every byte of a signal that ends all waits: a positive int32, larger than any number of calls.
constexpr uint8_t kEndsWaits = 0x7F;

}  // namespace

void RankGroup::end_waits(int rank) {
  if (node != nullptr) return;  // a virtual node finds who waits in vain itself
  waits_ended = true;
  const std::lock_guard lock(signals_mutex);
  DeviceBackend& backend = devices[static_cast<size_t>(rank)].backend();
  // The device's own stream may be the one that waits.
  CUstream_st* const stream = backend.create_stream();
  for (const auto& [address, bytes] : signals)
    backend.start_fill(address + static_cast<uint64_t>(rank * memory->rank_stride_bytes()), kEndsWaits, bytes,
                       stream);
  backend.synchronize(stream);
  backend.destroy_stream(stream);
}

}  // namespace runtime

namespace parallel {

using runtime::RankGroup;

struct Communicator::State {
  std::shared_ptr<RankGroup> group;
  int rank = 0;
  Device device;
};

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return static_cast<int>(state_->group->devices.size()); }
const Device& Communicator::device() const { return state_->device; }

void Communicator::barrier(SourceLocation where) {
  synchronize(where);
  RankGroup& group = *state_->group;
  group.meeting.meet(state_->rank, "barrier", "", where, [&] {
    if (group.node != nullptr) group.node->barrier();
  });
}

std::vector<std::string> Communicator::gather(const std::string& text, SourceLocation where) {
  return state_->group->meeting.meet(state_->rank, "gather", text, where);
}

SymmetricTensor Communicator::symmetric(DataType dtype, const std::vector<int64_t>& shape,
                                        SourceLocation where) {
  const DeviceTensor wanted = DeviceTensor::shape_only(dtype, shape);
  RankGroup& group = *state_->group;
  const std::string call = fmt::format("symmetric({}, [{}])", dtype.name(), fmt::join(shape, ", "));
  group.meeting.meet(rank(), call, "", where);
  // One rank allocates for all, and tells the others where, or why not.
  std::string told;
  std::exception_ptr failure;
  if (rank() == 0) try {
      int64_t bits = dtype.bits();
      for (const int64_t extent : shape) bits *= extent;
      told = fmt::format("{}", group.memory->allocate(static_cast<uint64_t>((bits + 7) / 8)));
    } catch (const Error& error) {
      told = error.what();
      failure = std::current_exception();
    }
  told = group.meeting.meet(rank(), call + ", its address", std::move(told), where).front();
  if (failure != nullptr) std::rethrow_exception(failure);
  if (told.find_first_not_of("0123456789") != std::string::npos)
    throw DeviceError(Diagnostic{where, call + ": rank 0 could not allocate it", {told}, ""});
  const uint64_t address = std::stoull(told);
  const int64_t stride = group.memory->rank_stride_bytes();
  SymmetricTensor tensor;
  tensor.rank_stride_bytes_ = stride;
  tensor.keeper_ = state_;
  tensor.mine_ =
      DeviceTensor::view(state_->device, address + static_cast<uint64_t>(rank() * stride), dtype, shape);
  std::vector<int64_t> all_shape{size()}, strides{stride * 8 / dtype.bits()};
  all_shape.insert(all_shape.end(), shape.begin(), shape.end());
  strides.insert(strides.end(), tensor.mine_.strides().begin(), tensor.mine_.strides().end());
  tensor.all_ = DeviceTensor::view(state_->device, address, dtype, all_shape, strides);
  return tensor;
}

SymmetricTensor Communicator::signals(int64_t count, SourceLocation where) {
  SymmetricTensor signals = symmetric(int32, {count}, where);
  signals.mine().device().backend().fill(signals.mine().address(), 0, signals.mine().bytes(), where);
  if (rank() == 0) {
    const std::lock_guard lock(state_->group->signals_mutex);
    state_->group->signals.emplace_back(signals.mine().address(), signals.mine().bytes());
  }
  barrier(where);
  return signals;
}

void Communicator::synchronize(SourceLocation where) {
  RankGroup& group = *state_->group;
  runtime::DeviceBackend& backend = state_->device.backend();
  if (group.node != nullptr) return backend.synchronize();
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(group.patience);
  const auto begin = Clock::now();
  while (!backend.has_ended(backend.stream())) {
    if (Clock::now() > end) {
      std::vector<std::string> facts;
      {
        const std::lock_guard lock(group.signals_mutex);
        runtime::CUstream_st* const stream = backend.create_stream();
        for (const auto& [address, bytes] : group.signals) {
          std::vector<int32_t> values(std::min<size_t>(static_cast<size_t>(bytes) / 4, 64));
          backend.start_copy_from_device(
              values.data(), address + static_cast<uint64_t>(rank() * group.memory->rank_stride_bytes()),
              static_cast<int64_t>(values.size()) * 4, stream);
          backend.synchronize(stream);
          facts.push_back(fmt::format("its signals: {}", fmt::join(values, " ")));
        }
        backend.destroy_stream(stream);
      }
      group.end_waits(rank());
      backend.synchronize(backend.stream());
      throw DeviceError(Diagnostic{
          where,
          fmt::format("rank {}: a kernel has not ended within {:g} s, and its waits were ended", rank(),
                      group.patience),
          std::move(facts),
          "a signal of another rank has not come: has it launched the same kernels, with the same sizes?"});
    }
    // Kernels that take microseconds are waited for at once, others without taking the core.
    if (Clock::now() - begin > std::chrono::milliseconds(2))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  backend.synchronize();
  if (group.waits_ended)
    throw DeviceError(Diagnostic{
        where,
        fmt::format("rank {}: the waits of its kernels were ended, because a rank has failed", rank()),
        {},
        "what the kernels computed is not valid; the other rank's error says what happened"});
}

// ---- ranks

Ranks Ranks::virtual_node(int count, vgpu::Options options) {
  Ranks ranks;
  ranks.count_ = count;
  ranks.options_ = std::move(options);
  return ranks;
}

Ranks Ranks::cuda(int count) {
  Ranks ranks;
  ranks.count_ = count;
  ranks.is_virtual_ = false;
  return ranks;
}

int Ranks::cuda_devices() {
  std::string why_not;
  const runtime::CudaDriver* driver = runtime::CudaDriver::find(&why_not);
  int count = 0;
  return driver != nullptr && driver->cuDeviceGetCount(&count) == 0 ? count : 0;
}

namespace {

std::shared_ptr<RankGroup> make_group(const Ranks& ranks) {
  if (!ranks.is_virtual()) {
    const int devices = Ranks::cuda_devices();
    if (ranks.count() < 1 || ranks.count() > devices)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("{} ranks on CUDA devices, of which there are {}", ranks.count(), devices),
                     {},
                     "Ranks::virtual_node() runs any number up to 16 without a GPU"});
    auto group = std::make_shared<RankGroup>(ranks.count(), nullptr, ranks.patience());
    for (int rank = 0; rank < ranks.count(); ++rank) group->devices.push_back(Device::cuda(rank));
    group->memory = runtime::cuda_symmetric_memory(group->devices);
    return group;
  }
  auto node = std::make_shared<vgpu::VirtualNode>(ranks.count(), ranks.options());
  auto group = std::make_shared<RankGroup>(ranks.count(), node, ranks.patience());
  auto turn = std::make_shared<std::mutex>();
  for (int rank = 0; rank < ranks.count(); ++rank)
    group->devices.push_back(Device(runtime::make_rank_device(
        node, rank, turn,
        [meeting = &group->meeting, rank](const vgpu::Function& function, const vgpu::Launch& launch) {
          return meeting->launch(rank, function, launch);
        })));
  group->memory = runtime::virtual_symmetric_memory(node, turn);
  return group;
}

/// The first line of an error, for the other ranks.
std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find('\n'));
}

}  // namespace

void run_ranks(const Ranks& ranks, const std::function<void(Communicator&)>& body) {
  const std::shared_ptr<RankGroup> group = make_group(ranks);
  std::mutex mutex;
  std::exception_ptr first;
  const auto failed = [&](int rank, const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
    group->meeting.end(rank, why);
    // The others' kernels may wait for this rank's.
    for (int other = 0; other < ranks.count(); ++other) try {
        group->end_waits(other);
      } catch (const Error&) {
        // That GPU has failed, and waits for nothing.
      }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.count(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        Communicator communicator(std::make_shared<Communicator::State>(
            Communicator::State{group, rank, group->devices[static_cast<size_t>(rank)]}));
        body(communicator);
        group->meeting.end(rank, "");
      } catch (const std::exception& error) {
        failed(rank, first_line(error.what()));
      } catch (...) {
        failed(rank, "an exception");
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace parallel
}  // namespace imbrex
