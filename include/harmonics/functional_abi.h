/* Items of kind HX_FUNCTIONAL and HX_IMPLEMENTATION: C11, append-only, with the rules of abi.h.
 *
 * A functional is a named operation, defined by other operations for every device. An implementation is an alternative
 * way to compute a functional or primitive, for the calls it supports. */
#ifndef HARMONICS_FUNCTIONAL_ABI_H
#define HARMONICS_FUNCTIONAL_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_MAX_RESULTS 16

/* A call with its values, for the gradient. */
typedef struct hx_gradient_call {
  uint32_t struct_size;
  uint32_t n_inputs, n_outputs;
  uint32_t flags; /* reserved, 0 */
  hx_value* const* inputs;
  hx_value* const* outputs;
  hx_value* const* output_gradients; /* of the outputs' types */
} hx_gradient_call;

typedef struct hx_functional_vt {
  uint32_t struct_size;
  /* The body. Uses hx_api.apply, is traced once per input signature, and must be pure. `outs` has room for
   * HX_MAX_RESULTS. Bodies that read values are rejected. */
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* const* inputs, uint32_t n_inputs, hx_value** outs,
                     uint32_t* n_outs);
  /* Returns the gradients of the inputs, of their types; NULL for an input without one. Called if the item has
   * HX_OWN_GRADIENT; otherwise the gradient is derived from the body. */
  hx_status (*gradient)(void* self, const hx_attributes* args, const hx_gradient_call* call, hx_value** gradients);
  void (*destroy)(void* self);
  /* Optional, contract 1.5: returns one line with the names of inputs and results, for validation, `inspect` and
   * messages: "x [..., in], weight [out, in], bias [out]? -> y [..., out]". `?` marks an optional input, "..." after an
   * input marks repetition, "ids [...] < rows" marks indices below the axis `rows` of another input or below the
   * argument `rows`. NULL or "": any inputs. Owned by the object. */
  const char* (*signature)(void* self);
} hx_functional_vt;

/* Flags of functionals beyond hx_item_flags, contract 1.5. */
typedef enum hx_functional_flags {
  /* An optimizer step of one parameter: (w, g, moments ..., lr, step?) -> w, moments ... All tensors of w's shape may
   * be stored transposed, and results may be written in place of the tensors they replace. */
  HX_UPDATE = 1024,
  HX_BLOCK_WRITE = 2048, /* copies its second input into its first, which may be written in place */
  HX_ORDER_FREE = 4096   /* results depend neither on the order nor on the layout of an input's elements */
} hx_functional_flags;

/* An item of this kind is named FUNCTIONAL.NAME; its arguments are unused. If it supports a call, it takes precedence
 * over the kernels of the device; later registrations take precedence over earlier ones. */
typedef struct hx_implementation_vt {
  uint32_t struct_size;
  /* Returns HX_OK if it supports this call, else HX_DECLINED with the reason by set_error. Pure: equal results for
   * equal sites. With HX_SITE_TRAINING and the item's HX_OWN_GRADIENT, HX_OK covers the gradient too; the host uses
   * both or neither. */
  hx_status (*supports)(void* self, const hx_call_site* site);
  /* Returns a kernel for the site. NULL or HX_DECLINED: `run` is called instead. */
  hx_status (*find)(void* self, const hx_call_site* site, hx_kernel* out);
  /* Computes the results of one call, tensors of the site's types. */
  hx_status (*run)(void* self, const hx_call_site* site, hx_value* const* inputs, hx_value** outputs);
  /* Likewise for the gradient; `site` is that of the call. Buffers of the kernel: inputs, outputs, the outputs'
   * gradients, the gradients of the floating-point inputs in order, the workspace. `gradients`: of the floating-point
   * inputs in order. */
  hx_status (*find_gradient)(void* self, const hx_call_site* site, hx_kernel* out);
  hx_status (*run_gradient)(void* self, const hx_call_site* site, const hx_gradient_call* call, hx_value** gradients);
  void (*destroy)(void* self);
} hx_implementation_vt;

#ifdef __cplusplus
}
#endif
#endif
