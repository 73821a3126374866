/* Items of kind HX_AUGMENTATION: C11, append-only, with the rules of abi.h. */
#ifndef HARMONICS_AUGMENTATION_ABI_H
#define HARMONICS_AUGMENTATION_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The only source of a sample's random numbers, so that runs repeat and can be resumed. */
typedef struct hx_draw {
  uint32_t struct_size;
  uint32_t ordinal; /* distinguishes several uses of the augmentation on one stream */
  uint64_t key;     /* derived from the seed, the epoch and the augmentation's name */
  uint64_t record;  /* index of the sample in the pass */
} hx_draw;

typedef struct hx_augmentation_vt {
  uint32_t struct_size;
  /* Returns the type of the result for samples of this type; HX_ERROR with the reason if unsupported. Pure. */
  hx_status (*result_type)(void* self, const hx_attributes* args, const hx_type* sample, hx_type* out);
  /* Augments one sample. `to` has the size of `result` and does not overlap `from`. Called from any thread. */
  hx_status (*apply)(void* self, const hx_attributes* args, const hx_type* sample, const void* from,
                     const hx_draw* draw, const hx_type* result, void* to);
  void (*destroy)(void* self);
} hx_augmentation_vt;

#ifdef __cplusplus
}
#endif
#endif
