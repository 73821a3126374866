#include "engine/language/session_file.hpp"

#include <bit>
#include <cstring>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/abi.h>
#include <harmonics/quantity.hpp>

#include "engine/model/packed_files.hpp"
#include "engine/model/sealed_file.hpp"
#include "engine/tensor/value.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr const char* kSession = "harmonics.session";
constexpr const char* kMessages = "harmonics.messages";
constexpr const char* kTokens = "tokens";
constexpr int64_t kMostSaved = int64_t{1} << 30;  // maximum number of tokens

std::string state_key(size_t number) { return fmt::format("state/{:06}", number); }

std::string contract_text() { return fmt::format("{}.{}", HX_ABI_MAJOR, HX_ABI_MINOR); }

// Returns names and types of the states of one token.
std::string caches_text(const Model& model) {
  std::string all;
  for (const ModelState& state : model.states)
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", state.name, state.type({1, 1, 1}).str());
  return all;
}

[[noreturn]] void no_session(const std::string& name, const std::string& what) {
  throw Error(ErrorKind::Weights, fmt::format("'{}' is not a saved session: {}", name, what));
}

std::string text_in(const json::object& fields, const char* key, const std::string& name) {
  const json::value* value = fields.if_contains(key);
  if (!value || !value->is_string()) no_session(name, fmt::format("its entry '{}' is not a string", key));
  return std::string(value->get_string());
}

uint64_t number_in(const json::object& fields, const char* key, const std::string& name) {
  const json::value* value = fields.if_contains(key);
  json::error_code failed;
  const uint64_t number = value && value->is_number() ? value->to_number<uint64_t>(failed) : 0;
  if (!value || !value->is_number() || failed) no_session(name, fmt::format("its entry '{}' is not a number", key));
  return number;
}

TensorFile file_of(const SavedSession& saved) {
  TensorFile file;
  file.metadata[kSession] =
      json::serialize(json::object{{"version", 1},
                                   {"model", saved.model},
                                   {"caches", saved.caches},
                                   {"contract", saved.contract},
                                   {"computed", saved.computed},
                                   {"draws", saved.sampler.draws},
                                   {"surprise", std::bit_cast<uint64_t>(saved.sampler.surprise)}});
  if (!saved.messages.empty()) file.metadata[kMessages] = saved.messages;
  file.tensors[kTokens] = HTensor::from(Shape{static_cast<int64_t>(saved.tokens.size())}, saved.tokens);
  for (size_t i = 0; i < saved.states.size(); ++i) file.tensors[state_key(i)] = saved.states[i];
  return file;
}

}  // namespace

std::string identity_of(const Model& model) {
  ContentHash all{};
  const auto add = [&](const void* data, size_t bytes) { all = hash_of(data, bytes, all[0] ^ std::rotl(all[1], 1)); };
  for (const auto& [name, stored] : model.parameters->all()) {
    const std::string head = fmt::format("{} {}", name, stored.type.str());
    add(head.data(), head.size());
    const HTensor tensor = model.parameters->tensor(name);
    add(tensor.raw()->storage->data(), stored.type.bytes());
  }
  const std::string sizes = fmt::format("{} {}", model.vocabulary, model.metadata.text("general.architecture", ""));
  add(sizes.data(), sizes.size());
  for (const auto& file : model.parameters->files()) file->expect_whole();
  return fmt::format("{:016x}{:016x}", all[0], all[1]);
}

SavedSession saved_session(const Session& session, const Model& model, std::vector<int32_t> tokens,
                           const SamplerState& sampler, std::string messages) {
  SavedSession saved;
  saved.model = identity_of(model);
  saved.caches = caches_text(model);
  saved.contract = contract_text();
  saved.tokens = std::move(tokens);
  saved.computed = session.length();
  for (const HTensor& state : session.states()) {
    const auto bytes = static_cast<int64_t>(type_of(state).bytes());
    saved.states.push_back(make_value({DType::U8, Shape{bytes}}, state.raw()->storage));
  }
  saved.sampler = sampler;
  saved.messages = std::move(messages);
  return saved;
}

void write_session(const SavedSession& saved, const std::string& path, FileCalls& calls) {
  save_sealed(file_of(saved), path, calls);
}

std::string session_bytes(const SavedSession& saved) { return write_sealed(file_of(saved)); }

namespace {

SavedSession session_in(const TensorFile& file, const std::string& name) {
  const auto said = file.metadata.find(kSession);
  if (said == file.metadata.end()) no_session(name, fmt::format("it has no metadata '{}'", kSession));
  json::error_code failed;
  const json::value all = parse_json(said->second, failed, 8);
  const json::object* fields = failed ? nullptr : all.if_object();
  if (!fields) no_session(name, "its description is not a JSON object");
  if (const uint64_t version = number_in(*fields, "version", name); version != 1)
    no_session(name, fmt::format("it has the version {}, and this program reads version 1", version));
  SavedSession saved;
  saved.model = text_in(*fields, "model", name);
  saved.caches = text_in(*fields, "caches", name);
  saved.contract = text_in(*fields, "contract", name);
  saved.sampler = {number_in(*fields, "draws", name), std::bit_cast<double>(number_in(*fields, "surprise", name))};
  const auto tokens = file.tensors.find(kTokens);
  if (tokens == file.tensors.end() || tokens->second.dtype() != DType::I32 || tokens->second.rank() != 1 ||
      tokens->second.size() > kMostSaved)
    no_session(name, "it has no list of tokens");
  const int32_t* ids = tokens->second.data<int32_t>();
  saved.tokens.assign(ids, ids + tokens->second.size());
  const uint64_t computed = number_in(*fields, "computed", name);
  if (computed > saved.tokens.size())
    no_session(name, fmt::format("it has the states of {}, but {}", quantity(computed, "token"),
                                 quantity(saved.tokens.size(), "token")));
  saved.computed = static_cast<int64_t>(computed);
  for (size_t i = 0; i + 1 < file.tensors.size(); ++i) {
    const auto state = file.tensors.find(state_key(i));
    if (state == file.tensors.end() || state->second.dtype() != DType::U8 || state->second.rank() != 1)
      no_session(name, fmt::format("its state {} is missing or no list of bytes", i));
    saved.states.push_back(state->second);
  }
  if (const auto messages = file.metadata.find(kMessages); messages != file.metadata.end())
    saved.messages = messages->second;
  return saved;
}

}  // namespace

SavedSession read_session(const std::string& path, FileCalls& calls) {
  return session_in(read_sealed(path, calls), path);
}

SavedSession read_session(std::shared_ptr<const std::string> bytes, const std::string& name) {
  return session_in(read_sealed(std::move(bytes), name), name);
}

void restore_session(Session& session, const Model& model, const SavedSession& saved, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::Weights, fmt::format("the session '{}' {}", name, what), {},
                {"give the name of a new file to begin another session"});
  };
  if (saved.contract != contract_text())
    refuse(fmt::format("was saved with contract {}, but this is {}", saved.contract, contract_text()));
  if (const std::string own = caches_text(model); saved.caches != own)
    refuse(saved.caches.empty()
               ? "has other caches than the model"
               : fmt::format("has the caches {}, but the model has {}", saved.caches.substr(0, 80), own.substr(0, 80)));
  if (saved.model != identity_of(model)) refuse(fmt::format("belongs to another model than '{}'", model.name));
  for (const int32_t id : saved.tokens)
    if (id < 0 || id >= model.vocabulary) refuse(fmt::format("has the token {}, which the model does not have", id));
  if (saved.computed == 0) return session.keep(0);
  if (saved.states.size() != model.states.size())
    refuse(fmt::format("has {}, and the model has {}", quantity(saved.states.size(), "state"), model.states.size()));
  for (size_t i = 0; i < saved.states.size(); ++i) {
    const uint64_t wanted = model.states[i].type({1, 1, saved.computed}).bytes();
    if (static_cast<uint64_t>(saved.states[i].size()) != wanted)
      refuse(fmt::format("has {} of '{}', and {} take {}", quantity(saved.states[i].size(), "byte"),
                         model.states[i].name, quantity(saved.computed, "token"), wanted));
  }
  session.restore(std::span(saved.tokens).first(static_cast<size_t>(saved.computed)), saved.states);
}

}  // namespace harmonics::engine
