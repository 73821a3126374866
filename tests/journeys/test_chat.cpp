// harmonics chat, and generate's further options, on the llama2.c checkpoint.
#include <boost/json.hpp>

#include "tests/journeys/background.hpp"
#include "tests/journeys/browser.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

namespace {

std::string folder_of_checkpoint() {
  const std::string data = data_folder();
  return data.empty() || !fs::exists(fs::path(data) / "llama2c") ? "" : data + "/llama2c/";
}

std::string with_checkpoint(const std::string& verb, const std::string& folder, const std::string& flags) {
  return verb + " " + folder + "stories260K.bin --tokenizer " + folder + "tok512.bin " + flags;
}

// Runs a verb with this standard input.
Result piped(const std::string& input, const std::string& arguments) {
  const Folder f;
  const std::string command = "timeout 120 '" + kProgram + "' " + arguments + " < '" + f.write("in", input) + "' >'" +
                              (f / "out") + "' 2>'" + (f / "err") + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(f / "out"), read(f / "err")};
}

}  // namespace

TEST_CASE("chat: each line of a pipe is a message") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const std::string flags = "--max-tokens 8 --temperature 0 ";
  const Result r = piped("Hello\n\nAnd then?\n", with_checkpoint("chat", folder, flags + "--json --system Brief"));
  INFO(r.err);
  REQUIRE(r.code == 0);
  const json::value v = json::parse(r.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/chat.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(v.at("messages").as_array().size() == 5);
  CHECK(has(r.err, "the model has no chat template"));
  const Result text = piped("Hello\n", with_checkpoint("chat", folder, flags + "--quiet --system Brief"));
  REQUIRE(text.code == 0);
  const std::string answer(v.at("messages").at(2).at("content").as_string());
  CHECK(text.out == answer + "\n");
}

TEST_CASE("chat: ChatML's end of an answer ends it also where it is no token") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const Folder f;
  const std::string grammar = f.write("g.gbnf", "root ::= \"yes<|im_end|>no\"");
  const Result r = piped("Hello\n", with_checkpoint("chat", folder, "--quiet --grammar " + grammar));
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK(r.out == "yes\n");
}

TEST_CASE("chat: commands, and what is wrong") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const std::string flags = "--max-tokens 4 --temperature 0 --quiet ";
  const Folder f;
  const Result saved = piped("Hello\n/save " + (f / "talk.json") + "\n/clear\n/quit\nnever read\n",
                             with_checkpoint("chat", folder, flags));
  INFO(saved.err);
  REQUIRE(saved.code == 0);
  CHECK(json::parse(read(f / "talk.json")).as_array().size() == 2);
  const Result unknown = piped("/qiut\n", with_checkpoint("chat", folder, flags));
  CHECK(unknown.code == 2);
  CHECK(has(unknown.err, "there is no command '/qiut'"));
  CHECK(has(unknown.err, "/quit"));
  const Result longer = piped(std::string(200, 'x') + "\n", with_checkpoint("chat", folder, flags + "--context 64"));
  CHECK(longer.code == 2);
  CHECK(has(longer.err, "but the context holds 64"));
  const Result broken =
      piped("Hello\n", with_checkpoint("chat", folder, flags + "--chat-template " + f.write("t.jinja", "{% if %}")));
  CHECK(broken.code != 0);
  CHECK(has(broken.err, "the chat template, line 1, column "));
  const std::string plain = f.write("p.jinja", "{% for m in messages %}{{ m.content }} {% endfor %}");
  CHECK(piped("Once upon a time\n", with_checkpoint("chat", folder, flags + "--chat-template " + plain)).code == 0);
}

TEST_CASE("generate: the text as a word, grammars, log-probabilities and perplexity") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const Folder f;
  const std::string flags = "--max-tokens 20 --temperature 0 ";
  const Result word = harmonics("generate " + folder + "stories260K.bin 'Once upon a time' --tokenizer " + folder +
                                "tok512.bin " + flags);
  const Result flag = harmonics(with_checkpoint("generate", folder, flags + "--prompt 'Once upon a time'"));
  CHECK(word.out == flag.out);
  const std::string grammar = f.write("g.gbnf", "root ::= \" yes\" | \" no\"");
  const Result constrained = harmonics(
      with_checkpoint("generate", folder, flags + "--prompt Lily --json --log-probabilities 2 --grammar " + grammar));
  INFO(constrained.err);
  REQUIRE(constrained.code == 0);
  const json::value v = json::parse(constrained.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/generate.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK((v.at("text").as_string() == " yes" || v.at("text").as_string() == " no"));
  CHECK(v.at("stopped_by").as_string() == "stop");
  CHECK(v.at("chosen").at(0).at("best").as_array().size() == 2);
  const std::string schema_file =
      f.write("s.json", R"({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})");
  const Result object =
      harmonics(with_checkpoint("generate", folder, "--max-tokens 200 --json --json-schema " + schema_file));
  REQUIRE(object.code == 0);
  CHECK(json::parse(json::parse(object.out).at("text").as_string()).at("a").is_bool());
  const std::string text = f.write("t.txt", "Once upon a time, there was a little girl named Lily.");
  const Result perplexity = harmonics(with_checkpoint("generate", folder, "--json --perplexity " + text));
  REQUIRE(perplexity.code == 0);
  CHECK(json::parse(perplexity.out).at("perplexity").as_double() > 1);
  CHECK(json::parse(perplexity.out).at("perplexity").as_double() < 20);
  const Result wrong = harmonics(with_checkpoint("generate", folder, "--grammar " + f.write("w.gbnf", "root ::= x")));
  CHECK(has(wrong.err, "the grammar, line 1, column 10: there is no rule 'x'; write x ::= "));
}

namespace {

// Returns the address that a server printed, when it has.
std::string served_address(Background& server) {
  const std::string word = "serving on ";
  REQUIRE(server.await([&] { return has(server.errors(), word); }));
  const std::string errors = server.errors();
  const size_t at = errors.find(word) + word.size();
  return errors.substr(at, errors.find_first_of(" \n", at) - at);
}

}  // namespace

TEST_CASE("serve: a language model answers, and Ctrl-C ends it with a summary") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const Folder f;
  Background server(f, with_checkpoint("serve", folder, "--listen 127.0.0.1:0 --json"));
  const std::string address = served_address(server);
  const std::string ask = "timeout 60 curl -sS -H 'Content-Type: application/json' -o '" + (f / "reply") + "' -d '" +
                          R"({"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0})" + "' " + address +
                          "/v1/completions";
  REQUIRE(std::system(ask.c_str()) == 0);
  const json::value reply = json::parse(read(f / "reply"));
  CHECK(reply.at_pointer("/choices/0/text").as_string() == ", there was a little");
  server.signal(SIGINT);
  const Result r = server.end();
  CHECK(r.code == 130);
  const json::value v = json::parse(r.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/serve.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(v.at("requests").as_int64() == 1);
  CHECK(v.at("tokens").as_int64() == 5);
}

TEST_CASE("serve: the curl of the page on language models gets a stream that ends") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const std::string page = read(std::string(HARMONICS_SOURCE_DIR) + "/docs/language-models.md");
  const std::string place = "http://127.0.0.1:8080";
  const size_t at = page.find("curl " + place);
  REQUIRE(at != std::string::npos);
  std::string command = page.substr(at, page.find("```", at) - at);
  const Folder f;
  Background server(f, with_checkpoint("serve", folder, "--listen 127.0.0.1:0"));
  command.replace(command.find(place), place.size(), served_address(server));
  const std::string script = f.write("ask.sh", command);
  REQUIRE(std::system(("timeout 60 bash '" + script + "' >'" + (f / "reply") + "' 2>/dev/null").c_str()) == 0);
  CHECK(has(read(f / "reply"), "data: [DONE]"));
  server.signal(SIGINT);
  CHECK(server.end().code == 130);
}

TEST_CASE("chat page: talks with a language model, stops and tries again") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty() || !Browser::there()) return;
  const Folder f;
  Background server(f, with_checkpoint("serve", folder, "--listen 127.0.0.1:0"));
  const std::string address = served_address(server);
  Browser browser(f);
  browser.resize(900, 800);
  browser.open(address + "/");
  REQUIRE(browser.await("document.getElementById('model').textContent === 'stories260K'"));
  const auto send = [&](const std::string& text) {
    browser.evaluate("document.getElementById('message').value = '" + text + "'");
    browser.evaluate("document.getElementById('compose').requestSubmit()");
  };
  const std::string idle = "!document.getElementById('send').hidden",
                    answers = "document.querySelectorAll('article.assistant').length";
  browser.evaluate("document.getElementById('max_tokens').value = 20");
  send("Once upon a time");
  CHECK(browser.await("document.querySelector('article.user').textContent === 'Once upon a time'"));
  CHECK(browser.await(answers + " === 1 && " + idle));
  CHECK(browser.await("document.querySelector('article.assistant').textContent.length > 0"));
  CHECK(browser.await("/^[0-9.]+ tokens\\/s$/.test(document.getElementById('rate').textContent)"));
  browser.click("retry");
  CHECK(browser.await(answers + " === 1 && " + idle));
  browser.evaluate("document.getElementById('temperature').value = 'x'");  // invalid, so not sent
  send("And then?");
  CHECK(browser.await(answers + " === 2 && " + idle));
  browser.click("clear");
  CHECK(browser.await("document.querySelectorAll('article').length === 0"));
  CHECK(browser.complaints == std::vector<std::string>{});
}

TEST_CASE("chat: a saved conversation goes on, from its messages or from all that was computed") {
  const std::string folder = folder_of_checkpoint();
  if (folder.empty()) return;
  const Folder f;
  const std::string flags = "--max-tokens 6 --temperature 0 --quiet ";
  const std::string talk = f / "talk.session", json_file = f / "talk.json";
  const Result both = piped("Hello\nAnd then?\n", with_checkpoint("chat", folder, flags));
  REQUIRE(both.code == 0);
  const Result first =
      piped("Hello\n/save " + talk + "\n/save " + json_file + "\n", with_checkpoint("chat", folder, flags));
  INFO(first.err);
  REQUIRE(first.code == 0);
  for (const std::string& path : {talk, json_file}) {
    const Result second = piped("/load " + path + "\nAnd then?\n", with_checkpoint("chat", folder, flags));
    INFO(second.err);
    REQUIRE(second.code == 0);
    CHECK(first.out + second.out == both.out);
  }
  const std::string session = "--session " + (f / "kept.session") + " ";
  const Result one = piped("Hello\n", with_checkpoint("chat", folder, flags + session));
  const Result two = piped("And then?\n", with_checkpoint("chat", folder, flags + session));
  INFO(two.err);
  REQUIRE(two.code == 0);
  CHECK(one.out + two.out == both.out);
  CHECK(piped("/load " + f.write("no.json", "{}") + "\n", with_checkpoint("chat", folder, flags)).code == 2);
}
