// SPDX-License-Identifier: Apache-2.0
// Scalars: conversions are C++'s, checked against the C++ compiler itself; operators, variables, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "snippet.h"

namespace imbrex {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Pointer;
using testing::trace_snippet;
using testing::traced;

template <class T>
constexpr DataType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return boolean;
  if constexpr (std::is_same_v<T, float>) return float32;
  if constexpr (std::is_same_v<T, double>) return float64;
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return sizeof(T) == 1 ? int8 : sizeof(T) == 2 ? int16 : sizeof(T) == 4 ? int32 : int64;
  if constexpr (std::is_integral_v<T>)
    return sizeof(T) == 1 ? uint8 : sizeof(T) == 2 ? uint16 : sizeof(T) == 4 ? uint32 : uint64;
}

/// Not a macro at each of the 121 pairs of types below, which the compiler would spend a minute on.
void expect_type(const char* op, DataType got, DataType wanted) { EXPECT_EQ(got, wanted) << op; }

template <class A, class B>
void expect_cpp_types(const Var<dtype_of<A>()>& a, const Var<dtype_of<B>()>& b) {
  SCOPED_TRACE(std::string(dtype_of<A>().name()) + " and " + std::string(dtype_of<B>().name()));
  expect_type("+", (a + b).dtype(), dtype_of<decltype(A() + B())>());
  expect_type("-", (a - b).dtype(), dtype_of<decltype(A() - B())>());
  expect_type("*", (a * b).dtype(), dtype_of<decltype(A() * B())>());
  expect_type("/", (a / b).dtype(), dtype_of<decltype(A(1) / B(1))>());
  expect_type("<", (a < b).dtype(), boolean);
  expect_type("==", (a == b).dtype(), boolean);
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    expect_type("%", (a % b).dtype(), dtype_of<decltype(A(1) % B(1))>());
    expect_type("<<", (a << b).dtype(), dtype_of<decltype(A() << B())>());
    if (!std::is_same_v<A, bool> || !std::is_same_v<B, bool>) {
      expect_type("&", (a & b).dtype(), dtype_of<decltype(A() & B())>());
      expect_type("^", (a ^ b).dtype(), dtype_of<decltype(A() ^ B())>());
    }
  }
}

template <class A, class... Bs>
void expect_cpp_types_with_all(const Var<dtype_of<A>()>& a, const Var<dtype_of<Bs>()>&... bs) {
  (expect_cpp_types<A, Bs>(a, bs), ...);
}

TEST(Scalar, TwoVariablesMeetInTheTypeCppSays) {
  trace_snippet([](Int32&, Int32&, Pointer&) {
    Bool b = false;
    Int8 i8 = 0;
    Int16 i16 = 0;
    Int32 i32 = 0;
    Int64 i64 = 0;
    UInt8 u8 = 0;
    UInt16 u16 = 0;
    UInt32 u32 = 0;
    UInt64 u64 = 0;
    Float32 f32 = 0;
    Float64 f64 = 0;
    auto with_all = [&]<class A>(const Var<dtype_of<A>()>& a) {
      expect_cpp_types_with_all<A, bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                                uint64_t, float, double>(a, b, i8, i16, i32, i64, u8, u16, u32, u64, f32,
                                                         f64);
    };
    with_all.operator()<bool>(b);
    with_all.operator()<int8_t>(i8);
    with_all.operator()<int16_t>(i16);
    with_all.operator()<int32_t>(i32);
    with_all.operator()<int64_t>(i64);
    with_all.operator()<uint8_t>(u8);
    with_all.operator()<uint16_t>(u16);
    with_all.operator()<uint32_t>(u32);
    with_all.operator()<uint64_t>(u64);
    with_all.operator()<float>(f32);
    with_all.operator()<double>(f64);
  });
}

TEST(Scalar, NumbersTakeTheTypeTheyMeet) {
  trace_snippet([](Int32& m, Int32&, Pointer&) {
    UInt32 u = 1;
    Int64 wide = 1;
    Float32 x = 1;
    Float16 h = 1;
    EXPECT_EQ((m + 1).dtype(), int32);
    EXPECT_EQ((1 + m).dtype(), int32);
    EXPECT_EQ((m + 1u).dtype(), uint32);         // as C++
    EXPECT_EQ((u + 1).dtype(), uint32);          // as C++
    EXPECT_EQ((m + int64_t{1}).dtype(), int32);  // a size that fits widens nothing
    EXPECT_EQ((m + (int64_t{1} << 40)).dtype(), int64);
    EXPECT_EQ((wide + 1).dtype(), int64);
    EXPECT_EQ((x * 2.0).dtype(), float32);  // a double is no reason to compute in float64
    EXPECT_EQ((2.0f * h).dtype(), float16);
    EXPECT_EQ((h * 3).dtype(), float16);
    EXPECT_EQ((m * 0.5).dtype(), float32);
    EXPECT_EQ(((m == 1) + u).dtype(), uint32);
    EXPECT_EQ(((m == 1) ^ (m == 2)).dtype(), boolean);
    EXPECT_EQ(select(m == 1, 1, 2.0f).dtype(), float32);
  });
}

TEST(Scalar, NumbersAloneStayNumbers) {
  static_assert(cdiv(10, 4) == 3);
  static_assert(min(3, 4u) == 3 && max(3.0f, 4) == 4.0f);
}

TEST(Scalar, OperatorsBecomeOps) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer&) {
    auto a = m * n + 1;
    auto b = (a < 4) && !(m == n);
    check(b, "small");
  });
  EXPECT_EQ(text,
            "%0: int32 = mul %m, %n\n"
            "%1: int32 = const {int = 1}\n"
            "%2: int32 = add %0, %1\n"
            "%3: int32 = const {int = 4}\n"
            "%4: bool = lt %2, %3\n"
            "%5: bool = eq %m, %n\n"
            "%6: bool = not %5\n"
            "%7: bool = and %4, %6\n"
            "check %7 {message = \"small\"}\n");
}

TEST(Scalar, VariablesAreReadAndAssigned) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    Int32 stage = 0;
    UInt32 phase = 1;
    for (Int32 i : range(m)) {
      stage = (stage + 1) % 4;
      phase ^= stage == i;
      ++phase;
    }
  });
  EXPECT_THAT(text, HasSubstr("%stage: var<int32> = var"));
  EXPECT_THAT(text, HasSubstr("read %stage"));
  EXPECT_THAT(text, HasSubstr("rem"));
  EXPECT_THAT(text, HasSubstr("assign %stage, "));
  EXPECT_THAT(text, HasSubstr("cast"));  // the bool, to uint32
  EXPECT_THAT(text, HasSubstr("xor"));
  EXPECT_THAT(text, HasSubstr("assign %phase, "));
}

TEST(Scalar, AVariableNeverAssignedIsItsValue) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer&) {
    Int32 total = m * n;
    Int32 copy = total;
    check(copy > 0);
  });
  EXPECT_EQ(text,
            "%total: int32 = mul %m, %n\n"
            "%0: int32 = const {int = 0}\n"
            "%1: bool = gt %total, %0\n"
            "check %1 {message = \"check failed\"}\n");
}

TEST(Scalar, CopiesAreNewVariablesAndMovesAreNot) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    Int32 a = m;
    Int32 b = a;
    b += 1;
    auto make = [&] {
      Int32 made = m;
      made += 2;
      return made;
    };
    Int32 c = make();
    check(a + b + c > 0);
  });
  EXPECT_THAT(text, ::testing::Not(HasSubstr("%a: var")));
  EXPECT_THAT(text, HasSubstr("%b: var<int32>"));
  EXPECT_THAT(text, HasSubstr("%made: var<int32>"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("%c: var")));
}

TEST(Scalar, SwapGoesThroughAMovedFromVariable) {
  const std::string error = error_of([](Int32& m, Int32& n, Pointer&) {
    std::swap(m, n);
    check(m < n);
  });
  EXPECT_EQ(error, "");
}

TEST(Scalar, PostIncrementGivesTheValueBefore) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    Int32 i = 0;
    for (Int32 k : range(m)) check(i++ <= k--);
  });
  EXPECT_THAT(text, HasSubstr("assign %i, "));
}

TEST(Scalar, EveryOpHasTheLineOfItsOperator) {
  auto function = trace_snippet([](Int32& m, Int32& n, Pointer&) {
    const uint32_t first = __LINE__ + 1;
    Int32 a = m + 1;
    a += n;
    ++a;
    a = m;
    const ir::Function& f = lang::Trace::active()->function();
    std::vector<uint32_t> lines;
    ir::walk(f.body, [&](const ir::Op& op) {
      if (op.code == ir::Opcode::kAdd || op.code == ir::Opcode::kAssign) lines.push_back(op.where.line);
      if (op.code != ir::Opcode::kLaunchGrid && op.code != ir::Opcode::kConst &&
          op.code != ir::Opcode::kVar) {
        EXPECT_TRUE(std::string_view(op.where.file).ends_with("scalar_test.cpp")) << op.where.file;
      }
    });
    EXPECT_THAT(lines, ::testing::ElementsAre(first, first + 1, first + 1, first + 2, first + 2, first + 3));
  });
}

TEST(Scalar, FunctionsBecomeOps) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer&) {
    Float32 x = m;
    auto y =
        exp(x) + exp2(x) + log(x) + sqrt(x) + rsqrt(x) + tanh(x) + sin(x) + abs(x) + fma(x, 2, 1.0f) + (-x);
    auto [q, r] = fast_divmod(m, n);
    check(y.to(int32) + q + r + min(m, 3) + max(4, n) + cdiv(m, 128) + ~m + cast<int32>(y) > 0);
  });
  for (const char* op : {"exp ", "exp2 ", "log ", "sqrt ", "rsqrt ", "tanh ", "sin ", "abs ", "fma ", "neg ",
                         "fast_divmod ", "min ", "max ", "ceil_div ", "not ", "cast "})
    EXPECT_THAT(text, HasSubstr(std::string(" = ") + op));
}

TEST(Scalar, LaunchIndicesAreScalars) {
  const std::string text = traced([](Int32&, Int32&, Pointer&) {
    Int32 a = block_idx.x + 2 * block_idx.y;
    check(a < grid_dim.z && block_idx.z == 0);
  });
  EXPECT_THAT(text, HasSubstr("block_idx {axis = 1}"));
  EXPECT_THAT(text, HasSubstr("grid_dim {axis = 2}"));
}

// --- errors ---

TEST(ScalarErrors, FloatingToIntegerNeedsACast) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    Float32 x = m;
    m = x * 2;
  });
  EXPECT_THAT(error, HasSubstr("error: =: float32 does not become int32 by itself"));
  EXPECT_THAT(error, HasSubstr("help: convert with cast()"));
  EXPECT_THAT(error, HasSubstr("m = x * 2;"));  // the quoted line
}

TEST(ScalarErrors, Numbers) {
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { (void)Int8(300); }),
              HasSubstr("int8: 300 does not fit int8"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { (void)Int32(2.5); }),
              HasSubstr("2.5 where int32 is wanted"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { (void)Bool(1); }),
              HasSubstr("1 where a bool is wanted"));
  EXPECT_EQ(error_of([](Int32&, Int32&, Pointer&) { (void)UInt32(-1); }), "");
}

TEST(ScalarErrors, Operators) {
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)(m / 0); }), HasSubstr("/: division by zero"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)(m << 32); }),
              HasSubstr("a shift of 32 bits by 32"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)(m.to(float32) % 2); }),
              HasSubstr("%: works on integers, not on float32"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)(m && m == 1); }),
              HasSubstr("&&: the condition is int32, not bool"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)!m; }),
              HasSubstr("!: the operand is int32, not bool"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)~(m == 1); }), HasSubstr("help: write !x"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)exp(m); }),
              HasSubstr("exp: works on floating types, not on int32"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)fma(m, m, m); }),
              HasSubstr("fma: works on floating types, not on int32"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)fast_divmod(m, 0); }),
              HasSubstr("fast_divmod: the divisor is 0, not positive"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { (void)(m.to(float16) + m.to(bfloat16)); }),
              HasSubstr("float16 and bfloat16 have no common type"));
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    auto x = m.to(float8_e4m3);
    (void)(x + x);
  });
  EXPECT_THAT(error, HasSubstr("there is no arithmetic on float8_e4m3"));
}

TEST(ScalarErrors, AMovedFromVariable) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    Int32 a = m;
    Int32 b = std::move(a);
    check(a == b);
  });
  EXPECT_THAT(error, HasSubstr("the variable was moved from and has not been assigned since"));
}

TEST(ScalarErrors, OutsideAnyKernel) {
  EXPECT_THROW((void)Int32(1), CompileError);
  try {
    sync();
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("sync: used outside a kernel that is being traced"));
  }
}

TEST(ScalarErrors, AValueOfAnotherTrace) {
  std::optional<Expr> kept;
  trace_snippet([&](Int32& m, Int32&, Pointer&) { kept.emplace(m + 1); });
  EXPECT_THAT(error_of([&](Int32& m, Int32&, Pointer&) { (void)(m + *kept); }),
              HasSubstr("+: a value made while another kernel was traced"));
}

}  // namespace
}  // namespace imbrex
