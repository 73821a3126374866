#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {

void add_reference_functionals(FunctionalTable& table) {
  using Family = std::vector<Functional> (*)();
  for (Family family : {activations, rectifiers, losses, linears, fusions, norms, codes, convolutions, pools,
                        embeddings, dropouts, attentions, sequences, recurrences, experts, heads, optimizers})
    for (Functional& functional : family()) table.add(std::move(functional));
}

}  // namespace harmonics::engine::reference
