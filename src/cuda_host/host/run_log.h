// SPDX-License-Identifier: Apache-2.0
// What the launches of a process found. Each distinct finding is told when it first happens: on stderr, or to
// `imbrex run` by a file of one JSON object a line, which is complete even where the process is killed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda_host/host/settings.h"
#include "imbrex/vgpu/report.h"

namespace imbrex::cuda {

/// One line of a suppression file: kind, kernel and place, each with * and ?; left out, it is "*".
struct Suppression {
  std::string kind, kernel, place;
};

/// Throws imbrex::Error naming the line that is none.
std::vector<Suppression> read_suppressions(const std::string& file);

class RunLog {
 public:
  explicit RunLog(const Settings& settings);

  /// Called for every launch, checked or not. `stream`: a number by which it is told from others.
  void launched(const std::string& kernel, uint64_t stream, bool was_checked, const vgpu::Report& report);
  /// A call that a stand-in for a closed library answered on the host.
  void stood_in(const std::string& function) { ++stand_ins_[function]; }
  /// A call that failed, with its code: "cuMemFree (CUDA_ERROR_INVALID_VALUE)". Ends the process where it is to stop at the first.
  void failed(const std::string& call);
  /// Whether `imbrex run` collects what is found.
  bool is_collected() const { return !file_.empty(); }
  /// Findings that belong to no single launch, such as streams that race.
  void add(const std::string& kernel, const vgpu::Finding& finding);
  /// What was told before is told again from now on: a test of its own begins.
  void begin_part();
  /// The last words: counts, and on stderr a summary.
  void finish();
  /// The counts as they are now, for `imbrex run`: of a process that may be killed before its end.
  void write_state();

  int64_t launches() const { return launches_; }

 private:
  bool is_suppressed(const std::string& kernel, const vgpu::Finding& finding) const;
  void write(const std::string& line);
  void write_counts();

  struct Entry {
    int64_t number = 0, count = 0;
  };
  bool stop_at_first_, notes_;
  std::vector<Suppression> suppressions_;
  std::string file_;
  int64_t launches_ = 0, checked_ = 0, suppressed_ = 0;
  int64_t sampled_ = 0, ctas_left_out_ = 0;  // launches of which a part of the CTAs ran
  size_t noted_ = 0;                         // of the entries
  std::map<std::string, Entry> entries_;     // by what makes findings the same
  int64_t before_ = 0;                       // entries of earlier parts
  std::set<std::string> kernels_;
  std::map<std::string, int64_t> stand_ins_;  // calls by function
  std::map<std::string, int64_t> failed_;     // calls, with their code
  bool is_finished_ = false;
};

/// A kernel's name as its author wrote it: "add(float const*, float*, int)".
std::string demangled(const std::string& name);

}  // namespace imbrex::cuda
