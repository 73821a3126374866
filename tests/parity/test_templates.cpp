// Compares rendered chat templates with `transformers` (make_templates.py).
#include <catch2/catch.hpp>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/language/chat_template.hpp"
#include "tests/plugins/gguf_files.hpp"

using namespace harmonics::engine;
namespace json = boost::json;

namespace {

const json::value& golden_templates() {
  static const json::value all =
      json::parse(read_file(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/templates.json"));
  return all;
}

ChatPrompt prompt_of(const json::object& conversation, bool answer) {
  ChatPrompt prompt;
  prompt.answer = answer;
  for (const auto& [key, value] : conversation) {
    if (key == "messages")
      prompt.messages = value.as_array();
    else if (key == "tools")
      prompt.tools = value.as_array();
    else
      prompt.more[key] = value;
  }
  return prompt;
}

// Returns the text, or "refused: " and the reason.
std::string rendered(const std::string& text, const ChatPrompt& prompt) {
  try {
    return ChatTemplate(text, "<s>", "</s>").render(prompt);
  } catch (const harmonics::Error& e) {
    return std::string("refused: ") + e.what();
  }
}

}  // namespace

TEST_CASE("parity: chat templates of nine families render as with `transformers`") {
  const json::value& all = golden_templates();
  size_t texts = 0;
  for (const json::value& row : all.at("rendered").as_array()) {
    const std::string name(row.at("template").as_string());
    const auto& conversation = all.at("conversations").as_array().at(row.at("conversation").to_number<size_t>());
    const std::string found = rendered(std::string(all.at("templates").at(name).as_string()),
                                       prompt_of(conversation.as_object(), row.at("answer").as_bool()));
    INFO(name << ", conversation " << row.at("conversation"));
    if (row.at("text").is_null()) {
      CHECK(found.rfind("refused: the chat template, line ", 0) == 0);
    } else {
      CHECK(found == row.at("text").as_string());
      ++texts;
    }
  }
  CHECK(texts >= 80);
}

TEST_CASE("parity: expressions of templates give what they give with `transformers`") {
  const json::value& all = golden_templates();
  ChatPrompt prompt;
  prompt.more = all.at("variables").as_object();
  for (const json::value& row : all.at("expressions").as_array()) {
    const std::string text(row.at("template").as_string());
    INFO(text);
    CHECK(rendered(text, prompt) == row.at("text").as_string());
  }
  for (const json::value& text : all.at("refused").as_array()) {
    INFO(text);
    CHECK(rendered(std::string(text.as_string()), prompt).rfind("refused: the chat template, line 1, column ", 0) == 0);
  }
}

TEST_CASE("parity: long conversations take less than half of what templates may do") {
  const json::value& all = golden_templates();
  const auto message = [](const char* role, const std::string& text) {
    return json::object{{"role", role}, {"content", text}};
  };
  ChatPrompt short_ones, long_ones, calls;
  for (int i = 0; i < 1500; ++i) {
    short_ones.messages.push_back(message("user", "Hi"));
    short_ones.messages.push_back(message("assistant", "Hi"));
  }
  for (int i = 0; i < 20; ++i) {
    long_ones.messages.push_back(message("user", std::string(20'000, 'q')));
    long_ones.messages.push_back(message("assistant", "<think>\nSo\n</think>\n\n" + std::string(20'000, 'a')));
  }
  const json::object& tools = all.at("conversations").as_array().at(2).as_object();
  calls.tools = tools.at("tools").as_array();
  for (int i = 0; i < 300; ++i)
    for (const json::value& one : tools.at("messages").as_array()) calls.messages.push_back(one);
  size_t texts = 0;
  for (const auto& [name, text] : all.at("templates").as_object())
    for (const ChatPrompt* prompt : {&short_ones, &long_ones, &calls}) {
      INFO(name << ", " << prompt->messages.size() << " messages");
      const TemplateWork allowed = ChatTemplate::allowed(*prompt);
      TemplateWork done;
      try {
        texts += !ChatTemplate(std::string(text.as_string()), "<s>", "</s>").render(*prompt, &done).empty();
      } catch (const harmonics::Error& e) {  // that it refuses, as without content
        CHECK(std::string(e.what()).find("the limit for these messages") == std::string::npos);
      }
      CHECK(done.steps * 2 < allowed.steps);
      CHECK(done.bytes * 2 < allowed.bytes);
      CHECK(done.output * 2 < allowed.output);
    }
  CHECK(texts >= 18);
}
