/* Items of kind HX_FUNCTIONAL and HX_IMPLEMENTATION: C11, append-only, with the rules of abi.h.
 *
 * A functional is a named operation that is written in other operations: that is what it means, for every device. An
 * implementation computes what a functional or primitive means in another way, where it says that it can. */
#ifndef HARMONICS_FUNCTIONAL_ABI_H
#define HARMONICS_FUNCTIONAL_ABI_H

#include <harmonics/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_MAX_RESULTS 16

/* One call and what is known of it when its gradient is wanted. */
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
  /* The body, written with hx_api.apply: it is run once for each kind of inputs, and must be pure. `outs` has room for
   * HX_MAX_RESULTS. Bodies that read numbers are refused. */
  hx_status (*apply)(void* self, const hx_attributes* args, hx_value* const* inputs, uint32_t n_inputs, hx_value** outs,
                     uint32_t* n_outs);
  /* Gradients of the inputs, of their types; NULL for an input that has none. Called where the item has HX_OWN_GRADIENT, else
   * the gradient is derived from the body. */
  hx_status (*gradient)(void* self, const hx_attributes* args, const hx_gradient_call* call, hx_value** gradients);
  void (*destroy)(void* self);
} hx_functional_vt;

/* An item of this kind is called FUNCTIONAL.NAME; its arguments are not used. Where it serves, it is taken before the
 * kernels of the device, and the one that was registered last before the others. */
typedef struct hx_implementation_vt {
  uint32_t struct_size;
  /* Does it serve this call? Pure: the same answer to the same site. HX_OK or HX_DECLINED, with set_error saying why not.
   * With HX_SITE_TRAINING and the item's HX_OWN_GRADIENT a yes is about the gradient too: both are taken, or neither. */
  hx_status (*supports)(void* self, const hx_call_site* site);
  /* A kernel for the site. NULL or HX_DECLINED: `run` is called instead. */
  hx_status (*find)(void* self, const hx_call_site* site, hx_kernel* out);
  /* The results of one call as tensors of the site's types. */
  hx_status (*run)(void* self, const hx_call_site* site, hx_value* const* inputs, hx_value** outputs);
  /* The same for the gradient, with the site of the call itself. Buffers of the kernel: inputs, outputs, the outputs'
   * gradients, then the gradients of the floating-point inputs in their order, then the workspace; so `gradients` too. */
  hx_status (*find_gradient)(void* self, const hx_call_site* site, hx_kernel* out);
  hx_status (*run_gradient)(void* self, const hx_call_site* site, const hx_gradient_call* call, hx_value** gradients);
  void (*destroy)(void* self);
} hx_implementation_vt;

#ifdef __cplusplus
}
#endif
#endif
