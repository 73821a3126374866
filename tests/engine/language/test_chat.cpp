// Conversations: only new tokens are computed, and answers are parsed into parts.
#include <catch2/catch.hpp>

#include <boost/json.hpp>

#include "engine/language/chat_session.hpp"
#include "tests/engine/language/small_language.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string shown(const std::vector<AnswerPart>& parts) {
  std::string text;
  for (const AnswerPart& part : parts) {
    text += part.kind == AnswerPart::content ? "c(" : part.kind == AnswerPart::reasoning ? "r(" : "t(";
    text += part.text + (part.kind == AnswerPart::call ? " " + part.arguments : "") + ")";
  }
  return text;
}

// Parses the text in pieces of every size, which must give equal parts.
std::string parts_of_answer(const std::string& text, bool tools = true, const std::string& prompt = "") {
  std::string first;
  for (size_t size = text.size(); size > 0; --size) {
    AnswerReader reader(tools ? std::vector<std::string>{"f", "g"} : std::vector<std::string>(), prompt);
    std::vector<AnswerPart> all;
    const auto take = [&](const std::vector<AnswerPart>& parts) {
      for (const AnswerPart& part : parts) {
        if (!all.empty() && all.back().kind == part.kind && part.kind != AnswerPart::call)
          all.back().text += part.text;
        else
          all.push_back(part);
      }
    };
    for (size_t at = 0; at < text.size(); at += size) take(reader.push(text.substr(at, size)));
    take(reader.finish());
    if (first.empty()) first = shown(all);
    CHECK(shown(all) == first);
  }
  return first;
}

ContinuationSettings few_tokens(int64_t count) {
  ContinuationSettings settings;
  settings.tokens = count;
  settings.temperature = 0;
  return settings;
}

}  // namespace

TEST_CASE("chat answer: reasoning and calls of tools are found in pieces of every size") {
  CHECK(parts_of_answer("Hello <b>") == "c(Hello <b>)");
  CHECK(parts_of_answer("<think>\nhm\n</think>\n\nYes") == "r(\nhm\n)c(Yes)");
  CHECK(parts_of_answer("hm</think>Yes", true, "<|assistant|><think>\n") == "r(hm)c(Yes)");
  CHECK(parts_of_answer("<think>unfinished") == "r(unfinished)");
  CHECK(parts_of_answer("Look: <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>") ==
        "c(Look: )t(f {\"x\":1})");
  CHECK(parts_of_answer("<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>") ==
        "t(f {})t(g {})");
  CHECK(parts_of_answer("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]") == "t(f {})");
  CHECK(parts_of_answer("[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS] g[CALL_ID]a1[ARGS] {}\n") ==
        "t(f {\"x\":1})t(g {})");
  CHECK(parts_of_answer("[TOOL_CALLS]f[ARGS] ") == "c([TOOL_CALLS]f[ARGS] )");
  CHECK(parts_of_answer("[TOOL_CALLS]f[ARGS]{\"x\": ") == "c([TOOL_CALLS]f[ARGS]{\"x\": )");
  CHECK(parts_of_answer("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": \"[ARGS]\"}}]") ==
        "t(f {\"x\":\"[ARGS]\"})");
  CHECK(parts_of_answer("{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}") == "t(f {\"a\":\"b\"})");
  CHECK(parts_of_answer("{\"other\": 1}") == "c({\"other\": 1})");
  CHECK(parts_of_answer("{\"name\": \"f\", \"arguments\": {\"x\": [-0.25, 1e2, \"1E2\"]}}") ==
        "t(f {\"x\":[-0.25,100.0,\"1E2\"]})");
  CHECK(parts_of_answer("{\"name\": \"Ada\"}") == "c({\"name\": \"Ada\"})");
  CHECK(parts_of_answer("<tool_call>{\"name\": \"h\"}</tool_call>") == "t(h {})");
  CHECK(parts_of_answer("<tool_call>no JSON</tool_call>") == "c(<tool_call>no JSON</tool_call>)");
  CHECK(parts_of_answer("<tool_call>{\"name\":\"f\"}</tool_call>", false) ==
        "c(<tool_call>{\"name\":\"f\"}</tool_call>)");
}

TEST_CASE("chat answer: messages in channels are reasoning, calls and content") {
  const std::string prompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
  const std::string thought = "<|channel|>analysis<|message|>hm <b><|end|>";
  CHECK(parts_of_answer(thought + "<|start|>assistant<|channel|>final<|message|>Yes.", true, prompt) ==
        "r(hm <b>)c(Yes.)");
  CHECK(parts_of_answer("<|channel|>final<|message|>Yes", true, prompt) == "c(Yes)");
  const std::string call =
      " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{\"city\": \"Bonn\"}";
  CHECK(parts_of_answer(thought + "<|start|>assistant" + call, true, prompt) ==
        "r(hm <b>)t(get_weather {\"city\":\"Bonn\"})");
  CHECK(parts_of_answer("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", true, prompt).empty());
  CHECK(parts_of_answer("<|channel|>commentary to=functions.f<|message|>{}<|end|>", true, prompt) == "t(f {})");
  CHECK(parts_of_answer("<|channel|>commentary to=functions.f<|message|><|end|>", true, prompt) == "t(f {})");
  CHECK(parts_of_answer("<|channel|>commentary to=functions.f<|message|>{\"x\": ", true, prompt) == "c({\"x\": )");
  CHECK(parts_of_answer("<|channel|>commentary to=functions.f<|message|>{}", false, prompt) == "c({})");
  CHECK(parts_of_answer("<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant" + call, true,
                        prompt) == "c(I look it up.)t(get_weather {\"city\":\"Bonn\"})");
  CHECK(parts_of_answer("{\"name\": \"f\", \"parameters\": {}}", true, prompt) == "t(f {})");
  CHECK(parts_of_answer("No channel", true, prompt) == "c(No channel)");
  CHECK(parts_of_answer(std::string(300, 'x') + "y", true, prompt) == "c(" + std::string(300, 'x') + "y)");
  CHECK(parts_of_answer("<|channel|>final", true, prompt) == "c(<|channel|>final)");
}

TEST_CASE("generation: a prompt with a known beginning gives the same text, and only the rest is computed") {
  SmallLanguage small, other;
  const auto text_of = [&](Session& session, const std::string& prompt, int64_t chunk) {
    Generation text(session, *small.tokenizer, small.tokenizer->encode(prompt), few_tokens(12));
    std::string all;
    while (!text.is_over()) all += text.step(chunk);
    return std::pair(all, text.done());
  };
  Session fresh(other.decoder), reused(small.decoder);
  text_of(reused, "One and the same beginning, then this", 1000);
  const auto [expected, once] = text_of(fresh, "One and the same beginning, but that", 1000);
  const auto [found, again] = text_of(reused, "One and the same beginning, but that", 5);
  CHECK(found == expected);
  CHECK(once.reused_tokens == 0);
  CHECK(again.reused_tokens >= 25);
  CHECK(reused.length() == fresh.length());
  CHECK_THROWS(reused.keep(reused.length() + 1));
}

TEST_CASE("generation: a grammar is followed, and ends the text") {
  SmallLanguage small;
  Session session(small.decoder);
  ContinuationSettings settings = few_tokens(100);
  settings.temperature = 1;
  settings.grammar = std::make_shared<const Grammar>("root ::= [a-c]{3} \"-\" (\"yes\" | \"no\")");
  Generation text(session, *small.tokenizer, small.tokenizer->encode("x"), settings);
  std::string all;
  while (!text.is_over()) all += text.step();
  REQUIRE(all.size() >= 6);
  CHECK(all.substr(0, 3).find_first_not_of("abc") == std::string::npos);
  CHECK((all.substr(3) == "-yes" || all.substr(3) == "-no"));
  CHECK(text.done().end == EndOfText::stop);
}

TEST_CASE("chat: turns, commands and what no longer fits") {
  SmallLanguage small;
  const ChatTemplate format = ChatTemplate::usual();
  Session session(small.decoder, 200);
  ChatSession chat(session, *small.tokenizer, format, Overflow::stop);
  const auto ask = [&](ChatSession& to, const std::optional<std::string>& message, bool stop = false) {
    std::string heard;
    ChatAnswer answer = to.answer(
        message, few_tokens(6), [&](const AnswerPart& part) { heard += part.text; }, [&] { return stop; });
    CHECK(heard == answer.content + answer.reasoning);
    return answer;
  };
  chat.set_system("S");
  const ChatAnswer first = ask(chat, "Hello");
  CHECK(first.done.tokens <= 6);
  CHECK(chat.messages().size() == 3);
  const ChatAnswer second = ask(chat, "And?");
  CHECK(second.done.reused_tokens > first.done.prompt_tokens - 2);
  CHECK(chat.messages().size() == 5);
  CHECK(chat.drop_answer());
  CHECK(ask(chat, std::nullopt).content == second.content);
  CHECK(ask(chat, "stop", true).interrupted);
  const std::string large(300, 'x');
  CHECK(message_of([&] { ask(chat, large); }).find("but the context holds 200") != std::string::npos);
  CHECK(chat.messages().size() == 7);  // unchanged
  chat.clear();
  CHECK(chat.messages().size() == 1);
  chat.set_system("");
  CHECK(chat.messages().empty());
  CHECK_FALSE(chat.drop_answer());

  ChatSession shifting(session, *small.tokenizer, format, Overflow::shift);
  shifting.set_system("S");
  size_t forgotten = 0;
  for (int i = 0; i < 6; ++i) forgotten += ask(shifting, "message " + std::to_string(i)).forgotten;
  CHECK(forgotten > 0);
  CHECK(shifting.messages()[0].at("role").as_string() == "system");
  CHECK(shifting.messages()[1].at("role").as_string() == "user");
}

TEST_CASE("chat template: prompts with tools have a template of their own, if there is one") {
  const std::string key = "tokenizer.chat_template";
  const auto tokenizer = byte_tokenizer();
  AttributeMap values;
  values.set(key, std::string("plain"));
  CHECK_FALSE(ChatTemplate::of({"m.gguf", values}, *tokenizer).shows_tools());
  values.set(key + ".tool_use", std::string("{{ tools[0].name }}{{ bos_token }}"));
  const ChatTemplate both = ChatTemplate::of({"m.gguf", values}, *tokenizer);
  CHECK(both.shows_tools());
  CHECK(both.text() == "plain");
  CHECK(both.text_with_tools() == "{{ tools[0].name }}{{ bos_token }}");
  ChatPrompt prompt;
  CHECK(both.render(prompt) == "plain");
  prompt.tools = {boost::json::object{{"name", "f"}}};
  CHECK(both.render(prompt) == "f<s>");
}

TEST_CASE("generation: marks of answers are text even if they are control tokens") {
  SmallLanguage small;
  Session session(small.decoder);
  ContinuationSettings settings = few_tokens(2);
  settings.filters.bias = {{3, 1000.0f}};  // <|im_start|>
  const auto text = [&] {
    std::string all;
    continue_tokens(session, *small.tokenizer, {1, 70}, settings, [&](const std::string& more) { all += more; });
    return all;
  };
  CHECK(text().empty());
  settings.written = {3};
  CHECK(text() == "<|im_start|><|im_start|>");
  CHECK(answer_marks(*small.tokenizer).empty());
  const auto tokenizer_of = [](const std::vector<std::string>& special) {
    std::vector<std::string> tokens{"<unk>", "a"};
    tokens.insert(tokens.end(), special.begin(), special.end());
    std::vector<int32_t> types(tokens.size(), 3);
    types[0] = 2, types[1] = 1;
    GgufWriter writer;
    writer.set_text("tokenizer.ggml.model", "llama");
    writer.set("tokenizer.ggml.tokens", tokens);
    writer.set("tokenizer.ggml.token_type", types);
    writer.set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
    return Tokenizer::read(writer.header(), "marks.gguf", harmonics::engine::Registry::global());
  };
  CHECK(answer_marks(*tokenizer_of({"[ARGS]", "<|python_tag|>", "[TOOL_CALLS]"})) == std::vector<int32_t>{4, 2, 3});
  // With channels <|end|> ends a message; in other vocabularies it ends the answer.
  const auto channels =
      tokenizer_of({"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>"});
  CHECK(answer_marks(*channels) == std::vector<int32_t>{5, 4, 6, 2, 3});
  CHECK(answer_ends(*channels) == std::vector<int32_t>{7});
  const auto phi = tokenizer_of({"<|end|>", "<|channel|>"});
  CHECK(answer_marks(*phi).empty());
  CHECK(answer_ends(*phi) == std::vector<int32_t>{2});
}

TEST_CASE("tokenizer: special tokens have a text, and are found by it") {
  const auto tokenizer = byte_tokenizer();
  CHECK(tokenizer->decode(kImEnd) == "");
  CHECK(tokenizer->written(kImEnd) == "<|im_end|>");
  CHECK(tokenizer->special_token("<|im_end|>") == kImEnd);
  CHECK(tokenizer->special_token("<|eot_id|>") == std::nullopt);
  CHECK(tokenizer->special_token("x") == std::nullopt);
  CHECK(answer_ends(*tokenizer) == std::vector<int32_t>{kImEnd});
}
