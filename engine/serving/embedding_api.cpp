#include "engine/serving/embedding_api.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "engine/serving/json_fields.hpp"
#include "engine/serving/json_text.hpp"
#include "engine/serving/text_request.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr size_t kMostInputs = 2048;

const json::value* given(const json::object& body, const char* field) {
  const json::value* const value = body.if_contains(field);
  return value && !value->is_null() ? value : nullptr;
}

EmbeddingRequest::Input input_of(const json::value& value, const char* field) {
  EmbeddingRequest::Input input;
  if (value.is_string())
    input.text = std::string(value.get_string());
  else if (value.is_array() && !value.get_array().empty())
    input.ids = token_ids(value.get_array(), field);
  else
    refuse_field(field, "has an item that is neither a string nor a list of tokens");
  if (input.text.empty() && input.ids.empty()) refuse_field(field, "has an empty string");
  return input;
}

std::vector<EmbeddingRequest::Input> inputs_of(const json::value* value, const char* field) {
  if (!value) refuse_field(field, "is missing: give a string, a list of strings, or tokens");
  if (value->is_array() && value->get_array().empty()) refuse_field(field, "is an empty list");
  const bool list = value->is_array() && !value->get_array().empty() && !value->get_array()[0].is_number();
  if (!list) return {input_of(*value, field)};
  if (value->get_array().size() > kMostInputs)
    refuse_field(field, fmt::format("has {} items; the limit is {}", value->get_array().size(), kMostInputs));
  std::vector<EmbeddingRequest::Input> all;
  for (const json::value& one : value->get_array()) all.push_back(input_of(one, field));
  return all;
}

// Returns whether a client of Ollama asks for no vector: such requests only load the model.
bool is_empty(const json::value* input) {
  return input &&
         ((input->is_string() && input->get_string().empty()) || (input->is_array() && input->get_array().empty()));
}

std::string base64_of(const std::vector<float>& vector) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(vector.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string array_of(const std::vector<float>& vector) { return fmt::format("[{}]", fmt::join(vector, ",")); }

// Truncates a vector to its first dimensions and normalises it to length 1.
void shorten(std::vector<float>& vector, int64_t dimensions) {
  if (dimensions == 0) return;
  if (dimensions > static_cast<int64_t>(vector.size()))
    refuse_field("dimensions", fmt::format("is {}; the model's vectors have {}", dimensions, vector.size()));
  vector.resize(static_cast<size_t>(dimensions));
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * static_cast<double>(x);
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) * scale);
}

TextApi error_form(EmbeddingApi api) { return api == EmbeddingApi::openai ? TextApi::chat : TextApi::ollama_chat; }

ServiceReply refused_embedding(EmbeddingApi api, const std::string& message, int status,
                               const std::string& field = "") {
  return {status, "application/json", TextReply::error_body(error_form(api), message, status, nullptr, field), {}};
}

ServiceReply refused_embedding(EmbeddingApi api, const Error& error) {
  const bool usage = error.kind() == ErrorKind::Usage || error.kind() == ErrorKind::Syntax;
  const auto* const invalid = dynamic_cast<const FieldError*>(&error);
  return refused_embedding(api, error.what(), usage ? 400 : 500, invalid ? invalid->field : "");
}

ServiceReply gone_reply(EmbeddingApi api) { return refused_embedding(api, "the client closed the connection", 499); }
ServiceReply shutting_down(EmbeddingApi api) { return refused_embedding(api, "the server is shutting down", 503); }

}  // namespace

EmbeddingRequest read_embedding_request(EmbeddingApi api, std::string_view body) {
  json::error_code failed;
  const json::value value = parse_json(body, failed);
  if (failed) throw Error(ErrorKind::Usage, "the body is not JSON: " + failed.message());
  if (!value.is_object()) throw Error(ErrorKind::Usage, "the body is not a JSON object");
  const json::object& fields = value.get_object();
  EmbeddingRequest r;
  r.api = api;
  if (const json::value* const model = given(fields, "model")) {
    if (!model->is_string()) refuse_field("model", "must be a string");
    r.model = std::string(model->get_string());
  }
  const char* const field = api == EmbeddingApi::ollama_one ? "prompt" : "input";
  if (api == EmbeddingApi::openai || !is_empty(given(fields, field))) r.inputs = inputs_of(given(fields, field), field);
  if (api == EmbeddingApi::ollama_one && r.inputs.size() > 1) refuse_field(field, "must be a string");
  if (const json::value* const dimensions = given(fields, "dimensions")) {
    if (!dimensions->is_int64() || dimensions->get_int64() < 1)
      refuse_field("dimensions", "must be a whole number above 0");
    r.dimensions = dimensions->get_int64();
  }
  if (const json::value* const format = given(fields, "encoding_format")) {
    if (!format->is_string() || (format->get_string() != "float" && format->get_string() != "base64"))
      refuse_field("encoding_format", "must be \"float\" or \"base64\"");
    r.base64 = format->get_string() == "base64";
  }
  r.cuts = api != EmbeddingApi::openai;
  if (const json::value* const cuts = given(fields, "truncate")) {
    if (!cuts->is_bool()) refuse_field("truncate", "must be true or false");
    r.cuts = cuts->get_bool();
  }
  return r;
}

std::string embedding_reply(const EmbeddingRequest& request, const std::string& model, Embedder& embedder,
                            const Tokenizer& tokenizer, const std::function<bool()>& stops) {
  const auto begun = std::chrono::steady_clock::now();
  int64_t tokens = 0;
  std::string vectors;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (stops && stops()) throw Error(ErrorKind::Unavailable, "the request was cancelled");
    const EmbeddingRequest::Input& input = request.inputs[i];
    std::vector<int32_t> ids = input.ids;
    if (ids.empty()) ids = tokenizer.encode(input.text, {.begin = false, .end = false, .whole = true});
    if (request.cuts && embedder.context() > 0 && static_cast<int64_t>(ids.size()) > embedder.context())
      ids.resize(static_cast<size_t>(embedder.context()));
    std::vector<float> vector = embedder.embed(ids);
    shorten(vector, request.dimensions);
    tokens += static_cast<int64_t>(ids.size());
    const std::string text = request.base64 ? '"' + base64_of(vector) + '"' : array_of(vector);
    if (i > 0) vectors += ',';
    if (request.api == EmbeddingApi::openai)
      fmt::format_to(std::back_inserter(vectors), R"({{"object":"embedding","index":{},"embedding":{}}})", i, text);
    else
      vectors += text;
  }
  const std::string name = json::serialize(json::string(request.model.empty() ? model : request.model));
  if (request.api == EmbeddingApi::openai)
    return fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                       vectors, name, tokens, tokens) +
           "\n";
  if (request.api == EmbeddingApi::ollama_one)
    return fmt::format(R"({{"embedding":{}}})", vectors.empty() ? "[]" : vectors) + "\n";
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun);
  return fmt::format(R"({{"model":{},"embeddings":[{}],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                     name, vectors, time.count(), tokens) +
         "\n";
}

EmbeddingWorker::EmbeddingWorker(Embedder& embedder, const Tokenizer& tokenizer, size_t queue)
    : embedder_(embedder), tokenizer_(tokenizer), queue_(queue), thread_([this] { work(); }) {}

EmbeddingWorker::~EmbeddingWorker() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
  for (Waiting& one : waiting_) one.answer(shutting_down(one.request.api));
}

// Makes room for other requests.
void EmbeddingWorker::answer_gone() {
  std::vector<Waiting> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto first =
        std::stable_partition(waiting_.begin(), waiting_.end(), [](auto& one) { return !one.is_gone(); });
    std::move(first, waiting_.end(), std::back_inserter(gone));
    waiting_.erase(first, waiting_.end());
  }
  for (Waiting& one : gone) one.answer(gone_reply(one.request.api));
}

void EmbeddingWorker::answer(EmbeddingApi api, const ServiceRequest& request, const std::string& model,
                             HttpHandler::Answer answer) {
  Waiting one;
  try {
    one.request = read_embedding_request(api, request.body);
  } catch (const Error& e) {
    return answer(refused_embedding(api, e));
  }
  one.model = model;
  one.gone = request.gone;
  one.answer = std::move(answer);
  answer_gone();
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() <= queue_) {  // the first one is about to be processed
      waiting_.push_back(std::move(one));
      wake_.notify_one();
      return;
    }
  }
  ServiceReply busy = refused_embedding(api, "too many requests are waiting", 503);
  busy.headers.emplace_back("Retry-After", "1");
  one.answer(std::move(busy));
}

void EmbeddingWorker::work() {
  for (;;) {
    Waiting one;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return over_ || !waiting_.empty(); });
      if (over_) return;
      one = std::move(waiting_.front());
      waiting_.pop_front();
    }
    ServiceReply reply;
    try {
      reply.body =
          embedding_reply(one.request, one.model, embedder_, tokenizer_, [&] { return over_ || one.is_gone(); });
    } catch (const Error& e) {
      reply = one.is_gone() ? gone_reply(one.request.api)
              : over_       ? shutting_down(one.request.api)
                            : refused_embedding(one.request.api, e);
    } catch (const std::exception& e) {
      reply = refused_embedding(one.request.api, e.what(), 500);
    }
    one.answer(std::move(reply));
  }
}

}  // namespace harmonics::engine
