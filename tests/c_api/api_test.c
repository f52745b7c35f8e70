/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface on the virtual GPU: PTX, findings, the kernel library, registered kernels, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imbrex/c.h"

static int failures = 0;

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: not so: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, imbrex_last_error()); \
      ++failures;                                                                                  \
    }                                                                                              \
  } while (0)

/* The call fails with this status, and the message has these words. */
#define EXPECT_ERROR(status, call, words)                                                          \
  do {                                                                                             \
    const imbrex_status got = (call);                                                              \
    if (got != (status) || strstr(imbrex_last_error(), (words)) == NULL) {                         \
      fprintf(stderr, "%s:%d: %s gives %d: %s\n  expected: %s\n", __FILE__, __LINE__, #call, (int)got, \
              imbrex_last_error(), (words));                                                       \
      ++failures;                                                                                  \
    }                                                                                              \
  } while (0)

/* y[i] = a * x[i] + y[i] */
static const char* const kSaxpy =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) {\n"
    "  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<7>;\n"
    "  ld.param.u32 %r1, [n]; ld.param.f32 %f1, [a]; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "  GUARD\n"
    "  mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;\n"
    "  ld.global.f32 %f2, [%rd4]; ld.global.f32 %f3, [%rd5];\n"
    "  fma.rn.f32 %f4, %f1, %f2, %f3; st.global.f32 [%rd5], %f4;\n"
    "DONE: ret;\n}\n";

static char* saxpy_text(int with_guard) {
  const char* guard = with_guard ? "setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;" : "";
  const char* at = strstr(kSaxpy, "GUARD");
  char* text = malloc(strlen(kSaxpy) + strlen(guard) + 1);
  memcpy(text, kSaxpy, (size_t)(at - kSaxpy));
  strcpy(text + (at - kSaxpy), guard);
  strcat(text, at + strlen("GUARD"));
  return text;
}

/* Numbers without a pattern, the same in every run. */
static uint32_t state = 12345;
static float next_number(void) {
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (float)(1 << 23) - 1.0f;
}

static uint64_t upload(imbrex_device* device, const void* from, int64_t bytes) {
  uint64_t address = 0;
  EXPECT(imbrex_allocate(device, bytes, &address) == IMBREX_OK);
  EXPECT(imbrex_copy_to_device(device, address, from, bytes, NULL) == IMBREX_OK);
  return address;
}

static imbrex_tensor tensor(uint64_t address, imbrex_dtype dtype, int32_t rank, const int64_t* shape) {
  imbrex_tensor t = {0};
  t.address = address, t.dtype = dtype, t.rank = rank, t.shape = shape;
  return t;
}

static void test_ptx(imbrex_device* device) {
  enum { kCount = 1000 };
  float x[kCount], y[kCount], got[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = next_number(), y[i] = next_number();
  uint32_t n = kCount;
  float a = 1.75f;
  uint64_t d_x = upload(device, x, sizeof x), d_y = upload(device, y, sizeof y);
  void* arguments[] = {&n, &a, &d_x, &d_y};
  imbrex_launch launch = {sizeof launch, {8, 0, 0}, {128, 0, 0}, {0, 0, 0}, 0};

  char* text = saxpy_text(1);
  imbrex_module* module = NULL;
  EXPECT(imbrex_module_load(device, text, "saxpy.ptx", &module) == IMBREX_OK);
  free(text);
  EXPECT(imbrex_module_kernel_count(module) == 1);
  EXPECT(strcmp(imbrex_module_kernel_name(module, 0), "saxpy") == 0);
  EXPECT(imbrex_module_kernel_name(module, 1) == NULL);
  imbrex_report* report = NULL;
  EXPECT(imbrex_module_launch(module, NULL, &launch, arguments, 4, NULL, &report) == IMBREX_OK);
  EXPECT(imbrex_report_is_clean(report) && imbrex_report_finding_count(report) == 0);
  EXPECT(imbrex_report_instructions(report) > 0 && strcmp(imbrex_report_text(report), "") == 0);
  imbrex_report_close(report);
  EXPECT(imbrex_copy_from_device(device, got, d_y, sizeof got, NULL) == IMBREX_OK);
  for (int i = 0; i < kCount; ++i) EXPECT(fabs((double)a * x[i] + y[i] - got[i]) < 1e-6);

  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_module_launch(module, "saxpi", &launch, arguments, 4, NULL, NULL), "saxpy");
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_module_launch(module, NULL, &launch, arguments, 3, NULL, NULL), "3 arguments given, 4 expected");
  imbrex_launch old = launch;
  old.struct_size = 8;
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_module_launch(module, NULL, &old, arguments, 4, NULL, NULL), "struct_size is 8");
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_module_launch(module, NULL, &launch, arguments, 4, (void*)4096, NULL), "virtual GPU");
  imbrex_module_close(module);

  /* Without its guard the last block reads and writes beyond the arrays. */
  text = saxpy_text(0);
  EXPECT(imbrex_module_load(device, text, "unguarded.ptx", &module) == IMBREX_OK);
  free(text);
  EXPECT(imbrex_module_launch(module, "saxpy", &launch, arguments, 4, NULL, &report) == IMBREX_OK);
  EXPECT(!imbrex_report_is_clean(report) && imbrex_report_finding_count(report) > 0);
  imbrex_finding finding = {0};
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_report_finding(report, 0, &finding), "struct_size");
  finding.struct_size = sizeof finding;
  EXPECT(imbrex_report_finding(report, 0, &finding) == IMBREX_OK);
  EXPECT(strcmp(finding.severity, "finding") == 0 && imbrex_report_note_count(report) == 0);
  EXPECT(strcmp(finding.kind, "out-of-bounds") == 0 && finding.ptx_line > 4 && finding.cta[0] == 7);
  EXPECT(strstr(finding.text, finding.message) != NULL);
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_report_finding(report, 99, &finding), "no finding 99");
  imbrex_report_close(report);
  /* Who asks for no report gets an error. */
  EXPECT_ERROR(IMBREX_DEVICE_ERROR, imbrex_module_launch(module, "saxpy", &launch, arguments, 4, NULL, NULL), "out-of-bounds");
  imbrex_module_close(module);
  EXPECT(imbrex_free(device, d_x) == IMBREX_OK && imbrex_free(device, d_y) == IMBREX_OK);
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_free(device, d_y), "");
  EXPECT_ERROR(IMBREX_PARSE_ERROR, imbrex_module_load(device, "int main() {}", "main.c", &module), "main.c");
}

static uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static float from_bfloat16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void test_matmul(imbrex_device* device) {
  enum { kM = 65, kN = 40, kK = 72 };
  static uint16_t a[kM * kK], b[kN * kK];
  static float c[kM * kN], bias[kN];
  for (int i = 0; i < kM * kK; ++i) a[i] = to_bfloat16(next_number());
  for (int i = 0; i < kN * kK; ++i) b[i] = to_bfloat16(next_number());
  for (int i = 0; i < kN; ++i) bias[i] = next_number();
  memset(c, 0xff, sizeof c);
  const int64_t a_shape[] = {kM, kK}, b_shape[] = {kN, kK}, c_shape[] = {kM, kN}, bias_shape[] = {kN};
  imbrex_tensor t_a = tensor(upload(device, a, sizeof a), IMBREX_BFLOAT16, 2, a_shape);
  imbrex_tensor t_b = tensor(upload(device, b, sizeof b), IMBREX_BFLOAT16, 2, b_shape);
  imbrex_tensor t_c = tensor(upload(device, c, sizeof c), IMBREX_FLOAT32, 2, c_shape);
  imbrex_tensor t_bias = tensor(upload(device, bias, sizeof bias), IMBREX_FLOAT32, 1, bias_shape);
  imbrex_matmul_options options = {0};
  options.struct_size = sizeof options;
  options.bias = &t_bias;
  options.activation = IMBREX_RELU;
  EXPECT(imbrex_matmul(device, &t_a, &t_b, &t_c, &options, NULL, NULL) == IMBREX_OK);
  EXPECT(imbrex_copy_from_device(device, c, t_c.address, sizeof c, NULL) == IMBREX_OK);
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      double sum = bias[j];
      for (int l = 0; l < kK; ++l) sum += (double)from_bfloat16(a[i * kK + l]) * from_bfloat16(b[j * kK + l]);
      EXPECT(fabs((sum > 0 ? sum : 0) - c[i * kN + j]) < 1e-4);
    }
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_matmul(device, &t_a, NULL, &t_c, NULL, NULL, NULL), "b is null");
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_matmul(device, &t_a, &t_c, &t_c, NULL, NULL, NULL), "inner sizes differ");
  imbrex_tensor lost = t_b;
  lost.address += 64;
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_matmul(device, &t_a, &lost, &t_c, NULL, NULL, NULL), "b: ");
  lost.dtype = 77;
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_matmul(device, &t_a, &lost, &t_c, NULL, NULL, NULL), "77 is no element type");
  options.activation = 9;
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_matmul(device, &t_a, &t_b, &t_c, &options, NULL, NULL), "activation is 9");
}

static void test_attention(imbrex_device* device) {
  enum { kHeads = 2, kQ = 5, kKv = 7, kD = 16 };
  static uint16_t q[kHeads * kQ * kD], k[kKv * kD], v[kKv * kD], o[kHeads * kQ * kD];
  for (int i = 0; i < kHeads * kQ * kD; ++i) q[i] = to_bfloat16(next_number());
  for (int i = 0; i < kKv * kD; ++i) k[i] = to_bfloat16(next_number()), v[i] = to_bfloat16(next_number());
  const int64_t q_shape[] = {kHeads, kQ, kD}, k_shape[] = {1, kKv, kD};
  imbrex_tensor t_q = tensor(upload(device, q, sizeof q), IMBREX_BFLOAT16, 3, q_shape), t_o = t_q;
  imbrex_tensor t_k = tensor(upload(device, k, sizeof k), IMBREX_BFLOAT16, 3, k_shape);
  imbrex_tensor t_v = tensor(upload(device, v, sizeof v), IMBREX_BFLOAT16, 3, k_shape);
  t_o.address = upload(device, o, sizeof o);
  EXPECT(imbrex_attention(device, &t_q, &t_k, &t_v, &t_o, 0, 0, NULL, NULL) == IMBREX_OK);
  EXPECT(imbrex_copy_from_device(device, o, t_o.address, sizeof o, NULL) == IMBREX_OK);
  for (int row = 0; row < kHeads * kQ; ++row) {
    double weight[kKv], total = 0;
    for (int j = 0; j < kKv; ++j) {
      double score = 0;
      for (int e = 0; e < kD; ++e) score += (double)from_bfloat16(q[row * kD + e]) * from_bfloat16(k[j * kD + e]);
      total += weight[j] = exp(score / sqrt(kD));
    }
    for (int e = 0; e < kD; ++e) {
      double sum = 0;
      for (int j = 0; j < kKv; ++j) sum += weight[j] / total * from_bfloat16(v[j * kD + e]);
      EXPECT(fabs(sum - from_bfloat16(o[row * kD + e])) < 0.02);
    }
  }
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_attention(device, &t_q, &t_k, &t_q, &t_o, 0, 0, NULL, NULL), "v has another shape than k");
}

static void test_rows(imbrex_device* device) {
  enum { kM = 5, kN = 33 };
  static float x[kM * kN], y[kM * kN], weight[kN], bias[kN];
  for (int i = 0; i < kM * kN; ++i) x[i] = next_number();
  for (int j = 0; j < kN; ++j) weight[j] = next_number(), bias[j] = next_number();
  const int64_t shape[] = {kM, kN}, columns[] = {kN};
  imbrex_tensor t_x = tensor(upload(device, x, sizeof x), IMBREX_FLOAT32, 2, shape), t_y = t_x;
  imbrex_tensor t_w = tensor(upload(device, weight, sizeof weight), IMBREX_FLOAT32, 1, columns);
  imbrex_tensor t_b = tensor(upload(device, bias, sizeof bias), IMBREX_FLOAT32, 1, columns);
  EXPECT(imbrex_allocate(device, sizeof y, &t_y.address) == IMBREX_OK);
  double sums[kM];
  for (int i = 0; i < kM; ++i) {
    sums[i] = 0;
    for (int j = 0; j < kN; ++j) sums[i] += exp(x[i * kN + j]);
  }
  /* By its function, and by its name. */
  for (int by_name = 0; by_name < 2; ++by_name) {
    EXPECT(imbrex_fill(device, t_y.address, 0xff, sizeof y, NULL) == IMBREX_OK);
    if (by_name) {
      imbrex_kernel* kernel = NULL;
      EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_kernel_open(device, "softmaxx", NULL, &kernel), "softmax");
      EXPECT_ERROR(IMBREX_COMPILE_ERROR, imbrex_kernel_open(device, "softmax", "row=2", &kernel), "rows");
      EXPECT(imbrex_kernel_open(device, "softmax", "rows=2", &kernel) == IMBREX_OK);
      EXPECT(imbrex_kernel_parameter_count(kernel) == 4);
      imbrex_argument arguments[4] = {{0}};
      arguments[0].integer = kM;
      arguments[1].integer = kN;
      arguments[2].kind = arguments[3].kind = IMBREX_ARGUMENT_TENSOR;
      arguments[2].tensor = &t_x;
      arguments[3].tensor = &t_y;
      EXPECT(imbrex_kernel_prepare(kernel, arguments, 4) == IMBREX_OK);
      EXPECT(imbrex_kernel_launch(kernel, arguments, 4, NULL, NULL) == IMBREX_OK);
      EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_kernel_launch(kernel, arguments, 3, NULL, NULL), "3 arguments given, 4 expected");
      arguments[3].kind = IMBREX_ARGUMENT_INTEGER;
      EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_kernel_launch(kernel, arguments, 4, NULL, NULL), "arguments[3]");
      imbrex_kernel_close(kernel);
    } else {
      EXPECT(imbrex_softmax(device, &t_x, &t_y, NULL, NULL) == IMBREX_OK);
    }
    EXPECT(imbrex_copy_from_device(device, y, t_y.address, sizeof y, NULL) == IMBREX_OK);
    for (int i = 0; i < kM * kN; ++i) EXPECT(fabs(exp(x[i]) / sums[i / kN] - y[i]) < 1e-6);
  }
  EXPECT(imbrex_layer_norm(device, &t_x, &t_w, &t_b, &t_y, 1e-5f, NULL, NULL) == IMBREX_OK);
  EXPECT(imbrex_copy_from_device(device, y, t_y.address, sizeof y, NULL) == IMBREX_OK);
  for (int i = 0; i < kM; ++i) {
    double mean = 0, variance = 0;
    for (int j = 0; j < kN; ++j) mean += x[i * kN + j] / (double)kN;
    for (int j = 0; j < kN; ++j) variance += pow(x[i * kN + j] - mean, 2) / kN;
    for (int j = 0; j < kN; ++j)
      EXPECT(fabs((x[i * kN + j] - mean) / sqrt(variance + 1e-5) * weight[j] + bias[j] - y[i * kN + j]) < 1e-5);
  }
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_layer_norm(device, &t_x, &t_x, &t_b, &t_y, 1e-5f, NULL, NULL), "weight is not a dense tensor of [33]");
  const int64_t strides[] = {1, kM};
  t_x.strides = strides;
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_softmax(device, &t_x, &t_y, NULL, NULL), "a stride of 5 along its rows");
}

/* Two instructions of two warps store the same value to one word: undefined by the letter of PTX, right on every chip. */
static const char* const kSameValue =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry same(.param .u64 x) {\n"
    "  .reg .pred %p<2>; .reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
    "  ld.param.u64 %rd1, [x]; mov.u32 %r1, 7; mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 32;\n"
    "  @%p1 st.global.u32 [%rd1], %r1;\n  @!%p1 st.global.u32 [%rd1], %r1;\n  ret;\n}\n";

static void test_notes(void) {
  for (int in_practice = 0; in_practice < 2; ++in_practice) {
    imbrex_virtual_options options = {0};
    options.struct_size = sizeof options;
    options.in_practice = in_practice;
    imbrex_device* device = NULL;
    imbrex_module* module = NULL;
    imbrex_report* report = NULL;
    EXPECT(imbrex_device_open_virtual(&options, &device) == IMBREX_OK);
    EXPECT(imbrex_module_load(device, kSameValue, NULL, &module) == IMBREX_OK);
    uint64_t x = 0;
    EXPECT(imbrex_allocate(device, 4, &x) == IMBREX_OK);
    void* arguments[] = {&x};
    imbrex_launch launch = {sizeof launch, {1, 0, 0}, {64, 0, 0}, {0, 0, 0}, 0};
    EXPECT(imbrex_module_launch(module, NULL, &launch, arguments, 1, NULL, &report) == IMBREX_OK);
    EXPECT(imbrex_report_is_clean(report) == in_practice);
    EXPECT((imbrex_report_finding_count(report) > 0) == !in_practice);
    EXPECT((imbrex_report_note_count(report) > 0) == in_practice);
    imbrex_finding finding = {0};
    finding.struct_size = sizeof finding;
    EXPECT(imbrex_report_finding(report, 0, &finding) == IMBREX_OK);
    EXPECT(strcmp(finding.severity, in_practice ? "note" : "finding") == 0 && strcmp(finding.kind, "race") == 0);
    imbrex_report_close(report);
    imbrex_module_close(module);
    imbrex_device_close(device);
  }
}

int main(void) {
  EXPECT(strcmp(imbrex_last_error(), "") == 0);
  EXPECT(strchr(imbrex_version(), '.') != NULL);
  EXPECT(strcmp(imbrex_dtype_name(IMBREX_FLOAT8_E4M3), "float8_e4m3") == 0);
  EXPECT(imbrex_dtype_name((imbrex_dtype)99) == NULL);
  imbrex_device* device = NULL;
  imbrex_virtual_options options = {0};
  options.target = "sm_90a";
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_device_open_virtual(&options, &device), "struct_size is 0");
  options.struct_size = sizeof options;
  options.target = "sm_11";
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_device_open_virtual(&options, &device), "sm_11");
  EXPECT_ERROR(IMBREX_INVALID_CALL, imbrex_device_open_virtual(&options, NULL), "out is null");
  options.target = "sm_90a";
  EXPECT(imbrex_device_open_virtual(&options, &device) == IMBREX_OK);
  EXPECT(imbrex_device_is_virtual(device) && strcmp(imbrex_device_target(device), "sm_90a") == 0);
  EXPECT(strstr(imbrex_device_name(device), "virtual") != NULL);
  EXPECT(imbrex_device_synchronize(device) == IMBREX_OK);
  test_ptx(device);
  test_matmul(device);
  test_attention(device);
  test_rows(device);
  test_notes();
  imbrex_device_close(device);
  imbrex_device_close(NULL);
  if (failures == 0) printf("all as expected\n");
  return failures == 0 ? 0 : 1;
}
