// Functionals: new operations, defined by operations. Implementations: alternative ways to compute them, or the
// functionals and primitives of the library.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <harmonics/function.hpp>
#include <harmonics/functional_abi.h>
#include <harmonics/quantity.hpp>

namespace harmonics {

// Definition of an operation by operations. Traced once per input signature; must be pure and cannot read values.
class FunctionalBody {
 public:
  virtual std::vector<HTensor> operator()(const std::vector<HTensor>& inputs, const Arguments& arguments) const = 0;
  // Whether gradient() is implemented; otherwise the gradient is derived from the body.
  virtual bool has_gradient() const { return false; }
  // Returns the gradients of the inputs, by operations; an empty tensor for an input without one. Values that the
  // gradient needs must be results of the body.
  virtual std::vector<HTensor> gradient(const std::vector<HTensor>& inputs, const std::vector<HTensor>& outputs,
                                        const std::vector<HTensor>& output_gradients,
                                        const Arguments& arguments) const {
    (void)inputs, (void)outputs, (void)output_gradients, (void)arguments;
    return {};
  }
  // Returns the names of inputs and results: "x [..., in], weight [out, in], bias [out]? -> y [..., out]". `?` marks an
  // optional input, "..." after an input marks repetition, "ids [...] < rows" marks indices below the axis or argument
  // `rows`. "": any inputs. Calls with another number of inputs are rejected. Must stay valid as long as the object.
  virtual const char* signature() const { return ""; }
  virtual ~FunctionalBody() = default;
};

// A call site of a functional or primitive.
class CallSite {
 public:
  explicit CallSite(const hx_call_site& raw) : raw_(raw) {}

  const char* op() const { return raw_.op; }
  const char* device() const { return raw_.device; }  // "cpu"
  bool training() const { return (raw_.flags & HX_SITE_TRAINING) != 0; }
  Arguments arguments() const { return Arguments(raw_.attributes); }
  size_t inputs() const { return raw_.n_inputs; }
  size_t outputs() const { return raw_.n_outputs; }
  DType input_dtype(size_t i) const { return static_cast<DType>(raw_.inputs[i].dtype); }
  DType output_dtype(size_t i) const { return static_cast<DType>(raw_.outputs[i].dtype); }
  Shape input_shape(size_t i) const { return shape(raw_.inputs[i]); }
  Shape output_shape(size_t i) const { return shape(raw_.outputs[i]); }
  // Returns the handles of the device's driver, for kernels with enqueue_native; null: none.
  const hx_native* native() const {
    return raw_.struct_size >= offsetof(hx_call_site, native) + sizeof raw_.native ? raw_.native : nullptr;
  }
  const hx_call_site& raw() const { return raw_; }

 private:
  static Shape shape(const hx_type& t) { return Shape(t.dims, t.dims + t.rank); }

  const hx_call_site& raw_;
};

// Computes a functional or primitive. A kernel (hx_kernel in abi.h) works on memory, in parts, without allocation;
// `run`, which is slower, maps tensors to tensors. Called from any thread.
class Implementation {
 public:
  // Returns "" if it supports this call, else the reason. Pure. In training, "" covers the gradient too if
  // has_gradient().
  virtual std::string supports(const CallSite& site) const = 0;

  // Fills `out` and returns true if there is a kernel; false: run() is called instead.
  virtual bool find(const CallSite& site, hx_kernel& out) const {
    (void)site, (void)out;
    return false;
  }
  virtual std::vector<HTensor> run(const CallSite& site, const std::vector<HTensor>& inputs) const {
    (void)inputs;
    throw Error(ErrorKind::Plugin,
                std::string("the implementation of '") + site.op() + "' has neither a kernel nor run()");
  }

  // Whether it computes the gradient. The host uses both or neither; otherwise the gradient of the functional is used.
  virtual bool has_gradient() const { return false; }
  // As find(), for the gradient. Buffers: inputs, outputs, the outputs' gradients, the gradients of the floating-point
  // inputs, the workspace.
  virtual bool find_gradient(const CallSite& site, hx_kernel& out) const {
    (void)site, (void)out;
    return false;
  }
  // Returns the gradients of the floating-point inputs.
  virtual std::vector<HTensor> run_gradient(const CallSite& site, const std::vector<HTensor>& inputs,
                                            const std::vector<HTensor>& outputs,
                                            const std::vector<HTensor>& output_gradients) const {
    (void)inputs, (void)outputs, (void)output_gradients;
    throw Error(ErrorKind::Plugin,
                std::string("the implementation of '") + site.op() + "' has neither a kernel nor run_gradient()");
  }
  virtual ~Implementation() = default;
};

namespace detail {

HARMONICS_FACE inline std::vector<HTensor> borrowed(hx_value* const* values, uint32_t n) {
  std::vector<HTensor> list;
  for (uint32_t i = 0; i < n; ++i) list.push_back(HTensor::borrow(values[i]));
  return list;
}
// Transfers the references of the list; an empty tensor becomes null.
HARMONICS_FACE inline void hand_over(std::vector<HTensor> list, size_t wanted, hx_value** out, const char* what,
                                     bool may_be_empty = false) {
  if (list.size() != wanted)
    throw Error(ErrorKind::Plugin, std::string(what) + " gave " + quantity(list.size(), "tensor") + " instead of " +
                                       std::to_string(wanted));
  if (!may_be_empty)
    for (const HTensor& t : list)
      if (!t) throw Error(ErrorKind::Plugin, std::string(what) + " returned an empty tensor");
  for (size_t i = 0; i < list.size(); ++i) out[i] = list[i].release();
}

HARMONICS_FACE inline const hx_functional_vt* functional_vt() {
  static const hx_functional_vt vt = {
      sizeof(hx_functional_vt),
      [](void* self, const hx_attributes* args, hx_value* const* inputs, uint32_t n, hx_value** outs,
         uint32_t* n_outs) {
        return guarded([&] {
          std::vector<HTensor> results = object<FunctionalBody>(self)(borrowed(inputs, n), Arguments(args));
          if (results.empty() || results.size() > HX_MAX_RESULTS)
            throw Error(ErrorKind::Plugin, "the body gave " + std::to_string(results.size()) + " results; from 1 to " +
                                               std::to_string(HX_MAX_RESULTS) + " are possible");
          *n_outs = static_cast<uint32_t>(results.size());
          const size_t wanted = results.size();
          hand_over(std::move(results), wanted, outs, "the body");
          return HX_OK;
        });
      },
      [](void* self, const hx_attributes* args, const hx_gradient_call* c, hx_value** gradients) {
        return guarded([&] {
          std::vector<HTensor> results = object<FunctionalBody>(self).gradient(
              borrowed(c->inputs, c->n_inputs), borrowed(c->outputs, c->n_outputs),
              borrowed(c->output_gradients, c->n_outputs), Arguments(args));
          hand_over(std::move(results), c->n_inputs, gradients, "gradient()", true);
          return HX_OK;
        });
      },
      destroy<FunctionalBody>, [](void* self) { return object<FunctionalBody>(self).signature(); }};
  return &vt;
}

HARMONICS_FACE inline uint32_t float_inputs(const hx_call_site& site) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < site.n_inputs; ++i) n += site.inputs[i].dtype >= HX_F16;
  return n;
}
HARMONICS_FACE inline const hx_implementation_vt* implementation_vt() {
  static const hx_implementation_vt vt = {
      sizeof(hx_implementation_vt),
      [](void* self, const hx_call_site* site) {
        return guarded([&] {
          const std::string why = object<Implementation>(self).supports(CallSite(*site));
          if (why.empty()) return HX_OK;
          api()->set_error(HX_ERROR_PLUGIN, why.c_str());
          return HX_DECLINED;
        });
      },
      [](void* self, const hx_call_site* site, hx_kernel* out) {
        return guarded([&] { return object<Implementation>(self).find(CallSite(*site), *out) ? HX_OK : HX_DECLINED; });
      },
      [](void* self, const hx_call_site* site, hx_value* const* inputs, hx_value** outputs) {
        return guarded([&] {
          hand_over(object<Implementation>(self).run(CallSite(*site), borrowed(inputs, site->n_inputs)),
                    site->n_outputs, outputs, "run()");
          return HX_OK;
        });
      },
      [](void* self, const hx_call_site* site, hx_kernel* out) {
        return guarded(
            [&] { return object<Implementation>(self).find_gradient(CallSite(*site), *out) ? HX_OK : HX_DECLINED; });
      },
      [](void* self, const hx_call_site* site, const hx_gradient_call* c, hx_value** gradients) {
        return guarded([&] {
          hand_over(object<Implementation>(self).run_gradient(CallSite(*site), borrowed(c->inputs, c->n_inputs),
                                                              borrowed(c->outputs, c->n_outputs),
                                                              borrowed(c->output_gradients, c->n_outputs)),
                    float_inputs(*site), gradients, "run_gradient()");
          return HX_OK;
        });
      },
      destroy<Implementation>};
  return &vt;
}

}  // namespace detail

HARMONICS_FACE inline void FunctionRegistry::register_functional(const std::string& name,
                                                                 std::shared_ptr<FunctionalBody> body,
                                                                 const std::string& description,
                                                                 const std::vector<Argument>& arguments,
                                                                 uint32_t flags) {
  const uint32_t all = flags | (body && body->has_gradient() ? HX_OWN_GRADIENT : 0);
  add(HX_FUNCTIONAL, name, description, arguments, all, detail::held(std::move(body), "functional", name),
      [] { return static_cast<const void*>(detail::functional_vt()); });
}
HARMONICS_FACE inline void FunctionRegistry::register_implementation(const std::string& functional,
                                                                     const std::string& name,
                                                                     std::shared_ptr<Implementation> implementation,
                                                                     const std::string& description) {
  const uint32_t flags = implementation && implementation->has_gradient() ? HX_OWN_GRADIENT : 0;
  const std::string full_name = functional + "." + name;
  add(HX_IMPLEMENTATION, full_name, description, {}, flags,
      detail::held(std::move(implementation), "implementation", full_name),
      [] { return static_cast<const void*>(detail::implementation_vt()); });
}

}  // namespace harmonics
