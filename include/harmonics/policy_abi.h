/* Items of kind HX_POLICY, which choose the precision of products: C11, with the rules of abi.h. An extension that is
 * not yet part of contract 1, like importers (importer_abi.h). */
#ifndef HARMONICS_POLICY_ABI_H
#define HARMONICS_POLICY_ABI_H

#include <harmonics/importer_abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* hx_api.extension returns an hx_item_extension that takes hx_policy_vt. */
#define HX_POLICY_EXTENSION "hx.policy/0"

enum { HX_POLICY = 17 }; /* an hx_kind */

/* A matrix product of a program. Valid during decide. */
typedef struct hx_product {
  uint32_t struct_size;
  uint32_t roundings; /* supported by the device: of HX_SITE_FP16_CHUNKS, HX_SITE_BF16, HX_SITE_FP8 */
  const char* op;     /* the functional, "linear" or "conv", or the primitive "dot" */
  const char* path;   /* path in the model: "net.hidden.output"; "" for a model without names */
  const char* phase;  /* of the step: "forward", "prefill", "decode", "loss", "gradient", "recomputed", ... */
  uint32_t n_inputs, n_outputs;
  const hx_type* inputs;
  const hx_type* outputs;
} hx_product;

/* On entry struct_size is the host's. */
typedef struct hx_product_precision {
  uint32_t struct_size;
  uint32_t rounding;           /* of the operands: one of hx_product.roundings, or 0 for none */
  const char* activation_type; /* stored type to which rows of x are quantised, "q8_0"; NULL: none. Only for `linear` in
                                  the forward pass with rows of whole blocks. The text must outlive the item */
} hx_product_precision;

typedef struct hx_policy_vt { /* functions are called from any thread, also concurrently, while programs compile */
  uint32_t struct_size;
  /* Chooses the precision of a product. HX_DECLINED: the precision of the run applies. Equal products and settings must
   * give equal results, since these determine the bits of the program's results. `settings`: the item's arguments. */
  hx_status (*decide)(void* self, const hx_product* product, const hx_attributes* settings, hx_product_precision* out);
  void (*destroy)(void* self);
} hx_policy_vt;

#ifdef __cplusplus
}
#endif
#endif
