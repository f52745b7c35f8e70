// SPDX-License-Identifier: Apache-2.0
// Runs one mutant on a CUDA GPU, for compute-sanitizer to look at (see tests/mutants/compute_sanitizer).
//
//   mutants_on_cuda                 lists the mutants of the kernels that run there, numbered
//   mutants_on_cuda N               runs the N-th: "right", "wrong", or the driver's error
//   mutants_on_cuda 0               the first kernel without a fault
//   mutants_on_cuda N ptx           prints its PTX
#include <fmt/format.h>

#include <cstdlib>

#include "imbrex/core/error.h"
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

std::vector<Mutant> hopper_mutants() {
  std::vector<Mutant> all;
  for (const Subject& subject : subjects())
    if (subject.kernel.target == "sm_90a")
      for (Mutant& mutant : mutants_of(subject)) all.push_back(std::move(mutant));
  return all;
}

int run_one(size_t number, bool only_print) {
  const std::vector<Mutant> all = hopper_mutants();
  if (number > all.size()) return 2;
  const Subject& subject = *all[number == 0 ? 0 : number - 1].subject;
  const codegen::CompiledKernel& kernel = number == 0 ? subject.kernel : all[number - 1].kernel;
  if (only_print) {
    fmt::print("{}// {} threads, {} bytes of shared memory\n", kernel.ptx, kernel.threads,
               kernel.shared_bytes);
    return 0;
  }
  const Outcome outcome = run_on_cuda(subject, kernel);
  if (!outcome.refused.empty()) {
    fmt::print("error {}\n", outcome.refused);
    return 1;
  }
  const Outcome right = run(subject, subject.kernel, 0, vgpu::TensorMath::kExact);
  fmt::print("{}\n", outcome.results == right.results ? "right" : "wrong");
  return 0;
}

}  // namespace
}  // namespace imbrex::mutants

int main(int argc, char** argv) {
  if (argc > 1) return imbrex::mutants::run_one(std::strtoull(argv[1], nullptr, 10), argc > 2);
  size_t number = 0;
  for (const auto& mutant : imbrex::mutants::hopper_mutants()) fmt::print("{} {}\n", ++number, mutant.name());
}
