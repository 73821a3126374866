// The table of C functions for programs that embed the engine. Every function catches all exceptions and returns a
// status.
#include <algorithm>
#include <cstring>
#include <string>

#include "dsl/load.hpp"
#include "engine/embed/embedded_graph.hpp"
#include "engine/embed/name_scope.hpp"
#include "engine/execution/device_choice.hpp"
#include "engine/contract/guard.hpp"
#include "engine/embed/model_calls.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {
namespace {

hx_graph& valid(hx_graph* graph) {
  if (!graph) throw Error(ErrorKind::Usage, "the graph handle is null");
  return *graph;
}
std::string given_text(const char* text) { return text ? text : ""; }

// Returns the settings in full size. Older programs pass a shorter struct; its missing members count as not given.
hx_fit_settings whole(const hx_fit_settings* given) {
  hx_fit_settings s{};
  s.epochs = s.steps = s.batch = s.seed = s.accumulate = -1;
  s.seconds = s.lr = s.clip = -1;
  if (given) std::memcpy(&s, given, std::min<size_t>(given->struct_size, sizeof s));
  return s;
}

// Copies a result into a struct of the caller: up to its struct_size, but at least `least`, the size in contract 1.0.
template <typename T>
void give(const T& result, T* out, size_t least) {
  const uint32_t known = out->struct_size;
  std::memcpy(out, &result, std::clamp(static_cast<size_t>(known), least, sizeof result));
  out->struct_size = known;
}

hx_status parse(const char* text, const char* source, const char* name, hx_graph** out) {
  return guard([&] {
    const auto read = std::make_shared<SourceText>(given_text(source), given_text(text));
    *out = hx_graph::parsed([&] { return parse_flow(read); }, given_text(name)).release();
  });
}
hx_status parse_file(const char* path, const char* name, hx_graph** out) {
  return guard(
      [&] { *out = hx_graph::parsed([&] { return parse_flow_file(given_text(path)); }, given_text(name)).release(); });
}
hx_status restore(const void* data, uint64_t bytes, hx_graph** out) {
  return guard([&] { *out = hx_graph::restored(data, bytes).release(); });
}
void destroy(hx_graph* graph) { delete graph; }
hx_status open_plugin(const char* path) {
  return guard([&] { load_plugin(given_text(path)); });
}
hx_registry* registry(hx_graph* graph) { return graph ? graph->registry() : nullptr; }

hx_status bind_producer_options(hx_graph* graph, const char* name, uint32_t purpose, const hx_producer_vt* vt,
                                void* object, const char* options) {
  return guard([&] {
    Source source(name ? name : "producer", vt, object);  // owns `object` even if the call fails
    valid(graph).bind_producer(name, purpose, std::move(source), given_text(options));
  });
}
hx_status bind_producer(hx_graph* graph, const char* name, uint32_t purpose, const hx_producer_vt* vt, void* object) {
  return bind_producer_options(graph, name, purpose, vt, object, "");
}
hx_status bind_consumer(hx_graph* graph, const char* name, const hx_consumer_vt* vt, void* object) {
  return guard([&] {
    Sink sink(name ? name : "consumer", vt, object);
    valid(graph).bind_consumer(name, std::move(sink));
  });
}
hx_status bind_producer_address(hx_graph* graph, const char* name, uint32_t purpose, const char* address) {
  return guard([&] { valid(graph).bind_producer(name, purpose, given_text(address)); });
}
hx_status bind_consumer_address(hx_graph* graph, const char* name, const char* address) {
  return guard([&] { valid(graph).bind_consumer(name, given_text(address)); });
}
hx_status fit(hx_graph* graph, const hx_fit_settings* settings, hx_fit_report* report) {
  return guard([&] {
    hx_fit_report result{};
    valid(graph).fit(whole(settings), result);
    give(result, report, offsetof(hx_fit_report, metrics));
  });
}
hx_status evaluate_graph(hx_graph* graph, hx_evaluation* out) {
  return guard([&] {
    hx_evaluation result{};
    valid(graph).evaluate(result);
    give(result, out, offsetof(hx_evaluation, figures));
  });
}
hx_status infer(hx_graph* graph, const char* const* names, hx_value* const* inputs, uint32_t n_inputs, hx_value** outs,
                uint32_t max_outs, uint32_t* n_outs) {
  return guard([&] {
    std::vector<HTensor> results = valid(graph).infer(names, inputs, n_inputs);
    if (results.size() > max_outs)
      throw Error(ErrorKind::Usage,
                  "there are " + std::to_string(results.size()) + " results and room for " + std::to_string(max_outs));
    *n_outs = static_cast<uint32_t>(results.size());
    for (size_t i = 0; i < results.size(); ++i) outs[i] = results[i].release();
  });
}
hx_status results(hx_graph* graph, const char* const** names, uint32_t* count) {
  return guard([&] {
    const auto& list = valid(graph).results();
    *names = list.data();
    *count = static_cast<uint32_t>(list.size());
  });
}
hx_status save(hx_graph* graph, const void** data, uint64_t* bytes) {
  return guard([&] {
    const std::string& blob = valid(graph).save();
    *data = blob.data();
    *bytes = blob.size();
  });
}
hx_status layers(hx_graph* graph, const hx_layer_info** out, uint32_t* count) {
  return guard([&] {
    const auto& list = valid(graph).layers();
    *out = list.data();
    *count = static_cast<uint32_t>(list.size());
  });
}
hx_status weights(hx_graph* graph, const char* const** names, uint32_t* count) {
  return guard([&] {
    const auto& list = valid(graph).weights();
    *names = list.data();
    *count = static_cast<uint32_t>(list.size());
  });
}
hx_status weight(hx_graph* graph, const char* name, hx_value** out) {
  return guard([&] { *out = valid(graph).weight(given_text(name)).release(); });
}
hx_status set_override(hx_graph* graph, const char* functional, const char* implementation, const char** before) {
  return guard([&] {
    thread_local std::string was;
    const std::string name = given_text(functional);
    if (name.empty()) throw Error(ErrorKind::Usage, "an override names no functional", {}, {"e.g. \"attention\""});
    was = graph ? graph->set_override(name, given_text(implementation))
                : Registry::global().set_override(name, given_text(implementation));
    if (before) *before = was.c_str();
  });
}

hx_status accelerator(uint32_t sort, const char** device, const char** note) {
  return guard([&] {
    thread_local DeviceChoice choice;
    choice = choose_device(Registry::global(), sort);
    if (device) *device = choice.device.c_str();
    if (note) *note = choice.note.c_str();
  });
}

hx_status configure_layer(hx_graph* graph, const char* layer, const char* const* names, const char* const* values,
                          uint32_t count, const char* const** before) {
  return guard([&] {
    std::vector<ArgumentText> changes;
    for (uint32_t i = 0; i < count; ++i) changes.push_back({given_text(names[i]), given_text(values[i])});
    const std::vector<const char*>& undo = valid(graph).configure_layer(given_text(layer), changes);
    if (before) *before = undo.data();
  });
}

hx_status set_device(hx_graph* graph, const char* device) {
  return guard([&] { valid(graph).set_device(given_text(device)); });
}

hx_status stop_fit(hx_graph* graph) {
  return guard([&] { valid(graph).stop_fit(); });
}

hx_status load(hx_graph* graph, const char* path) {
  return guard([&] { valid(graph).load(given_text(path)); });
}
hx_status save_file(hx_graph* graph, const char* path) {
  return guard([&] { valid(graph).save(given_text(path)); });
}
hx_status open_scope(hx_graph* graph, hx_name_scope** out) {
  return guard([&] {
    auto opened = std::make_unique<hx_name_scope>(hx_name_scope{graph, std::make_shared<NameScope>()});
    if (graph)
      graph->open_scope(opened->scope);
    else
      open_on_thread(opened->scope);
    *out = opened.release();
  });
}
hx_registry* scope_registry(hx_name_scope* scope) { return scope ? scope->scope->registry() : nullptr; }
void close_scope(hx_name_scope* scope) {
  if (!scope) return;
  if (scope->graph)
    scope->graph->close_scope(scope->scope);
  else
    close_on_thread(scope->scope);
  scope->scope->close();
  delete scope;
}

constexpr hx_graph_api kGraphs = {
    sizeof(hx_graph_api),
    HX_ABI_MAJOR,
    HX_ABI_MINOR,
    parse,
    parse_file,
    restore,
    destroy,
    open_plugin,
    registry,
    bind_producer,
    bind_consumer,
    bind_producer_address,
    bind_consumer_address,
    fit,
    evaluate_graph,
    infer,
    results,
    save,
    layers,
    weights,
    weight,
    set_override,
    accelerator,
    load,
    save_file,
    open_scope,
    scope_registry,
    close_scope,
    bind_producer_options,
    register_model,
    model_names,
    model_config,
    model_block,
    open_model,
    close_model,
    model_values,
    opened_block,
    model_layer,
    open_sequence,
    close_sequence,
    append_tokens,
    keep_tokens,
    sequence_length,
    configure_layer,
    set_device,
    stop_fit,
};

}  // namespace
}  // namespace harmonics::engine

extern "C" __attribute__((visibility("default"))) const hx_graph_api* harmonics_graphs(void) {
  return &harmonics::engine::kGraphs;
}
