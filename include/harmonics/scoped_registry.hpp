// Items registered for a scope.
//
//   {
//     harmonics::ScopedRegistry mine;
//     mine.registerImplementation("attention", "mine", std::make_shared<MyAttention>());
//     y = g.infer(x);  // with it
//   }
//   y = g.infer(x);  // without it
#pragma once

#include <harmonics/graph.hpp>

namespace harmonics {

// During its lifetime, its items take precedence over items of plugins and the library with the same name: for every
// graph used by the thread that created it, or for one graph. Precedence: scopes of the graph, the graph's own
// functions, scopes of the thread; of several scopes, the latest. After the scope ends, a graph that needs a name
// without another definition fails in its next call. Compiled programs keep their objects until then. Exception:
// functionals are visible to the whole process.
//
// Must be destroyed by the thread that created it. Throws ErrorKind::Plugin if the library is older than contract 1.5.
class ScopedRegistry : public Registering<ScopedRegistry> {
 public:
  // For this thread.
  HARMONICS_FACE ScopedRegistry() : ScopedRegistry(static_cast<hx_graph*>(nullptr)) {}
  // For this graph, which must outlive this object and must not be moved from.
  HARMONICS_FACE explicit ScopedRegistry(const HarmonicGraph& graph) : ScopedRegistry(graph.graph()) {}
  HARMONICS_FACE ~ScopedRegistry() { detail::calls::graphs().close_scope(scope_); }
  ScopedRegistry(const ScopedRegistry&) = delete;
  ScopedRegistry& operator=(const ScopedRegistry&) = delete;

  // Returns the registry as harmonics_register receives it.
  HARMONICS_FACE FunctionRegistry& registry() {
    registration_ = {sizeof(hx_registration), harmonics_api(), detail::calls::graphs().scope_registry(scope_)};
    return reinterpret_cast<FunctionRegistry&>(registration_);  // a view of the struct, as in plugins
  }

 private:
  HARMONICS_FACE explicit ScopedRegistry(hx_graph* graph) {
    const bool has = detail::calls::graphs().struct_size >= offsetof(hx_graph_api, close_scope) + sizeof(void*);
    detail::calls::expect(has, "scoped registries");
    harmonics::detail::check(detail::calls::graphs().open_scope(graph, &scope_));
  }

  hx_name_scope* scope_ = nullptr;
  hx_registration registration_{};
};

}  // namespace harmonics
