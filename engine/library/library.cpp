// The composition root: registers the built-in items, and installs functions of higher layers where lower layers need
// them.
#include <algorithm>

#include "consumers/register.hpp"
#include "engine/contract/plugin_functional.hpp"
#include "engine/corpus/register.hpp"
#include "engine/flow/model_call.hpp"
#include "engine/functional/reference.hpp"
#include "engine/plugin/pending_items.hpp"
#include "engine/program/op.hpp"
#include "engine/streams/augmentations.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"
#include "engine/transformer/layer_models.hpp"
#include "producers/register.hpp"

// The link line requires this symbol (cmake/HarmonicsBuild.cmake); otherwise the linker would omit this object of the
// archive.
extern "C" {
extern const int harmonics_library;
const int harmonics_library = 1;
}

namespace harmonics::engine {
namespace {

void add_items(Registry& registry) {
  registry.add(std::const_pointer_cast<Item>(model_function()));
  hx_registry pending;
  hx_registration registration{sizeof(hx_registration), harmonics_api(), &pending};
  auto& face = reinterpret_cast<FunctionRegistry&>(registration);  // the C++ view of the struct, as in plugins
  register_builtin_producers(face);
  register_builtin_consumers(face);
  register_corpus(face);
  commit_pending(pending, registry);
}

bool is_row(const std::vector<NamedRow>& rows, const std::string& name) {
  return std::any_of(rows.begin(), rows.end(), [&](const NamedRow& row) { return row.name == name; });
}

bool is_reserved(uint32_t kind, const std::string& name) {
  if (kind == HX_FUNCTIONAL) return find_any_op(name) || FunctionalTable::global().has_own(name);
  if (kind == HX_LAYER) return name == kModelFunction;
  if (kind == HX_OPTIMIZER) return is_row(optimizer_rows(), name);
  if (kind == HX_SCHEDULE) return is_row(schedule_rows(), name);
  if (kind == HX_AUGMENTATION) return is_builtin_augmentation(name);
  return false;
}

[[maybe_unused]] const bool installed = [] {
  set_functional_sources({reference::add_reference_functionals, functional_of});
  set_library_items({add_items, is_reserved});
  set_layer_model_opener(open_layer_model);
  return true;
}();

}  // namespace
}  // namespace harmonics::engine
