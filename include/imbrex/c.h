/* SPDX-License-Identifier: Apache-2.0 */
/* Imbrex for C and for every language that can call C: libimbrex.so.
 *
 *   imbrex_device* gpu = NULL;
 *   imbrex_module* module = NULL;
 *   imbrex_report* report = NULL;
 *   if (imbrex_device_open_virtual(NULL, &gpu) || imbrex_module_load(gpu, ptx, "saxpy.ptx", &module)) goto failed;
 *   ...
 *   if (imbrex_module_launch(module, "saxpy", &launch, arguments, 4, NULL, &report)) goto failed;
 *   if (!imbrex_report_is_clean(report)) fputs(imbrex_report_text(report), stderr);
 *   ...
 *   failed: fputs(imbrex_last_error(), stderr);
 *
 * docs/embedding.md has a whole program. Link with -limbrex (pkg-config imbrex-c, CMake target imbrex::c).
 *
 * Errors. Functions that can fail return an imbrex_status, 0 when all went well. The text of what went wrong, with
 * the remedy, is imbrex_last_error(), kept for each thread until its next failing call. A call that fails launches
 * nothing and leaves its results (`*out`) as they were. No C++ exception leaves the library.
 *
 * Handles. What a function gives through `imbrex_X** out` is given back by imbrex_X_close(), which takes null too. A
 * module or kernel keeps its device alive. Strings that a handle gives live as long as the handle.
 *
 * Threads. Any thread may use any device, module and kernel; a report belongs to one thread at a time.
 *
 * Structures that may grow begin with struct_size, which the caller sets to sizeof; later versions of the library
 * read no more of it. Set everything else to 0 where nothing is said.
 */
#ifndef IMBREX_C_H
#define IMBREX_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum imbrex_status {
  IMBREX_OK = 0,
  IMBREX_INVALID_CALL = 1, /* an argument is missing or wrong */
  IMBREX_COMPILE_ERROR =
      2,                  /* the kernel cannot be compiled with these arguments, or the PTX is not modelled */
  IMBREX_PARSE_ERROR = 3, /* the PTX does not parse */
  IMBREX_DEVICE_ERROR = 4,  /* no such device, or it failed */
  IMBREX_OUT_OF_MEMORY = 5, /* of the host */
  IMBREX_INTERNAL_ERROR = 6 /* a bug in Imbrex: please report the text */
} imbrex_status;

/* What went wrong in this thread's last failing call: "" before the first. Never null. */
const char* imbrex_last_error(void);
/* "0.1.0": of the library. */
const char* imbrex_version(void);

/* Element types. */
typedef enum imbrex_dtype {
  IMBREX_BOOL = 0,
  IMBREX_INT8 = 1,
  IMBREX_INT16 = 2,
  IMBREX_INT32 = 3,
  IMBREX_INT64 = 4,
  IMBREX_UINT8 = 5,
  IMBREX_UINT16 = 6,
  IMBREX_UINT32 = 7,
  IMBREX_UINT64 = 8,
  IMBREX_FLOAT16 = 9,
  IMBREX_BFLOAT16 = 10,
  IMBREX_TFLOAT32 = 11,
  IMBREX_FLOAT32 = 12,
  IMBREX_FLOAT64 = 13,
  IMBREX_FLOAT8_E4M3 = 14,
  IMBREX_FLOAT8_E5M2 = 15,
  IMBREX_FLOAT6_E2M3 = 16,
  IMBREX_FLOAT6_E3M2 = 17,
  IMBREX_FLOAT4_E2M1 = 18,
  IMBREX_FLOAT8_E8M0 = 19,
  IMBREX_FLOAT8_UE4M3 = 20,
  IMBREX_INT1 = 21,
  IMBREX_INT2 = 22,
  IMBREX_INT3 = 23,
  IMBREX_INT4 = 24,
  IMBREX_INT5 = 25,
  IMBREX_INT6 = 26,
  IMBREX_INT7 = 27,
  IMBREX_UINT1 = 28,
  IMBREX_UINT2 = 29,
  IMBREX_UINT3 = 30,
  IMBREX_UINT4 = 31,
  IMBREX_UINT5 = 32,
  IMBREX_UINT6 = 33,
  IMBREX_UINT7 = 34,
  IMBREX_FLOAT3_E1M1 = 35,
  IMBREX_FLOAT5_E2M2 = 36,
  IMBREX_FLOAT5_E3M1 = 37,
  IMBREX_FLOAT6_E4M1 = 38,
  IMBREX_FLOAT7_E2M4 = 39,
  IMBREX_FLOAT7_E3M3 = 40,
  IMBREX_FLOAT7_E4M2 = 41,
  IMBREX_FLOAT7_E5M1 = 42
} imbrex_dtype;
/* "float16"; null for a number that is no type. */
const char* imbrex_dtype_name(imbrex_dtype dtype);

/* ---- Devices ------------------------------------------------------------------------------------------------ */

typedef struct imbrex_device imbrex_device;

/* The virtual GPU: it runs PTX on the CPU and says what is wrong with it. */
typedef struct imbrex_virtual_options {
  size_t struct_size;
  const char* target;     /* "sm_80", "sm_90a", "sm_100a", ...; null: "sm_100a" */
  uint64_t seed;          /* of interleaving and completion order; 0: a plain fair order */
  int32_t without_checks; /* 1: no checkers; out-of-bounds accesses and deadlocks are reported all the same */
  int32_t with_all_checks;    /* 1: every checker, which is the default */
  int64_t instruction_budget; /* warp instructions of a cluster before it counts as endless; 0: 2^40 */
  int64_t memory_bytes;       /* of global memory; 0: 64 GiB, taken when touched */
  int32_t
      in_practice; /* 1: what every chip makes right though PTX leaves it undefined is a note, no finding */
} imbrex_virtual_options;

/* `options` null: all of them 0. IMBREX_INVALID_CALL for an unknown target. */
imbrex_status imbrex_device_open_virtual(const imbrex_virtual_options* options, imbrex_device** out);
/* A CUDA GPU by its primary context, which CUDA's runtime uses too. IMBREX_DEVICE_ERROR says what is missing. */
imbrex_status imbrex_device_open_cuda(int32_t ordinal, imbrex_device** out);
/* The GPU of the CUDA context that is current on this thread. */
imbrex_status imbrex_device_open_current(imbrex_device** out);
void imbrex_device_close(imbrex_device* device);

int32_t imbrex_device_is_virtual(const imbrex_device* device);
const char* imbrex_device_name(const imbrex_device* device);   /* "NVIDIA H200" */
const char* imbrex_device_target(const imbrex_device* device); /* the newest whose PTX it runs: "sm_90a" */
/* Waits until everything launched has ended, on all streams. */
imbrex_status imbrex_device_synchronize(imbrex_device* device);

/* Memory. Addresses are as kernels see them: of the virtual GPU never host pointers. `stream` is a CUstream or
 * cudaStream_t, null being CUDA's default stream; on the virtual GPU it is null. Copies wait for their end. */
imbrex_status imbrex_allocate(imbrex_device* device, int64_t bytes, uint64_t* address);
imbrex_status imbrex_free(imbrex_device* device, uint64_t address); /* what imbrex_allocate gave */
imbrex_status imbrex_copy_to_device(imbrex_device* device, uint64_t to, const void* from, int64_t bytes,
                                    void* stream);
imbrex_status imbrex_copy_from_device(imbrex_device* device, void* to, uint64_t from, int64_t bytes,
                                      void* stream);
/* Sets every byte, without waiting. */
imbrex_status imbrex_fill(imbrex_device* device, uint64_t address, uint8_t value, int64_t bytes,
                          void* stream);

/* ---- Tensors and arguments ---------------------------------------------------------------------------------- */

/* A tensor in memory of the device that a call runs on; nothing is copied or kept. */
typedef struct imbrex_tensor {
  uint64_t address;       /* of its first element */
  int32_t dtype;          /* imbrex_dtype */
  int32_t rank;           /* 0 to 8 */
  const int64_t* shape;   /* elements, outermost first */
  const int64_t* strides; /* elements, outermost first; null: dense and row-major */
} imbrex_tensor;

typedef enum imbrex_argument_kind {
  IMBREX_ARGUMENT_INTEGER = 0, /* integers, bools, enumerations, element types */
  IMBREX_ARGUMENT_REAL = 1,    /* floating-point numbers */
  IMBREX_ARGUMENT_TENSOR = 2,  /* a tensor, for a pointer: type and size are checked */
  IMBREX_ARGUMENT_ADDRESS =
      3 /* an address in `integer`, for a pointer: nothing is checked but its alignment */
} imbrex_argument_kind;

typedef struct imbrex_argument {
  int32_t kind; /* imbrex_argument_kind */
  int64_t integer;
  double real;
  const imbrex_tensor* tensor;
} imbrex_argument;

/* ---- Reports ------------------------------------------------------------------------------------------------ */

/* What is known after a launch. On a CUDA GPU there are no findings, and the launch may not have ended. */
typedef struct imbrex_report imbrex_report;

typedef struct imbrex_finding {
  size_t struct_size;
  const char* severity; /* "finding" or "note" */
  const char* kind;     /* "race", "out-of-bounds", "deadlock", ... (docs/checkers.md) */
  const char* message;  /* one line: what happened, with the numbers */
  const char* text;     /* message, places, facts and remedy, over several lines, quoting the source */
  const char* hint;     /* the remedy, or "" */
  const char* file;     /* the kernel's source, or "" where the PTX names none */
  int32_t line;         /* of `file`, from 1 */
  int32_t ptx_line;     /* of the PTX text, from 1 */
  int32_t cta[3];       /* who: its CTA, or -1s */
  int32_t warp, lane;   /* of the CTA, of the warp; -1 where no single one is meant */
  int64_t count;        /* how many times it happened */
} imbrex_finding;

/* 1 where the kernel ran to its end and nothing was found. */
int32_t imbrex_report_is_clean(const imbrex_report* report);
int64_t imbrex_report_finding_count(const imbrex_report* report);
/* Notes are counted behind the findings: they are number finding_count and on. There are none unless in_practice. */
int64_t imbrex_report_note_count(const imbrex_report* report);
/* Fills `*out`, whose struct_size is set; its strings live as long as the report. */
imbrex_status imbrex_report_finding(const imbrex_report* report, int64_t index, imbrex_finding* out);
const char* imbrex_report_text(const imbrex_report* report);     /* all findings, "" where there are none */
const char* imbrex_report_output(const imbrex_report* report);   /* what the kernel printed by printf */
int64_t imbrex_report_instructions(const imbrex_report* report); /* warp instructions executed */
void imbrex_report_close(imbrex_report* report);

/* ---- PTX of any compiler ------------------------------------------------------------------------------------ */

typedef struct imbrex_module imbrex_module;

/* PTX text, also a .ptx file of `imbrex build`. `name` stands for it in messages. IMBREX_PARSE_ERROR with the line. */
imbrex_status imbrex_module_load(imbrex_device* device, const char* ptx, const char* name,
                                 imbrex_module** out);
void imbrex_module_close(imbrex_module* module);
int64_t imbrex_module_kernel_count(const imbrex_module* module);
/* The name of a kernel, in the text's order; null beyond the last. */
const char* imbrex_module_kernel_name(const imbrex_module* module, int64_t index);

typedef struct imbrex_launch {
  size_t struct_size;
  int64_t grid[3];    /* CTAs; 0 is taken for 1, here and below */
  int64_t block[3];   /* threads */
  int64_t cluster[3]; /* CTAs; all 0: the kernel's own .reqnctapercluster, or none */
  int64_t dynamic_shared_bytes;
} imbrex_launch;

/* Launches a kernel of the module with one pointer to each argument's value, as cuLaunchKernel's kernelParams: as many
 * bytes are read as the parameter has. `kernel` null: the only one. `report` may be null; on the virtual GPU, where the
 * call then also fails with IMBREX_DEVICE_ERROR if anything was found, with the findings as text. */
imbrex_status imbrex_module_launch(imbrex_module* module, const char* kernel, const imbrex_launch* launch,
                                   void* const* arguments, int64_t argument_count, void* stream,
                                   imbrex_report** report);

/* ---- The kernel library --------------------------------------------------------------------------------------
 *
 * On a CUDA GPU these return without waiting. The first call with new sizes may compile, which takes seconds, and
 * cannot be recorded into a CUDA graph. `report` is as of imbrex_module_launch. */

typedef enum imbrex_activation {
  IMBREX_NO_ACTIVATION = 0,
  IMBREX_RELU = 1,
  IMBREX_GELU = 2,      /* the tanh form */
  IMBREX_GELU_FAST = 3, /* the same by the approximate tanh instruction */
  IMBREX_GELU_ERF = 4,
  IMBREX_SILU = 5
} imbrex_activation;

typedef struct imbrex_matmul_options {
  size_t struct_size;
  int32_t a_is_km, b_is_kn; /* 1: a is [k, m], b is [k, n] */
  float alpha;              /* as the others here it is used where has_alpha is 1; else it is 1 */
  int32_t has_alpha;
  float beta;                    /* of the residual */
  int32_t activation;            /* imbrex_activation */
  const imbrex_tensor* bias;     /* [n] or [m, 1], of c's type or float32; null: none */
  const imbrex_tensor* residual; /* [m, n] of c's type; null: c itself */
  const imbrex_tensor* scale_a;  /* float32 [1]; null: 1 */
  const imbrex_tensor* scale_b;
} imbrex_matmul_options;

/* c [m, n] = activation(alpha scale_a scale_b a b^T + bias + beta residual), with a [m, k] and b [n, k], both float16,
 * both bfloat16 or both float8_e4m3; c float16, bfloat16 or float32. Strides may be any; where c is [matrices, m, n], a
 * and b may be batches too (imbrex/kernels/matmul.h says what is copied). sm_90a. `options` null: c = a b^T. */
imbrex_status imbrex_matmul(imbrex_device* device, const imbrex_tensor* a, const imbrex_tensor* b,
                            const imbrex_tensor* c, const imbrex_matmul_options* options, void* stream,
                            imbrex_report** report);

/* o [heads, q, e] = softmax(scale q k^T) v, with q [heads, q, d], k [heads / g, kv, d], v [heads / g, kv, e]: g consecutive
 * heads share one of k and v; all may have a batch before. float16 or bfloat16, any strides; d and e multiples of 16, at
 * most 256. `causal`: row i sees columns up to i + kv - q. `scale` 0: 1 / sqrt(d). sm_90a. */
imbrex_status imbrex_attention(imbrex_device* device, const imbrex_tensor* q, const imbrex_tensor* k,
                               const imbrex_tensor* v, const imbrex_tensor* o, int32_t causal, float scale,
                               void* stream, imbrex_report** report);

/* y [m, n] = softmax of each row of x [m, n], each float16, bfloat16 or float32; rows may lie any distance apart. sm_80. */
imbrex_status imbrex_softmax(imbrex_device* device, const imbrex_tensor* x, const imbrex_tensor* y,
                             void* stream, imbrex_report** report);

/* y [m, n] = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row, each float16, bfloat16 or
 * float32. sm_80. */
imbrex_status imbrex_layer_norm(imbrex_device* device, const imbrex_tensor* x, const imbrex_tensor* weight,
                                const imbrex_tensor* bias, const imbrex_tensor* y, float epsilon,
                                void* stream, imbrex_report** report);

/* ---- Registered kernels by name ----------------------------------------------------------------------------- */

typedef struct imbrex_kernel imbrex_kernel;

/* A kernel that `imbrex list` shows, such as "softmax", on a device. `configuration`: "rows=8"; null: the default. */
imbrex_status imbrex_kernel_open(imbrex_device* device, const char* name, const char* configuration,
                                 imbrex_kernel** out);
void imbrex_kernel_close(imbrex_kernel* kernel);
/* The parameters of its operator(), structs resolved into their members. */
int64_t imbrex_kernel_parameter_count(const imbrex_kernel* kernel);
/* Launches with one argument per parameter, in order, compile-time ones included. */
imbrex_status imbrex_kernel_launch(imbrex_kernel* kernel, const imbrex_argument* arguments,
                                   int64_t argument_count, void* stream, imbrex_report** report);
/* Compiles and loads what such a launch needs, so that it can be recorded into a CUDA graph. */
imbrex_status imbrex_kernel_prepare(imbrex_kernel* kernel, const imbrex_argument* arguments,
                                    int64_t argument_count);

#ifdef __cplusplus
}
#endif

#endif /* IMBREX_C_H */
