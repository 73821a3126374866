/* Items of kind HX_FUNCTIONAL and HX_IMPLEMENTATION: C11, append-only, with the rules of abi.h.
 *
 * A functional is a named operation defined by other operations, for every device. An implementation is another
 * way to compute a functional or primitive, for the calls it supports. */
#ifndef HARMONICS_FUNCTIONAL_ABI_H
#define HARMONICS_FUNCTIONAL_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_MAX_RESULTS 16

/* A call and its values for the gradient. */
typedef struct hx_gradient_call {
  uint32_t struct_size;
  uint32_t n_inputs, n_outputs;
  uint32_t flags; /* reserved, 0 */
  hx_value* const* inputs;
  hx_value* const* outputs;
  hx_value* const* output_gradients; /* each of its output's type */
} hx_gradient_call;

typedef struct hx_functional_vt {
  uint32_t struct_size;
  /* The body, written with hx_api.apply: traced once per input signature; must be pure. `outs` has room for
   * HX_MAX_RESULTS. Bodies that read values are refused. */
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* const* inputs, uint32_t n_inputs, hx_value** outs,
                     uint32_t* n_outs);
  /* Gradients of the inputs, of their types; NULL for an input that has none. Called where the item has
   * HX_OWN_GRADIENT, else the gradient is derived from the body. */
  hx_status (*gradient)(void* self, const hx_attributes* args, const hx_gradient_call* call, hx_value** gradients);
  void (*destroy)(void* self);
  /* Optional, contract 1.5: one line with the names of inputs and results, for checks, `inspect` and messages:
   * "x [..., in], weight [out, in], bias [out]? -> y [..., out]". `?` marks an optional input, "..." after one that it
   * repeats, "ids [...] < rows" indices below the axis `rows` of another input or below the argument `rows`. NULL or
   * "": any inputs. Owned by the object. */
  const char* (*signature)(void* self);
} hx_functional_vt;

/* Flags of functionals beyond hx_item_flags, contract 1.5. */
typedef enum hx_functional_flags {
  /* An optimizer's step of one parameter: (w, g, moments ..., lr, step?) -> w, moments ... Tensors of w's shape may be
   * stored transposed, all alike, and results may be written over the tensors that they replace. */
  HX_UPDATE = 1024,
  HX_BLOCK_WRITE = 2048, /* copies its second input into its first, which may be written in place */
  HX_ORDER_FREE = 4096   /* results depend neither on the order nor on the arrangement of an input's elements */
} hx_functional_flags;

/* An item of this kind is named FUNCTIONAL.NAME; its arguments are unused. If it supports a call, it precedes the
 * kernels of the device; later registrations precede earlier ones. */
typedef struct hx_implementation_vt {
  uint32_t struct_size;
  /* Whether it supports this call: HX_OK, or HX_DECLINED with the reason by set_error. Pure: equal results for equal
   * sites. With HX_SITE_TRAINING and the item's HX_OWN_GRADIENT, HX_OK covers the gradient too; the host uses both or
   * neither. */
  hx_status (*supports)(void* self, const hx_call_site* site);
  /* A kernel for the site. NULL or HX_DECLINED: `run` is called instead. */
  hx_status (*find)(void* self, const hx_call_site* site, hx_kernel* out);
  /* The results of one call as tensors of the site's types. */
  hx_status (*run)(void* self, const hx_call_site* site, hx_value* const* inputs, hx_value** outputs);
  /* The same for the gradient, with the site of the call itself. Buffers of the kernel: inputs, outputs, the outputs'
   * gradients, then the gradients of the floating-point inputs in their order, then the workspace; so `gradients` too.
   */
  hx_status (*find_gradient)(void* self, const hx_call_site* site, hx_kernel* out);
  hx_status (*run_gradient)(void* self, const hx_call_site* site, const hx_gradient_call* call, hx_value** gradients);
  void (*destroy)(void* self);
} hx_implementation_vt;

#ifdef __cplusplus
}
#endif
#endif
