// SPDX-License-Identifier: Apache-2.0
// Rank 0 of ranks that are processes: keeps their meetings, and hosts the virtual node.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <optional>
#include <thread>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/machine.h"
#include "runtime/parallel/process_link.h"

namespace imbrex::runtime {

namespace {

/// How often rank 0 looks whether those that it waits for have ended, in seconds.
constexpr double kLooksEvery = 0.05;
/// How long rank 0 stays for the others when it has failed itself, or one of them did not come, in seconds.
constexpr double kStaysAfterFailure = 10;

class Host {
 public:
  Host(const parallel::Ranks& ranks, const Job& job)
      : size_(job.size),
        node_(ranks.is_virtual() ? std::make_shared<vgpu::VirtualNode>(job.size, ranks.options()) : nullptr),
        meeting_(std::make_shared<Meeting>(job.size, node_, ranks.patience())),
        patience_(ranks.patience()),
        peers_(static_cast<size_t>(job.size)) {
    if (node_ == nullptr) return;
    memory_ = virtual_node_memory(node_, turn_);
    for (int rank = 0; rank < size_; ++rank)
      peers_[static_cast<size_t>(rank)].machine = make_rank_machine(
          node_, rank,
          [meeting = meeting_, rank](const vgpu::Function& function, const vgpu::Launch& launch) {
            return meeting->launch(rank, function, launch);
          });
  }
  ~Host() {
    for (Peer& peer : peers_) peer.calls.shut_down();
    for (Peer& peer : peers_)
      if (peer.server.joinable()) peer.server.join();
    if (watch_.joinable()) {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof one);
      watch_.join();
    }
  }

  Meeting& meeting() { return *meeting_; }
  const std::shared_ptr<Machine>& machine_of(int rank) { return peers_[static_cast<size_t>(rank)].machine; }
  const std::shared_ptr<std::mutex>& turn() const { return turn_; }
  const std::shared_ptr<CommonMemory>& memory() const { return memory_; }

  /// Waits until all other ranks have connected; `mine` is what rank 0 says of itself.
  void gather(Listener& listener, const Job& job, const Hello& mine, double patience);
  void serve_all(RankLink& mine);
  /// A rank has ended; where it failed, the others are told.
  void end(int rank, const std::string& why) {
    meeting_->end(rank, why);
    if (!why.empty()) tell_others(rank, fmt::format("rank {} has failed: {}", rank, why));
  }
  /// Waits until the other ranks have ended: as long as their processes live, but not for one that is stopped while others
  /// have waited for it in vain.
  void wait_for_others(bool has_failed) {
    const auto have_ended_within = [&](double seconds) {
      std::unique_lock lock(ended_mutex_);
      return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return served_ == 0; });
    };
    while (!has_failed && !meeting_->is_broken())
      if (have_ended_within(1)) return;
    have_ended_within(kStaysAfterFailure);
  }

 private:
  struct Peer {
    Channel calls, notices;
    std::mutex notices_mutex;
    std::string gpu;
    int64_t process = 0;
    std::shared_ptr<Machine> machine;  // null on CUDA GPUs
    std::thread server;
    std::atomic<bool> has_ended = false;
  };

  std::string missing() const;
  /// Of a rank that is gone before all have come: what is known of it.
  std::string gone(const Job& job) const;
  void serve(int rank);
  void answer(int rank, PacketReader request, const Files& files, PacketWriter& answer, Files& answer_files);
  void watch();
  void lose(int rank);
  void tell_others(int rank, const std::string& why);
  /// "": that this process is still there.
  void tell(Peer& peer, const std::string& why);

  int size_;
  std::shared_ptr<vgpu::VirtualNode> node_;  // null on CUDA GPUs
  std::shared_ptr<std::mutex> turn_ = std::make_shared<std::mutex>();
  std::shared_ptr<Meeting> meeting_;
  double patience_;
  std::vector<Peer> peers_;  // by rank; rank 0 has no connections
  std::shared_ptr<CommonMemory> memory_;
  RankLink* mine_ = nullptr;
  std::thread watch_;
  FileDescriptor wake_{eventfd(0, EFD_CLOEXEC)};
  std::mutex ended_mutex_;
  std::condition_variable ended_;
  int served_ = 0;  // ranks that have not ended
};

std::string Host::missing() const {
  std::string ranks;
  for (int rank = 1; rank < size_; ++rank)
    if (!peers_[static_cast<size_t>(rank)].calls.is_open() ||
        !peers_[static_cast<size_t>(rank)].notices.is_open())
      ranks += fmt::format("{}{}", ranks.empty() ? "rank " : ", ", rank);
  return ranks;
}

std::string Host::gone(const Job& job) const {
  if (std::string ended = ended_rank(job); !ended.empty()) return ended;
  for (int rank = 1; rank < size_; ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.calls.is_open() && peer.calls.has_ended())
      return fmt::format("rank {} is gone: its process ({}) has ended without a word", rank, peer.process);
  }
  return "";
}

void Host::gather(Listener& listener, const Job& job, const Hello& mine, double patience) {
  const Deadline deadline = deadline_after(patience);
  peers_[0].gpu = mine.gpu;
  const auto refusal = [&]() -> std::string {
    while (!missing().empty()) {
      if (const std::string who = gone(job); !who.empty()) return who + ", before all ranks had come";
      Channel channel = listener.accept(std::min(deadline, deadline_after(kLooksEvery)));
      if (!channel.is_open() && Deadline::clock::now() < deadline) continue;
      if (!channel.is_open())
        return fmt::format("{} of {} ranks {} not come within {:g} s", missing(), size_,
                           missing().find(',') == std::string::npos ? "has" : "have", patience);
      Hello hello;
      try {
        if (!channel.is_ready(deadline)) continue;
        const std::string said = channel.receive();
        PacketReader reader(said);
        reader(hello);
      } catch (const std::exception&) {
        continue;  // no rank, or one that has ended: it will be missing
      }
      if (hello.protocol != mine.protocol || hello.build != mine.build)
        return "ranks are of different builds of Imbrex";
      if (hello.job != mine.job) continue;  // another job's, at this address by mistake
      if (hello.size != size_ || hello.rank < 1 || hello.rank >= size_)
        return fmt::format("a process calls itself rank {} of {}; rank 0 is one of {}", hello.rank,
                           hello.size, size_);
      Peer& peer = peers_[static_cast<size_t>(hello.rank)];
      Channel& of_peer = hello.is_for_notices ? peer.notices : peer.calls;
      if (of_peer.is_open())
        return fmt::format("two processes ({} and {}) call themselves rank {}", peer.process, hello.process,
                           hello.rank);
      of_peer = std::move(channel);
      if (hello.is_for_notices) continue;
      peer.process = hello.process;
      peer.gpu = hello.gpu;
      if (hello.where != mine.where)
        return fmt::format("ranks are on different GPUs: rank 0 on {}, rank {} on {}", mine.where, hello.rank,
                           hello.where);
    }
    for (int a = 0; a < size_; ++a)
      for (int b = a + 1; b < size_; ++b) {
        const std::string& gpu = peers_[static_cast<size_t>(a)].gpu;
        if (!gpu.empty() && gpu == peers_[static_cast<size_t>(b)].gpu &&
            std::getenv("IMBREX_RANKS_SHARE_GPU") == nullptr)
          return fmt::format(
              "ranks {} and {} are on the same GPU, {}: kernels that wait for one another need "
              "one each",
              a, b, gpu);
      }
    return "";
  }();
  Welcome welcome{refusal, memory_ == nullptr ? 0 : memory_->rank_stride_bytes()};
  PacketWriter says;
  says(welcome);
  for (Peer& peer : peers_) try {
      if (peer.calls.is_open()) peer.calls.send(says.bytes());
    } catch (const ConnectionLost&) {
      // Whoever serves the rank will see it.
    }
  if (!refusal.empty())
    throw DeviceError(Diagnostic{{}, "rank 0: " + refusal, {}, "start all ranks together, each once"});
}

void Host::serve_all(RankLink& mine) {
  mine_ = &mine;
  served_ = size_ - 1;
  for (int rank = 1; rank < size_; ++rank)
    peers_[static_cast<size_t>(rank)].server = std::thread([this, rank] {
      serve(rank);
      const std::lock_guard lock(ended_mutex_);
      --served_;
      ended_.notify_all();
    });
  if (size_ > 1) watch_ = std::thread([this] { watch(); });
}

void Host::serve(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  try {
    while (!peer.has_ended) {
      Files files, answer_files;
      const std::string request = peer.calls.receive(&files);
      const std::string answered = answer_of(
          [&](PacketWriter& out) { answer(rank, PacketReader(request), files, out, answer_files); });
      peer.calls.send(answered, answer_files);
    }
  } catch (const ConnectionLost&) {
    lose(rank);
  }
}

void Host::answer(int rank, PacketReader request, const Files& files, PacketWriter& answer,
                  Files& answer_files) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const auto number = request.next<CallNumber>();
  if (number == CallNumber::kEnd) {
    peer.has_ended = true;
    return end(rank, request.next<std::string>());
  }
  if (number == CallNumber::kMeet) {
    const auto call = request.next<std::string>();
    Brought brought{request.next<std::string>(), nullptr};
    if (request.next<bool>()) brought.file = files.at(0);
    const std::vector<Brought> all =
        meeting_->meet(rank, call, std::move(brought), request.next<SourceLocation>());
    answer(static_cast<int32_t>(all.size()));
    for (const Brought& each : all) {
      answer(each.text, each.file != nullptr);
      if (each.file != nullptr) answer_files.push_back(each.file);
    }
    return;
  }
  if (number == CallNumber::kOthers) return answer(meeting_->others(rank));
  if (peer.machine == nullptr) throw std::runtime_error("a call of a virtual GPU, of which there is none");
  if (number == CallNumber::kRead) {
    std::vector<std::byte> bytes(static_cast<size_t>(request.next<int64_t>()));
    const std::lock_guard lock(*turn_);
    peer.machine->read(bytes, request.next<uint64_t>());
    return answer(std::span<const std::byte>(bytes));
  }
  const bool is_known = MachineCalls::with(
      number, [&]<auto kCall>() {
        std::unique_lock lock(*turn_, std::defer_lock);
        if (number != MachineCalls::number<&Machine::launch>())
          lock.lock();  // the others' calls go on meanwhile
        answer_call(*peer.machine, kCall, request, answer);
      });
  if (!is_known) throw std::runtime_error("a call that is not known");
}

void Host::watch() {
  const auto period = static_cast<int>(1000 * std::clamp(patience_ / 8, 0.1, 10.0));
  for (;;) {
    std::vector<pollfd> polled{{wake_.number(), POLLIN, 0}};
    std::vector<int> ranks{0};
    for (int rank = 1; rank < size_; ++rank) {
      const Peer& peer = peers_[static_cast<size_t>(rank)];
      if (peer.has_ended) continue;
      polled.push_back({peer.notices.number(), POLLIN, 0});
      ranks.push_back(rank);
    }
    const int ready = poll(polled.data(), polled.size(), period);
    if (ready < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (ready == 0)
      for (size_t i = 1; i < ranks.size(); ++i) tell(peers_[static_cast<size_t>(ranks[i])], "");
    for (size_t i = 1; i < polled.size(); ++i)
      if (polled[i].revents != 0) lose(ranks[i]);  // a rank says nothing here: it is the connection's end
  }
}

void Host::lose(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.has_ended.exchange(true)) return;
  const std::string why = fmt::format("its process ({}) has ended without a word", peer.process);
  meeting_->lose(rank, why);
  tell_others(rank, fmt::format("rank {} is gone: {}", rank, why));
}

void Host::tell_others(int rank, const std::string& why) {
  for (int other = 1; other < size_; ++other) {
    Peer& peer = peers_[static_cast<size_t>(other)];
    if (other != rank && !peer.has_ended) tell(peer, why);
  }
  if (rank != 0 && mine_ != nullptr) try {
      mine_->end_waits(why);
    } catch (const Error&) {
      // The GPU has failed, and waits for nothing.
    }
}

void Host::tell(Peer& peer, const std::string& why) {
  const std::lock_guard lock(peer.notices_mutex);
  try {
    peer.notices.send(why);
  } catch (const ConnectionLost&) {
    // That one is gone as well.
  }
}

/// Rank 0 itself.
class HostRank : public RankLink {
 public:
  HostRank(std::shared_ptr<Host> host, const Job& job, Device my_device, double seconds)
      : RankLink(0, job.size, std::move(my_device), seconds), host_(std::move(host)) {}
  ~HostRank() override { end(""); }
  void end(const std::string& why) override {
    if (std::exchange(has_ended_, true)) return;
    host_->end(0, why);
    host_->wait_for_others(!why.empty());
  }

 private:
  std::vector<Brought> meet_others(const std::string& call, Brought brought, SourceLocation where) override {
    return host_->meeting().meet(0, call, std::move(brought), where);
  }
  std::vector<std::string> others() override { return host_->meeting().others(0); }

  std::shared_ptr<Host> host_;
  bool has_ended_ = false;
};

}  // namespace

std::shared_ptr<RankLink> host_ranks(const parallel::Ranks& ranks, const Job& job, const std::string& name) {
  std::optional<Listener> listener;
  if (job.size > 1) listener.emplace(name);
  std::optional<Device> device;
  if (!ranks.is_virtual()) device = cuda_device_of(job);
  auto host = std::make_shared<Host>(ranks, job);
  if (listener)
    host->gather(*listener, job, hello_of(ranks, job, device ? &*device : nullptr), ranks.patience());
  if (!device) device = Device(make_virtual_device(host->machine_of(0), host->turn()));
  auto link = std::make_shared<HostRank>(host, job, *device, ranks.patience());
  device->backend().add_wait_bound(link);
  host->serve_all(*link);
  if (ranks.is_virtual())
    link->memory = symmetric_memory_of(host->memory(), host->memory()->rank_stride_bytes());
  else
    set_cuda_memory(*link, job);
  part_if_wished(*link);
  return link;
}

}  // namespace imbrex::runtime
