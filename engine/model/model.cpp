#include "engine/model/model.hpp"

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

const Entry& Model::entry(const std::string& wanted) const {
  std::vector<std::string> known;
  for (const Entry& e : entries) {
    if (e.name == wanted) return e;
    known.push_back(e.name);
  }
  Error error(ErrorKind::Name, "the model '" + name + "' has no entry '" + wanted + "'");
  if (const auto near = nearest(wanted, known)) error.note("did you mean '" + *near + "'?");
  throw error;
}

Program Model::trace(const Entry& entry, const EntrySizes& sizes) const {
  Tracer tracer(name + "/" + entry.name);
  const std::optional<Phase> phase = phase_named(entry.name);
  if (phase == Phase::prefill || phase == Phase::decode) tracer.set_scope({"", *phase});
  entry.body(tracer, sizes);
  return tracer.take();
}

}  // namespace harmonics::engine
