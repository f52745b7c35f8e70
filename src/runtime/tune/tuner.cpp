// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "core/sha256.h"
#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/occupancy.h"
#include "runtime/assemble/assembler.h"
#include "runtime/cache/tuned.h"
#include "runtime/compile/compile.h"
#include "runtime/device/device_facts.h"
#include "runtime/host/files.h"
#include "runtime/host/parallel.h"
#include "runtime/measure/gpu_timer.h"
#include "runtime/tune/kept_candidates.h"
#include "runtime/tune/worker_client.h"
#include "runtime/tune/worker_team.h"

namespace imbrex {
namespace {

using runtime::WorkerClient;
using runtime::WorkerRequest;
using runtime::WorkerVerdict;
using Clock = std::chrono::steady_clock;
using Status = Candidate::Status;

constexpr int kFirstLaunches = 5;       // of the first round
constexpr int kLastLaunches = 80;       // of the last
constexpr double kDropAt = 3;           // times the best: dropped after its first launch
constexpr double kVirtualTimeout = 20;  // times longer on the virtual GPU
constexpr size_t kOnOneGpu = 4;         // candidates left, from which on all are measured on the same GPU
constexpr int kPredictors = 16;         // worker processes that predict at once, at most
constexpr size_t kRefined = 5;          // of predicted candidates those that are replayed whole and verified
/// What predictions for configurations of one kernel are off relative to each other (docs/tuning.md).
constexpr double kPredictionError = 0.07;
/// Times the kernel's default sizes, multiplied, up to which the virtual GPU verifies at the sizes asked for.
constexpr double kVerifiedWork = 64;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string brief(const Error& error) {
  const Diagnostic& first = error.diagnostics().front();
  std::string text = first.where.is_known() ? fmt::format("{}:{}: ", first.where.file, first.where.line) : "";
  return text.substr(text.rfind('/') == std::string::npos ? 0 : text.rfind('/') + 1) + first.message;
}

/// One tuning from beginning to end.
class Tuning {
 public:
  Tuning(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
         const TuneOptions& options)
      : kernel_(kernel), sizes_(sizes), options_(options), begin_(Clock::now()) {}

  TuneResult run() {
    Case traced = trace(kernel_.space.configuration(0));
    shape_ = traced.shape;
    code_ = runtime::code_digest(*traced.function);
    result_.kernel = kernel_.description.name;
    result_.target = kernel_.target;
    result_.sizes = sizes_;
    // Starting the CUDA driver takes a tenth of a second; what was tuned before is found without it.
    const auto known = runtime::remembered_facts(options_.device, kernel_.target);
    if (known && !options_.again) {
      set_device(*known);
      if (recall()) return std::move(result_);
    }
    set_device(runtime::device_facts(options_.device, machine_target()));
    if (!options_.again && recall()) return std::move(result_);
    use_private_cache_if_none();
    add_candidates();
    if (device_.is_virtual || options_.measure_best > 0) result_.prediction_error = kPredictionError;
    if (options_.measure_best > 0 && !device_.is_virtual) pass_over();
    assemble_and_measure_once();
    device_.is_virtual ? refine() : halve();
    finish();
    return std::move(result_);
  }

 private:
  void add_candidates() {
    for (const Configuration& configuration : kernel_.space.configurations()) {
      result_.candidates.push_back({});
      result_.candidates.back().configuration = configuration;
      result_.candidates.back().text = kernel_.space.to_string(configuration);
    }
    digests_.resize(result_.candidates.size());
  }

  Case trace(const Configuration& configuration) const {
    Case c(Case::Mode::kTrace, std::nullopt, sizes_, options_.seed);
    if (!device_.target.empty()) c.target = target_for(kernel_.target, device_.target).value_or("");
    kernel_.run(c, std::nullopt, configuration);
    return c;
  }

  std::string machine_target() const {
    return options_.gpu.empty() ? kernel_.target : gpu_model(options_.gpu).target;
  }

  void set_device(const runtime::DeviceFacts& device) {
    device_ = device;
    // Times on a GPU that was asked for are kept apart from those on the one that stands for its target.
    if (device.is_virtual && !options_.gpu.empty() && options_.gpu != gpu_model_for(device.target).name)
      device_.name += ", " + options_.gpu;
    const GpuModel& model = options_.gpu.empty() ? gpu_model_for(device.target) : gpu_model(options_.gpu);
    key_ = runtime::tuned_key(std::string(kernel_.entry->type_name), kernel_.target,
                              runtime::tuned_on(device_.name, device.is_virtual, model), shape_, code_);
    result_.device = device_.name;
    result_.is_modelled = device_.is_virtual;
  }

  /// The result of an earlier tuning, if there is one.
  bool recall() {
    const std::optional<runtime::TunedRecord> record = runtime::load_tuned(Cache::shared(), key_);
    if (!record) return false;
    const std::optional<Configuration> configuration = runtime::configuration_of(*record, kernel_.space);
    if (!configuration) return false;
    Candidate winner;
    winner.configuration = *configuration;
    winner.text = record->config;
    winner.status = Status::kBest;
    winner.microseconds = record->microseconds;
    winner.is_remembered = true;
    result_.candidates.push_back(std::move(winner));
    result_.is_remembered = true;
    result_.seconds = seconds_since(begin_);
    return true;
  }

  /// Assemblers and workers exchange machine code through the cache; without one, through a temporary folder.
  void use_private_cache_if_none() {
    if (!Cache::shared().directory().empty()) {
      cache_ = &Cache::shared();
      return;
    }
    folder_ = std::make_unique<runtime::TemporaryFolder>();
    own_cache_ = std::make_unique<Cache>(folder_->path(), int64_t{1} << 40);
    cache_ = own_cache_.get();
  }

  bool is_stopped() const { return options_.stop != nullptr && *options_.stop; }
  void tell(const std::string& phase, size_t done, size_t total) {
    const std::lock_guard lock(telling_);
    if (options_.progress) options_.progress(phase, done, total);
  }
  double timeout() const { return options_.timeout_s * (device_.is_virtual ? kVirtualTimeout : 1); }

  // Compiling and assembling, on several threads.

  void assemble_and_measure_once() {
    const size_t count = result_.candidates.size();
    start_team();
    const runtime::Assembler* ptxas = device_.is_virtual ? nullptr : runtime::find_ptxas();
    size_t jobs = options_.jobs > 0 ? options_.jobs : std::max(1u, std::thread::hardware_concurrency());
    // Without ptxas each assembler is a worker with a CUDA context of its own, some hundred MiB each.
    if (ptxas == nullptr && !device_.is_virtual) jobs = std::min<size_t>(jobs, 8);
    std::exception_ptr failure;
    std::thread assembling([&] {
      std::atomic<size_t> next = 0;
      auto job = [&] {
        std::unique_ptr<WorkerClient> worker;
        for (size_t i; (i = next++) < count && !is_stopped();) {
          compile(i, ptxas, worker);
          std::lock_guard lock(mutex_);
          ready_.push_back(i);
          is_ready_.notify_one();
        }
      };
      try {
        runtime::parallel_for(std::min(jobs, count), jobs, [&](size_t) { job(); });
      } catch (...) {
        failure = std::current_exception();
      }
      std::lock_guard lock(mutex_);
      all_assembled_ = true;
      is_ready_.notify_all();
    });
    try {
      measure_as_they_come(count);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
    assembling.join();
    if (failure) std::rethrow_exception(failure);
  }

  void compile(size_t i, const runtime::Assembler* ptxas, std::unique_ptr<WorkerClient>& worker) {
    Candidate& candidate = result_.candidates[i];
    if (candidate.status != Status::kWaiting) return;
    codegen::CompiledKernel compiled;
    try {
      Case traced = trace(candidate.configuration);
      compiled = runtime::compile(*traced.function);
    } catch (const CompileError& error) {
      return verdict(i, Status::kRejected, brief(error));
    }
    if (const Occupancy fit =
            occupancy(compiled.target, {.threads = compiled.threads,
                                        .registers_per_thread = 0,  // not known yet
                                        .shared_bytes = compiled.shared_bytes,
                                        .tensor_memory_columns = compiled.tensor_memory_columns});
        !fit.is_feasible())
      return verdict(i, Status::kRejected, fit.complaints());
    digests_[i] = sha256(compiled.ptx);
    if (remember(i)) return;
    if (device_.is_virtual) return;
    if (ptxas == nullptr) return assemble_in(worker, i);
    try {
      const runtime::Cubin cubin = runtime::assemble_cached(*ptxas, compiled, device_.target, *cache_,
                                                            runtime::AssemblerTolerance::from_environment());
      candidate.registers = cubin.log().registers;
      if (!cubin.from_cache) candidate.assembling_ms = cubin.milliseconds;
    } catch (const runtime::PerformanceError& error) {
      candidate.registers = error.log().registers;
      candidate.spill_bytes = error.log().spill_store_bytes;
      verdict(i, Status::kSlow, brief(error));
    } catch (const CompileError& error) {
      verdict(i, Status::kFailed, brief(error));
    }
  }

  /// Lets a worker's driver assemble; the machine code arrives in the cache.
  void assemble_in(std::unique_ptr<WorkerClient>& worker, size_t i) {
    const auto begin = Clock::now();
    if (!worker || !worker->is_alive()) {
      std::string why_not;
      worker = open_worker(gpus_.front(), why_not);
      if (!worker) return verdict(i, Status::kFailed, why_not);
    }
    const WorkerVerdict answer = worker->assemble(result_.candidates[i].text);
    result_.candidates[i].assembling_ms = 1e3 * seconds_since(begin);
    result_.candidates[i].spill_bytes = answer.spill_bytes;
    if (answer.status != Status::kDropped) verdict(i, answer.status, answer.reason);
  }

  // Measuring, by a worker per GPU.

  void start_team() {
    const auto wanted = static_cast<size_t>(options_.gpus);
    gpus_ =
        device_.is_virtual ? std::vector<int>(std::max<size_t>(1, wanted)) : runtime::gpus_like_the_first();
    if (wanted > gpus_.size())
      throw LaunchError(Diagnostic{{},
                                   fmt::format("tuning on {} GPUs, and there are {} of the name {}", wanted,
                                               gpus_.size(), device_.name),
                                   {},
                                   "0 takes all that there are"});
    if (wanted > 0) gpus_.resize(wanted);
    team_ = std::make_unique<runtime::WorkerTeam>(gpus_.size(), [this](size_t member, std::string& why_not) {
      return open_worker(gpus_[member], why_not);
    });
  }

  std::unique_ptr<WorkerClient> open_worker(int ordinal, std::string& why_not) {
    return WorkerClient::open(options_.worker, cache_->directory(),
                              {.kernel = kernel_.description.name,
                               .device = device_.is_virtual ? "virtual" : "cuda",
                               .ordinal = ordinal,
                               .target = machine_target(),
                               .gpu = options_.gpu,
                               .sizes = sizes_,
                               .seed = options_.seed},
                              why_not);
  }

  /// Lets a member of the team try candidate i as `request` says, on its thread; false when that settled the candidate for
  /// the worse.
  bool try_candidate(size_t member, size_t i, WorkerRequest request, std::vector<double>& times) {
    Candidate& candidate = result_.candidates[i];
    request.config = candidate.text;
    WorkerVerdict answer = team_->worker(member).try_candidate(request, timeout());
    if (answer.status != Status::kDropped) {
      candidate.spill_bytes = answer.spill_bytes;
      verdict(i, answer.status, answer.reason);
      return false;
    }
    if (request.kind == WorkerRequest::Kind::kPredict) candidate.sampling_error = answer.sampling_error;
    candidate.is_verified |= request.kind == WorkerRequest::Kind::kTry && request.verify;
    times = std::move(answer.times);
    return true;
  }

  void measured(size_t i, const std::vector<double>& times) {
    Candidate& candidate = result_.candidates[i];
    const runtime::Quartiles q = runtime::quartiles(times);
    candidate.status = Status::kDropped;
    candidate.microseconds = q.median;
    candidate.spread = q.spread();
    if (device_.is_virtual)
      candidate.predicted = q.median;
    else
      candidate.launches += static_cast<int>(times.size());
    const std::lock_guard lock(mutex_);
    best_ = best_ == 0 ? q.median : std::min(best_, q.median);
  }

  /// The first round: each candidate once it is assembled, verified and then measured briefly.
  void measure_as_they_come(size_t count) {
    size_t done = 0;
    if (count > 0)
      team_->run(team_->size(), [&](size_t member) {
        team_->start(member);  // opens the device while the first candidates are assembled
        for (;;) {
          size_t i;
          double limit_us;
          {
            std::unique_lock lock(mutex_);
            is_ready_.wait(lock, [&] { return !ready_.empty() || all_assembled_; });
            if (ready_.empty()) return;
            i = ready_.front();
            ready_.pop_front();
            limit_us = kDropAt * best_;
            tell("first round", done++, count);
          }
          if (result_.candidates[i].status != Status::kWaiting || is_stopped()) continue;
          std::vector<double> times;
          const WorkerRequest request = device_.is_virtual
                                            ? WorkerRequest{.kind = WorkerRequest::Kind::kPredict}
                                            : WorkerRequest{.launches = kFirstLaunches, .limit_us = limit_us};
          if (try_candidate(member, i, request, times)) {
            measured(i, times);
            keep_measurement(i);
          }
        }
      });
    tell("first round", done, count);
    std::vector<size_t> right;
    for (size_t i = 0; i < result_.candidates.size(); ++i)
      if (result_.candidates[i].status == Status::kDropped) right.push_back(i);
    compare(right);
  }

  /// A round is over, in which these were measured.
  void compare(const std::vector<size_t>& measured) {
    double fastest = 0;
    for (size_t i : measured) {
      const double now = result_.candidates[i].microseconds;
      fastest = fastest == 0 ? now : std::min(fastest, now);
    }
    for (size_t i : measured) {
      Candidate& candidate = result_.candidates[i];
      ++candidate.round;
      candidate.behind = fastest > 0 ? candidate.microseconds / fastest : 1;
    }
  }

  /// On the virtual GPU: the candidates predicted to be the fastest are replayed whole and from machine code, as `imbrex predict`
  /// does, and verified. The sizes of a kernel's description stand for large ones, which would take minutes.
  void refine() {
    double work = 1;
    for (const SizeOption& size : kernel_.description.sizes)
      work *= static_cast<double>(std::max<int64_t>(1, sizes_.at(size.name))) /
              static_cast<double>(std::max<int64_t>(1, size.otherwise));
    const bool is_large = work > kVerifiedWork;
    std::vector<size_t> order;
    for (size_t i = 0; i < result_.candidates.size(); ++i)
      if (result_.candidates[i].status == Status::kDropped) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return result_.candidates[a].microseconds < result_.candidates[b].microseconds;
    });
    std::vector<size_t> right;
    for (size_t i : order) {
      if (is_stopped() || right.size() == kRefined) break;
      tell("best few", right.size(), std::min(kRefined, order.size()));
      std::vector<double> times;
      if (!try_candidate(0, i, {.kind = WorkerRequest::Kind::kPredict, .sample = false}, times)) continue;
      measured(i, times);
      keep_measurement(i);
      if (try_candidate(0, i, {.at_default_sizes = is_large}, times)) right.push_back(i);
    }
    if (is_stopped() || right.empty()) return;
    compare(right);
    const size_t best = *std::min_element(right.begin(), right.end(), [&](size_t a, size_t b) {
      return result_.candidates[a].microseconds < result_.candidates[b].microseconds;
    });
    result_.candidates[best].status = Status::kBest;
  }

  /// On a CUDA GPU: predicts all, and leaves to be measured as many as were asked for, the fastest first.
  void pass_over() {
    const GpuModel* gpu = find_gpu_model_of_device(device_.name);
    if (gpu == nullptr)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("no GPU model is known of {}, so no time can be predicted", device_.name),
                     {},
                     "leave measure_best out, or describe the GPU by `imbrex calibrate`"});
    TuneOptions options = options_;
    options.device = "virtual";
    options.gpu = gpu->name;
    options.measure_best = 0;
    options.gpus = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kPredictors);
    Tuning predicting(kernel_, sizes_, options);
    for (const auto& [text, candidate] : predicting.predictions())
      for (Candidate& mine : result_.candidates)
        if (mine.text == text) {
          mine.predicted = candidate.predicted;
          mine.sampling_error = candidate.sampling_error;
        }
    // Those without a prediction come last, but are measured where there is room.
    std::stable_sort(
        result_.candidates.begin(), result_.candidates.end(), [](const Candidate& a, const Candidate& b) {
          return std::pair(a.predicted == 0, a.predicted) < std::pair(b.predicted == 0, b.predicted);
        });
    for (size_t i = static_cast<size_t>(options_.measure_best); i < result_.candidates.size(); ++i) {
      result_.candidates[i].status = Status::kPassedOver;
      result_.candidates[i].reason = result_.candidates[i].predicted > 0
                                         ? fmt::format("{:.2f} µs predicted", result_.candidates[i].predicted)
                                         : "no time could be predicted";
    }
  }

  /// Every candidate by what the virtual GPU predicts, and nothing more.
  std::map<std::string, Candidate> predictions() {
    Case traced = trace(kernel_.space.configuration(0));
    shape_ = traced.shape;
    code_ = runtime::code_digest(*traced.function);
    set_device(runtime::device_facts("virtual", machine_target()));
    use_private_cache_if_none();
    add_candidates();
    assemble_and_measure_once();
    std::map<std::string, Candidate> found;
    for (const Candidate& candidate : result_.candidates)
      if (candidate.status == Status::kDropped) found[candidate.text] = candidate;
    return found;
  }

  /// The slower half goes, the rest is measured twice as long, until one is left. The last few are measured on one GPU, so
  /// that small differences between GPUs do not choose the winner.
  void halve() {
    std::vector<size_t> alive;
    for (size_t i = 0; i < result_.candidates.size(); ++i)
      if (result_.candidates[i].status == Status::kDropped) alive.push_back(i);
    auto faster = [&](size_t a, size_t b) {
      return result_.candidates[a].microseconds < result_.candidates[b].microseconds;
    };
    std::sort(alive.begin(), alive.end(), faster);
    for (int launches = 2 * kFirstLaunches; alive.size() > 1 && !is_stopped() && !device_.is_virtual;
         launches = std::min(2 * launches, kLastLaunches)) {
      alive.resize((alive.size() + 1) / 2);
      // The last two are measured to the end, so that the choice between them is not one round's luck.
      if (alive.size() <= 2) launches = kLastLaunches;
      std::vector<size_t> still;
      std::atomic<size_t> next = 0;
      team_->run(alive.size() > kOnOneGpu ? team_->size() : 1, [&](size_t member) {
        for (size_t at; (at = next++) < alive.size() && !is_stopped();) {
          tell(fmt::format("{} left", alive.size()), at, alive.size());
          std::vector<double> times;
          if (!try_candidate(member, alive[at], {.verify = false, .launches = launches}, times)) continue;
          measured(alive[at], times);
          const std::lock_guard lock(mutex_);
          still.push_back(alive[at]);
        }
      });
      if (is_stopped()) return;
      alive = std::move(still);
      compare(alive);
      std::sort(alive.begin(), alive.end(), faster);
      if (launches == kLastLaunches) break;
    }
    // The winner once more from the beginning, with inputs written anew; if it fails, the next.
    for (size_t i : alive) {
      if (is_stopped()) return;
      std::vector<double> times;
      if (!try_candidate(0, i, {.restore_inputs = true, .launches = 1}, times)) continue;
      result_.candidates[i].status = Status::kBest;
      break;
    }
  }

  void finish() {
    result_.is_interrupted = is_stopped();
    std::stable_sort(result_.candidates.begin(), result_.candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       const int order_a = a.status == Status::kBest ? 0 : a.is_right() ? 1 : 2;
                       const int order_b = b.status == Status::kBest ? 0 : b.is_right() ? 1 : 2;
                       if (order_a != order_b || order_a != 1) return order_a < order_b;
                       return a.round != b.round ? a.round > b.round : a.microseconds < b.microseconds;
                     });
    for (const Candidate& candidate : result_.candidates)
      result_.assembling_seconds += candidate.assembling_ms / 1e3;
    if (const Candidate* winner = result_.winner(); winner != nullptr && winner->status == Status::kBest)
      runtime::store_tuned(Cache::shared(), key_,
                           {shape_, sizes_, code_, winner->text, winner->microseconds, result_.is_modelled});
    result_.seconds = seconds_since(begin_);
  }

  // What is kept of single candidates, so that an interrupted tuning goes on where it stopped.

  CacheKey measurement_key(size_t i) const {
    return runtime::candidate_key(key_, result_.candidates[i].text, digests_[i], options_.seed);
  }

  void verdict(size_t i, Status status, const std::string& reason) {
    result_.candidates[i].status = status;
    result_.candidates[i].reason = reason;
    // Rejections are quicker found again than read; a hang may have been the machine's.
    if (status != Status::kRejected && status != Status::kHung) keep_measurement(i);
  }

  void keep_measurement(size_t i) {
    if (!digests_[i].empty())
      runtime::keep_candidate(Cache::shared(), measurement_key(i), result_.candidates[i]);
  }

  /// Takes the first round's result from an earlier tuning that did not end.
  bool remember(size_t i) {
    return !options_.again &&
           runtime::recall_candidate(Cache::shared(), measurement_key(i), result_.candidates[i]);
  }

  const RegisteredKernel& kernel_;
  const std::map<std::string, int64_t> sizes_;
  const TuneOptions& options_;
  const Clock::time_point begin_;
  runtime::DeviceFacts device_;
  std::vector<int64_t> shape_;
  std::string code_;
  CacheKey key_;
  TuneResult result_;
  std::vector<std::string> digests_;  // of the candidates' PTX
  std::unique_ptr<runtime::TemporaryFolder> folder_;
  std::unique_ptr<Cache> own_cache_;
  Cache* cache_ = nullptr;
  std::vector<int> gpus_;  // ordinals
  std::unique_ptr<runtime::WorkerTeam> team_;
  std::mutex telling_;

  std::mutex mutex_;
  double best_ = 0;
  std::condition_variable is_ready_;
  std::deque<size_t> ready_;
  bool all_assembled_ = false;
};

}  // namespace

const char* name(Candidate::Status status) {
  switch (status) {
    case Status::kWaiting:
      return "not reached";
    case Status::kRejected:
      return "rejected";
    case Status::kSlow:
      return "spills";
    case Status::kFailed:
      return "failed";
    case Status::kHung:
      return "hung";
    case Status::kTrapped:
      return "trapped";
    case Status::kWrong:
      return "wrong";
    case Status::kDropped:
      return "slower";
    case Status::kBest:
      return "best";
    case Status::kPassedOver:
      return "passed over";
  }
  return "";
}

TuneResult tune(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                const TuneOptions& options) {
  if (options.measure_best > 0 && options.device == "virtual")
    throw LaunchError(Diagnostic{{},
                                 "the virtual GPU measures nothing, so there is no best few to measure",
                                 {},
                                 "leave measure_best out"});
  if (!options.gpu.empty()) {
    if (options.device != "virtual")
      throw LaunchError(
          Diagnostic{{}, "a GPU to tune for is the virtual GPU's", {}, "set device = \"virtual\""});
    const GpuModel& gpu = gpu_model(options.gpu);
    if (!gpu.runs(kernel.target))
      throw LaunchError(Diagnostic{{},
                                   fmt::format("{} is built for {}, which {} does not run: it is {}",
                                               kernel.description.name, kernel.target, gpu.title, gpu.target),
                                   {},
                                   ""});
  }
  return Tuning(kernel, sizes, options).run();
}

}  // namespace imbrex
