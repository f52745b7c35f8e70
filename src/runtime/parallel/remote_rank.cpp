// SPDX-License-Identifier: Apache-2.0
// A rank whose process is not that of rank 0.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/device/backend.h"
#include "runtime/device/machine.h"
#include "runtime/parallel/process_link.h"

namespace imbrex::runtime {

namespace {

/// How much longer than its patience a rank waits for rank 0, who has the same.
constexpr double kGrace = 10;

/// The connection for calls. Any thread may ask.
class Connection {
 public:
  /// `seconds`: how long answers may take until somebody watches whether rank 0 says anything at all.
  Connection(Channel channel, double seconds) : most_seconds_(seconds), channel_(std::move(channel)) {}

  /// Sends a request and returns the answer. DeviceError when rank 0 is gone. `seconds`: how long the answer may take.
  std::string ask(const std::string& request, const Files& files = {}, Files* answered = nullptr,
                  double seconds = 0) {
    const std::lock_guard lock(mutex_);
    if (seconds == 0) seconds = most_seconds_;
    if (is_closed_)
      throw DeviceError(
          Diagnostic{{}, "the rank has left the others", {}, "use its device before Communicator::leave()"});
    try {
      channel_.send(request, files);
      if (seconds > 0 && !channel_.is_ready(deadline_after(seconds)))
        throw ConnectionLost(fmt::format("its process has said nothing for {:g} s", seconds));
      return channel_.receive(answered);
    } catch (const ConnectionLost& lost) {
      channel_.shut_down();  // an answer that comes yet would be taken for that of the next request
      throw DeviceError(Diagnostic{{},
                                   "rank 0 is gone, whose process keeps the ranks together",
                                   {is_silent_ ? silence_ : lost.what()},
                                   "look at what rank 0 printed"});
    }
  }
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    channel_.shut_down();
  }
  /// From here on calls may take any time: end_of_silence() is called where it is due.
  void let_calls_last() { most_seconds_ = 0; }
  /// Rank 0 has said nothing for so many seconds: ends the call that waits, and all that follow.
  void end_of_silence(double seconds) {
    silence_ = fmt::format("its process has said nothing for {:g} s", seconds);
    is_silent_ = true;
    channel_.shut_down();
  }

 private:
  std::mutex mutex_;
  std::atomic<double> most_seconds_;
  std::string silence_;
  std::atomic<bool> is_silent_ = false;
  Channel channel_;
  bool is_closed_ = false;
};

/// The rank's virtual GPU, which is in the process of rank 0.
class RemoteMachine : public Machine {
  template <auto kCall, class... Arguments>
  auto ask(const Arguments&... arguments) {
    PacketWriter request;
    request(MachineCalls::number<kCall>(), arguments...);
    return taken(kCall, connection_->ask(request.bytes()));
  }
  template <class Result, class... Arguments>
  static Result taken(Result (Machine::*)(Arguments...), const std::string& answer) {
    PacketReader reader = opened(answer);
    if constexpr (!std::is_void_v<Result>) return reader.next<Result>();
  }
  /// In destructors; the memory and all else goes with the node.
  template <auto kCall, class... Arguments>
  void give_back(const Arguments&... arguments) noexcept {
    try {
      ask<kCall>(arguments...);
    } catch (const std::exception&) {
      // Rank 0 is gone, or this rank has left it.
    }
  }

 public:
  RemoteMachine(std::shared_ptr<Connection> connection, vgpu::Options options)
      : connection_(std::move(connection)),
        options_(std::move(options)),
        reader_({.target = options_.target, .memory_bytes = int64_t{1} << 20}) {}

  const vgpu::Options& options() const override { return options_; }
  uint64_t allocate(int64_t bytes) override { return ask<&Machine::allocate>(bytes); }
  void free(uint64_t address, SourceLocation where) override { ask<&Machine::free>(address, where); }
  void write(uint64_t to, std::span<const std::byte> from) override { ask<&Machine::write>(to, from); }
  void read(std::span<std::byte> to, uint64_t from) override {
    PacketWriter request;
    request(CallNumber::kRead, std::ssize(to), from);
    const std::string answer = connection_->ask(request.bytes());
    const auto bytes = opened(answer).next<std::span<const std::byte>>();
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  void copy(uint64_t to, uint64_t from, int64_t bytes) override { ask<&Machine::copy>(to, from, bytes); }
  void fill(uint64_t to, uint8_t value, int64_t bytes) override { ask<&Machine::fill>(to, value, bytes); }
  void discard(uint64_t at, int64_t bytes) override { ask<&Machine::discard>(at, bytes); }

  Stream create_stream(const std::string& name, bool is_blocking) override {
    return ask<&Machine::create_stream>(name, is_blocking);
  }
  void destroy_stream(Stream stream) override { give_back<&Machine::destroy_stream>(stream); }
  Event create_event() override { return ask<&Machine::create_event>(); }
  void destroy_event(Event event) override { give_back<&Machine::destroy_event>(event); }
  void record(Event event, Stream stream) override { ask<&Machine::record>(event, stream); }
  void wait(Stream stream, Event event) override { ask<&Machine::wait>(stream, event); }
  void synchronize_stream(Stream stream) override { ask<&Machine::synchronize_stream>(stream); }
  void synchronize_event(Event event) override { ask<&Machine::synchronize_event>(event); }
  void synchronize() override { ask<&Machine::synchronize>(); }
  void forget(vgpu::ByteRange bytes) override { ask<&Machine::forget>(bytes); }
  std::vector<vgpu::Finding> judge(Stream stream, const vgpu::HostCall& call,
                                   const vgpu::Footprint& footprint) override {
    return ask<&Machine::judge>(stream, call, footprint);
  }
  std::vector<vgpu::Finding> judge_on_host(const vgpu::HostCall& call,
                                           const vgpu::Footprint& footprint) override {
    return ask<&Machine::judge_on_host>(call, footprint);
  }

  uint32_t load(std::string_view ptx, std::string_view name) override {
    return ask<&Machine::load>(ptx, name);
  }
  void unload(uint32_t module) override {
    {
      const std::lock_guard lock(read_mutex_);
      read_.erase(module);
    }
    give_back<&Machine::unload>(module);
  }
  vgpu::Module facts(uint32_t module, std::string_view ptx, std::string_view name) override {
    const std::lock_guard lock(read_mutex_);
    return read_[module] = reader_.load_module(ptx, name);
  }
  vgpu::Report launch(uint32_t module, const std::string& kernel, const vgpu::Launch& launch) override {
    vgpu::Launch with_buffer = launch;
    std::vector<std::byte> parameters;
    if (!launch.arguments.empty()) {
      const std::lock_guard lock(read_mutex_);
      parameters = parameters_of(read_.at(module).function(kernel), launch);
      with_buffer.arguments = {};
      with_buffer.parameter_buffer = parameters;
    }
    return ask<&Machine::launch>(module, kernel, with_buffer);
  }
  bool is_rank() const override { return true; }

 private:
  std::shared_ptr<Connection> connection_;
  vgpu::Options options_;
  std::mutex read_mutex_;
  vgpu::VirtualGpu reader_;                // of PTX: what is to be known of parameters
  std::map<uint32_t, vgpu::Module> read_;  // by the number that the module has there
};

class RemoteRank : public RankLink {
 public:
  RemoteRank(const Job& job, Device device, double seconds, std::shared_ptr<Connection> connection,
             Channel notices)
      : RankLink(job.rank, job.size, std::move(device), seconds),
        connection_(std::move(connection)),
        notices_(std::move(notices)),
        listener_([this] { listen(); }) {
    connection_->let_calls_last();
  }
  ~RemoteRank() override {
    try {
      end("");
    } catch (const Error&) {
      // Rank 0 is gone.
    }
    has_ended_ = true;
    notices_.shut_down();
    listener_.join();
    connection_->close();
  }

  void end(const std::string& why) override {
    if (has_ended_.exchange(true)) return;
    PacketWriter request;
    request(CallNumber::kEnd, why);
    opened(connection_->ask(request.bytes(), {}, nullptr, patience + kGrace));
  }

 private:
  std::vector<Brought> meet_others(const std::string& call, Brought brought, SourceLocation where) override {
    PacketWriter request;
    request(CallNumber::kMeet, call, brought.text, brought.file != nullptr, where);
    Files files;
    const std::string answer = connection_->ask(
        request.bytes(), brought.file != nullptr ? Files{brought.file} : Files{}, &files, patience + kGrace);
    PacketReader reader = opened(answer);
    std::vector<Brought> all;
    size_t next = 0;
    for (auto left = reader.next<int32_t>(); left > 0; --left) {
      all.push_back({reader.next<std::string>(), nullptr});
      if (reader.next<bool>()) all.back().file = files.at(next++);
    }
    return all;
  }
  std::vector<std::string> others() override {
    PacketWriter request;
    request(CallNumber::kOthers);
    return opened(connection_->ask(request.bytes(), {}, nullptr, kGrace)).next<std::vector<std::string>>();
  }
  void listen() {
    std::string why;
    try {
      while (why.empty()) {
        if (!notices_.is_ready(deadline_after(patience + kGrace))) {
          connection_->end_of_silence(patience + kGrace);
          throw ConnectionLost("");
        }
        why = notices_.receive();
      }
    } catch (const ConnectionLost&) {
      why = "rank 0 is gone, whose process keeps the ranks together";
    }
    if (!has_ended_) try {
        end_waits(why);
      } catch (const Error&) {
        // The GPU has failed, and waits for nothing.
      }
  }

  std::atomic<bool> has_ended_ = false;
  std::shared_ptr<Connection> connection_;
  Channel notices_;
  std::thread listener_;
};

}  // namespace

std::shared_ptr<RankLink> join_host(const parallel::Ranks& ranks, const Job& job, const std::string& name) {
  const double patience = ranks.patience();
  std::optional<Device> device;
  if (!ranks.is_virtual()) device = cuda_device_of(job);
  Hello hello = hello_of(ranks, job, device ? &*device : nullptr);
  Channel channels[2];
  Welcome welcome;
  try {
    // Before rank 0 has both connections it answers only to refuse.
    const auto is_answered = [&] {
      return channels[0].is_open() && channels[0].is_ready(Deadline::clock::now());
    };
    for (Channel& channel : channels) {
      channel = connect_to(name, deadline_after(patience),
                           [&] { return is_answered() || !ended_rank(job).empty(); });
      if (is_answered()) break;
      if (const std::string ended = ended_rank(job); !channel.is_open() && !ended.empty())
        throw DeviceError(Diagnostic{{},
                                     fmt::format("rank {}: {}, before all ranks had come", job.rank, ended),
                                     {},
                                     "look at what that rank printed"});
      if (!channel.is_open())
        throw DeviceError(Diagnostic{
            {},
            fmt::format("rank {}: rank 0 has not come within {:g} s", job.rank, patience),
            {job.is_on_one_server() ? fmt::format("ranks of one job say {} to each other", job.name)
                                    : fmt::format("rank 0 listens at {}", job.address)},
            job.is_on_one_server()
                ? "start all ranks at the same time, in one network namespace, or set the same "
                  "IMBREX_JOB for them"
                : "start all ranks at the same time, and let the port through between the servers"});
      PacketWriter says;
      says(hello);
      channel.send(says.bytes());
      hello.is_for_notices = true;
    }
    if (!channels[0].is_ready(deadline_after(patience + kGrace)))
      throw ConnectionLost(fmt::format("it has not answered within {:g} s", patience + kGrace));
    const std::string answer = channels[0].receive();
    PacketReader reader(answer);
    reader(welcome);
  } catch (const ConnectionLost& lost) {
    // Rank 0 may have ended before it saw this rank: then the launcher knows of whom.
    const std::string ended = ended_rank(job);
    welcome.refusal = ended.empty()
                          ? fmt::format("rank 0 has ended before all ranks had come ({})", lost.what())
                          : ended + ", before all ranks had come";
  }
  if (!welcome.refusal.empty())
    throw DeviceError(Diagnostic{{}, fmt::format("rank {}: {}", job.rank, welcome.refusal), {}, ""});
  auto connection = std::make_shared<Connection>(std::move(channels[0]), patience + kGrace);
  if (!device)
    device = Device(make_virtual_device(std::make_shared<RemoteMachine>(connection, ranks.options()),
                                        std::make_shared<std::mutex>()));
  auto link = std::make_shared<RemoteRank>(job, *device, patience, connection, std::move(channels[1]));
  device->backend().add_wait_bound(link);
  if (ranks.is_virtual())
    link->memory = symmetric_memory_of(nullptr, welcome.rank_stride_bytes);
  else
    set_cuda_memory(*link, job);
  part_if_wished(*link);
  return link;
}

}  // namespace imbrex::runtime
