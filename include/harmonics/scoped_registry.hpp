// Names registered for a scope.
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

// During its lifetime its items precede those of plugins and of the library with the same name: for every graph used
// by the thread that created it, or for one graph. The latest scope comes first; scopes of a graph precede the
// graph's own functions, scopes of a thread follow them. After its end, a graph that needs a name without another
// definition fails in its next call. Compiled programs keep their objects until then. Functionals are the exception:
// they are visible to the whole process.
//
// To be destroyed by the thread that created it. Errors: ErrorKind::Plugin if the library is older than contract 1.5.
class ScopedRegistry : public Registering<ScopedRegistry> {
 public:
  // For this thread.
  HARMONICS_FACE ScopedRegistry() : ScopedRegistry(static_cast<hx_graph*>(nullptr)) {}
  // For this graph, which must outlive it and not be moved from.
  HARMONICS_FACE explicit ScopedRegistry(const HarmonicGraph& graph) : ScopedRegistry(graph.graph()) {}
  HARMONICS_FACE ~ScopedRegistry() { calls::graphs().close_scope(scope_); }
  ScopedRegistry(const ScopedRegistry&) = delete;
  ScopedRegistry& operator=(const ScopedRegistry&) = delete;

  // As harmonics_register receives it.
  HARMONICS_FACE FunctionRegistry& registry() {
    registration_ = {sizeof(hx_registration), harmonics_api(), calls::graphs().scope_registry(scope_)};
    return reinterpret_cast<FunctionRegistry&>(registration_);  // a view of the struct, as in plugins
  }

 private:
  HARMONICS_FACE explicit ScopedRegistry(hx_graph* graph) {
    const bool has = calls::graphs().struct_size >= offsetof(hx_graph_api, close_scope) + sizeof(void*);
    calls::expect(has, "scoped registries");
    harmonics::detail::check(calls::graphs().open_scope(graph, &scope_));
  }

  hx_name_scope* scope_ = nullptr;
  hx_registration registration_{};
};

}  // namespace harmonics
