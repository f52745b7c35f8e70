// SPDX-License-Identifier: Apache-2.0
// The faults, each a rule that finds in a kernel's PTX the places where it can be made.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mutants/edit.h"
#include "mutants/subject.h"

namespace imbrex::mutants {

/// One kernel with one fault.
struct Mutant {
  const Subject* subject;
  std::string rule;
  std::string at;     ///< the kernel's source line where the fault was made, its text
  int occurrence;     ///< which of the rule's places on that line, from 1, in the PTX's order
  std::string place;  ///< "matmul_v3.h:48"
  codegen::CompiledKernel kernel;
  int unzeroed = -1;  ///< the number of a tensor of zeros that is left as it was allocated; -1: none
  /// "V3 drop-wait: mbarrier::wait(full_barriers[stage], phase); #1"
  std::string name() const;
};

/// Collects the mutants of one rule in one subject.
class Places {
 public:
  Places(const Subject& subject, const char* rule, std::vector<Mutant>& mutants)
      : original(subject.kernel, subject.module),
        f(original.function()),
        subject_(&subject),
        rule_(rule),
        mutants_(&mutants) {}

  const Edit original;
  const ptx::Function& f;
  const Subject& subject() const { return *subject_; }

  /// A mutant at instruction i: `change` makes the fault in a copy of the kernel.
  void add(size_t i, const std::function<void(Edit&)>& change);
  /// A mutant of the call: nobody sets a tensor to zero, which instruction i counts on.
  void add_unzeroed(size_t i, int tensor);
  /// body(i) for every instruction of one kind.
  template <class Body>
  void each(ptx::Op op, Body&& body) {
    for (size_t i = 0; i < f.body.size(); ++i)
      if (f.body[i].op == op) body(i);
  }
  const ptx::Operand& operand(size_t i, size_t k) const { return original.operand(i, k); }

 private:
  const Subject* subject_;
  const char* rule_;
  std::vector<Mutant>* mutants_;
  std::map<std::string, int> seen_;
};

struct Rule {
  const char* name;  ///< "drop-wait"
  const char* says;  ///< what the fault is, for the table
  void (*derive)(Places&);
};

std::span<const Rule> wait_rules();
std::span<const Rule> arrival_rules();
std::span<const Rule> commit_rules();
std::span<const Rule> order_rules();
std::span<const Rule> copy_rules();
std::span<const Rule> tensor_memory_rules();
std::span<const Rule> descriptor_rules();
std::span<const Rule> role_rules();
std::span<const Rule> cluster_rules();
std::span<const Rule> wgmma_rules();
std::span<const Rule> turn_rules();
/// Of kernels of several ranks; all_rules() has them not.
std::span<const Rule> signal_rules();

/// All rules, in the table's order.
std::vector<Rule> all_rules();
/// Every mutant of a subject.
std::vector<Mutant> mutants_of(const Subject& subject);
std::vector<Mutant> mutants_of(const Subject& subject, std::span<const Rule> rules);

}  // namespace imbrex::mutants
