// Sessions on disk: a sealed file (engine/model/sealed_file.hpp) with the tokens of a text and what was computed for
// them. A text that goes on from it has the tokens of one that was never interrupted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/language/decoder.hpp"
#include "engine/language/sampler.hpp"

namespace harmonics::engine {

struct SavedSession {
  // What it belongs to: a hash of all parameters and metadata of the model, the types of its states, and the contract.
  std::string model, caches, contract;
  std::vector<int32_t> tokens;  // of the text, with those that were chosen last and not computed
  int64_t computed = 0;         // first tokens that the states hold
  std::vector<HTensor> states;  // by Model::states: u8, their bytes
  SamplerState sampler;
  std::string messages;  // of a conversation, as JSON; "": none
};

// Reads every parameter of the model once.
std::string identity_of(const Model& model);
// `tokens` begin with those of the session.
SavedSession saved_session(const Session& session, const Model& model, std::vector<int32_t> tokens,
                           const SamplerState& sampler, std::string messages = {});
// Replaces the file as a whole or not at all.
void write_session(const SavedSession& saved, const std::string& path, FileCalls& calls = FileCalls::system());
std::string session_bytes(const SavedSession& saved);

// Throw ErrorKind::Weights, with `name`, for a file that is no session or is damaged; ErrorKind::NoInput.
SavedSession read_session(const std::string& path, FileCalls& calls = FileCalls::system());
SavedSession read_session(std::shared_ptr<const std::string> bytes, const std::string& name);
// Gives the session the tokens and the states. Throws ErrorKind::Weights if the file belongs to another model, other
// caches or another contract, and ErrorKind::Usage if the context is too small.
void restore_session(Session& session, const Model& model, const SavedSession& saved, const std::string& name);

}  // namespace harmonics::engine
