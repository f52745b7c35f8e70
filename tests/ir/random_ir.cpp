// SPDX-License-Identifier: Apache-2.0
#include "random_ir.h"

#include <random>

namespace imbrex::ir {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, int size) : random_(seed), budget_(size) {
    function_->name = "random";
    function_->where = {"random.cpp", 1, ""};
    values_ = {function_->add_param(Type::scalar(int32), "n"),
               function_->add_param(Type::scalar(int32), "m")};
    builder_.set_insertion_point(function_->body);
  }

  std::unique_ptr<Function> run() {
    block(0, 0);
    print();
    return std::move(function_);
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  Value* pick(const std::vector<Value*>& from) { return from[below(static_cast<int>(from.size()))]; }
  Value* constant(int64_t value) { return builder_.constant(int32, value); }
  void line() {
    builder_.set_location({below(8) ? "random.cpp" : "other.h", static_cast<uint32_t>(++line_), ""});
  }

  void block(int depth, int loops) {
    const size_t values = values_.size(), variables = variables_.size();
    for (int ops = 2 + below(8); ops > 0 && budget_ > 0; --ops) statement(depth, loops);
    if (depth > 0) {  // what the block defined is not visible outside it
      values_.resize(values);
      variables_.resize(variables);
    }
  }

  void statement(int depth, int loops) {
    --budget_;
    line();
    switch (below(depth < 4 ? 14 : 9)) {
      case 0:
        values_.push_back(constant(below(4) ? below(5) - 1 : below(1 << 20) - (1 << 19)));
        return;
      case 1:
        variables_.push_back(
            builder_.create(Opcode::kVar, {pick(values_)}, {Type::variable(Type::scalar(int32))})->result());
        return;
      case 2:
      case 3:
        if (!variables_.empty())
          values_.push_back(
              builder_.create(Opcode::kRead, {pick(variables_)}, {Type::scalar(int32)})->result());
        return;
      case 4:
        if (!variables_.empty()) builder_.create(Opcode::kAssign, {pick(variables_), pick(values_)}, {});
        return;
      case 5:
        return print();
      case 9:
        return if_statement(depth, loops);
      case 10:
        return for_statement(depth, loops);
      case 11:
        return loop_statement(depth, loops);
      case 12:
        return thread_group(depth, loops);
      default:
        return arithmetic();
    }
  }

  void arithmetic() {
    static constexpr Opcode kOps[] = {Opcode::kAdd, Opcode::kSub, Opcode::kMul, Opcode::kMin,   Opcode::kMax,
                                      Opcode::kAnd, Opcode::kOr,  Opcode::kXor, Opcode::kSelect};
    const Opcode code = kOps[below(std::size(kOps))];
    Value* a = pick(values_);
    Value* b = pick(values_);
    if (code == Opcode::kSelect) {
      Value* condition = compare();
      values_.push_back(builder_.create(code, {condition, a, b}, {Type::scalar(int32)})->result());
    } else if (below(6) == 0) {  // division by a constant, so that it is never by zero
      static constexpr Opcode kDivisions[] = {Opcode::kDiv, Opcode::kRem};
      values_.push_back(builder_.binary(kDivisions[below(2)], a, constant(1 + below(9))));
    } else {
      values_.push_back(builder_.binary(code, a, b));
    }
    if (below(4) == 0) {
      Value* named = function_->new_value(Type::scalar(int32), "x");
      Op* negate = builder_.create(Opcode::kNeg, {values_.back()}, {});
      negate->results = {named};
      named->def = negate;
      values_.push_back(named);
    }
  }
  Value* compare() {
    static constexpr Opcode kOps[] = {Opcode::kEq, Opcode::kNe, Opcode::kLt,
                                      Opcode::kLe, Opcode::kGt, Opcode::kGe};
    return builder_.binary(kOps[below(6)], pick(values_), pick(values_));
  }
  void print() {
    builder_.create(Opcode::kPrintf, {pick(values_), pick(values_)}, {},
                    {{"format", std::string(below(2) ? "%d %d\n" : "a \"quoted\" \x01 %d %d")}});
  }

  void inside(Block& region, int depth, int loops) {
    Block& outer = builder_.block();
    builder_.set_insertion_point(region);
    block(depth + 1, loops);
    builder_.set_insertion_point(outer);
  }
  void if_statement(int depth, int loops) {
    Op* op = builder_.create(Opcode::kIf, {compare()}, {});
    inside(*op->regions[0], depth, loops);
    if (loops > 0 && below(3) == 0) break_at(*op->regions[0], loops);
    if (below(2)) inside(*op->regions[1], depth, loops);
  }
  void break_at(Block& block, int loops) {
    Block& outer = builder_.block();
    builder_.set_insertion_point(block);
    builder_.create(Opcode::kBreak, {}, {}, {{"depth", int64_t{below(loops)}}});
    builder_.set_insertion_point(outer);
  }
  void for_statement(int depth, int loops) {
    const bool down = below(4) == 0;
    Value* begin = constant(down ? below(9) : below(3));
    Value* end = below(3) ? constant(down ? below(3) : below(12))
                          : builder_.binary(Opcode::kAnd, pick(values_), constant(7));
    Value* step = constant((1 + below(3)) * (down ? -1 : 1));
    Op* op = builder_.create(Opcode::kFor, {begin, end, step}, {});
    if (below(2)) op->set_attr("unroll", int64_t{1 + below(4)});
    values_.push_back(function_->add_argument(op->body(), Type::scalar(int32), "i"));
    Value* index = values_.back();
    inside(op->body(), depth, loops + 1);
    std::erase(values_, index);
  }
  /// loop { ... break }, with the break inside an if on a counter so that it ends.
  void loop_statement(int depth, int loops) {
    Value* counter =
        builder_.create(Opcode::kVar, {constant(below(4))}, {Type::variable(Type::scalar(int32))})->result();
    Op* op = builder_.create(Opcode::kLoop, {}, {});
    Block& outer = builder_.block();
    builder_.set_insertion_point(op->body());
    Value* now = builder_.create(Opcode::kRead, {counter}, {Type::scalar(int32)})->result();
    Op* test = builder_.create(Opcode::kIf, {builder_.binary(Opcode::kLe, now, constant(0))}, {});
    builder_.set_insertion_point(test->body());
    builder_.create(Opcode::kBreak, {}, {});
    builder_.set_insertion_point(op->body());
    builder_.create(Opcode::kAssign, {counter, builder_.binary(Opcode::kSub, now, constant(1))}, {});
    block(depth + 1, loops + 1);
    builder_.set_insertion_point(outer);
  }
  void thread_group(int depth, int loops) {
    Op* op =
        builder_.create(Opcode::kThreadGroup, {}, {},
                        {{"begin", int64_t{0}}, {"threads", int64_t{32}}, {"name", std::string("warp 0")}});
    inside(op->body(), depth, loops);
  }

  std::mt19937_64 random_;
  int budget_;
  int line_ = 1;
  std::unique_ptr<Function> function_ = std::make_unique<Function>();
  Builder builder_{*function_};
  std::vector<Value*> values_, variables_;
};

}  // namespace

std::unique_ptr<Function> random_function(uint64_t seed, int size) { return Generator(seed, size).run(); }

}  // namespace imbrex::ir
