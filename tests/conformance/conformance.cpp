// SPDX-License-Identifier: Apache-2.0
// Runs every micro-kernel on the virtual GPU and on the CUDA GPU of this machine and compares every byte they
// write. Prints a Markdown report.
//
//   imbrex_conformance [--family NAME] [--filter TEXT] [--values N] [--list] [--ptx] [--inputs] [--uncovered]
//                      [--record FILE [--bytes N]]   the chip's outputs, with their first N bytes
//                      [--against FILE]              compare with such records instead of a chip
//                      [--isolate]                   each family in a process of its own, which is started
//                                                    again behind a form that kills or hangs the GPU
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "coverage.h"
#include "families.h"
#include "imbrex/core/error.h"
#include "records.h"
#include "run.h"

namespace imbrex::conformance {
namespace {

struct Settings {
  std::string family, filter, record, against;
  int64_t values = 8192, bytes = 32;
  bool isolates = false, lists = false, prints_ptx = false, prints_inputs = false, lists_uncovered = false;
};

struct Tally {
  int64_t forms = 0, bytes = 0, differing = 0, refused = 0;
};

constexpr unsigned kSecondsPerForm = 60;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool is_wanted(const Settings& settings, const MicroKernel& kernel) {
  return (settings.family.empty() || kernel.family == settings.family) &&
         kernel.name.find(settings.filter) != std::string::npos;
}

/// Runs kernels of one list on both devices and keeps account.
class Session {
 public:
  Session(const Settings& settings, const Records& records)
      : settings_(settings), records_(records), virtual_gpu_(Device::virtual_gpu({.target = "sm_90a"})) {
    if (settings.against.empty() && Device::has_cuda(nullptr)) chip_ = Device::cuda();
    if (!settings.record.empty()) record_.open(settings.record, std::ios::app);
  }

  /// False when the chip must be set up anew, which takes a new process.
  bool try_kernel(const MicroKernel& kernel) {
    Tally& tally = tallies[kernel.family];
    std::vector<uint8_t> got;
    bool ran = false, chip_lives = true;
    try {
      got = run(virtual_gpu_, kernel);
      ran = true;
    } catch (const Error& error) {
      ++tally.refused;
      note(kernel, fmt::format("the virtual GPU: {}", error.what()));
    }
    std::optional<Record> expected;
    if (chip_) {
      try {
        const std::vector<uint8_t> answer = run(*chip_, kernel);
        expected = record_of(answer, static_cast<int64_t>(answer.size()));
        keep(kernel, record_of(answer, settings_.bytes));
      } catch (const Error& error) {
        ++tally.refused;
        note(kernel, "the chip: " + first_line(error.what()));
        Record fault;
        fault.fault = first_line(error.what());
        keep(kernel, fault);
        chip_lives = false;
        ran = false;
      }
    } else if (!settings_.against.empty()) {
      if (const Record* record = find_record(records_, kernel))
        expected = *record;
      else
        note(kernel, "there is no record of it");
    }
    if (!ran) return chip_lives;
    ++tally.forms;
    tally.bytes += kernel.output_bytes;
    if (!expected) return chip_lives;
    if (const std::string wrong = difference(got, *expected); !wrong.empty()) {
      ++tally.differing;
      note(kernel, wrong);
    }
    return chip_lives;
  }

  std::map<std::string, Tally> tallies;
  std::vector<std::string> notes;

 private:
  void note(const MicroKernel& kernel, const std::string& text) {
    notes.push_back(fmt::format("{}: `{}`: {}", kernel.family, kernel.name, text));
  }
  void keep(const MicroKernel& kernel, const Record& record) {
    if (record_.is_open()) record_ << line_of(kernel, record) << std::endl;
  }

  const Settings& settings_;
  const Records& records_;
  Device virtual_gpu_;
  std::optional<Device> chip_;
  std::ofstream record_;
};

void print(const Session& session) {
  for (const auto& [family, tally] : session.tallies)
    fmt::print("| {} | {} | {} | {} | {} |\n", family, tally.forms, tally.bytes, tally.differing,
               tally.refused);
  for (const std::string& text : session.notes) fmt::print("- {}\n", text);
  std::fflush(stdout);
}

/// Tries `kernels` from `begin` on in a child process; returns where to go on.
size_t try_in_child(const Settings& settings, const Records& records,
                    const std::vector<const MicroKernel*>& kernels, size_t begin, bool& failed) {
  int progress[2];
  if (pipe(progress) != 0) throw Error(Diagnostic{{}, "no pipe", {}, ""});
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    Session session(settings, records);
    size_t at = begin;
    for (; at < kernels.size(); ++at) {
      alarm(kSecondsPerForm);
      if (write(progress[1], &at, sizeof at) != sizeof at) _exit(3);
      if (!session.try_kernel(*kernels[at])) break;
    }
    print(session);
    _exit(session.notes.empty() ? 0 : 1);
  }
  close(progress[1]);
  size_t at = begin;
  while (read(progress[0], &at, sizeof at) == sizeof at) {
  }
  close(progress[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    fmt::print("- {}: `{}`: killed by signal {}\n", kernels[at]->family, kernels[at]->name, WTERMSIG(status));
  failed = failed || status != 0;
  return at + 1;
}

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--family")
      settings.family = value();
    else if (word == "--filter")
      settings.filter = value();
    else if (word == "--values")
      settings.values = std::max<int64_t>(256, std::atoll(value().c_str()) / 256 * 256);
    else if (word == "--record")
      settings.record = value();
    else if (word == "--bytes")
      settings.bytes = std::atoll(value().c_str());
    else if (word == "--against")
      settings.against = value();
    else if (word == "--isolate")
      settings.isolates = true;
    else if (word == "--list")
      settings.lists = true;
    else if (word == "--uncovered")
      settings.lists_uncovered = true;
    else if (word == "--inputs")
      settings.prints_inputs = true;
    else if (word == "--ptx")
      settings.prints_ptx = true;
    else {
      fmt::print(stderr, "unknown option {}\n", word);
      return 2;
    }
  }
  const Kernels kernels = all_kernels(settings.values);
  std::map<std::string, std::vector<const MicroKernel*>> families;
  for (const MicroKernel& kernel : kernels)
    if (is_wanted(settings, kernel)) families[kernel.family].push_back(&kernel);
  if (settings.lists || settings.prints_ptx || settings.prints_inputs) {
    for (const auto& [family, members] : families)
      for (const MicroKernel* kernel : members)
        if (settings.prints_inputs)
          fmt::print("{}\t{}\t{}\n", family, kernel->name, hexadecimal(kernel->input));
        else
          fmt::print("{}{}: {}\n{}", settings.prints_ptx ? "// " : "", family, kernel->name,
                     settings.prints_ptx ? kernel->ptx : "");
    return 0;
  }
  if (settings.lists_uncovered) {
    const Features used = features_used(kernels);
    for (const std::string& feature : features_of_target())
      if (!used.contains(feature)) fmt::print("{}\n", feature);
    return 0;
  }
  Records records;
  if (!settings.against.empty()) read_records(settings.against, records);
  fmt::print("| family | forms | bytes | forms that differ | forms refused |\n|---|---|---|---|---|\n");
  bool failed = false;
  if (settings.isolates) {
    for (const auto& [family, members] : families)
      for (size_t at = 0; at < members.size();) at = try_in_child(settings, records, members, at, failed);
    return failed ? 1 : 0;
  }
  std::string why_not;
  if (settings.against.empty() && !Device::has_cuda(&why_not))
    fmt::print(stderr, "No CUDA GPU ({}): the forms only run on the virtual GPU.\n", why_not);
  Session session(settings, records);
  for (const auto& [family, members] : families)
    for (const MicroKernel* kernel : members)
      if (!session.try_kernel(*kernel)) {
        fmt::print("- the chip must be set up anew after a fault: use --isolate\n");
        print(session);
        return 1;
      }
  print(session);
  return session.notes.empty() ? 0 : 1;
}

}  // namespace
}  // namespace imbrex::conformance

int main(int argc, char** argv) { return imbrex::conformance::main(argc, argv); }
