// SPDX-License-Identifier: Apache-2.0
// imbrex run -- PROGRAM ARGS: runs a CUDA program with libcuda.so.1 and libcudart.so of the virtual GPU, and tells at the
// end what its launches were found to do. The processes of the program leave what they find in a folder
// (src/cuda_host/host/run_log.h).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "imbrex/core/error.h"
#include "imbrex/core/find_tool.h"
#include "imbrex/core/nearest.h"
#include "imbrex/inspect/gpu_model.h"
#include "program_report.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string gpu, checks = "on", launches, suppressions, saved_ptx, timeline;
  std::vector<std::string> kernels, reports, tests;
  int gpus = 1, seeds = 1;
  int64_t ctas = 0;
  uint64_t seed = 0;
  bool stop_at_first = false, notes = false, is_strict = false, with_blas = false;
  bool checks_tests = false;   // imbrex check
  std::string junit() const {  // the report that pytest writes, test by test
    for (const std::string& file : reports)
      if (checks_tests && seeds == 1 && file.ends_with(".junit.xml")) return file;
    return "";
  }
};

[[noreturn]] void refuse(std::string message, std::string help = "") {
  throw LaunchError({{}, std::move(message), {}, std::move(help)});
}

/// Where libcuda.so.1 lies: beside the build's command, or where it is installed.
fs::path library_folder() {
  const fs::path command = fs::canonical("/proc/self/exe").parent_path();
  for (const fs::path& folder : {command / "cuda", (command / IMBREX_CUDA_FROM_COMMAND).lexically_normal()})
    if (fs::exists(folder / "libcuda.so.1")) return folder;
  refuse("libcuda.so.1 of the virtual GPU is not there",
         "it is built unless CMake is told -DIMBREX_CUDA_HOST=OFF, and installed with the command");
}

/// A folder that goes with this object.
class RunFolder {
 public:
  RunFolder() {
    std::string name = (fs::temp_directory_path() / "imbrex-run-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) refuse(fmt::format("{} cannot be made", name));
    path_ = name;
  }
  ~RunFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void set(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

/// In front of what the variable says already.
void prepend(const char* name, const std::string& value) {
  const char* old = std::getenv(name);
  set(name, old == nullptr || *old == '\0' ? value : value + ":" + old);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

void set_environment(const Options& options, const fs::path& libraries, const fs::path& folder,
                     uint64_t seed) {
  prepend("LD_LIBRARY_PATH", libraries.string());
  if (options.with_blas) {
    const fs::path blas = libraries / "blas";
    prepend("LD_LIBRARY_PATH", blas.string());
    // For who asks for cuBLAS by a path of its own.
    set("IMBREX_BLAS_FOLDER", blas.string());
    prepend("LD_AUDIT", (blas / "libimbrex_blas_search.so").string());
  }
  set("IMBREX_RUN_FOLDER", folder.string());
  set("IMBREX_GPU", options.gpu);
  set("IMBREX_GPUS", std::to_string(options.gpus));
  set("IMBREX_CHECKS", options.checks);
  set("IMBREX_SEED", std::to_string(seed));
  set("IMBREX_LAUNCHES", options.launches);
  set("IMBREX_KERNELS", joined(options.kernels));
  if (options.ctas > 0) set("IMBREX_CTAS", std::to_string(options.ctas));
  if (options.is_strict) set("IMBREX_STRICTNESS", "strict");
  if (!options.suppressions.empty()) set("IMBREX_SUPPRESSIONS", fs::absolute(options.suppressions).string());
  if (!options.saved_ptx.empty()) set("IMBREX_SAVE_PTX", fs::absolute(options.saved_ptx).string());
  if (options.stop_at_first) set("IMBREX_STOP_AT_FIRST", "1");
  if (options.notes) set("IMBREX_NOTES", "1");
  if (!options.timeline.empty()) {
    set("IMBREX_TIMELINE", "1");
    // The real one: the program finds one that keeps PTX.
    set("IMBREX_TIMELINE_PTXAS", find_cuda_tool("ptxas").path);
  }
  if (options.checks_tests) {
    const char* before = std::getenv("PYTEST_ADDOPTS");
    std::string added = before == nullptr ? "" : std::string(before) + " ";
    added += "-p imbrex_pytest";
    if (const std::string file = options.junit(); !file.empty())
      added += fmt::format(" '--junitxml={}'", fs::absolute(file).string());
    set("PYTEST_ADDOPTS", added);
  }
  // Where clients look for the driver and the assembler by names of their own.
  set("NUMBA_CUDA_DRIVER", (libraries / "libcuda.so.1").string());
  set("TRITON_LIBCUDA_PATH", libraries.string());
  prepend("PATH", libraries.string());                     // ptxas and nvcc, which keep PTX
  prepend("PYTHONPATH", (libraries / "python").string());  // prepares PyTorch and Numba
  set("CUPY_COMPILE_WITH_PTX", "1");   // which it else does with machine code that NVRTC makes
  setenv("CUPY_ACCELERATORS", "", 1);  // CUB, which CuPy has as machine code
  for (const char* assembler : {"TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"})
    if (std::getenv(assembler) == nullptr) set(assembler, (libraries / "ptxas").string());
}

/// Runs the program to its end; its exit code, or 128 and the signal that ended it. None where it cannot be started,
/// which is said.
std::optional<int> run_to_end(const std::vector<std::string>& words, const Options& options,
                              const fs::path& libraries, const fs::path& folder, uint64_t seed) {
  std::fflush(nullptr);
  int reason[2];  // why it did not start; closed by its start
  if (pipe2(reason, O_CLOEXEC) != 0) refuse("no process can be started");
  const pid_t child = fork();
  if (child < 0) refuse("no process can be started");
  if (child == 0) {
    set_environment(options, libraries, folder, seed);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const int why = errno;
    _exit(write(reason[1], &why, sizeof why) == sizeof why ? 127 : 126);
  }
  close(reason[1]);
  int why = 0;
  const bool is_started = read(reason[0], &why, sizeof why) != sizeof why;
  close(reason[0]);
  // A Ctrl-C is the program's; what it found until then is still told.
  void (*const before)(int) = std::signal(SIGINT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, before);
  if (!is_started) {
    const bool is_here = why == ENOENT && words[0].find('/') == std::string::npos && fs::exists(words[0]);
    fmt::print(stderr, "imbrex: '{}' cannot be started: {}\n{}", words[0], std::strerror(why),
               is_here ? fmt::format("  help: the one in this folder is ./{}\n", words[0]) : "");
    return {};
  }
  if (WIFSIGNALED(status))
    fmt::print(stderr, "imbrex: the program was ended by signal {} ({}){}\n", WTERMSIG(status),
               strsignal(WTERMSIG(status)),
               WTERMSIG(status) == SIGKILL
                   ? "\n  help: where the system did so for want of memory: memory of the GPU is memory of "
                     "this machine "
                     "here; a GPU that has less of it lets the program take less (--gpu rtx4090: 24 GB)"
                   : "");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void check(const Options& options) {
  if (!options.gpu.empty()) gpu_model(options.gpu);
  if (!options.suppressions.empty() && !fs::exists(options.suppressions))
    refuse(fmt::format("the suppression file '{}' is not there", options.suppressions));
  if (!options.saved_ptx.empty()) fs::create_directories(options.saved_ptx);
  for (const std::string& file : options.reports) expect_report_format(file);
}

int run(const Options& options, std::vector<std::string> words) {
  if (options.checks_tests && words.empty()) words = {"pytest"};
  words.insert(words.end(), options.tests.begin(), options.tests.end());
  if (words.empty()) refuse("no program is given", "write it behind --: imbrex run -- ./program arguments");
  check(options);
  const fs::path libraries = library_folder();
  ProgramReport report;
  report.command = words;
  int exit_code = 0;
  const std::string junit = options.junit();
  std::error_code ignored;
  if (!junit.empty()) fs::remove(junit, ignored);
  for (int i = 0; i < options.seeds; ++i) {
    const RunFolder folder;
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    const std::optional<int> code = run_to_end(words, options, libraries, folder.path(), seed);
    if (!code) return 127;
    report.read(folder.path(), seed, *code);
    if (exit_code == 0) exit_code = *code;
  }
  report.print();
  for (const std::string& file : options.reports)
    if (file != junit || !fs::exists(junit)) report.write(file);
  if (!options.timeline.empty()) report.write_timeline(options.timeline);
  if (exit_code != 0) return exit_code;
  // A program whose kernels cannot be loaded, and that does not look at its error codes, is not checked.
  const bool is_unchecked = report.launches == 0 && !report.failed_calls.empty();
  return report.found() > 0 || is_unchecked ? 1 : 0;
}

void add_options(Subcommand* command, const std::shared_ptr<Options>& options) {
  command->add_option("--gpu", options->gpu,
                      "the GPU that the program sees: h200 (unless given), h100, a100, b200");
  command->add_option("--gpus", options->gpus, "how many of them")->between(1, 16);
  command->add_option("--checks", options->checks, "on or off (all: as on)")
      ->one_of({"on", "off", "all"})
      ->capture_default_str();
  Option* seed = command->add_option("--seed", options->seed, "seed of the schedule");
  command
      ->add_option("--seeds", options->seeds, "run the program this many times, each with another schedule")
      ->between(1, 10000)
      ->excludes(seed);
  command->add_option("--launches", options->launches,
                      "which launches are checked: first:3, every:10, 5-9, 7; the others run unchecked");
  command
      ->add_option("--ctas", options->ctas,
                   "run about so many CTAs of a larger grid, spread evenly; the results are incomplete then")
      ->positive();
  command
      ->add_option("--kernel", options->kernels,
                   "check kernels of this name only, with * and ?; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--suppressions", options->suppressions,
                      "a file of findings to leave out, each line KIND [KERNEL [FILE:LINE]] with * and ?");
  command
      ->add_option("--report", options->reports,
                   "write FILE.json, .junit.xml, .sarif or .html; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--timeline", options->timeline,
                      "write the launches with their predicted times to FILE.json, for ui.perfetto.dev");
  command->add_flag("--strict", options->is_strict,
                    "hold kernels to the letter of PTX, which libraries bend (docs/checkers.md)");
  command->add_flag("--notes", options->notes,
                    "tell what bends rules of PTX that chips keep less strictly, too");
  command->add_flag("--with-blas", options->with_blas,
                    "answer the matrix products of cuBLAS and cuBLASLt and the random numbers of cuRAND, "
                    "which are machine code, on the host");
  command->add_option("--save-ptx", options->saved_ptx,
                      "a folder for the PTX of every module that is loaded");
  command->add_flag("--stop-at-first", options->stop_at_first,
                    "end the program at the first finding, or CUDA call that fails");
  command->footer(
      "Exit code: the program's own where it is not 0; else 1 where something was found, and 0.\n"
      "Each option has an environment variable, for programs that are not started by this command: "
      "docs/run-anything.md.");
}

}  // namespace

void add_run_program(Subcommand& app, Action& chosen, const std::vector<std::string>& program) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      kRunProgram, "Run a CUDA program on the virtual GPU: imbrex run [OPTIONS] -- PROGRAM ARGS");
  command->group("");  // reached as `imbrex run ... -- PROGRAM`
  add_options(command, options);
  command->callback(
      [&chosen, options, &program] { chosen = [options, &program] { return run(*options, program); }; });

  auto checked = std::make_shared<Options>();
  checked->checks_tests = true;
  Subcommand* check =
      app.add_subcommand("check",
                         "Run tests on the virtual GPU, each failing by what is found: imbrex "
                         "check [OPTIONS] TESTS [-- pytest ARGS]");
  check->add_option("TESTS", checked->tests, "files, folders and tests as pytest takes them");
  add_options(check, checked);
  check->get_option("--report")
      ->description(
          "junit, json, sarif or html writes imbrex.FORMAT, or a FILE as of `imbrex run`; may be repeated");
  check->get_option("--report")->transform([](std::string& name) {
    if (name == "junit") name = "imbrex.junit.xml";
    if (name == "json" || name == "sarif" || name == "html") name = "imbrex." + name;
    return std::string();
  });
  check->callback(
      [&chosen, checked, &program] { chosen = [checked, &program] { return run(*checked, program); }; });
}

}  // namespace imbrex::command
