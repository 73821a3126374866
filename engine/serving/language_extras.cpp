// LanguageService: responses, embeddings and tokens.
#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/serving/json_fields.hpp"
#include "engine/serving/language_service.hpp"
#include "engine/serving/token_routes.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kResponses = "/v1/responses/", kModels = "/v1/models/";

ServiceReply nothing_found(const std::string& what, const char* code = nullptr) {
  return {404, "application/json", TextReply::error_body(TextApi::responses, what, 404, code), {}};
}
ServiceReply no_response(const std::string& id) { return nothing_found(fmt::format("no response '{}' is stored", id)); }

// The release of Ollama whose requests are answered, the first with /v1/responses. Clients compare it with the release
// that they need (decision 134).
constexpr const char* kOllamaVersion = "0.13.3";

boost::json::object listed_model(const ServedModel& model) {
  return {{"id", model.name}, {"object", "model"}, {"created", model.since}, {"owned_by", "harmonics"}};
}

}  // namespace

ServiceReply models_reply(const ServedModel& model) {
  return Service::reply({{"object", "list"}, {"data", boost::json::array{listed_model(model)}}});
}

ServiceReply version_reply() { return Service::reply({{"version", kOllamaVersion}, {"harmonics", HARMONICS_VERSION}}); }

ServiceReply model_reply(const ServedModel& model, const std::string& name) {
  if (name == model.name) return Service::reply(listed_model(model));
  return nothing_found(fmt::format("the model '{}' is not served; this server has '{}'", name, model.name),
                       "model_not_found");
}

ServiceReply refusal_at(const std::string& path, ServiceReply refusal) {
  if (!path.starts_with("/v1/")) return refusal;
  const boost::json::value said = boost::json::parse(refusal.body);
  std::string message(said.at("error").as_string());
  if (refusal.status != 405) message += "; " + std::string(said.at("note").as_string());  // 405: a repetition
  refusal.body = TextReply::error_body(TextApi::responses, message, refusal.status);
  return refusal;
}

void LanguageService::models(ServiceRequest&, const Answer& answer) { answer(models_reply(model_)); }
void LanguageService::one_model(ServiceRequest& r, const Answer& answer) {
  answer(model_reply(model_, r.path.substr(kModels.size())));
}

void LanguageService::responses(ServiceRequest& r, const Answer& answer) {
  ReadResponse read;
  try {
    read = read_response_request(r.body, kept_);
  } catch (const Error& e) {
    const auto* const invalid = dynamic_cast<const FieldError*>(&e);
    return answer({400,
                   "application/json",
                   TextReply::error_body(TextApi::responses, e.what(), 400, nullptr, invalid ? invalid->field : ""),
                   {}});
  }
  r.body = std::move(read.chat);
  write_text(TextApi::responses, r, answer, std::move(read.record));
}

void LanguageService::kept_response(ServiceRequest& r, const Answer& answer) {
  const std::string id = r.path.substr(kResponses.size());
  const auto kept = kept_->find(id);
  answer(kept ? Service::reply(kept->response) : no_response(id));
}

void LanguageService::forget_response(ServiceRequest& r, const Answer& answer) {
  const std::string id = r.path.substr(kResponses.size());
  answer(kept_->erase(id) ? Service::reply({{"id", id}, {"object", "response.deleted"}, {"deleted", true}})
                          : no_response(id));
}

void LanguageService::tokenize(ServiceRequest& r, const Answer& answer) {
  if (!object_of_body(r.body).contains("messages"))
    return answer(tokenize_reply(r.body, nullptr, tokenizer_, model_.context));
  TextRequest request = read_text_request(TextApi::chat, r.body, usual_);
  std::string text;
  const std::vector<int32_t> ids = prompt_of(request, 0, text).ids;
  answer(tokenize_reply(r.body, &ids, tokenizer_, model_.context));
}

void LanguageService::detokenize(ServiceRequest& r, const Answer& answer) {
  answer(detokenize_reply(r.body, tokenizer_));
}

void LanguageService::tokenizer_info(ServiceRequest&, const Answer& answer) {
  answer(tokenizer_info_reply(tokenizer_, format_, model_.context));
}

void LanguageService::apply_template(ServiceRequest& r, const Answer& answer) {
  TextRequest request = read_text_request(TextApi::chat, r.body, usual_);
  std::string text;
  prompt_of(request, 0, text);
  answer(Service::reply({{"prompt", text}}));
}

void LanguageService::embed(EmbeddingApi api, ServiceRequest& r, const Answer& answer) {
  if (vectors_) return vectors_->answer(api, r, model_.name, answer);
  const TextApi form = api == EmbeddingApi::openai ? TextApi::chat : TextApi::ollama_chat;
  answer({501, "application/json", TextReply::error_body(form, "the model computes no embeddings of texts", 501), {}});
}

void LanguageService::embeddings(ServiceRequest& r, const Answer& answer) { embed(EmbeddingApi::openai, r, answer); }
void LanguageService::ollama_embed(ServiceRequest& r, const Answer& answer) { embed(EmbeddingApi::ollama, r, answer); }
void LanguageService::ollama_embeddings(ServiceRequest& r, const Answer& answer) {
  embed(EmbeddingApi::ollama_one, r, answer);
}

}  // namespace harmonics::engine
