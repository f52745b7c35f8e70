// SPDX-License-Identifier: Apache-2.0
#include "lang/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>

#include "lang/source_text.h"

namespace imbrex::lang {

namespace {

thread_local Trace* active_trace = nullptr;

uint64_t next_serial() {
  static std::atomic<uint64_t> serial{0};
  return ++serial;
}

std::string place(SourceLocation where) { return fmt::format("{}:{}", where.file, where.line); }

const ir::Block* block_of(const ir::Value* value) { return value->def ? value->def->parent : value->owner; }

/// The arguments of the kernel being traced. Run-time scalars are variables: a kernel may assign its own.
class TracedArguments final : public detail::Arguments {
 public:
  TracedArguments(Trace& trace, std::span<const ParameterInfo> parameters,
                  std::span<const int64_t> constants) {
    size_t next_constant = 0;
    for (const ParameterInfo& p : parameters) {
      Slot& slot = slots_.emplace_back();
      if (p.kind == ParameterKind::kConstant) {
        if (next_constant == constants.size()) break;
        slot.constant = constants[next_constant++];
        continue;
      }
      const bool is_pointer = p.kind == ParameterKind::kPointer;
      const DataType dtype = p.dtype == any_type ? uint8 : p.dtype;
      ir::Type type = is_pointer ? ir::Type::pointer(dtype) : ir::Type::scalar(dtype);
      ir::Value* value = trace.function().add_param(std::move(type), "");
      if (!is_pointer)
        value = trace.builder()
                    .create(ir::Opcode::kVar, {value}, {ir::Type::variable(ir::Type::scalar(dtype))})
                    ->result();
      slot.handle = {value, trace.serial()};
    }
  }
  detail::Handle handle(size_t i) const override { return slots_[i].handle; }
  int64_t constant(size_t i) const override { return slots_[i].constant; }

 private:
  struct Slot {
    detail::Handle handle;
    int64_t constant = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace

// --- the state of a trace ---

Trace::Trace(std::string name, std::string_view target, const KernelEntry& entry)
    : function_(std::make_unique<ir::Function>()),
      builder_(*function_),
      serial_(next_serial()),
      parameters_(entry.parameters),
      written_parameters_(entry.written_parameters),
      outer_(std::exchange(active_trace, this)) {
  function_->name = std::move(name);
  function_->target = target;
  scopes_.push_back({.block = &function_->body, .serial = next_serial(), .threads = function_->threads()});
}

Trace::~Trace() { active_trace = outer_; }

Trace* Trace::active() { return active_trace; }

uint64_t Trace::open(OpenScope scope) {
  scope.serial = next_serial();
  if (scope.threads == 0) scope.threads = scopes_.back().threads;
  builder_.set_insertion_point(*scope.block);
  closed_arm = {};
  scopes_.push_back(scope);
  return scope.serial;
}

bool Trace::is_open(uint64_t serial) const {
  for (const OpenScope& scope : scopes_)
    if (scope.serial == serial) return true;
  return false;
}

void Trace::close(uint64_t serial, bool cut_short) {
  if (!is_open(serial)) return;  // an outer scope that was cut short closed it
  if (scopes_.back().serial != serial) {
    // C++ lifetimes nest, so only an object kept beyond its block gets here.
    if (!cut_short) fail_later({scopes_.back().where, "a block outlives the one around it", {}, ""});
    while (scopes_.back().serial != serial) scopes_.pop_back();
  }
  const OpenScope closed = scopes_.back();
  scopes_.pop_back();
  builder_.set_insertion_point(*scopes_.back().block);
  closed_arm = {};
  if (closed.kind == ScopeKind::kArm && closed.block == closed.op->regions[0].get())
    closed_arm = {closed.chain, closed.op};
}

void Trace::fail_later(Diagnostic diagnostic) { pending_.push_back(std::move(diagnostic)); }

void Trace::begin(SourceLocation where) {
  if (!pending_.empty()) throw CompileError(std::exchange(pending_, {}));
  if (!where.is_known()) return;
  if (!function_->where.is_known()) locate_kernel(where);
  last_location_ = where;
}

void Trace::locate_kernel(SourceLocation where) {
  if (std::string_view(where.function) != "operator()") return;
  function_->where = where;
  for (ir::Op* op : function_->body.ops) op->where = where;  // the parameters' variables
  const std::optional<ParameterNames> found = parameter_names(where);
  if (!found || found->names.size() != written_parameters_) return;
  function_->where = found->where;
  size_t next = 0;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].kind != ParameterKind::kConstant)
      function_->set_name(*function_->params[next++], found->names[parameters_[i].position]);
}

std::unique_ptr<ir::Function> Trace::finish() {
  if (!pending_.empty()) throw CompileError(std::exchange(pending_, {}));
  if (scopes_.size() != 1) throw InternalError("a traced scope is still open at the end of the kernel");
  for (size_t i = 0; i < function_->params.size(); ++i)
    if (function_->params[i]->name.empty())
      function_->set_name(*function_->params[i], fmt::format("arg{}", i));
  if (!has_grid)
    throw CompileError(
        Diagnostic{function_->where, "the kernel does not say its grid", {}, "call grid(...)"});
  return std::move(function_);
}

// --- instructions ---

Instruction::Instruction(std::string_view name, SourceLocation where)
    : name_(name), where_(where), trace_(Trace::active()) {
  if (!trace_)
    fail("used outside a kernel that is being traced", {},
         "run-time values exist only inside a kernel's operator()");
  if (!where_.is_known()) where_ = trace_->last_location();
  trace_->begin(where_);
}

ir::Value* Instruction::use(detail::Handle handle) const {
  if (!handle.value) fail("the variable was moved from and has not been assigned since");
  if (handle.trace != trace_->serial())
    fail("a value made while another kernel was traced", {},
         "handles live as long as the run of operator() that made them: do not keep them in globals or "
         "in the kernel's members");
  const ir::Block* home = block_of(handle.value);
  if (!home) return handle.value;  // a parameter
  for (const ir::Block* b = trace_->scope().block; b; b = b->parent ? b->parent->parent : nullptr)
    if (b == home) return handle.value;
  const ir::Op* scope = home->parent;
  const SourceLocation made = handle.value->def ? handle.value->def->where : scope->where;
  fail(fmt::format("{} is used after its scope has ended",
                   handle.value->name.empty() ? "a value" : "'" + handle.value->name + "'"),
       {describe("it", handle.value), fmt::format("made at {}, inside the {} of {}", place(made),
                                                  scope->info().mnemonic, place(scope->where))},
       "declare it before that block, and assign it inside");
}

ir::Value* Instruction::read(detail::Handle handle) const {
  ir::Value* value = use(handle);
  if (value->type.kind != ir::TypeKind::kVariable) return value;
  const ir::TypeKind held = value->def->operands[0]->type.kind;
  return emit(ir::Opcode::kRead, {value}, {ir::Type::tensor(held, value->type.dtype, value->type.shape)})
      ->result();
}

ir::Op* Instruction::emit(ir::Opcode code, std::vector<ir::Value*> operands, std::vector<ir::Type> results,
                          std::vector<ir::Attr> attrs) const {
  const OpenScope& scope = trace_->scope();
  if (!scope.block->ops.empty() && ir::has(scope.block->ops.back()->code, ir::Fact::kEndsBlock)) {
    const ir::Op& last = *scope.block->ops.back();
    fail(fmt::format("can never run: it follows an unconditional {} in the same block", last.info().mnemonic),
         {fmt::format("the {} is at {}", last.info().mnemonic, place(last.where))});
  }
  if (scope.kind == ScopeKind::kTabulate && code != ir::Opcode::kVar && code != ir::Opcode::kYield) {
    const ir::Effect effect = ir::info(code).effect;
    if (effect != ir::Effect::kPure && code != ir::Opcode::kRead)
      fail("not inside register_tensor's function, which computes one element from its indices",
           {fmt::format("register_tensor at {}", place(scope.where))});
  }
  ir::Builder& builder = trace_->builder();
  builder.set_location(where_);
  ir::Op* op = builder.create(code, std::move(operands), std::move(results), std::move(attrs));
  if (op->regions.empty()) ir::verify(*op);
  return op;
}

ir::Value* Instruction::constant(DataType dtype, int64_t value) const {
  return emit(ir::Opcode::kConst, {}, {ir::Type::scalar(dtype)}, {{"int", value}})->result();
}

void Instruction::name_result(ir::Value* value) const {
  trace_->function().set_name(*value, declared_name(where_, name_));
}

void Instruction::name_member(ir::Value* value, std::string_view member) const {
  std::vector<ConstructedName> objects = constructed_names(where_, name_.substr(name_.rfind(':') + 1));
  // What the call itself makes has no members.
  const auto is_other = [&](const ConstructedName& object) { return object.is_by_callee != member.empty(); };
  if (std::ranges::any_of(objects, std::not_fn(is_other))) std::erase_if(objects, is_other);
  std::string name(member);
  if (!objects.empty()) {
    const auto which = static_cast<size_t>(trace_->occurrence(where_, member));
    name = objects[which % objects.size()].name;
    if (!member.empty()) name.append(".").append(member);
  }
  trace_->function().set_name(*value, std::move(name));
}

int Trace::occurrence(SourceLocation where, std::string_view member) {
  return occurrences_[fmt::format("{}:{}:{}", where.file, where.line, member)]++;
}

Diagnostic Instruction::diagnostic(std::string message, std::vector<std::string> facts,
                                   std::string help) const {
  return {where_, fmt::format("{}: {}", name_, message), std::move(facts), std::move(help)};
}

void Instruction::fail(std::string message, std::vector<std::string> facts, std::string help) const {
  throw CompileError(diagnostic(std::move(message), std::move(facts), std::move(help)));
}

std::string Instruction::describe(std::string_view operand, const ir::Value* value) {
  std::string text = fmt::format("{}: {}", operand, value->type.to_string());
  const ir::Value* made = ir::view_root(const_cast<ir::Value*>(value));
  if (made != value && !made->name.empty()) text += ", a view of " + made->name;
  if (made->def && made->def->where.is_known()) text += ", made at " + place(made->def->where);
  return text;
}

// --- entry points ---

std::string kernel_name(std::string_view type_name) {
  // Without namespaces, and in snake case.
  const size_t arguments = std::min(type_name.find('<'), type_name.size());
  const size_t colon = type_name.substr(0, arguments).rfind("::");
  if (colon != std::string_view::npos) type_name.remove_prefix(colon + 2);
  std::string name;
  size_t word = 0;  // where in `name` the present word begins
  for (size_t i = 0; i < type_name.size(); ++i) {
    const unsigned char c = type_name[i];
    if (std::isupper(c)) {
      const bool starts_word = i > 0 && (std::islower(static_cast<unsigned char>(type_name[i - 1])) ||
                                         std::isdigit(static_cast<unsigned char>(type_name[i - 1])));
      if (starts_word) name += '_';
      name += static_cast<char>(std::tolower(c));
    } else if (std::isalnum(c) || c == '_') {
      name += static_cast<char>(c);
    } else if (type_name.substr(i, 2) == "::") {
      name.resize(word);  // it was a namespace
      ++i;
    } else {
      if (!name.empty() && name.back() != '_') name += '_';
      word = name.size();
    }
  }
  constexpr size_t kLongest = 64;  // types of lambdas and of many arguments can be spelled over several lines
  if (name.size() > kLongest) name.resize(kLongest);
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "kernel_" + name;
  return name;
}

std::unique_ptr<ir::Function> trace(const KernelEntry& entry, const void* kernel,
                                    std::span<const int64_t> constants, std::string_view target) {
  size_t wanted = 0;
  for (const ParameterInfo& p : entry.parameters) wanted += p.kind == ParameterKind::kConstant;
  if (constants.size() != wanted)
    throw CompileError(Diagnostic{{},
                                  fmt::format("{}: {} compile-time arguments given, its operator() has {}",
                                              entry.type_name, constants.size(), wanted),
                                  {},
                                  ""});
  Trace trace(kernel_name(entry.type_name), target, entry);
  TracedArguments arguments(trace, entry.parameters, constants);
  entry.run(kernel, arguments);
  return trace.finish();
}

}  // namespace imbrex::lang
