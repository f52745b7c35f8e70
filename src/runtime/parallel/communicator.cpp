// SPDX-License-Identifier: Apache-2.0
#include "imbrex/parallel/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <thread>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"
#include "runtime/driver/cuda_driver.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::parallel {

using runtime::RankLink;

Communicator Communicator::join(const Ranks& ranks) {
  if (ranks.job() == nullptr)
    throw LaunchError(Diagnostic{{},
                                 "Communicator::join: these ranks are threads of one process",
                                 {},
                                 "pass Ranks::from_environment(), or call run_ranks()"});
  return Communicator(runtime::link_process(ranks, *ranks.job()));
}

void Communicator::leave(const std::string& why) { link_->end(why); }

int Communicator::rank() const { return link_->rank; }
int Communicator::size() const { return link_->size; }
const Device& Communicator::device() const { return link_->device; }

bool Communicator::reaches_peers() const { return link_->collectives == nullptr; }

namespace {

runtime::Collectives& collectives_of(RankLink& link) {
  if (link.collectives == nullptr)
    throw LaunchError(Diagnostic{{}, "these ranks reach each other's memory, and use no NCCL", {}, ""});
  return *link.collectives;
}
int64_t elements(const DeviceTensor& tensor) { return tensor.bytes() * 8 / tensor.dtype().bits(); }

}  // namespace

void Communicator::all_reduce_by_nccl(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                                      SourceLocation) {
  collectives_of(*link_).all_reduce(x.address(), y.address(), elements(x), x.dtype(),
                                    runtime::handle_on(device(), stream, "AllReduce"));
}
void Communicator::all_gather_by_nccl(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                                      SourceLocation) {
  collectives_of(*link_).all_gather(x.address(), y.address(), x.bytes(),
                                    runtime::handle_on(device(), stream, "AllGather"));
}
void Communicator::reduce_scatter_by_nccl(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                                          SourceLocation) {
  collectives_of(*link_).reduce_scatter(x.address(), y.address(), elements(y), x.dtype(),
                                        runtime::handle_on(device(), stream, "ReduceScatter"));
}

void Communicator::barrier(SourceLocation where) {
  synchronize(where);
  link_->meet(runtime::Meeting::kBarrier, {}, where);
}

std::vector<std::string> Communicator::gather(const std::string& text, SourceLocation where) {
  std::vector<std::string> texts;
  for (runtime::Brought& brought : link_->meet("gather", {text, nullptr}, where))
    texts.push_back(std::move(brought.text));
  return texts;
}

void Communicator::agree(const char* call, DataType dtype, std::initializer_list<int64_t> sizes,
                         SourceLocation where) const {
  uint64_t hash = std::hash<std::string_view>()(call);
  const auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * 0x9E37'79B9'7F4A'7C15u, hash ^= hash >> 29;
  };
  mix(std::hash<std::string_view>()(dtype.name()));
  for (const int64_t size : sizes) mix(static_cast<uint64_t>(size));
  if (link_->agreed.contains(hash)) return;
  link_->meet(fmt::format("{}({}, {})", call, dtype.name(), fmt::join(sizes, " x ")), {}, where);
  link_->agreed.insert(hash);
}

namespace {

int64_t dense_bytes(DataType dtype, const std::vector<int64_t>& shape) {
  int64_t bits = dtype.bits();
  for (const int64_t extent : shape) bits *= extent;
  return (bits + 7) / 8;
}

}  // namespace

SymmetricTensor Communicator::symmetric(DataType dtype, const std::vector<int64_t>& shape,
                                        SourceLocation where) {
  const DeviceTensor wanted = DeviceTensor::shape_only(dtype, shape);
  const std::string call = fmt::format("symmetric({}, [{}])", dtype.name(), fmt::join(shape, ", "));
  link_->meet(call, {}, where);
  const uint64_t address =
      link_->memory->allocate(*link_, static_cast<uint64_t>(dense_bytes(dtype, shape)), call, where);
  SymmetricTensor tensor = SymmetricTensor::at(device(), address, rank(), size(),
                                               link_->memory->rank_stride_bytes(), dtype, shape);
  tensor.keeper_ = link_;
  return tensor;
}

const DeviceTensor& SymmetricTensor::all() const {
  if (rank_stride_bytes_ == 0 && !all_.is_null() && all_.shape()[0] > 1)
    throw LaunchError(
        Diagnostic{{},
                   "kernels cannot reach the memory of other ranks: these GPUs have no peer access",
                   {},
                   "use AllReduce, AllGather and ReduceScatter, which go through NCCL"});
  return all_;
}

SymmetricTensor SymmetricTensor::at(const Device& device, uint64_t address, int rank, int ranks,
                                    int64_t stride, DataType dtype, const std::vector<int64_t>& shape) {
  SymmetricTensor tensor;
  tensor.rank_stride_bytes_ = stride;
  tensor.mine_ = DeviceTensor::view(device, address + static_cast<uint64_t>(rank * stride), dtype, shape);
  std::vector<int64_t> all_shape{ranks}, strides{stride * 8 / dtype.bits()};
  all_shape.insert(all_shape.end(), shape.begin(), shape.end());
  strides.insert(strides.end(), tensor.mine_.strides().begin(), tensor.mine_.strides().end());
  tensor.all_ = DeviceTensor::view(device, address, dtype, all_shape, strides);
  return tensor;
}

SymmetricTensor SymmetricTensor::viewed_as(DataType dtype, const std::vector<int64_t>& shape,
                                           SourceLocation where) const {
  const int64_t wanted = dense_bytes(dtype, shape);
  if (wanted > mine_.bytes())
    throw LaunchError(Diagnostic{
        where, fmt::format("viewed_as: {} bytes of {} that there are", wanted, mine_.bytes()), {}, ""});
  const auto ranks = static_cast<int>(all_.shape()[0]);
  const auto rank = static_cast<int>(
      rank_stride_bytes_ == 0 ? 0
                              : static_cast<int64_t>(mine_.address() - all_.address()) / rank_stride_bytes_);
  SymmetricTensor tensor = at(mine_.device(), all_.address(), rank, ranks, rank_stride_bytes_, dtype, shape);
  tensor.keeper_ = keeper_;
  return tensor;
}

SymmetricTensor Communicator::signals(int64_t count, SourceLocation where) {
  SymmetricTensor signals = symmetric(int32, {count}, where);
  device().backend().fill(signals.mine().address(), 0, signals.mine().bytes(), where);
  link_->add_signals(signals.mine().address(), signals.mine().bytes());
  barrier(where);
  return signals;
}

namespace {

/// Waits for a stream of a CUDA GPU as Communicator::synchronize() says.
void wait_for(RankLink& link, runtime::CUstream_st* stream, SourceLocation where) {
  link.wait_until([&] { return link.device.backend().has_ended(stream); }, where);
  const std::string why = link.why_waits_ended();
  if (why.empty()) return;
  throw DeviceError(Diagnostic{
      where,
      fmt::format("rank {}: the waits of its kernels were ended, because a rank has failed", link.rank),
      {why},
      "what the kernels computed is not valid; the other rank's error says what happened"});
}

}  // namespace

void Communicator::synchronize(SourceLocation where) {
  runtime::DeviceBackend& backend = device().backend();
  if (!backend.is_virtual()) wait_for(*link_, backend.stream(), where);
  backend.synchronize();
}

void Communicator::synchronize(const Stream& stream, SourceLocation where) {
  runtime::DeviceBackend& backend = device().backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device(), stream, "Communicator::synchronize");
  runtime::refuse_capture("Communicator::synchronize", backend, handle);
  if (!backend.is_virtual()) wait_for(*link_, handle, where);
  backend.synchronize(handle);
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

Ranks Ranks::from_environment(std::string_view kind, vgpu::Options options) {
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  return of_job(runtime::job_of_environment(variable), kind, std::move(options));
}

Ranks Ranks::of_process(int rank, int size, const std::string& job, std::string_view kind,
                        vgpu::Options options, const ServerOfRank& server) {
  if (rank < 0 || rank >= size)
    throw LaunchError(Diagnostic{{}, fmt::format("rank {} of {}", rank, size), {}, "ranks begin at 0"});
  if (server.ranks < 0 || server.ranks > size)
    throw LaunchError(Diagnostic{
        {}, fmt::format("{} of {} ranks are on this server", server.ranks, size), {}, "1 to all of them"});
  const int on_server = server.ranks == 0 ? size : server.ranks;
  const int gpu = server.gpu < 0 ? rank : server.gpu;
  return of_job({rank, size, gpu, on_server, "", job, server.address}, kind, std::move(options));
}

Ranks Ranks::of_job(const runtime::Job& job, std::string_view kind, vgpu::Options options) {
  if (kind != "auto" && kind != "cuda" && kind != "virtual")
    throw LaunchError(Diagnostic{{}, fmt::format("ranks on '{}'", kind), {}, "use auto, cuda or virtual"});
  const int devices = kind == "virtual" ? 0 : cuda_devices();
  Ranks ranks = virtual_node(job.size, std::move(options));
  ranks.is_virtual_ = kind == "virtual" || (kind == "auto" && devices < job.local_size && devices != 1);
  ranks.job_ = std::make_shared<const runtime::Job>(job);
  return ranks;
}

int Ranks::cuda_devices() {
  std::string why_not;
  const runtime::CudaDriver* driver = runtime::CudaDriver::find(&why_not);
  int count = 0;
  return driver != nullptr && driver->cuDeviceGetCount(&count) == 0 ? count : 0;
}

namespace {

/// The first line of an error, for the other ranks.
std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find('\n'));
}

/// Runs `body` as one rank. `failed` is called, in the handler, where it throws.
void run_rank(const std::shared_ptr<RankLink>& link, const std::function<void(Communicator&)>& body,
              const std::function<void()>& failed) {
  const auto end = [&](const std::string& why) {
    try {
      link->end(why);
    } catch (const Error&) {
      // Rank 0 is gone, and with it whoever would want to know.
    }
  };
  try {
    if (link->memory->rank_stride_bytes() == 0 && link->collectives == nullptr) runtime::use_nccl(*link);
    Communicator communicator(link);
    body(communicator);
    link->end("");
  } catch (const std::exception& error) {
    failed();
    end(first_line(error.what()));
  } catch (...) {
    failed();
    end("an exception");
  }
}

}  // namespace

void run_ranks(const Ranks& ranks, const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto failed = [&] {
    const std::lock_guard lock(mutex);
    if (first == nullptr) first = std::current_exception();
  };
  if (ranks.job() != nullptr) {
    run_rank(runtime::link_process(ranks, *ranks.job()), body, failed);
  } else {
    std::vector<std::thread> threads;
    for (const std::shared_ptr<RankLink>& link : runtime::link_threads(ranks))
      threads.emplace_back([&, link] { run_rank(link, body, failed); });
    for (std::thread& thread : threads) thread.join();
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace imbrex::parallel
