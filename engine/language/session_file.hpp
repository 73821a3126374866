// Sessions on disk: a sealed file (engine/model/sealed_file.hpp) with the tokens of a text and the states computed for
// them. A restored session generates the same tokens as one that was not interrupted.
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
  // Identifies the model: a hash of its parameters and metadata, the types of its states, and the contract.
  std::string model, caches, contract;
  std::vector<int32_t> tokens;  // of the text, including tokens chosen but not yet computed
  int64_t computed = 0;         // number of first tokens in `states`
  std::vector<HTensor> states;  // by Model::states; raw bytes as u8
  SamplerState sampler;
  std::string messages;  // a conversation as JSON; "" for none
};

// Returns the hash of the model. Reads every parameter once.
std::string identity_of(const Model& model);
// `tokens` must start with those of the session.
SavedSession saved_session(const Session& session, const Model& model, std::vector<int32_t> tokens,
                           const SamplerState& sampler, std::string messages = {});
// Replaces the file atomically.
void write_session(const SavedSession& saved, const std::string& path, FileCalls& calls = FileCalls::system());
std::string session_bytes(const SavedSession& saved);

// Throw ErrorKind::Weights, with `name`, for a file that is damaged or not a session; ErrorKind::NoInput.
SavedSession read_session(const std::string& path, FileCalls& calls = FileCalls::system());
SavedSession read_session(std::shared_ptr<const std::string> bytes, const std::string& name);
// Restores tokens and states of the session. Throws ErrorKind::Weights if the file belongs to another model, other
// types of states or another contract, and ErrorKind::Usage if the context is too small.
void restore_session(Session& session, const Model& model, const SavedSession& saved, const std::string& name);

}  // namespace harmonics::engine
