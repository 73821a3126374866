#include "engine/plugin/builtin_streams.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/plugin/pending_items.hpp"

namespace harmonics {

void register_builtin_items(Registry& registry) {
  hx_registry pending;
  hx_registration registration{sizeof(hx_registration), harmonics_api(), &pending};
  auto& face = reinterpret_cast<FunctionRegistry&>(registration);  // the C++ view of the struct, as plugins get it
  register_builtin_producers(face);
  register_builtin_consumers(face);
  commit_pending(pending, registry);
}

}  // namespace harmonics
