// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/host_threads.h"

#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "cuda_host/host/host_symbols.h"
#include "cuda_host/host/host_watch.h"
#include "cuda_host/program/python_frame.h"

namespace imbrex::cuda {
namespace {

std::string contents(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The number behind a label of /proc's status files.
uint64_t number_after(const std::string& text, const char* label) {
  const size_t at = text.find(label);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + std::strlen(label), nullptr, 10);
}

/// "202 0x7f... 0x80 ...": the system call that a thread is in and its arguments, or "running".
void read_wait(const std::string& text, HostThread& thread) {
  std::istringstream in(text);
  long call = -1;
  if (!(in >> call) || call != SYS_futex) return;
  std::array<uint64_t, 4> arguments{};
  for (uint64_t& argument : arguments) {
    std::string word;
    in >> word;
    argument = std::strtoull(word.c_str(), nullptr, 16);
  }
  const auto command = static_cast<int>(arguments[1]) & FUTEX_CMD_MASK;
  const bool is_wait = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET || command == FUTEX_LOCK_PI;
  constexpr size_t kTimeout = 3;
  // Others than this process may wake who waits for a futex that is not private. A joiner waits for one all the same, which holds
  // the number of a thread until that ends.
  const auto is_joiner = [&] {
    const int word = *reinterpret_cast<const volatile int*>(arguments[0]);
    return word > 0 && access(fmt::format("/proc/self/task/{}", word).c_str(), F_OK) == 0;
  };
  thread.waits =
      is_wait && arguments[kTimeout] == 0 && ((arguments[1] & FUTEX_PRIVATE_FLAG) != 0 || is_joiner());
  thread.futex = arguments[0];
}

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

}  // namespace

std::vector<HostThread> other_threads() {
  std::vector<HostThread> threads;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder)) {
    HostThread thread;
    thread.id = static_cast<pid_t>(std::atoi(entry->d_name));
    if (thread.id <= 0 || thread.id == this_thread()) continue;
    const std::string at = fmt::format("/proc/self/task/{}/", thread.id);
    const std::string stat = contents(at + "stat"), status = contents(at + "status");
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;  // it has ended
    thread.name = stat.substr(open + 1, close - open - 1);
    std::istringstream fields(stat.substr(close + 2));
    constexpr int kBeforeUserTime = 11;  // fields between the name and utime, stime
    std::string skipped;
    for (int i = 0; i < kBeforeUserTime; ++i) fields >> skipped;
    uint64_t user = 0, system = 0;
    fields >> user >> system;
    thread.cpu_ticks = user + system;
    thread.pauses = number_after(status, "\nvoluntary_ctxt_switches:");
    read_wait(contents(at + "syscall"), thread);
    threads.push_back(std::move(thread));
  }
  closedir(folder);
  std::ranges::sort(threads, {}, &HostThread::id);
  return threads;
}

std::string waits_for(const HostThread& thread, const std::vector<HostThread>& all) {
  const auto is_thread = [&](int id) {
    return std::ranges::any_of(all, [&](const HostThread& other) { return other.id == id; });
  };
  // The words of a mutex of the C library: the futex, a count, the owner. A joiner waits for the thread's id to become 0.
  const auto* const words = reinterpret_cast<const volatile int*>(thread.futex);
  const int word = words[0];
  if (word > 2 && is_thread(word)) return fmt::format("the end of thread {}", word);
  constexpr uintptr_t kOwner = 2;
  constexpr uint64_t kPage = 4096;
  const bool is_readable = (thread.futex + kOwner * sizeof(int)) / kPage == thread.futex / kPage;
  if ((word == 1 || word == 2) && is_readable && is_thread(words[kOwner])) {
    const int owner = words[kOwner];
    return owner == thread.id ? "a mutex that it holds itself"
                              : fmt::format("a mutex that thread {} holds", owner);
  }
  return "a condition variable or semaphore";
}

namespace {

// SIGURG: nobody is harmed by one that comes late, for it is ignored unless handled.
constexpr int kSignal = SIGURG;
constexpr int kFrames = 32;

struct Slot {
  std::atomic<pid_t> wanted{0};
  std::atomic<bool> is_taken{false};
  std::array<uint64_t, 32> registers{};
  int register_count = 0;
  std::array<void*, kFrames> stack{};
  int frames = 0;
};
Slot g_slot;

void take_sample(int, siginfo_t*, void* context) {
  pid_t wanted = this_thread();
  // One that comes late finds that nobody wants it any more.
  if (!g_slot.wanted.compare_exchange_strong(wanted, 0)) return;
  const int kept_errno = errno;
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  int count = 0;
#if defined(__x86_64__)
  g_slot.registers[static_cast<size_t>(count++)] = static_cast<uint64_t>(machine.gregs[REG_RIP]);
  for (int i = REG_R8; i <= REG_RSP; ++i)
    g_slot.registers[static_cast<size_t>(count++)] = static_cast<uint64_t>(machine.gregs[i]);
#elif defined(__aarch64__)
  g_slot.registers[static_cast<size_t>(count++)] = machine.pc;
  for (const auto value : machine.regs) g_slot.registers[static_cast<size_t>(count++)] = value;
#endif
  g_slot.register_count = count;
  g_slot.frames = backtrace(g_slot.stack.data(), kFrames);
  errno = kept_errno;
  g_slot.is_taken.store(true, std::memory_order_release);
}

std::vector<uint64_t> current_stack() {
  std::array<void*, 32> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  std::vector<uint64_t> stack;
  for (int i = 0; i < count; ++i) stack.push_back(reinterpret_cast<uint64_t>(frames[static_cast<size_t>(i)]));
  return stack;
}

}  // namespace

ThreadSampler::ThreadSampler() {
  static_assert(sizeof(struct sigaction) <= sizeof before_);
  void* loads_the_unwinder[1];  // which a signal handler must not do
  (void)backtrace(loads_the_unwinder, 1);
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = take_sample;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigaction(kSignal, &action, reinterpret_cast<struct sigaction*>(before_.data()));
}

ThreadSampler::~ThreadSampler() {
  sigaction(kSignal, reinterpret_cast<const struct sigaction*>(before_.data()), nullptr);
}

std::optional<ThreadSample> ThreadSampler::sample(pid_t thread) {
  g_slot.is_taken.store(false);
  g_slot.wanted.store(thread);
  if (syscall(SYS_tgkill, getpid(), thread, kSignal) != 0) return std::nullopt;
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds && !g_slot.is_taken.load(std::memory_order_acquire); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pid_t expected = thread;
  if (g_slot.wanted.compare_exchange_strong(expected, 0)) return std::nullopt;
  while (!g_slot.is_taken.load(std::memory_order_acquire)) std::this_thread::yield();
  const auto registers = g_slot.registers.begin();
  ThreadSample sample{{registers, registers + g_slot.register_count}, {}};
  for (int i = 0; i < g_slot.frames; ++i)
    sample.stack.push_back(reinterpret_cast<uint64_t>(g_slot.stack[static_cast<size_t>(i)]));
  return sample;
}

std::string place_in_program(const std::vector<uint64_t>& stack, const std::string& kernel) {
  Dl_info ours{};
  dladdr(reinterpret_cast<const void*>(place_of_launch), &ours);
  for (const uint64_t address : stack) {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_fbase == ours.dli_fbase)
      continue;
    const std::string_view file = info.dli_fname == nullptr ? "" : info.dli_fname;
    const std::string_view base = file.substr(file.rfind('/') + 1);
    const auto is_library = [&](const char* name) { return base.starts_with(name); };
    if (is_library("libc.so") || is_library("libstdc++.so") || is_library("libgcc_s.so") ||
        is_library("ld-linux") || is_library("libpthread") || is_library("linux-vdso") ||
        is_library("libcudart.so"))
      continue;
    const std::string described = described_address(address);
    // The runtime may be linked statically, with its own functions and the API's.
    const bool is_runtime =
        described.starts_with("libcudart_static") ||
        (described.starts_with("cuda") && described.size() > 4 && std::isupper(described[4]) != 0);
    // What nvcc makes of `kernel<<<...>>>` is a function of the kernel's name and another.
    const bool is_stub = described.find("__device_stub__") != std::string::npos ||
                         described.starts_with("__cudaLaunch") ||
                         (!kernel.empty() && described.starts_with(kernel + " ("));
    if (!is_runtime && !is_stub && !described.starts_with("std::")) return described;
  }
  return "";
}

std::string place_of_launch(const std::string& kernel) {
  std::string program(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  program.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  // The frames there are the interpreter's.
  if (!program.substr(program.rfind('/') + 1).starts_with("python"))
    return place_in_program(current_stack(), kernel);
  const ProgramsTurn turn;  // who holds the interpreter's lock may wait for that of calls
  return python_place();
}

std::string place_in_program() { return place_in_program(current_stack()); }

}  // namespace imbrex::cuda
