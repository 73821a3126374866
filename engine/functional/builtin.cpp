#include "engine/functional/reference.hpp"

namespace harmonics {

void register_reference_functionals(FunctionalTable& table) {
  using Family = std::vector<Functional> (*)();
  for (Family family :
       {reference::activations, reference::rectifiers, reference::losses, reference::linears, reference::fusions,
        reference::norms, reference::convolutions, reference::pools, reference::embeddings, reference::dropouts,
        reference::attentions, reference::recurrences, reference::optimizers})
    for (Functional& functional : family()) table.add(std::move(functional));
}

}  // namespace harmonics
