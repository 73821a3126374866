#include "engine/serving/token_routes.hpp"

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/language/whole_characters.hpp"
#include "engine/serving/json_fields.hpp"
#include "engine/serving/service.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

ApiRoute token_route(const char* method, const char* path, const char* summary, const char* text,
                     const char* example = nullptr) {
  const std::vector<RouteContent> any = {{"application/json", nullptr}};
  ApiRoute route{.method = method, .path = path, .access = RouteAccess::reads, .summary = summary, .text = text};
  if (example) route.body = any, route.example = example;
  route.reply = any;
  return route;
}

// Returns the bytes of a token after another one, also of control tokens.
std::string piece_of(const Tokenizer& tokenizer, int32_t id, std::optional<int32_t> previous) {
  const std::string piece = tokenizer.decode(id, previous);
  return piece.empty() ? tokenizer.written(id) : piece;
}

// As llama.cpp's server: the text of a token, or its bytes if they are a part of a character.
json::value piece_value(const std::string& piece) {
  if (!find_invalid_utf8(piece)) return json::value(json::string_view(piece));
  json::array bytes;
  for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

json::value token_text(std::optional<int32_t> id, const Tokenizer& tokenizer) {
  return id ? json::value(json::string_view(tokenizer.written(*id))) : json::value(nullptr);
}

}  // namespace

ApiRoute tokenize_route() {
  return token_route("POST", "/tokenize", "Tokens of a text or a conversation",
                     "As vLLM: prompt or messages, add_special_tokens, return_token_strs. As llama.cpp's server: "
                     "content, add_special, parse_special, with_pieces.",
                     R"({"prompt": "Hello"})");
}

ApiRoute detokenize_route() {
  return token_route("POST", "/detokenize", "The text of tokens",
                     "As vLLM (prompt) and llama.cpp's server (content). Control tokens have their texts.",
                     R"({"tokens": [1, 2]})");
}

ApiRoute tokenizer_info_route() {
  return token_route("GET", "/tokenizer_info", "Special tokens and the chat template", "As vLLM.");
}

ApiRoute apply_template_route() {
  return token_route("POST", "/apply-template", "The prompt of a conversation", "As llama.cpp's server.",
                     R"({"messages": [{"role": "user", "content": "Hello"}]})");
}

ServiceReply tokenize_reply(const std::string& body, const std::vector<int32_t>* ids, const Tokenizer& tokenizer,
                            int64_t context) {
  const json::object object = object_of_body(body);
  const JsonFields f(object);
  std::vector<int32_t> tokens;
  if (ids) {
    tokens = *ids;
  } else if (f.find("content")) {
    tokens = tokenizer.encode(f.text("content"),
                              {.begin = f.flag("add_special", false), .special = f.flag("parse_special", true)});
  } else {
    if (!f.find("prompt")) refuse_field("prompt", "is missing: give a text, or a list of 'messages'");
    tokens = tokenizer.encode(f.text("prompt"), {.begin = f.flag("add_special_tokens", true), .special = true});
  }
  const bool pieces = f.flag("with_pieces", false);
  json::array listed, texts;
  std::optional<int32_t> previous;
  for (const int32_t id : tokens) {
    if (pieces)
      listed.push_back(json::object{{"id", id}, {"piece", piece_value(piece_of(tokenizer, id, previous))}});
    else
      listed.push_back(id);
    const std::string text = tokenizer.written(id);
    texts.push_back(
        json::value(json::string_view(find_invalid_utf8(text) ? tokenizer.decode(std::span(&id, 1)) : text)));
    previous = id;
  }
  json::object reply{{"count", tokens.size()}, {"max_model_len", context}, {"tokens", std::move(listed)}};
  reply["token_strs"] = f.flag("return_token_strs", false) ? json::value(std::move(texts)) : json::value(nullptr);
  return Service::reply(reply);
}

ServiceReply detokenize_reply(const std::string& body, const Tokenizer& tokenizer) {
  const json::object object = object_of_body(body);
  const json::array* const given = JsonFields(object).array("tokens");
  if (!given) refuse_field("tokens", "is missing: give a list of tokens");
  WholeCharacters characters;
  std::string text;
  std::optional<int32_t> previous;
  for (const json::value& token : *given) {
    if (!token.is_int64() || token.get_int64() < 0 || token.get_int64() >= tokenizer.size())
      refuse_field("tokens", fmt::format("has an item that is not a token from 0 to {}", tokenizer.size() - 1));
    const auto id = static_cast<int32_t>(token.get_int64());
    text += piece_of(tokenizer, id, previous);
    previous = id;
  }
  const std::string whole = characters.push(text) + characters.finish();
  return Service::reply({{"prompt", whole}, {"content", whole}});
}

ServiceReply tokenizer_info_reply(const Tokenizer& tokenizer, const ChatTemplate& format, int64_t context) {
  return Service::reply({{"bos_token", token_text(tokenizer.bos(), tokenizer)},
                         {"eos_token", token_text(tokenizer.eos(), tokenizer)},
                         {"unk_token", token_text(tokenizer.unknown(), tokenizer)},
                         {"pad_token", token_text(tokenizer.padding(), tokenizer)},
                         {"vocab_size", tokenizer.size()},
                         {"model_max_length", context},
                         {"chat_template", format.text()}});
}

}  // namespace harmonics::engine
