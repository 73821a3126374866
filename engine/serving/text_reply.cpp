#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/serving/json_fields.hpp"
#include "engine/serving/json_text.hpp"
#include "engine/serving/responses.hpp"
#include "engine/serving/text_request.hpp"
#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

bool is_openai(TextApi api) { return api == TextApi::chat || api == TextApi::completion || api == TextApi::responses; }

json::object usage_of(const Continuation& done) {
  return {{"prompt_tokens", done.prompt_tokens},
          {"completion_tokens", done.tokens},
          {"total_tokens", done.prompt_tokens + done.tokens},
          {"prompt_tokens_details", {{"cached_tokens", done.reused_tokens}}}};
}

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

json::array bytes_of_token(const std::string& text) {
  json::array all;
  for (const char byte : text) all.push_back(static_cast<unsigned char>(byte));
  return all;
}

// Returns a token's text, or its bytes as \xE2\x82 if they are a part of a character, so that tokens stay distinct.
std::string token_label(const std::string& text, const char* before_bytes = "") {
  if (!find_invalid_utf8(text)) return text;
  std::string bytes = before_bytes;
  for (const char byte : text)
    bytes += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return bytes;
}

int64_t characters_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

std::vector<std::string> names_of(const json::array& tools) {
  std::vector<std::string> names;
  for (const json::value& tool : tools) {
    const json::object* const function = JsonFields(tool.as_object()).object("function");
    names.push_back(JsonFields(function ? *function : tool.as_object()).text("name"));
  }
  return names;
}

}  // namespace

std::string timestamp(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

TextReply::TextReply(const TextRequest& request, const Tokenizer& tokenizer, const std::string& prompt, std::string id,
                     int64_t now, size_t index)
    : api_(request.api),
      model_(request.model),
      id_(std::move(id)),
      now_(now),
      index_(index),
      usage_(request.usage),
      probabilities_(request.settings.log_probabilities.has_value()),
      one_call_(request.one_call),
      prompt_logprobs_(request.prompt_logprobs),
      scored_echo_(request.echo && request.settings.log_probabilities),
      tokenizer_(tokenizer) {
  if (request.conversation) reader_.emplace(names_of(request.conversation->tools), prompt);
  if (request.echo) {
    echoed_ = prompt;
    if (scored_echo_) prompt_text_ = prompt;
  }
  if (request.response) writer_ = std::make_shared<ResponseWriter>(request.response, model_, id_, now_);
}

const char* TextReply::stream_type() const { return is_openai(api_) ? "text/event-stream" : "application/x-ndjson"; }

std::string TextReply::error_body(TextApi api, const std::string& message, int status, const char* code,
                                  const std::string& field) {
  if (!is_openai(api)) return json_line({{"error", message}}) + "\n";
  const char* const type = status == 401  ? "authentication_error"
                           : status < 500 ? "invalid_request_error"
                                          : "server_error";
  const json::value named = code ? json::value(code) : json::value(nullptr);
  const json::value param = field.empty() ? json::value(nullptr) : json::value(json::string_view(field));
  return json_line({{"error", {{"message", message}, {"type", type}, {"param", param}, {"code", named}}}}) + "\n";
}

std::string TextReply::line(json::object object) const {
  return is_openai(api_) ? "data: " + json_line(object) + "\n\n" : json_line(object) + "\n";
}

json::object TextReply::head(const char* object) const {
  json::object all{{"id", id_}, {"object", object}, {"created", now_}, {"model", model_}};
  if (usage_) all["usage"] = nullptr;  // as in OpenAI's API: only the last object of a stream has it
  return all;
}

const char* TextReply::reason(const Continuation& done) const {
  if (done.end == EndOfText::tokens || done.end == EndOfText::context) return "length";
  return !calls_.empty() && api_ == TextApi::chat ? "tool_calls" : "stop";
}

json::value TextReply::calls(bool indexed) const {
  json::array all;
  for (size_t i = indexed ? told_calls_ : 0; i < calls_.size(); ++i) {
    json::object function{{"name", calls_[i].text}};
    json::object call;
    if (indexed) call["index"] = i;
    if (is_openai(api_)) {
      function["arguments"] = calls_[i].arguments;
      call["id"] =
          fmt::format("call_{}{}_{}", id_.substr(id_.find('-') + 1), index_ ? fmt::format("_{}", index_) : "", i);
      call["type"] = "function";
    } else {
      json::error_code failed;
      json::value arguments = parse_json(calls_[i].arguments, failed);
      function["arguments"] = failed ? json::value(json::object()) : std::move(arguments);
    }
    call["function"] = std::move(function);
    all.push_back(std::move(call));
  }
  return all;
}

// Returns the probabilities of the tokens from this one on, as in OpenAI's chats.
json::array TextReply::token_probabilities(const Continuation& done, size_t from) const {
  json::array content;
  for (size_t i = from; i < done.shown; ++i) {
    const auto entry = [&](const TokenProbability& one) {
      const std::string token = tokenizer_.written(one.id);
      return json::object{
          {"token", token_label(token)}, {"logprob", one.log_probability}, {"bytes", bytes_of_token(token)}};
    };
    json::array best;
    for (const TokenProbability& other : done.chosen[i].best) best.push_back(entry(other));
    json::object one = entry({done.chosen[i].id, done.chosen[i].log_probability});
    one["top_logprobs"] = std::move(best);
    content.push_back(std::move(one));
  }
  return content;
}

json::value TextReply::probabilities(const Continuation& done, size_t from) const {
  if (!probabilities_) return nullptr;
  if (api_ == TextApi::completion) return text_probabilities(done, from, done.shown, scored_echo_ && !told_prompt_);
  if (api_ == TextApi::chat) return json::object{{"content", token_probabilities(done, from)}};
  return token_probabilities(done, from);
}

namespace {

// Where the tokens of a text begin in it.
struct TextPositions {
  const Tokenizer& tokenizer;
  std::string_view text;  // what is left of it
  int64_t characters = 0;
  std::optional<int32_t> previous = {};

  // Returns the position of the next token. The text of a control token is skipped if it is there.
  int64_t next(int32_t id) {
    std::string piece = tokenizer.decode(id, previous);
    if (piece.empty() && tokenizer.decode(id, id).empty()) {
      piece = tokenizer.written(id);
      if (!text.starts_with(piece)) piece.clear();
      if (!previous && tokenizer.bos() == id) previous = id;
    } else {
      previous = id;
    }
    // Tokenizers may add a space before a text and after control tokens.
    if (piece.starts_with(' ') && !text.starts_with(piece)) piece.erase(0, 1);
    text.remove_prefix(std::min(piece.size(), text.size()));
    return std::exchange(characters, characters + characters_of(piece));
  }
};

// The log probabilities of tokens, as in OpenAI's completions: those of the most likely tokens and of the token itself.
struct TextProbabilities {
  const Tokenizer& tokenizer;
  json::array tokens = {}, values = {}, best = {}, offsets = {};

  std::string label(int32_t id) const { return token_label(tokenizer.written(id), "bytes:"); }
  void add(int32_t id, int64_t offset) {  // without a probability
    tokens.push_back(json::value(json::string_view(label(id))));
    offsets.push_back(offset);
    values.push_back(nullptr);
    best.push_back(nullptr);
  }
  void add(const ScoredToken& token, int64_t offset) {
    add(token.id, offset);
    values.back() = token.log_probability;
    json::object likely;  // of tokens with the same text, the most likely one counts
    for (const TokenProbability& other : token.best) likely.emplace(label(other.id), other.log_probability);
    likely.emplace(tokens.back().get_string(), token.log_probability);
    best.back() = std::move(likely);
  }
};

}  // namespace

// Returns the probabilities of the chosen tokens `from` to `to`, after those of the prompt if `prompt`.
json::value TextReply::text_probabilities(const Continuation& done, size_t from, size_t to, bool prompt) const {
  TextProbabilities all{tokenizer_};
  if (prompt && prompt_) {
    TextPositions positions{tokenizer_, prompt_text_};
    all.add(prompt_->first, positions.next(prompt_->first));
    for (const ScoredToken& token : prompt_->others) all.add(token, positions.next(token.id));
  }
  int64_t characters = characters_of(prompt_text_);
  for (size_t i = 0; i < to; ++i) {
    if (i >= from) all.add(done.chosen[i], characters);
    characters += characters_of(tokenizer_.written(done.chosen[i].id));
  }
  return json::object{{"tokens", std::move(all.tokens)},
                      {"token_logprobs", std::move(all.values)},
                      {"top_logprobs", std::move(all.best)},
                      {"text_offset", std::move(all.offsets)}};
}

// Returns the probabilities of the prompt as vLLM does: the token and the most likely ones at each position.
json::array TextReply::prompt_probabilities() const {
  json::array all{nullptr};
  for (const ScoredToken& token : prompt_->others) {
    json::object one;
    const auto add = [&](int32_t id, double log_probability, int64_t rank) {
      one.emplace(std::to_string(id), json::object{{"logprob", log_probability},
                                                   {"rank", rank},
                                                   {"decoded_token", token_label(tokenizer_.written(id))}});
    };
    add(token.id, token.log_probability, token.rank);
    for (size_t i = 0; i < std::min(*prompt_logprobs_, token.best.size()); ++i)
      add(token.best[i].id, token.best[i].log_probability, static_cast<int64_t>(i) + 1);
    all.push_back(std::move(one));
  }
  return all;
}

// Returns the fields of a line of Ollama's stream except its text; with `done`, those of the last line.
json::object TextReply::ollama(const Continuation* done) const {
  json::object object{{"model", model_}, {"created_at", timestamp(now_)}, {"done", done != nullptr}};
  if (!done) return object;
  object["done_reason"] = reason(*done);
  object["total_duration"] = nanoseconds(done->prompt_seconds + done->seconds);
  object["load_duration"] = 0;
  object["prompt_eval_count"] = done->prompt_tokens;
  object["prompt_eval_duration"] = nanoseconds(done->prompt_seconds);
  object["eval_count"] = done->tokens;
  object["eval_duration"] = nanoseconds(done->seconds);
  return object;
}

std::string TextReply::begin() {
  if (writer_) return writer_->begin();
  if (api_ != TextApi::chat) return "";
  json::object object = head("chat.completion.chunk");
  object["choices"] = json::array{json::object{{"index", index_},
                                               {"delta", {{"role", "assistant"}, {"content", ""}}},
                                               {"logprobs", nullptr},
                                               {"finish_reason", nullptr}}};
  return line(std::move(object));
}

// Records the parts, and returns them as lines of a stream.
std::string TextReply::piece(std::vector<AnswerPart> parts, const Continuation& done) {
  if (one_call_)
    std::erase_if(
        parts, [&](const AnswerPart& part) { return part.kind == AnswerPart::call && std::exchange(has_call_, true); });
  if (writer_) {
    json::array logprobs = probabilities_ ? token_probabilities(done, told_) : json::array();
    if (!parts.empty()) told_ = done.shown;
    return writer_->more(parts, std::move(logprobs));
  }
  std::string lines;
  for (const AnswerPart& part : parts) {
    const bool content = part.kind == AnswerPart::content, call = part.kind == AnswerPart::call;
    if (content) content_ += part.text;
    if (part.kind == AnswerPart::reasoning) reasoning_ += part.text;
    if (call) calls_.push_back(part);
    json::object object;
    if (api_ == TextApi::chat) {
      json::object delta;
      if (call)
        delta["tool_calls"] = calls(true);
      else
        delta[content ? "content" : "reasoning_content"] = part.text;
      object = head("chat.completion.chunk");
      object["choices"] = json::array{json::object{{"index", index_},
                                                   {"delta", std::move(delta)},
                                                   {"logprobs", probabilities(done, told_)},
                                                   {"finish_reason", nullptr}}};
    } else if (api_ == TextApi::completion) {
      object = head("text_completion");
      object["choices"] = json::array{json::object{{"index", index_},
                                                   {"text", part.text},
                                                   {"logprobs", probabilities(done, told_)},
                                                   {"finish_reason", nullptr}}};
    } else {
      object = ollama(nullptr);
      if (probabilities_) object["logprobs"] = probabilities(done, told_);
      if (api_ == TextApi::ollama_generate) {
        object["response"] = content ? json::value(json::string_view(part.text)) : json::value("");
        if (!content) object["thinking"] = part.text;
      } else {
        json::object message{{"role", "assistant"}, {"content", content ? part.text : std::string()}};
        if (call)
          message["tool_calls"] = calls(true);
        else if (!content)
          message["thinking"] = part.text;
        object["message"] = std::move(message);
      }
    }
    told_ = done.shown;
    told_prompt_ = true;
    told_calls_ = calls_.size();
    lines += line(std::move(object));
  }
  return lines;
}

std::string TextReply::more(const std::string& text, const Continuation& done) {
  if (reader_) return piece(reader_->push(text), done);
  const std::string whole = std::exchange(echoed_, "") + text;
  return whole.empty() ? "" : piece({{AnswerPart::content, whole}}, done);
}

std::string TextReply::end(const Continuation& done) {
  std::string lines = reader_ ? piece(reader_->finish(), done) : more("", done);
  if (writer_) return lines + writer_->end(done);
  json::object last;
  if (!is_openai(api_)) {
    last = ollama(&done);
    if (told_ < done.shown) last["logprobs"] = probabilities(done, told_);
    if (api_ == TextApi::ollama_generate)
      last["response"] = "";
    else
      last["message"] = json::object{{"role", "assistant"}, {"content", ""}};
    return lines + line(std::move(last));
  }
  const bool chat = api_ == TextApi::chat;
  json::object choice{{"index", index_}};
  if (chat)
    choice["delta"] = json::object();
  else
    choice["text"] = "";
  if (scored_echo_)
    choice["logprobs"] = text_probabilities(done, told_, done.chosen.size(), !told_prompt_);
  else
    choice["logprobs"] = told_ < done.shown ? probabilities(done, told_) : json::value(nullptr);
  choice["finish_reason"] = reason(done);
  last = head(chat ? "chat.completion.chunk" : "text_completion");
  last["choices"] = json::array{std::move(choice)};
  return lines + line(std::move(last));
}

std::string TextReply::close(const Continuation& total) const {
  if (writer_ || !is_openai(api_)) return "";
  std::string lines;
  if (usage_) {
    json::object usage = head(api_ == TextApi::chat ? "chat.completion.chunk" : "text_completion");
    usage["choices"] = json::array();
    usage["usage"] = usage_of(total);
    lines = line(std::move(usage));
  }
  return lines + "data: [DONE]\n\n";
}

std::string TextReply::failed(const Error& error) const {
  if (writer_) return writer_->failed(error.what());
  const std::string body = error_body(api_, error.what(), 500);
  return is_openai(api_) ? "data: " + body + "\n" : body;
}

json::object TextReply::message() const {
  json::object message{{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) message[is_openai(api_) ? "reasoning_content" : "thinking"] = reasoning_;
  if (!calls_.empty()) message["tool_calls"] = calls(false);
  if (!calls_.empty() && content_.empty() && is_openai(api_)) message["content"] = nullptr;
  return message;
}

json::object TextReply::choice(const Continuation& done) const {
  json::object choice{{"index", index_}};
  if (api_ == TextApi::chat)
    choice["message"] = message();
  else
    choice["text"] = content_;
  // With those of a prompt, an end token has one too, so that there are as many as tokens.
  choice["logprobs"] = scored_echo_ ? text_probabilities(done, 0, done.chosen.size(), true) : probabilities(done, 0);
  if (prompt_logprobs_ && api_ == TextApi::completion) choice["prompt_logprobs"] = prompt_probabilities();
  choice["finish_reason"] = reason(done);
  return choice;
}

std::string TextReply::whole(const Continuation& total, json::array choices) const {
  if (writer_) return json_line(writer_->whole()) + "\n";
  if (!is_openai(api_)) {
    json::object object = ollama(&total);
    if (probabilities_) object["logprobs"] = choices.at(0).at("logprobs");
    if (api_ == TextApi::ollama_chat)
      object["message"] = message();
    else
      object["response"] = content_;
    if (api_ == TextApi::ollama_generate && !reasoning_.empty()) object["thinking"] = reasoning_;
    return json_line(object) + "\n";
  }
  json::object object = head(api_ == TextApi::chat ? "chat.completion" : "text_completion");
  object["choices"] = std::move(choices);
  if (prompt_logprobs_ && api_ == TextApi::chat) object["prompt_logprobs"] = prompt_probabilities();
  object["usage"] = usage_of(total);
  return json_line(object) + "\n";
}

}  // namespace harmonics::engine
