// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/host_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "core/text.h"
#include "cuda_host/host/host.h"
#include "cuda_host/host/host_threads.h"

namespace imbrex::cuda {
namespace {

std::atomic<const char*> g_last_call{nullptr};
std::atomic<uint64_t> g_working_calls{0}, g_asking_calls{0};
std::atomic<int> g_under_way{0};
std::atomic<bool> g_speaks{false};
thread_local int t_under_way = 0;

/// Calls that change nothing that a program could wait for.
bool only_asks(const char* function) {
  if (function == nullptr) return false;
  for (const char* word : {"Query", "Synchronize", "Get", "DtoH"})
    if (std::strstr(function, word) != nullptr) return true;
  return false;
}

}  // namespace

void let_watch_speak() {
  while (g_speaks.load(std::memory_order_relaxed) && t_under_way == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

NotedCall::NotedCall(const char* function) {
  ++t_under_way;
  g_under_way.fetch_add(1, std::memory_order_relaxed);
  if (function != nullptr) g_last_call.store(function, std::memory_order_relaxed);
  (only_asks(function) ? g_asking_calls : g_working_calls).fetch_add(1, std::memory_order_relaxed);
}

NotedCall::~NotedCall() {
  --t_under_way;
  g_under_way.fetch_sub(1, std::memory_order_relaxed);
}

ProgramsTurn::ProgramsTurn() : lock_depth_(Host::mutex().let_go()), calls_(t_under_way) {
  t_under_way = 0;
  g_under_way.fetch_sub(calls_, std::memory_order_relaxed);
}

ProgramsTurn::~ProgramsTurn() {
  g_under_way.fetch_add(calls_, std::memory_order_relaxed);
  t_under_way = calls_;
  Host::mutex().take_back(lock_depth_);
}

namespace {

using std::chrono::milliseconds;

constexpr auto kEvery = std::chrono::seconds(1);
constexpr int kRounds = 3;  // as many looks show the same before anything is said

std::string last_call() {
  const char* call = g_last_call.load(std::memory_order_relaxed);
  return fmt::format("its last CUDA call was {}", call == nullptr ? "none" : call);
}

/// As a finding of the program where the log can be had, whose lock may be part of the hang; and at once on stderr, for the
/// program will not end by itself. New calls wait meanwhile: a program that only makes calls has the lock almost always.
void tell(vgpu::FindingKind kind, std::string message, std::vector<std::string> facts, std::string hint) {
  vgpu::Finding finding;
  finding.kind = kind;
  finding.message = std::move(message);
  finding.facts = std::move(facts);
  finding.hint = std::move(hint);
  bool is_logged = false;
  g_speaks.store(true);
  for (int i = 0; i < 500 && !is_logged; ++i) {
    is_logged = Host::mutex().try_lock();
    if (!is_logged) std::this_thread::sleep_for(milliseconds(2));
  }
  g_speaks.store(false);
  if (!is_logged || !Host::made()->settings.run_folder.empty())
    say("imbrex: in the host program:\n{}\n", finding.format());
  if (!is_logged) return;
  Host::made()->log.add("the host program", finding);
  Host::made()->log.write_state();
  Host::mutex().unlock();
}

/// "thread 12 (worker) waits for a mutex that thread 13 holds, in work() (./program+0x12)".
std::string line_of(const HostThread& thread, const std::vector<HostThread>& all, ThreadSampler& sampler) {
  const std::optional<ThreadSample> sample = sampler.sample(thread.id);
  const std::string place = sample.has_value() ? place_in_program(sample->stack) : "";
  return fmt::format("thread {} ({}) {}{}{}", thread.id, thread.name,
                     thread.waits ? "waits for " + waits_for(thread, all) : "spins",
                     place.empty() ? "" : ", in ", place);
}

/// The first of the threads, and of the others those that wait for something by name in front.
std::vector<std::string> lines_of(const std::vector<HostThread>& threads, ThreadSampler& sampler) {
  constexpr size_t kMost = 8;
  std::vector<HostThread> shown(threads.begin(),
                                threads.begin() + static_cast<ptrdiff_t>(std::min(threads.size(), kMost)));
  std::ranges::stable_partition(shown, [&](const HostThread& thread) {
    const bool is_named = thread.waits && waits_for(thread, threads).find("thread") != std::string::npos;
    return is_named || thread.id == threads.front().id;
  });
  std::vector<std::string> lines;
  for (const HostThread& thread : shown) lines.push_back(line_of(thread, threads, sampler));
  if (threads.size() > lines.size())
    lines.push_back(fmt::format("and {} more", threads.size() - lines.size()));
  return lines;
}

void tell_deadlock(const std::vector<HostThread>& threads) {
  ThreadSampler sampler;
  std::vector<std::string> facts = lines_of(threads, sampler);
  facts.push_back(last_call() + ", and nothing is under way on the GPU");
  if (Host::made()->backlog.length() > 0)
    facts.push_back(
        "one of the threads runs the host functions of all streams (cudaLaunchHostFunc, "
        "cudaStreamAddCallback), "
        "one after the other: who waits for such a stream waits for it");
  tell(vgpu::FindingKind::kDeadlock,
       threads.size() == 1
           ? "the program's only thread waits with no time limit, and nobody is left to wake it"
           : fmt::format("all {} threads of the program wait with no time limit, and nobody is left to wake "
                         "them",
                         threads.size()),
       std::move(facts),
       "take mutexes in the same order everywhere, and wake those who wait; `gdb -p` shows the whole stacks");
}

/// What kernels could write, where a register points to it.
std::string memory_behind(const std::vector<uint64_t>& registers) {
  std::string text;
  if (!Host::mutex().try_lock()) return text;
  const DeviceMemory& memory = Host::made()->memory;
  for (const uint64_t value : registers) {
    if (const Block* block = memory.find(value); block != nullptr)
      text = fmt::format("it looks at byte {} of {} memory, {} bytes at 0x{:x}", value - block->address,
                         block->kind == MemoryKind::kManaged ? "managed" : "pinned", block->bytes,
                         block->address);
    else if (memory.find_registered(reinterpret_cast<const void*>(value)) != nullptr)
      text = fmt::format("it looks at 0x{:x}, which is registered memory", value);
    if (!text.empty()) break;
  }
  Host::mutex().unlock();
  return text;
}

/// Samples of a thread that runs: where few states of its registers come again and again, it goes round in a loop that only
/// memory can end.
std::optional<ThreadSample> spins(pid_t thread) {
  constexpr size_t kSamples = 300, kStatesIn = 4,
                   kMisses = 20;  // on a busy machine it may have no turn for a while
  ThreadSampler sampler;
  std::set<std::vector<uint64_t>> states;
  std::optional<ThreadSample> last;
  for (size_t taken = 0, misses = 0; taken < kSamples; ++taken) {
    last = sampler.sample(thread);
    while (!last.has_value()) {
      if (++misses > kMisses) return std::nullopt;
      last = sampler.sample(thread);
    }
    states.insert(last->registers);
    if (states.size() > kSamples / kStatesIn) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return last;
}

void tell_spin(const HostThread& thread, const ThreadSample& sample, const std::vector<HostThread>& threads) {
  const std::string memory = memory_behind(sample.registers), place = place_in_program(sample.stack);
  std::vector<std::string> facts;
  facts.push_back(
      fmt::format("thread {} ({}){}{}", thread.id, thread.name, place.empty() ? "" : " is in ", place));
  if (!memory.empty()) facts.push_back(memory);
  if (threads.size() > 1)
    facts.push_back(fmt::format("the other {} threads wait with no time limit", threads.size() - 1));
  facts.push_back(last_call());
  tell(vgpu::FindingKind::kEndlessRun,
       "a thread of the program looks at the same memory over and over, and nothing is under way on the GPU "
       "that could "
       "change it",
       std::move(facts),
       "work runs here when it is issued: launch what writes that memory before the loop, and wait for it "
       "with "
       "cudaDeviceSynchronize or an event");
}

void tell_polling(uint64_t calls) {
  tell(vgpu::FindingKind::kEndlessRun,
       fmt::format("the program has only asked for {} s, by {} calls, and every answer will stay the same",
                   kRounds, calls),
       {last_call(), "all work that was given to the GPU is done"},
       "work runs here when it is issued: submit what the loop waits for before it");
}

void tell_computes(int seconds) {
  say("imbrex: the program has computed for {} s; {}, and nothing is under way on the GPU\n"
      "  help: if it waits for memory to change, no launch will change it any more: launch what "
      "writes it before, "
      "or wait for it with cudaDeviceSynchronize\n",
      seconds, last_call());
}

/// One look a second, and what the last ones showed.
class Looks {
 public:
  /// True once something has been said.
  bool look() {
    const uint64_t working = g_working_calls.load(std::memory_order_relaxed),
                   asking = g_asking_calls.load(std::memory_order_relaxed), asked = asking - asking_;
    const bool is_quiet = working == working_;
    working_ = working;
    asking_ = asking;
    if (!is_quiet || (asked == 0 && g_under_way.load(std::memory_order_relaxed) > 0)) {
      polling_ = waiting_ = computing_ = 0;
      polls_ = 0;
      next_sampling_ = kRounds;
      return false;
    }
    if (asked > 0) return look_at_polling(asked);
    return look_at_threads();
  }

 private:
  bool look_at_polling(uint64_t asked) {
    constexpr uint64_t kMany = 1000;  // in a second: nobody asks so often beside work of his own
    polling_ = asked > kMany ? polling_ + 1 : 0;
    polls_ = polling_ == 0 ? 0 : polls_ + asked;
    waiting_ = computing_ = 0;
    if (polling_ < kRounds) return false;
    tell_polling(polls_);
    return true;
  }

  bool look_at_threads() {
    polling_ = 0;
    std::vector<HostThread> threads = other_threads();
    const bool all_wait = !threads.empty() && std::ranges::all_of(threads, &HostThread::waits);
    waiting_ = all_wait && threads == threads_ ? waiting_ + 1 : 0;
    // It runs, and has not slept of its own will since the last look.
    std::vector<HostThread> running;
    for (const HostThread& now : threads)
      for (const HostThread& before : threads_)
        if (now.id == before.id && now.pauses == before.pauses && now.cpu_ticks > before.cpu_ticks)
          running.push_back(now);
    computing_ = running.empty() ? 0 : computing_ + 1;
    threads_ = threads;
    if (waiting_ >= kRounds) {
      tell_deadlock(threads);
      return true;
    }
    if (computing_ >= next_sampling_) {
      next_sampling_ *= 2;  // a program that computes is disturbed less and less
      if (look_at_running(running, threads)) return true;
    }
    constexpr int kLong = 30;
    if (computing_ < kLong) return false;
    tell_computes(computing_);
    return true;
  }

  static bool look_at_running(const std::vector<HostThread>& running,
                              const std::vector<HostThread>& threads) {
    // Who else is awake may change what a thread looks at.
    if (running.size() + static_cast<size_t>(std::ranges::count_if(threads, &HostThread::waits)) <
        threads.size())
      return false;
    std::optional<ThreadSample> first;
    for (const HostThread& thread : running) {
      std::optional<ThreadSample> sample = spins(thread.id);
      if (!sample.has_value()) return false;
      if (!first.has_value()) first = std::move(sample);
    }
    if (g_under_way.load() > 0) return false;
    tell_spin(running.front(), *first, threads);
    return true;
  }

  uint64_t working_ = 0, asking_ = 0, polls_ = 0;
  int polling_ = 0, waiting_ = 0, computing_ = 0;  // looks in a row that showed it
  int next_sampling_ = kRounds;
  std::vector<HostThread> threads_;
};

}  // namespace

void watch_over_host() {
  std::thread([] {
    Looks looks;
    do std::this_thread::sleep_for(kEvery);
    while (!looks.look());
  }).detach();
}

}  // namespace imbrex::cuda
