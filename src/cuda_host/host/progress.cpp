// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/progress.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <thread>

#include "cuda_host/host/run_log.h"

namespace imbrex::cuda {
namespace {

std::atomic<bool>* g_stop = nullptr;
void on_interrupt(int) {
  // SA_RESETHAND: the next one ends the process.
  if (g_stop != nullptr) g_stop->store(true, std::memory_order_relaxed);
}

std::atomic<const char*> g_last_call{nullptr};
std::atomic<uint64_t> g_calls{0};
std::atomic<int> g_under_way{0};

}  // namespace

Interruptible::Interruptible(bool tells) : watch_(std::make_shared<vgpu::Watch>()) {
  if (tells)
    watch_->tell = [next = 4.0](const vgpu::Progress& progress) mutable {
      if (progress.seconds < next) return;
      while (next <= progress.seconds) next *= 2;
      fmt::print(stderr, "imbrex: {} has been running for {:.0f} s: {} of {} CTAs are done{}{}\n",
                 demangled(std::string(progress.kernel)), progress.seconds, progress.ctas_done, progress.ctas,
                 progress.places.empty() ? "" : "; ", progress.places.empty() ? "" : progress.places.front());
    };
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  g_stop = &watch_->stop;
  is_installed_ = sigaction(SIGINT, &action, nullptr) == 0;
}

Interruptible::~Interruptible() { restore(); }

void Interruptible::restore() {
  if (!is_installed_) return;
  sigaction(SIGINT, &before_, nullptr);
  g_stop = nullptr;
  is_installed_ = false;
}

void Interruptible::end(RunLog& log) {
  restore();
  if (!watch_->stop.load(std::memory_order_relaxed)) return;
  if (before_.sa_handler == SIG_DFL && (before_.sa_flags & SA_SIGINFO) == 0) log.finish();
  std::raise(SIGINT);
}

NotedCall::NotedCall(const char* function) {
  g_under_way.fetch_add(1, std::memory_order_relaxed);
  g_last_call.store(function, std::memory_order_relaxed);
  g_calls.fetch_add(1, std::memory_order_relaxed);
}

NotedCall::~NotedCall() { g_under_way.fetch_sub(1, std::memory_order_relaxed); }

void watch_over_host() {
  std::thread([] {
    constexpr auto kEvery = std::chrono::seconds(5);
    constexpr int kRounds = 6;
    uint64_t seen = 0;
    int rounds = 0;
    std::clock_t cpu = std::clock();
    for (;;) {
      std::this_thread::sleep_for(kEvery);
      const uint64_t calls = g_calls.load(std::memory_order_relaxed);
      const std::clock_t now = std::clock();
      const bool computes = static_cast<double>(now - cpu) / CLOCKS_PER_SEC > 0.8 * 5;
      const bool is_alone = calls == seen && g_under_way.load(std::memory_order_relaxed) == 0;
      rounds = is_alone && computes ? rounds + 1 : 0;
      seen = calls;
      cpu = now;
      if (rounds < kRounds) continue;
      fmt::print(
          stderr,
          "imbrex: the program has computed for {} s since its last CUDA call, {}, and nothing is under way "
          "on "
          "the GPU: work runs when it is given\n  help: if it waits for memory to change, no launch will "
          "change it any more: launch what writes it before, or wait for it with cudaDeviceSynchronize\n",
          kRounds * 5, g_last_call.load(std::memory_order_relaxed));
      return;
    }
  }).detach();
}

}  // namespace imbrex::cuda
