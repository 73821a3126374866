/* Statuses, errors, tensors and attributes for the tables of abi.h: C11, append-only, with the rules of abi.h. */
#ifndef HARMONICS_VALUE_ABI_H
#define HARMONICS_VALUE_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_MAX_RANK 8

/* ---- status, errors ------------------------------------------------------------------------------------------- */

typedef enum hx_status {
  HX_OK = 0,
  HX_ERROR = 1,        /* the text is returned by hx_api.last_error (host) or passed to hx_api.set_error (plugin) */
  HX_NEEDS_VALUES = 2, /* values of a traced tensor were requested */
  HX_END = 3,          /* a stream has ended */
  HX_DECLINED = 4,     /* unsupported: no gradient, no kernel, no fused form; set_error may give the reason */
  HX_NEEDS_WIDTH = 5,  /* a layer requested a width that is not known yet */
  /* Range sentinels, never returned; they make every 32-bit value representable. */
  HX_STATUS_LEAST = -2147483647 - 1,
  HX_STATUS_MOST = 2147483647
} hx_status;

/* The same numbers as harmonics::ErrorKind. */
typedef enum hx_error_kind {
  HX_ERROR_INTERNAL = 0,
  HX_ERROR_SYNTAX = 1,
  HX_ERROR_NAME = 2,
  HX_ERROR_SHAPE = 3,
  HX_ERROR_TYPE = 4,
  HX_ERROR_WEIGHTS = 5,
  HX_ERROR_PLUGIN = 6,
  HX_ERROR_DEVICE = 7,
  HX_ERROR_STREAM = 8,   /* malformed data */
  HX_ERROR_NO_INPUT = 9, /* a missing file */
  HX_ERROR_USAGE = 10,
  HX_ERROR_OUTPUT = 11,       /* a file that cannot be written */
  HX_ERROR_DIVERGED = 12,     /* non-finite values */
  HX_ERROR_INPUT_OUTPUT = 13, /* a disk or other device failed */
  HX_ERROR_DENIED = 14,       /* not allowed */
  HX_ERROR_UNAVAILABLE = 15,  /* a peer does not answer or disconnected */
  HX_ERROR_MEMORY = 16        /* not enough memory; contract 1.5 */
} hx_error_kind;

/* ---- tensors --------------------------------------------------------------------------------------------------- */

typedef enum hx_dtype {
  HX_BOOL = 0,
  HX_U8 = 1,
  HX_I8 = 2,
  HX_I16 = 3,
  HX_U16 = 4,
  HX_I32 = 5,
  HX_U32 = 6,
  HX_I64 = 7,
  HX_U64 = 8,
  HX_F16 = 9,
  HX_BF16 = 10,
  HX_F32 = 11,
  HX_F64 = 12,
  /* Contract 1.5: stored types, for weights. Only `cast`, `gather` of whole rows, the weight of `linear` and the table
   * of `embedding` accept them. Most are stored in blocks: the last axis is a multiple of the block's elements. Call
   * sites with these types are not passed to devices and implementations built for an earlier contract. */
  HX_F8_E4M3 = 13, /* no infinities, at most 448 */
  HX_F8_E5M2 = 14,
  HX_NF4 =
      15,     /* 4-bit index into 16 quantiles of a normal distribution in [-1, 1]; the first of two in the high bits */
  HX_I4 = 16, /* -8 to 7; the first of two in the low bits */
  HX_Q8_0 = 17,   /* block types of GGUF from here: 32 elements in 34 bytes */
  HX_Q4_0 = 18,   /* 32 in 18 */
  HX_Q4_K = 19,   /* 256 in 144 */
  HX_Q6_K = 20,   /* 256 in 210 */
  HX_Q4_1 = 21,   /* 32 in 20 */
  HX_Q5_0 = 22,   /* 32 in 22 */
  HX_Q5_1 = 23,   /* 32 in 24 */
  HX_Q2_K = 24,   /* 256 in 84 */
  HX_Q3_K = 25,   /* 256 in 110 */
  HX_Q5_K = 26,   /* 256 in 176 */
  HX_IQ4_NL = 27, /* 32 in 18 */
  HX_MXFP4 = 28,  /* 32 in 17 */
  HX_IQ4_XS = 29, /* 256 in 136 */
  /* Blocks of an f32 scale, the largest magnitude of the block, and 64 elements. */
  HX_NF4_64 = 30, /* 64 in 36 bytes: elements of HX_NF4, as in bitsandbytes */
  HX_FP4_64 = 31, /* 64 in 36: 4-bit floats as in bitsandbytes, in the order of HX_NF4 */
  HX_E4M3_64 = 32 /* 64 in 68: elements of HX_F8_E4M3; the scale is the largest magnitude over 448 */
} hx_dtype;

typedef struct hx_type { /* dense, row-major; rank 0 is a scalar */
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[HX_MAX_RANK];
} hx_type;

typedef struct hx_value hx_value; /* a tensor, or a traced value; reference counted; owned by the host */

typedef enum hx_attribute_kind {
  HX_ATTR_INT = 1,
  HX_ATTR_FLOAT = 2,
  HX_ATTR_STRING = 3,
  HX_ATTR_BOOL = 4, /* in `i` */
  HX_ATTR_INTS = 5,
  HX_ATTR_FLOATS = 6,
  HX_ATTR_VALUE = 7, /* a tensor: an additional source layer named by an argument */
  HX_ATTR_TEXTS = 8  /* only in the metadata of models */
} hx_attribute_kind;

typedef struct hx_text { /* UTF-8, not NUL-terminated */
  const char* data;
  uint64_t bytes;
} hx_text;

typedef struct hx_attribute {
  const char* name;
  uint32_t kind;
  uint32_t count; /* number of ints, floats or texts */
  union {
    int64_t i;
    double f;
    const char* s;
    const int64_t* ints;
    const double* floats;
    hx_value* value;
    const hx_text* texts;
  } as;
} hx_attribute;

typedef struct hx_attributes {
  const hx_attribute* items;
  uint32_t count;
} hx_attributes;

#ifdef __cplusplus
}
#endif
#endif
