#include "engine/model/model.hpp"

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

const Entry* Model::find(const std::string& wanted) const {
  for (const Entry& e : entries)
    if (e.name == wanted) return &e;
  return nullptr;
}

const Entry& Model::entry(const std::string& wanted) const {
  if (const Entry* found = find(wanted)) return *found;
  std::vector<std::string> known;
  for (const Entry& e : entries) known.push_back(e.name);
  Error error(ErrorKind::Name, "the model '" + name + "' has no entry '" + wanted + "'");
  if (const auto near = nearest(wanted, known)) error.note("did you mean '" + *near + "'?");
  throw error;
}

Program Model::trace(const Entry& entry, const EntrySizes& sizes) const {
  Budget steps = limits.for_steps();
  Tracer tracer(name + "/" + entry.name);
  tracer.set_budget(&steps);
  const std::optional<Phase> phase = phase_named(entry.name);
  if (phase == Phase::prefill || phase == Phase::decode) tracer.set_scope({"", *phase});
  EntryResults results;
  entry.body(tracer, sizes, results);
  Program program = tracer.take();
  if (made) made(entry, sizes, program);
  return program;
}

}  // namespace harmonics::engine
