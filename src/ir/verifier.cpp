// SPDX-License-Identifier: Apache-2.0
// Structure: every op against its row of the table, every value defined before its uses, targets. The rules
// of single ops are in verify_*.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "core/target.h"
#include "core/text.h"
#include "ir/findings.h"

namespace imbrex::ir {

// --- findings ---

std::string value_fact(std::string_view role, const Value& value) {
  std::string out = fmt::format("{:<4} {}", role, value.type.to_string());
  if (!value.name.empty()) out += "  " + print(value);
  if (value.def && value.def->where.is_known())
    out += fmt::format("  made at {}:{}", value.def->where.file, value.def->where.line);
  return out;
}

void Findings::add(const Op& op, const std::string& fact, const std::string& help) {
  const OpInfo& info = op.info();
  Diagnostic diagnostic;
  diagnostic.where = op.where;
  diagnostic.message = fmt::format("{}: {}", info.mnemonic, fact);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!op.operands[i]) continue;
    const bool named = i < info.operands.size();
    diagnostic.facts.push_back(value_fact(named ? info.operands[i].name : "", *op.operands[i]));
  }
  for (const Value* result : op.results) diagnostic.facts.push_back(value_fact("gives", *result));
  if (!op.where.is_known()) {
    std::string text = print(op);
    diagnostic.facts.push_back("in " + text.substr(0, text.find('\n')));
  }
  diagnostic.help = help;
  diagnostics_.push_back(std::move(diagnostic));
}

namespace {

// --- per-op rules ---

/// The rules that the op's row names.
void verify_rules(const Op& op, Findings& out) {
  switch (op.code) {
#define IR_OP(id, mnemonic, operands, results, attrs, regions, effect, scope, arch, rules, ...) \
  case Opcode::k##id:                                                                           \
    return verify_##rules(op, out);
#include "ir/ops.def"
#undef IR_OP
    case Opcode::kCount:
      return;
  }
}

// --- structure ---

std::string kinds_text(const OperandSpec& spec) {
  if (spec.is_bool) return "a bool";
  if (spec.is_integer) return "an integer";
  static constexpr std::string_view kWords[] = {"a scalar",
                                                "a pointer",
                                                "a variable",
                                                "a register tensor",
                                                "a shared tensor",
                                                "a global tensor",
                                                "a tensor-memory tensor",
                                                "a barrier",
                                                "a tensor map"};
  std::string out;
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (spec.kinds >> i & 1) out += (out.empty() ? "" : " or ") + std::string(kWords[i]);
  return out;
}

bool fits(const OperandSpec& spec, const Value& value) {
  const Type& type = value.type;
  if (!(spec.kinds >> static_cast<int>(type.kind) & 1)) return false;
  if (spec.is_integer && !type.dtype.is_integer()) return false;
  return !spec.is_bool || type.dtype.is_bool();
}

bool fits(AttrKind kind, const AttrValue& value) {
  switch (kind) {
    case AttrKind::kInt:
      return std::holds_alternative<int64_t>(value);
    case AttrKind::kInts:
      return std::holds_alternative<std::vector<int64_t>>(value);
    case AttrKind::kBool:
      return std::holds_alternative<bool>(value);
    case AttrKind::kFloat:
      return std::holds_alternative<double>(value);
    case AttrKind::kString:
      return std::holds_alternative<std::string>(value);
    case AttrKind::kDType:
      return std::holds_alternative<DataType>(value);
    case AttrKind::kLayout:
      return std::holds_alternative<layout::Layout>(value);
  }
  return false;
}

class Verifier {
 public:
  explicit Verifier(const Function& function) : function_(function) {}

  void run() {
    header();
    for (const Value* param : function_.params) {
      define(*param, nullptr);
      if (!param->type.is_scalar() && param->type.kind != TypeKind::kPointer)
        function_finding(fmt::format("parameter {} is a {}; parameters are scalars and pointers",
                                     print(*param), param->type.to_string()));
    }
    for (const Op* op : function_.host.ops) host_op(*op);
    if (!function_.grid.empty() && function_.grid.size() != 3)
      function_finding(fmt::format("the grid has {} extents, not 3", function_.grid.size()));
    for (const Value* extent : function_.grid) {
      if (!visible_.count(extent))
        function_finding(fmt::format("grid extent {} is not a host value", print(*extent)));
      else if (!extent->type.is_scalar() || !extent->type.dtype.is_integer())
        function_finding(
            fmt::format("grid extent {} is a {}, not an integer", print(*extent), extent->type.to_string()));
    }
    block(function_.body, nullptr);
    if (!out_.empty()) throw CompileError(out_.take());
  }

 private:
  void function_finding(const std::string& fact, const std::string& help = "") {
    out_.add(Diagnostic{function_.where, fmt::format("kernel {}: {}", function_.name, fact), {}, help});
  }

  void header() {
    target_ = find_target(function_.target);
    if (!target_) {
      const std::vector<std::string> names = target_names();
      std::string near = nearest_word(function_.target, names);
      function_finding("unknown target '" + function_.target + "'",
                       near.empty() ? fmt::format("targets are {}", fmt::join(names, ", "))
                                    : "did you mean '" + near + "'?");
    }
    if (function_.warps < 1)
      function_finding(fmt::format("{} warps; a CTA has at least one", function_.warps));
    const auto& cluster = function_.cluster;
    if (cluster.size() != 3 || std::any_of(cluster.begin(), cluster.end(), [](int64_t n) { return n < 1; }))
      function_finding("cluster " + shape_text(cluster) + "; a cluster has three extents of at least 1");
    else if (target_)
      limits(cluster[0] * cluster[1] * cluster[2]);
  }

  /// What the target allows of a launch.
  void limits(int64_t ctas) {
    const int64_t threads = function_.threads();
    if (threads > target_->max_threads)
      function_finding(fmt::format("{} warps are {} threads, {} allows {}", function_.warps, threads,
                                   function_.target, target_->max_threads),
                       fmt::format("use at most {} warps", target_->max_threads / 32));
    if (ctas > target_->max_portable_cluster)
      function_finding(fmt::format("a cluster of {} CTAs, {} allows {}", ctas, function_.target,
                                   target_->max_portable_cluster));
    if (!function_.max_registers) return;
    const int64_t registers = *function_.max_registers;
    if (registers < 1 || registers > target_->max_registers_per_thread)
      function_finding(fmt::format("{} registers per thread, {} has 1 to {}", registers, function_.target,
                                   target_->max_registers_per_thread));
    else if (registers * threads > target_->registers_per_sm)
      function_finding(fmt::format("{} registers for each of {} threads are {}, {} has {}", registers,
                                   threads, registers * threads, function_.target, target_->registers_per_sm),
                       fmt::format("allow at most {}", target_->registers_per_sm / threads / 8 * 8));
  }

  void define(const Value& value, const Op* op) {
    if (!visible_.insert(&value).second || (op && value.def != op)) {
      const std::string fact = print(value) + " is defined twice";
      op ? out_.add(*op, fact) : function_finding(fact);
    }
    scope_.push_back(&value);
  }

  void host_op(const Op& op) {
    if (op.info().effect != Effect::kPure || !op.regions.empty() || has(op.code, Fact::kLaunchIndex))
      out_.add(op, "cannot be evaluated on the host, before the launch");
    this->op(op);
  }

  void block(const Block& block, const Op* parent) {
    const size_t scope_begin = scope_.size();
    if (block.parent != parent) throw InternalError("verify: a block's parent is wrong");
    for (const Value* argument : block.args) {
      if (argument->owner != &block) throw InternalError("verify: an argument's block is wrong");
      define(*argument, nullptr);
    }
    for (size_t i = 0; i < block.ops.size(); ++i) {
      const Op& inner = *block.ops[i];
      if (inner.parent != &block) throw InternalError("verify: an op's block is wrong:\n" + print(inner));
      op(inner);
      if (has(inner.code, Fact::kEndsBlock) && i + 1 < block.ops.size())
        out_.add(*block.ops[i + 1], "can never run: it follows a " + std::string(inner.info().mnemonic));
    }
    while (scope_.size() > scope_begin) {
      visible_.erase(scope_.back());
      scope_.pop_back();
    }
  }

  /// What to do about an op that the target lacks. Tensor cores are programmed in another way on each generation, so that
  /// naming another target does not help who has this GPU.
  std::string target_help(const OpInfo& info) const {
    std::string help =
        fmt::format("say it in the kernel: static constexpr const char* target = \"{}\";", info.arch);
    if (!target_->is_specific() || !info.arch.ends_with('a')) return help;
    const char* own = target_->sm >= 120   ? "mma() and mma_scaled()"
                      : target_->sm >= 100 ? "tcgen05::mma() and tcgen05::scaled_mma()"
                                           : "wgmma::mma() and mma()";
    return fmt::format("{} GPUs multiply by {}; for another GPU, {}", function_.target, own, help);
  }

  void op(const Op& op) {
    const OpInfo& info = op.info();
    bool sound = operands(op);
    sound &= attributes(op);
    if (op.results.size() != info.results.size()) {
      out_.add(op, fmt::format("has {} results, not {}", info.results.size(), op.results.size()));
      sound = false;
    } else {
      for (size_t i = 0; i < op.results.size(); ++i)
        if (!fits(info.results[i], *op.results[i])) {
          out_.add(op, fmt::format("result '{}' is {}, not a {}", info.results[i].name,
                                   kinds_text(info.results[i]), op.results[i]->type.to_string()));
          sound = false;
        }
    }
    if (static_cast<int>(op.regions.size()) != info.regions)
      throw InternalError("verify: wrong number of regions:\n" + print(op));
    if (target_ && !target_has(*target_, info.arch))
      out_.add(op, fmt::format("needs target {}, the kernel is for {}", info.arch, function_.target),
               target_help(info));
    if (sound) verify_rules(op, out_);
    for (const auto& region : op.regions) block(*region, &op);
    for (const Value* result : op.results) define(*result, &op);
  }

  bool operands(const Op& op) {
    const auto& specs = op.info().operands;
    const bool variadic = !specs.empty() && specs.back().is_variadic;
    size_t required = 0;
    for (const OperandSpec& spec : specs) required += !spec.is_optional && !spec.is_variadic;
    bool sound = true;
    if (op.operands.size() < required || (!variadic && op.operands.size() > specs.size())) {
      out_.add(op, fmt::format("takes {}{} operands, not {}", variadic ? "at least " : "", required,
                               op.operands.size()));
      return false;
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const OperandSpec& spec = specs[std::min(i, specs.size() - 1)];
      const Value* value = op.operands[i];
      if (!value) throw InternalError("verify: a null operand:\n" + print(op));
      if (!visible_.count(value)) {
        out_.add(op, fmt::format("uses {} where it is not defined", print(*value)));
        sound = false;
      } else if (!fits(spec, *value)) {
        out_.add(op, fmt::format("operand '{}' must be {}, not a {}", spec.name, kinds_text(spec),
                                 value->type.to_string()));
        sound = false;
      }
    }
    return sound;
  }

  bool attributes(const Op& op) {
    bool sound = true;
    for (const AttrSpec& spec : op.info().attrs) {
      const AttrValue* value = op.attr(spec.name);
      if (!value && !spec.is_optional) {
        out_.add(op, fmt::format("attribute '{}' is missing", spec.name));
        sound = false;
      } else if (value && !fits(spec.kind, *value)) {
        out_.add(op, fmt::format("attribute '{}' has a value of another kind", spec.name));
        sound = false;
      }
    }
    return sound;
  }

  const Function& function_;
  const Target* target_ = nullptr;
  Findings out_;
  std::unordered_set<const Value*> visible_;
  std::vector<const Value*> scope_;  // visible_ in order, so that a block can take back its own
};

}  // namespace

void verify(const Function& function) { Verifier(function).run(); }

void verify(const Op& op) {
  Findings out;
  verify_rules(op, out);
  if (!out.empty()) throw CompileError(out.take());
}

}  // namespace imbrex::ir
