// The C function table of the public API. No exception leaves its functions: guard() turns them into statuses.
#include <cstring>
#include <string_view>

#include <harmonics/exporter_abi.h>
#include <harmonics/policy_abi.h>
#include <harmonics/importer_abi.h>

#include "engine/contract/guard.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/plugin/pending_items.hpp"
#include "engine/plugin/scope.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/scan.hpp"
#include "engine/program/tracer.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {
namespace {

struct LastError {
  uint32_t kind = 0;
  std::string text;
};
thread_local LastError last;

}  // namespace

hx_status fail(ErrorKind kind, std::string text) {
  last = {static_cast<uint32_t>(kind), std::move(text)};
  return HX_ERROR;
}

namespace {

const char* last_error(uint32_t* kind) {
  if (kind) *kind = last.kind;
  return last.text.c_str();
}
void set_error(uint32_t kind, const char* text) {
  guard([&] { last = {kind, text ? text : ""}; });
}

// ---- values ----
void retain(hx_value* v) {
  if (v) v->references.fetch_add(1, std::memory_order_relaxed);
}
void release(hx_value* v) {
  if (v && v->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete v;
}

const hx_value& valid(const hx_value* v) {
  if (!v) throw Error(ErrorKind::Internal, "a null value was passed where a tensor is needed");
  return *v;
}
const hx_value& with_numbers(const hx_value* v) {
  if (valid(v).traced()) throw detail::NeedsValues{};
  return *v;
}

hx_status create(const hx_type* type, const void* data, hx_value** out) {
  return guard([&] {
    const TensorType t = from_c(*type);
    auto storage = std::make_shared<Storage>(t.bytes());
    if (data && t.bytes()) std::memcpy(storage->data(), data, t.bytes());
    *out = make_value(t, std::move(storage)).release();
  });
}
hx_status type_of_value(const hx_value* v, hx_type* out) {
  return guard([&] { *out = to_c(valid(v).type); });
}
hx_status data(const hx_value* v, const void** out) {
  return guard([&] { *out = with_numbers(v).storage->data(); });
}
// Copies the elements first if another handle or another value shares the storage.
hx_status mutable_data(hx_value** v, void** out) {
  return guard([&] {
    const hx_value& held = with_numbers(*v);
    const bool alone = held.references.load(std::memory_order_acquire) == 1 && held.storage.use_count() == 1;
    if (!alone || !held.storage->writable()) {
      auto storage = std::make_shared<Storage>(held.type.bytes());
      if (held.type.bytes()) std::memcpy(storage->data(), held.storage->data(), held.type.bytes());
      hx_value* copy = make_value(held.type, std::move(storage)).release();
      release(*v);
      *v = copy;
    }
    *out = (*v)->storage->data();
  });
}

// ---- operations ----
void apply_into(const char* op, const AttributeMap& attributes, hx_value* const* inputs, uint32_t n_inputs,
                hx_value** outs, uint32_t max_outs, uint32_t* n_outs) {
  std::vector<HTensor> in;
  in.reserve(n_inputs);
  for (uint32_t i = 0; i < n_inputs; ++i) {
    if (!inputs[i])
      throw Error(ErrorKind::Type, "operand " + std::to_string(i + 1) + " of '" + op + "' is an empty tensor");
    in.push_back(HTensor::borrow(inputs[i]));
  }
  std::vector<HTensor> results = apply(op, attributes, in);
  if (results.size() > max_outs)
    throw Error(ErrorKind::Internal, std::string("'") + op + "' has " + std::to_string(results.size()) +
                                         " results, there is room for " + std::to_string(max_outs));
  for (size_t i = 0; i < results.size(); ++i) outs[i] = results[i].release();
  *n_outs = static_cast<uint32_t>(results.size());
}
hx_status apply_op(const char* op, const hx_attributes* attributes, hx_value* const* inputs, uint32_t n_inputs,
                   hx_value** outs, uint32_t max_outs, uint32_t* n_outs) {
  return guard([&] { apply_into(op, AttributeMap(attributes), inputs, n_inputs, outs, max_outs, n_outs); });
}
hx_status apply_unchecked(const char* op, const hx_attributes* attributes, hx_value* const* inputs, uint32_t n_inputs,
                          hx_value** outs, uint32_t max_outs, uint32_t* n_outs) {
  return guard([&] {
    apply_into(op, known_attributes(op, AttributeMap(attributes)), inputs, n_inputs, outs, max_outs, n_outs);
  });
}

// ---- loops ----
std::vector<HTensor> borrowed(const char* what, hx_value* const* values, uint32_t n) {
  std::vector<HTensor> list;
  for (uint32_t i = 0; i < n; ++i) {
    if (!values[i])
      throw Error(ErrorKind::Type, "scan: " + std::string(what) + " " + std::to_string(i + 1) + " is an empty tensor");
    list.push_back(HTensor::borrow(values[i]));
  }
  return list;
}
Values step_of(const hx_loop_body& body, const Values& operands) {
  std::vector<hx_value*> in;
  for (const HTensor& t : operands) in.push_back(t.raw());
  hx_value* outs[HX_MAX_LOOP_RESULTS] = {};
  uint32_t n = 0;
  const hx_status status = body.step(body.self, in.data(), static_cast<uint32_t>(in.size()), outs, &n);
  if (status == HX_NEEDS_VALUES)
    throw Error(ErrorKind::Plugin, "scan: the body reads the values of a tensor, which exist only while the loop runs",
                {}, {"write the body with operations"});
  detail::check(status);
  if (n > HX_MAX_LOOP_RESULTS)
    throw Error(ErrorKind::Plugin, "scan: the body says that it gave " + std::to_string(n) + " results; at most " +
                                       std::to_string(HX_MAX_LOOP_RESULTS) + " are possible");
  Values results;
  for (uint32_t i = 0; i < n; ++i) results.push_back(HTensor::adopt(outs[i]));
  for (const HTensor& t : results)
    if (!t) throw Error(ErrorKind::Plugin, "scan: the body returned an empty tensor");
  return results;
}
hx_status scan_loop(const hx_loop_body* body, const hx_attributes* attributes, hx_value* const* carries,
                    uint32_t n_carries, hx_value* const* xs, uint32_t n_xs, hx_value** outs, uint32_t* n_outs) {
  return guard([&] {
    const AttributeMap map(attributes);
    for (const auto& [name, value] : map.entries())
      if (name != "length" && name != "reverse")
        throw Error(ErrorKind::Name, "scan: there is no attribute '" + name + "'; it has length and reverse");
    const ScanBody step = [&](const Values& operands) { return step_of(*body, operands); };
    Values results = scan(step, borrowed("carry", carries, n_carries), {}, borrowed("xs", xs, n_xs),
                          map.flag("reverse", false), map.integer("length", -1));
    if (results.size() > HX_MAX_LOOP_RESULTS)
      throw Error(ErrorKind::Internal, "scan: there is no room for " + std::to_string(results.size()) + " results");
    for (size_t i = 0; i < results.size(); ++i) outs[i] = results[i].release();
    *n_outs = static_cast<uint32_t>(results.size());
  });
}

// ---- layers ----
hx_scope& valid(hx_scope* scope) {
  if (!scope) throw Error(ErrorKind::Internal, "a layer requested a parameter without its scope");
  return *scope;
}
hx_status scope_parameter(hx_scope* s, const char* name, const hx_type* type, const hx_init* init, hx_value** out) {
  return guard([&] { *out = valid(s).parameter(name, from_c(*type), *init).release(); });
}
hx_status scope_state(hx_scope* s, const char* name, const hx_type* type, const hx_init* init, hx_value** out) {
  return guard([&] { *out = valid(s).state(name, from_c(*type), *init).release(); });
}
hx_status scope_update(hx_scope* s, const char* name, hx_value* value) {
  return guard([&] {
    if (!value) throw Error(ErrorKind::Type, std::string("the update of '") + name + "' is an empty tensor");
    valid(s).update(name, HTensor::borrow(value));
  });
}
hx_status scope_random(hx_scope* s, const hx_type* type, hx_value** out) {
  return guard([&] {
    const TensorType t = from_c(*type);
    if (t.dtype != DType::F32) throw Error(ErrorKind::Type, "random numbers are f32, not " + t.str());
    *out = valid(s).random(t.shape).release();
  });
}
int32_t scope_training(hx_scope* s) {
  int32_t result = 0;
  guard([&] { result = valid(s).training(); });
  return result;
}
uint32_t scope_leading(hx_scope* s) {
  uint32_t result = 1;
  guard([&] { result = valid(s).leading(); });
  return result;
}
hx_status scope_set_leading(hx_scope* s, uint32_t leading) {
  return guard([&] { valid(s).set_leading(leading); });
}
hx_status scope_width(hx_scope* s, int64_t* width) {
  return guard([&] { *width = valid(s).width(); });
}
hx_status scope_classes(hx_scope* s, int64_t* classes) {
  return guard([&] { *classes = valid(s).classes(); });
}

hx_status register_item(hx_registry* registry, const hx_item* item) {
  return guard([&] { add_pending(*registry, *item); });
}

hx_status report_from_loss(const char* name, hx_value* value) {
  return guard([&] {
    if (valid(value).traced()) keep_reported_figure(name ? name : "", HTensor::borrow(value));
  });
}

// ---- extensions ----
constexpr const char *kImporter = HX_IMPORTER_EXTENSION, *kExporter = HX_EXPORTER_EXTENSION,
                     *kTokenizer = HX_TOKENIZER_EXTENSION, *kPolicy = HX_POLICY_EXTENSION;
template <const char* const& id>
constexpr hx_item_extension kItemsOf = {sizeof(hx_item_extension), 0, [](hx_registry* registry, const hx_item* item) {
                                          return guard([&] { add_pending(*registry, *item, id); });
                                        }};

const void* extension(const char* id) {
  const std::string_view name = id ? id : "";
  if (name == kImporter) return &kItemsOf<kImporter>;
  if (name == kExporter) return &kItemsOf<kExporter>;
  if (name == kTokenizer) return &kItemsOf<kTokenizer>;
  if (name == kPolicy) return &kItemsOf<kPolicy>;
  return nullptr;
}

using Apply = decltype(hx_api::apply);
constexpr hx_api api_with(Apply apply) {
  return {
      sizeof(hx_api), HX_ABI_MAJOR,      HX_ABI_MINOR,   last_error,       set_error,   retain,          release,
      create,         type_of_value,     data,           mutable_data,     apply,       scope_parameter, scope_state,
      scope_update,   scope_random,      scope_training, scope_leading,    scope_width, scope_classes,   register_item,
      extension,      scope_set_leading, scan_loop,      report_from_loss,
  };
}
constexpr hx_api kApi = api_with(apply_op), kApiBeforeSignatures = api_with(apply_unchecked);
constexpr uint16_t kSignatures = 5;  // from this contract minor on, attributes are checked

}  // namespace

const hx_api* api_for(uint16_t minor) { return minor < kSignatures ? &kApiBeforeSignatures : &kApi; }

}  // namespace harmonics::engine

extern "C" __attribute__((visibility("default"))) const hx_api* harmonics_api(void) { return &harmonics::engine::kApi; }
