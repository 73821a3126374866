// Items of plugins: activations, losses, layers, producers, consumers, devices; and the registry. Other kinds:
// functional.hpp, training.hpp, augmentation.hpp, metric.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>

#include <harmonics/device.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/stream.hpp>

namespace harmonics {

// The arguments of one call in a flow, validated against the registered schema, with defaults.
class Arguments {
 public:
  Arguments() = default;
  explicit Arguments(const hx_attributes* view) : view_(view) {}

  bool has(const char* name) const { return find_attribute(view_, name) != nullptr; }
  int64_t integer(const char* name, int64_t otherwise = 0) const { return int_attribute(view_, name, otherwise); }
  double number(const char* name, double otherwise = 0) const { return float_attribute(view_, name, otherwise); }
  bool flag(const char* name, bool otherwise = false) const { return int_attribute(view_, name, otherwise) != 0; }
  std::string text(const char* name, const char* otherwise = "") const {
    return string_attribute(view_, name, otherwise);
  }
  std::vector<int64_t> integers(const char* name) const { return ints_attribute(view_, name); }
  // Returns the value of a layer named by an argument; empty if absent.
  HTensor tensor(const char* name) const {
    const hx_attribute* a = find_attribute(view_, name);
    return a && a->kind == HX_ATTR_VALUE ? HTensor::borrow(a->as.value) : HTensor();
  }

 private:
  const hx_attributes* view_ = nullptr;
};

// One argument of a function's schema, for help, validation and defaults.
struct Argument {
  uint32_t type = 0;
  std::string name, description, default_text;
  bool required = false;
  std::string range;  // "0..1", "1..", "0<..<1", "none|tanh"; "": any

  static Argument integer(std::string name, std::string description) { return make(HX_ARG_INT, name, description); }
  static Argument integer(std::string name, int64_t otherwise, std::string description) {
    return make(HX_ARG_INT, name, description, std::to_string(otherwise));
  }
  static Argument number(std::string name, std::string otherwise, std::string description) {
    return make(HX_ARG_FLOAT, name, description, otherwise);
  }
  static Argument flag(std::string name, bool otherwise, std::string description) {
    return make(HX_ARG_BOOL, name, description, otherwise ? "true" : "false");
  }
  static Argument text(std::string name, std::string otherwise, std::string description) {
    return make(HX_ARG_STRING, name, description, otherwise);
  }
  static Argument integers(std::string name, std::string description) { return make(HX_ARG_INTS, name, description); }
  static Argument layer(std::string name, std::string description) { return make(HX_ARG_LAYER, name, description); }
  Argument must() const {
    Argument a = *this;
    a.required = true;
    return a;
  }
  // Sets the allowed values: in("0..1"), in("0<.."), in("none|tanh"). The host rejects others before the call.
  Argument in(std::string values) const {
    Argument a = *this;
    a.range = std::move(values);
    return a;
  }

 private:
  static Argument make(uint32_t type, std::string name, std::string description, std::string otherwise = "") {
    Argument a;
    a.type = type;
    a.name = std::move(name);
    a.description = std::move(description);
    a.default_text = std::move(otherwise);
    return a;
  }
};

// A layer body's access to its graph. Valid only during the call.
class Scope {
 public:
  explicit Scope(hx_scope* scope) : scope_(scope) {}

  // Returns a trainable tensor, named below the arrow's path; equal names share one tensor.
  HTensor parameter(const char* name, const Shape& shape, hx_init init, DType dtype = DType::F32) {
    const hx_type t = make_type(dtype, shape);
    hx_value* out = nullptr;
    detail::check(detail::api()->scope_parameter(scope_, name, &t, &init, &out));
    return HTensor::adopt(out);
  }
  // Returns a tensor that persists across steps and is not trained (running statistics).
  HTensor state(const char* name, const Shape& shape, hx_init init, DType dtype = DType::F32) {
    const hx_type t = make_type(dtype, shape);
    hx_value* out = nullptr;
    detail::check(detail::api()->scope_state(scope_, name, &t, &init, &out));
    return HTensor::adopt(out);
  }
  void update(const char* name, const HTensor& value) {
    detail::check(detail::api()->scope_update(scope_, name, value.raw()));
  }
  // Returns uniform numbers in [0, 1), new in each step, equal in all runs with the same seed.
  HTensor random(const Shape& shape) {
    const hx_type t = make_type(DType::F32, shape);
    hx_value* out = nullptr;
    detail::check(detail::api()->scope_random(scope_, &t, &out));
    return HTensor::adopt(out);
  }
  bool training() const { return detail::api()->scope_training(scope_) != 0; }
  // Returns the number of leading axes of x (batch and positions); the layer acts on the other axes.
  uint32_t leading() const { return detail::api()->scope_leading(scope_); }
  // Sets the number of leading axes of the result, if it differs from that of x: a layer that reduces a sequence to one
  // value removes the position axis.
  void set_leading(uint32_t axes) {
    const hx_api* api = detail::api();
    if (api->struct_size < offsetof(hx_api, scope_set_leading) + sizeof api->scope_set_leading)
      throw Error(ErrorKind::Plugin, "the program that loaded this library does not support set_leading()");
    detail::check(api->scope_set_leading(scope_, axes));
  }
  // Returns the width of the arrow's target, for a layer without a declared width.
  int64_t width() const {
    int64_t w = 0;
    detail::check(detail::api()->scope_width(scope_, &w));
    return w;
  }
  // Returns the number of classes or tokens of the stream that feeds x; 0: unknown.
  int64_t classes() const {
    int64_t n = 0;
    detail::check(detail::api()->scope_classes(scope_, &n));
    return n;
  }

 private:
  hx_scope* scope_;
};

inline hx_init constant_init(double value) { return {HX_INIT_CONSTANT, value, 0}; }
inline hx_init uniform_init(double low, double high) { return {HX_INIT_UNIFORM, low, high}; }
inline hx_init normal_init(double mean, double deviation) { return {HX_INIT_NORMAL, mean, deviation}; }
inline hx_init kaiming_init(int64_t fan_in) { return {HX_INIT_KAIMING_UNIFORM, static_cast<double>(fan_in), 0}; }

// y = f(x). A body of ops.hpp functions is traced: its gradient is derived and it runs on every device. A body that
// reads values (data<float>()) supports inference; for training, override gradient().
class ActivationFunction {
 public:
  virtual HTensor operator()(const HTensor& x) const = 0;
  virtual HTensor operator()(const HTensor& x, const Arguments&) const { return (*this)(x); }
  // Returns dx. An empty tensor (the default): the gradient is derived.
  virtual HTensor gradient(const HTensor& x, const HTensor& y, const HTensor& dy) const {
    (void)x, (void)y, (void)dy;
    return {};
  }
  virtual HTensor gradient(const HTensor& x, const HTensor& y, const HTensor& dy, const Arguments&) const {
    return gradient(x, y, dy);
  }
  // Returns metadata for `inspect`: Attributes().set("shader", "my_relu").
  virtual Attributes metadata() const { return {}; }
  virtual ~ActivationFunction() = default;
};

// Loss per sample: a tensor with the batch and position axes of the prediction first, or a scalar. The engine sums over
// the other axes and averages over samples and positions.
class LossFunction {
 public:
  virtual HTensor operator()(const HTensor& prediction, const HTensor& target) const = 0;
  virtual HTensor operator()(const HTensor& prediction, const HTensor& target, const Arguments&) const {
    return (*this)(prediction, target);
  }
  // Returns the loss computed from the input of the activation with this identity ("plugin-id/name"; "" for none), for
  // numerical stability. An empty tensor: operator() is used. Throws to reject an invalid combination.
  virtual HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                        const Arguments&) const {
    (void)activation, (void)logits, (void)target;
    return {};
  }
  virtual HTensor gradient(const HTensor& prediction, const HTensor& target, const HTensor& dloss) const {
    (void)prediction, (void)target, (void)dloss;
    return {};
  }
  virtual HTensor gradient(const HTensor& prediction, const HTensor& target, const HTensor& dloss,
                           const Arguments&) const {
    return gradient(prediction, target, dloss);
  }
  virtual ~LossFunction() = default;
};

// Reports a figure, within a loss of ops.hpp functions: runs show the mean of `value` over the samples in progress,
// logs,
// --json and conditions, as NAME and LAYER.NAME. `value` has any shape. Older versions of Harmonics ignore it.
HARMONICS_FACE inline void report_figure(const char* name, const HTensor& value) {
  const hx_api* api = detail::api();
  if (api->struct_size >= offsetof(hx_api, report_figure) + sizeof api->report_figure)
    detail::check(api->report_figure(name, value.raw()));
}

// A function that may own parameters and change the shape. x has leading() batch and position axes.
class LayerFunction {
 public:
  virtual HTensor operator()(Scope& scope, const HTensor& x, const Arguments& arguments) const = 0;
  virtual ~LayerFunction() = default;
};

// Open a producer or consumer for an address. `path`: the part after "scheme:".
using ProducerFactory = std::function<std::shared_ptr<Producer>(const std::string& path, const Arguments& options)>;
using ConsumerFactory = std::function<std::shared_ptr<Consumer>(const std::string& path, const Arguments& options)>;

class MemoryDevice;
class Metric;
class FunctionalBody;
class Implementation;
class OptimizerFunction;
class ScheduleFunction;
class PredicateFunction;
class AugmentationFunction;
// Creates a metric with these arguments.
using MetricFactory = std::function<std::unique_ptr<Metric>(const Arguments& arguments)>;

namespace detail {

HARMONICS_FACE inline hx_status give(HTensor t, hx_value** out, const char* what) {
  if (!t) throw Error(ErrorKind::Plugin, std::string(what) + " returned an empty tensor");
  *out = t.release();
  return HX_OK;
}
HARMONICS_FACE inline hx_status give_or_decline(HTensor t, hx_value** out) {
  if (!t) return HX_DECLINED;
  *out = t.release();
  return HX_OK;
}
template <typename T>
HARMONICS_FACE const T& object(void* self) {
  return **static_cast<std::shared_ptr<T>*>(self);
}
template <typename T>
HARMONICS_FACE void destroy(void* self) {
  delete static_cast<std::shared_ptr<T>*>(self);
}
// Returns the host's handle of an object or factory. Rejects null, which would crash on first use.
template <typename T>
HARMONICS_FACE T* held(T object, const char* kind, const std::string& name) {
  if (!object) throw Error(ErrorKind::Plugin, "cannot register " + (kind + (" '" + name)) + "': its object is null");
  return new T(std::move(object));
}

HARMONICS_FACE inline const hx_activation_vt* activation_vt() {
  static const hx_activation_vt vt = {
      sizeof(hx_activation_vt),
      [](void* self, const hx_attributes* args, hx_value* x, hx_value** y) {
        return guarded([&] {
          return give(object<ActivationFunction>(self)(HTensor::borrow(x), Arguments(args)), y, "the activation");
        });
      },
      [](void* self, const hx_attributes* args, hx_value* x, hx_value* y, hx_value* dy, hx_value** dx) {
        return guarded([&] {
          return give_or_decline(object<ActivationFunction>(self).gradient(HTensor::borrow(x), HTensor::borrow(y),
                                                                           HTensor::borrow(dy), Arguments(args)),
                                 dx);
        });
      },
      destroy<ActivationFunction>,
      [](void* self) -> const hx_attributes* {
        thread_local Attributes kept;
        thread_local std::vector<hx_attribute> items;
        thread_local hx_attributes view;
        const hx_status status = guarded([&] {
          kept = object<ActivationFunction>(self).metadata();
          view = kept.view(items);
          return HX_OK;
        });
        return status == HX_OK ? &view : nullptr;
      }};
  return &vt;
}
HARMONICS_FACE inline const hx_loss_vt* loss_vt() {
  static const hx_loss_vt vt = {
      sizeof(hx_loss_vt),
      [](void* self, const hx_attributes* args, hx_value* p, hx_value* t, hx_value** out) {
        return guarded([&] {
          return give(object<LossFunction>(self)(HTensor::borrow(p), HTensor::borrow(t), Arguments(args)), out,
                      "the loss");
        });
      },
      [](void* self, const hx_attributes* args, const char* activation, hx_value* logits, hx_value* t, hx_value** out) {
        return guarded([&] {
          return give_or_decline(object<LossFunction>(self).fused(activation, HTensor::borrow(logits),
                                                                  HTensor::borrow(t), Arguments(args)),
                                 out);
        });
      },
      [](void* self, const hx_attributes* args, hx_value* p, hx_value* t, hx_value* d, hx_value** out) {
        return guarded([&] {
          return give_or_decline(object<LossFunction>(self).gradient(HTensor::borrow(p), HTensor::borrow(t),
                                                                     HTensor::borrow(d), Arguments(args)),
                                 out);
        });
      },
      destroy<LossFunction>};
  return &vt;
}
HARMONICS_FACE inline const hx_layer_vt* layer_vt() {
  static const hx_layer_vt vt = {sizeof(hx_layer_vt),
                                 [](void* self, const hx_attributes* args, hx_scope* scope, hx_value* x, hx_value** y) {
                                   return guarded([&] {
                                     Scope s(scope);
                                     return give(object<LayerFunction>(self)(s, HTensor::borrow(x), Arguments(args)), y,
                                                 "the layer");
                                   });
                                 },
                                 destroy<LayerFunction>};
  return &vt;
}

// The host's handle of a producer: the C++ object, and the result of describe(), to which the host has pointers.
struct HeldProducer {
  std::shared_ptr<Producer> producer;
  std::optional<StreamInfo> info;
  std::vector<const char*> symbols;
};
HARMONICS_FACE inline void to_c(const StreamHealth& health, hx_stream_health& out) {
  out.state = static_cast<uint32_t>(health.state);
  out.senders = health.senders;
  out.connected = health.connected;
  out.wants_durable = health.wants_durable;
  out.at_most_once = health.at_most_once;
  out.samples = health.samples;
  out.bytes = health.bytes;
  out.queued_samples = health.queued_samples;
  out.queued_bytes = health.queued_bytes;
  out.window_bytes = health.window_bytes;
  out.lost = health.lost;
  out.duplicates = health.duplicates;
  out.refused = health.refused;
  out.resent = health.resent;
  out.idle_seconds = health.idle_seconds;
  size_t length = std::min(health.last_error.size(), sizeof out.last_error - 1);
  while (length < health.last_error.size() && length > 0 && (health.last_error[length] & 0xC0) == 0x80)
    --length;  // truncates to whole UTF-8 characters
  health.last_error.copy(out.last_error, length);
  out.last_error[length] = '\0';
}
HARMONICS_FACE inline const hx_producer_vt* producer_vt() {
  static const hx_producer_vt vt = {
      sizeof(hx_producer_vt),
      [](void* self, hx_stream_info* out) {
        return guarded([&] {
          auto& held = *static_cast<HeldProducer*>(self);
          held.info = held.producer->describe();
          if (!held.info) return HX_DECLINED;
          const StreamInfo& i = *held.info;
          held.symbols.clear();
          for (const std::string& s : i.symbols) held.symbols.push_back(s.c_str());
          out->position_axes = i.position_axes;
          out->sample = make_type(i.dtype, i.sample);
          out->size = i.size;
          out->classes = i.classes;
          out->live = i.live;
          out->n_symbols = static_cast<uint32_t>(held.symbols.size());
          out->symbols = held.symbols.data();
          out->notes = i.notes.empty() ? nullptr : i.notes.c_str();
          return HX_OK;
        });
      },
      [](void* self, hx_value** out) {
        return guarded([&] {
          HTensor t = static_cast<HeldProducer*>(self)->producer->next();
          if (!t) return HX_END;
          *out = t.release();
          return HX_OK;
        });
      },
      [](void* self, uint64_t n, void* to, uint64_t* got) {
        return guarded([&] {
          const int64_t r = static_cast<HeldProducer*>(self)->producer->read(n, to);
          if (r < 0) return HX_DECLINED;
          *got = static_cast<uint64_t>(r);
          return HX_OK;
        });
      },
      [](void* self, uint64_t epoch) {
        return guarded(
            [&] { return static_cast<HeldProducer*>(self)->producer->seek(epoch, 0) ? HX_OK : HX_DECLINED; });
      },
      [](void* self) -> uint64_t {
        uint64_t n = 0;
        guarded([&] { return n = static_cast<HeldProducer*>(self)->producer->size(), HX_OK; });
        return n;
      },
      [](void* self) { delete static_cast<HeldProducer*>(self); },
      [](void* self, const uint64_t* numbers, uint64_t n, void* to) {
        return guarded(
            [&] { return static_cast<HeldProducer*>(self)->producer->read_at(numbers, n, to) ? HX_OK : HX_DECLINED; });
      },
      [](void* self, uint64_t epoch, uint64_t index) {
        return guarded(
            [&] { return static_cast<HeldProducer*>(self)->producer->seek(epoch, index) ? HX_OK : HX_DECLINED; });
      },
      [](void* self, uint64_t index, const char* position) {
        return guarded(
            [&] { return static_cast<HeldProducer*>(self)->producer->restore(index, position) ? HX_OK : HX_DECLINED; });
      },
      [](void* self, uint64_t index, char* to, uint64_t capacity, uint64_t* size) {
        return guarded([&] {
          const std::string text = static_cast<HeldProducer*>(self)->producer->position(index);
          *size = text.size();
          if (text.size() < capacity) text.copy(to, text.size()), to[text.size()] = '\0';
          return HX_OK;
        });
      },
      [](void* self, uint64_t index) {
        return guarded([&] { return static_cast<HeldProducer*>(self)->producer->durable(index), HX_OK; });
      },
      [](void* self) {
        return guarded([&] { return static_cast<HeldProducer*>(self)->producer->cancel() ? HX_OK : HX_DECLINED; });
      },
      [](void* self, hx_stream_health* out) {
        return guarded([&] {
          const std::optional<StreamHealth> health = static_cast<HeldProducer*>(self)->producer->health();
          return health ? (to_c(*health, *out), HX_OK) : HX_DECLINED;
        });
      },
      [](void* self, uint64_t n, hx_sample_number* to) {
        return guarded(
            [&] { return static_cast<HeldProducer*>(self)->producer->numbers(n, to) ? HX_OK : HX_DECLINED; });
      }};
  return &vt;
}
HARMONICS_FACE inline const hx_consumer_vt* consumer_vt() {
  static const hx_consumer_vt vt = {
      sizeof(hx_consumer_vt),
      [](void* self, hx_value* sample) {
        return guarded(
            [&] { return (*static_cast<std::shared_ptr<Consumer>*>(self))->push(HTensor::borrow(sample)), HX_OK; });
      },
      [](void* self) {
        return guarded([&] { return (*static_cast<std::shared_ptr<Consumer>*>(self))->finish(), HX_OK; });
      },
      [](void* self) { delete static_cast<std::shared_ptr<Consumer>*>(self); }};
  return &vt;
}
HARMONICS_FACE inline const hx_device_vt* device_vt() {
  static const hx_device_vt table = [] {
    hx_device_vt vt{};  // in host memory
    vt.struct_size = sizeof vt;
    vt.describe = [](void* self) -> const char* {
      thread_local std::string text;
      guarded([&] { return text = (*static_cast<std::shared_ptr<Device>*>(self))->describe(), HX_OK; });
      return text.c_str();
    };
    vt.find = [](void* self, const hx_call_site* site, hx_kernel* out) {
      return guarded(
          [&] { return (*static_cast<std::shared_ptr<Device>*>(self))->find(*site, *out) ? HX_OK : HX_DECLINED; });
    };
    vt.destroy = [](void* self) { delete static_cast<std::shared_ptr<Device>*>(self); };
    vt.flags = [](void* self) -> uint32_t { return (*static_cast<std::shared_ptr<Device>*>(self))->roundings(); };
    vt.wrap = [](void* self, const hx_device_vt* inner, void* inner_self, const hx_device_vt** out_vt, void** out) {
      return guarded([&] {
        auto made = (*static_cast<std::shared_ptr<Device>*>(self))->wrap({inner, inner_self});
        if (!made) return HX_DECLINED;
        *out_vt = device_vt();
        *out = new std::shared_ptr<Device>(std::move(made));
        return HX_OK;
      });
    };
    return vt;
  }();
  return &table;
}
HARMONICS_FACE inline const hx_producer_factory_vt* producer_factory_vt() {
  static const hx_producer_factory_vt vt = {
      sizeof(hx_producer_factory_vt),
      [](void* self, const char* path, const hx_attributes* args, const hx_producer_vt** out_vt, void** object) {
        return guarded([&] {
          auto producer = (*static_cast<ProducerFactory*>(self))(path, Arguments(args));
          if (!producer) throw Error(ErrorKind::Plugin, "the producer's factory returned nothing");
          *out_vt = producer_vt();
          *object = new HeldProducer{std::move(producer), std::nullopt, {}};
          return HX_OK;
        });
      },
      [](void* self) { delete static_cast<ProducerFactory*>(self); }};
  return &vt;
}
HARMONICS_FACE inline const hx_consumer_factory_vt* consumer_factory_vt() {
  static const hx_consumer_factory_vt vt = {
      sizeof(hx_consumer_factory_vt),
      [](void* self, const char* path, const hx_attributes* args, const hx_consumer_vt** out_vt, void** object) {
        return guarded([&] {
          auto consumer = (*static_cast<ConsumerFactory*>(self))(path, Arguments(args));
          if (!consumer) throw Error(ErrorKind::Plugin, "the consumer's factory returned nothing");
          *out_vt = consumer_vt();
          *object = new std::shared_ptr<Consumer>(std::move(consumer));
          return HX_OK;
        });
      },
      [](void* self) { delete static_cast<ConsumerFactory*>(self); }};
  return &vt;
}
}  // namespace detail

// The argument of harmonics_register. An item replaces one of the same name from another library; a library must
// register a name only once.
class FunctionRegistry final {
 public:
  void register_activation(const std::string& name, std::shared_ptr<ActivationFunction> f,
                           const std::string& description = "", const std::vector<Argument>& arguments = {},
                           uint32_t flags = 0) {
    add(HX_ACTIVATION, name, description, arguments, flags, detail::held(std::move(f), "activation", name),
        [] { return static_cast<const void*>(detail::activation_vt()); });
  }
  void register_loss(const std::string& name, std::shared_ptr<LossFunction> f, const std::string& description = "",
                     const std::vector<Argument>& arguments = {}, uint32_t flags = 0) {
    add(HX_LOSS, name, description, arguments, flags, detail::held(std::move(f), "loss", name),
        [] { return static_cast<const void*>(detail::loss_vt()); });
  }
  void register_layer(const std::string& name, std::shared_ptr<LayerFunction> f, const std::string& description = "",
                      const std::vector<Argument>& arguments = {}, uint32_t flags = 0) {
    add(HX_LAYER, name, description, arguments, flags, detail::held(std::move(f), "layer", name),
        [] { return static_cast<const void*>(detail::layer_vt()); });
  }
  // `scheme` is the word before the colon of an address.
  void register_producer(const std::string& scheme, ProducerFactory open, const std::string& description = "",
                         const std::vector<Argument>& options = {}) {
    add(HX_PRODUCER, scheme, description, options, 0, detail::held(std::move(open), "producer", scheme),
        [] { return static_cast<const void*>(detail::producer_factory_vt()); });
  }
  void register_consumer(const std::string& scheme, ConsumerFactory open, const std::string& description = "",
                         const std::vector<Argument>& options = {}) {
    add(HX_CONSUMER, scheme, description, options, 0, detail::held(std::move(open), "consumer", scheme),
        [] { return static_cast<const void*>(detail::consumer_factory_vt()); });
  }
  void register_device(const std::string& name, std::shared_ptr<Device> device, const std::string& description = "") {
    add(HX_DEVICE, name, description, {}, 0, detail::held(std::move(device), "device", name),
        [] { return static_cast<const void*>(detail::device_vt()); });
  }
  // Registers a device with its own memory (memory_device.hpp).
  void register_memory_device(const std::string& name, std::shared_ptr<MemoryDevice> device,
                              const std::string& description = "");

  // flags: HX_TAKES_CLASSES or HX_TAKES_NUMBERS if the metric supports only classes or only numbers.
  void register_metric(const std::string& name, MetricFactory open, const std::string& description = "",
                       const std::vector<Argument>& arguments = {}, uint32_t flags = 0);
  // Registers a new operation: call1("name", {x}), and a layer function in flows if x is its only input.
  void register_functional(const std::string& name, std::shared_ptr<FunctionalBody> body,
                           const std::string& description = "", const std::vector<Argument>& arguments = {},
                           uint32_t flags = 0);
  // Registers an alternative way to compute a functional or primitive: --override FUNCTIONAL=NAME.
  void register_implementation(const std::string& functional, const std::string& name,
                               std::shared_ptr<Implementation> implementation, const std::string& description = "");
  // The first argument is "lr", a number with a default.
  void register_optimizer(const std::string& name, std::shared_ptr<OptimizerFunction> f,
                          const std::string& description = "", const std::vector<Argument>& arguments = {});
  // flags: HX_NEEDS_END.
  void register_schedule(const std::string& name, std::shared_ptr<ScheduleFunction> f,
                         const std::string& description = "", const std::vector<Argument>& arguments = {},
                         uint32_t flags = 0);
  // flags: HX_BY_CLOCK.
  void register_predicate(const std::string& name, std::shared_ptr<PredicateFunction> f,
                          const std::string& description = "", const std::vector<Argument>& arguments = {},
                          uint32_t flags = 0);
  void register_augmentation(const std::string& name, std::shared_ptr<AugmentationFunction> f,
                             const std::string& description = "", const std::vector<Argument>& arguments = {});

  // Registers an item of any kind; the base of the functions above. The host takes ownership of `self`.
  template <typename Table>
  HARMONICS_FACE void add(uint32_t kind, const std::string& name, const std::string& description,
                          const std::vector<Argument>& arguments, uint32_t flags, void* self, Table table) {
    detail::api_slot() = registration_.api;
    std::vector<hx_argument_spec> specs;
    for (const Argument& a : arguments)
      specs.push_back({sizeof(hx_argument_spec), a.type, a.name.c_str(), a.required ? nullptr : a.default_text.c_str(),
                       a.description.c_str(), a.range.c_str()});
    hx_item item{};
    item.struct_size = sizeof item;
    item.kind = kind;
    item.flags = flags;
    item.n_arguments = static_cast<uint32_t>(specs.size());
    item.name = name.c_str();
    item.description = description.c_str();
    item.arguments = specs.data();
    item.self = self;
    item.vtable = table();
    detail::check(registration_.api->register_item(registration_.registry, &item));
  }

 private:
  FunctionRegistry() = delete;  // a view of the host's hx_registration

  hx_registration registration_;
};
static_assert(sizeof(FunctionRegistry) == sizeof(hx_registration), "the registry is a view of the C struct");

}  // namespace harmonics
