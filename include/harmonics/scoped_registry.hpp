// Names that are known within a scope alone.
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

inline namespace embedding {

// While it lives, what it registers comes before what plugins and the library have of the same name: for every graph
// that the thread which made it works with, or for one graph. The one made last comes first; those of a graph come
// before the graph's own functions, those of a thread after them. When it ends, the names are gone: a graph that uses
// one that nobody else has is refused by its next call. What was compiled keeps its objects until then. Functionals are
// the exception: while it lives, the whole process knows theirs.
//
// To be destroyed by the thread that made it. Errors: ErrorKind::Plugin where the library is older than contract 1.5.
class ScopedRegistry : public Registering<ScopedRegistry> {
 public:
  // For this thread.
  HARMONICS_FACE ScopedRegistry() : ScopedRegistry(static_cast<hx_graph*>(nullptr)) {}
  // For this graph, which must live longer and not be moved from.
  HARMONICS_FACE explicit ScopedRegistry(const HarmonicGraph& graph) : ScopedRegistry(graph.graph()) {}
  HARMONICS_FACE ~ScopedRegistry() { calls::graphs().close_scope(scope_); }
  ScopedRegistry(const ScopedRegistry&) = delete;
  ScopedRegistry& operator=(const ScopedRegistry&) = delete;

  // As harmonics_register receives it.
  HARMONICS_FACE FunctionRegistry& registry() {
    registration_ = {sizeof(hx_registration), harmonics_api(), calls::graphs().scope_registry(scope_)};
    return reinterpret_cast<FunctionRegistry&>(registration_);  // a view of the struct, as every plugin gets it
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

}  // namespace embedding
}  // namespace harmonics
