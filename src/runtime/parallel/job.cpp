// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "imbrex/core/error.h"
#include "runtime/host/files.h"

namespace imbrex::runtime {

namespace {

/// Variables of one launcher; of each list the first that is set counts.
struct Launcher {
  const char* name;
  const char* rank;
  std::vector<const char*> size, local_rank, local_size;
  std::vector<const char*> job;  // all that are set, together
};

/// In this order: torchrun may be started by mpirun or srun, and mpirun by a batch script of Slurm.
/// A batch script has SLURM_PROCID and SLURM_NTASKS of its own, but is no step: SLURM_STEP_NUM_TASKS tells.
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {"torchrun",
       "RANK",
       {"WORLD_SIZE"},
       {"LOCAL_RANK"},
       {"LOCAL_WORLD_SIZE"},
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"}},
      {"mpirun (Open MPI)",
       "OMPI_COMM_WORLD_RANK",
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_RANK"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
      {"srun",
       "SLURM_PROCID",
       {"SLURM_STEP_NUM_TASKS"},
       {"SLURM_LOCALID"},
       {},
       {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
      {"mpiexec (MPICH)", "PMI_RANK", {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}, {}},
  };
  return all;
}

}  // namespace

Job job_of_environment(const std::function<const char*(const char*)>& variable) {
  const auto number = [&](const char* name) -> std::optional<int> {
    const char* const text = variable(name);
    if (text == nullptr) return std::nullopt;
    const std::string_view digits = text;
    int value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
      throw LaunchError(Diagnostic{
          {}, fmt::format("ranks of the environment: {} is '{}', not a number", name, digits), {}, ""});
    return value;
  };
  const auto first_of = [&](const std::vector<const char*>& names) -> std::optional<int> {
    for (const char* name : names)
      if (const auto value = number(name)) return value;
    return std::nullopt;
  };
  Job job;
  for (const Launcher& launcher : launchers()) {
    const auto size = first_of(launcher.size);
    const auto rank = number(launcher.rank);
    if (!size || !rank) continue;
    job.launcher = launcher.name;
    job.rank = *rank;
    job.size = *size;
    job.local_rank = first_of(launcher.local_rank).value_or(job.rank);
    job.local_size = first_of(launcher.local_size).value_or(job.size);
    // srun tells the tasks of a node as text ("2(x3),1"): of several nodes it is enough that they are several.
    if (number("SLURM_STEP_NUM_NODES").value_or(1) > 1 && job.local_size == job.size)
      job.local_size = std::max(job.local_rank + 1, job.size - 1);
    for (const char* name : launcher.job)
      if (const char* value = variable(name)) job.name += fmt::format("{}={} ", name, value);
    if (job.rank >= job.size || job.local_rank >= job.local_size || job.local_size > job.size)
      throw LaunchError(Diagnostic{
          {},
          fmt::format("ranks of the environment: rank {} of {}, on this server {} of {}", job.rank, job.size,
                      job.local_rank, job.local_size),
          {fmt::format("as the variables of {} say, {} first of all", launcher.name, launcher.rank)},
          "unset them where they are left over from something else"});
    break;
  }
  if (const char* value = variable("IMBREX_JOB")) job.name = value;
  if (const char* value = variable("IMBREX_ADDRESS")) {
    job.address = value;
  } else if (const char* host = variable("MASTER_ADDR")) {
    // The port itself is the launcher's own.
    if (const auto port = number("MASTER_PORT")) job.address = fmt::format("{}:{}", host, *port + 1);
  }
  if (const char* value = variable("IMBREX_ENDED_RANKS")) job.ended_file = value;
  // Processes that one launcher has started have the same parent.
  if (job.name.empty() && job.is_on_one_server()) job.name = fmt::format("parent={}", getppid());
  return job;
}

std::string ended_rank(const Job& job) {
  if (job.ended_file.empty()) return "";
  const std::string lines = read_file(job.ended_file).value_or("");
  return lines.substr(0, lines.find('\n'));
}

}  // namespace imbrex::runtime
