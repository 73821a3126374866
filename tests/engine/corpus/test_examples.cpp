// Examples: kinds, columns, and which parts of a text are learned.
#include <catch2/catch.hpp>

#include <boost/json.hpp>

#include "engine/corpus/example.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

ExampleFormat format_of(ExampleKind kind, const std::string& columns = "", bool all = false) {
  return {kind, parse_columns(columns), std::make_shared<ChatTemplate>(ChatTemplate::usual()), "<|im_end|>", all};
}

TextExample example_of(const ExampleFormat& format, const std::string& line) {
  const boost::json::value value = boost::json::parse(line);
  return format.read(value, format.kind_of(value));
}

std::vector<std::string> learned_in(const TextExample& example) {
  std::vector<std::string> parts;
  for (const TextExample::Range& range : example.learned)
    parts.push_back(example.text.substr(range.begin, range.end - range.begin));
  return parts;
}

std::string refusal(const std::string& line, ExampleKind kind = ExampleKind::automatic) {
  return message_of([&] { example_of(format_of(kind), line); });
}

constexpr const char* kTalk =
    R"({"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "See you."}]})";

}  // namespace

TEST_CASE("examples: of a prompt and its completion the completion is learned") {
  const TextExample example = example_of(format_of(ExampleKind::automatic), R"({"prompt": "1+1=", "completion": "2"})");
  CHECK(example.text == "1+1=2");
  CHECK(learned_in(example) == std::vector<std::string>{"2"});
  CHECK(example.end);
  CHECK_FALSE(example.special);
  const TextExample all =
      example_of(format_of(ExampleKind::automatic, "", true), R"({"prompt": "1+1=", "completion": "2"})");
  CHECK(learned_in(all) == std::vector<std::string>{"1+1=2"});
}

TEST_CASE("examples: instructions have a heading for their input, if there is one") {
  const TextExample with =
      example_of(format_of(ExampleKind::instruction), R"({"instruction": "Add.", "input": "1 2", "output": "3"})");
  CHECK(with.text.ends_with("### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n3"));
  CHECK(learned_in(with) == std::vector<std::string>{"3"});
  const TextExample without =
      example_of(format_of(ExampleKind::instruction), R"({"instruction": "Add.", "input": "", "output": "3"})");
  CHECK(without.text.ends_with("### Instruction:\nAdd.\n\n### Response:\n3"));
}

TEST_CASE("examples: of a conversation what the assistant writes is learned, with the end of each answer") {
  const TextExample example = example_of(format_of(ExampleKind::automatic), kTalk);
  CHECK(example.special);
  CHECK_FALSE(example.end);
  CHECK(learned_in(example) == std::vector<std::string>{"Hello.<|im_end|>", "See you.<|im_end|>"});
  CHECK(example.text.find("<|im_start|>user\nHi<|im_end|>") != std::string::npos);
}

TEST_CASE("examples: a template that writes earlier answers without their reasoning still has their ends") {
  const auto format = std::make_shared<ChatTemplate>(
      "{% for m in messages %}[{{ m.role }}]"
      "{% if m.role == 'assistant' and loop.last %}<think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  const ExampleFormat reader(ExampleKind::chat, {}, format, "<|im_end|>", false);
  const TextExample example = example_of(reader, kTalk);
  CHECK(learned_in(example) == std::vector<std::string>{"Hello.<|im_end|>", "<think>See you.<|im_end|>"});
}

TEST_CASE("examples: conversations of ShareGPT have other names") {
  const TextExample example =
      example_of(format_of(ExampleKind::automatic),
                 R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]})");
  CHECK(learned_in(example) == std::vector<std::string>{"Hello.<|im_end|>"});
  CHECK(example.text.find("<|im_start|>user\nHi") != std::string::npos);
}

TEST_CASE("examples: columns name the fields") {
  const ExampleFormat format = format_of(ExampleKind::instruction, "prompt:question,completion:answer");
  CHECK(example_of(format, R"({"question": "q", "answer": "a"})").text == "qa");
  CHECK(message_of([] { parse_columns("promt:question"); }).find("no column 'promt'") != std::string::npos);
  CHECK(message_of([] { parse_columns("prompt"); }).find("not a list of columns") != std::string::npos);
  CHECK(message_of([] { parse_columns("text:a,text:b"); }).find("given twice") != std::string::npos);
}

TEST_CASE("examples: what is wrong is said, with the nearest name") {
  CHECK(refusal("3") == "is a number; an example is an object with named fields");
  CHECK(refusal(R"({"txt": "a"})").find("none of 'text'") != std::string::npos);
  CHECK(refusal(R"({"txt": "a"})", ExampleKind::text).find("did you mean 'txt'") != std::string::npos);
  CHECK(refusal(R"({"prompt": "a", "completion": 3})").find("a number as 'completion', not a string") !=
        std::string::npos);
  CHECK(refusal(R"({"messages": []})").find("an empty list of messages") != std::string::npos);
  CHECK(refusal(R"({"messages": [3]})").find("as message 1, a number") != std::string::npos);
  CHECK(refusal(R"({"messages": [{"role": "user"}]})").find("no 'content'") != std::string::npos);
  CHECK(refusal(R"({"messages": [{"role": "user", "content": "Hi"}]})").find("no message of the assistant") !=
        std::string::npos);
  CHECK(message_of([] { example_kind_named("alpacca"); }).find("not a kind of example") != std::string::npos);
}

namespace {

std::pair<TextExample, TextExample> pair_of(const std::string& line, const std::string& columns = "") {
  const ExampleFormat format = format_of(ExampleKind::automatic, columns);
  const boost::json::value value = boost::json::parse(line);
  CHECK(format.kind_of(value) == ExampleKind::preference);
  return format.read_pair(value);
}

std::string pair_refusal(const std::string& line) {
  return message_of([&] { format_of(ExampleKind::preference).read_pair(boost::json::parse(line)); });
}

}  // namespace

TEST_CASE("examples: both answers of a preference are learned after one prompt") {
  const auto [chosen, rejected] = pair_of(R"({"prompt": "1+1=", "chosen": "2", "rejected": "11"})");
  CHECK(chosen.text == "1+1=2");
  CHECK(rejected.text == "1+1=11");
  CHECK(learned_in(chosen) == std::vector<std::string>{"2"});
  CHECK(learned_in(rejected) == std::vector<std::string>{"11"});
  const ExampleFormat named = format_of(ExampleKind::preference, "chosen:good,rejected:bad");
  const auto alone = named.read_pair(boost::json::parse(R"({"good": "yes", "bad": "no"})"));
  CHECK(alone.first.text == "yes");
  CHECK(learned_in(alone.second) == std::vector<std::string>{"no"});
}

TEST_CASE("examples: of two conversations only the answers that differ are learned") {
  const auto [chosen, rejected] = pair_of(
      R"({"chosen": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."},
                     {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "See you."}],
          "rejected": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."},
                       {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "So what"}]})");
  CHECK(learned_in(chosen) == std::vector<std::string>{"See you.<|im_end|>"});
  CHECK(learned_in(rejected) == std::vector<std::string>{"So what<|im_end|>"});
  const auto split = pair_of(
      R"({"prompt": [{"role": "user", "content": "Hi"}], "chosen": [{"role": "assistant", "content": "Hello."}],
          "rejected": [{"role": "assistant", "content": "What?"}]})");
  CHECK(learned_in(split.first) == std::vector<std::string>{"Hello.<|im_end|>"});
  CHECK(split.second.text.find("Hi") != std::string::npos);
}

TEST_CASE("examples: malformed preferences are refused with the reason") {
  CHECK(pair_refusal(R"({"prompt": "a", "chosen": "b", "rejected": "b"})") ==
        "has identical chosen and rejected answers");
  CHECK(pair_refusal(R"({"prompt": "a", "chosen": "b"})").find("has no field 'rejected'") == 0);
  CHECK(pair_refusal(R"({"prompt": "a", "chosen": "b", "rejected": ""})") == "has an empty answer");
  CHECK(pair_refusal(R"({"chosen": [], "rejected": "b"})") == "has an empty list of messages as 'chosen'");
}
