// What libraries of clients rely on: log probabilities of a stream.
#include <catch2/catch.hpp>

#include <string>

#include <boost/json.hpp>

#include "tests/engine/serving/served_language.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

json::value value_of(LanguageOverHttp& served, const char* path, const std::string& body, int status = 200) {
  const ServiceReply reply = reply_to(served.service, "POST", path, body);
  INFO(reply.body);
  REQUIRE(reply.status == status);
  return json::parse(reply.body);
}

// Returns the logprobs of all events of a stream.
json::array streamed_probabilities(const std::string& body, const char* list) {
  json::array all;
  for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos; ++at) {
    const json::value event = json::parse(body.substr(at + 6, body.find("\n\n", at) - at - 6));
    const json::value& some = event.at_pointer("/choices/0/logprobs");
    if (some.is_object()) all.insert(all.end(), some.at(list).as_array().begin(), some.at(list).as_array().end());
  }
  return all;
}

}  // namespace

TEST_CASE("language service: log probabilities are those of the returned text, also in a stream") {
  LanguageOverHttp served;
  const auto same = [&](const char* path, const std::string& body, const char* list) {
    const json::value whole = value_of(served, path, "{" + body + "}");
    const ServiceReply stream = reply_to(served.service, "POST", path, "{" + body + R"(, "stream": true})");
    const json::array& tokens = whole.at_pointer("/choices/0/logprobs").at(list).as_array();
    CHECK(streamed_probabilities(stream.body, list) == tokens);
    return tokens.size();
  };
  const std::string abc = R"("prompt": "x", "max_tokens": 50, "logprobs": 1, "grammar": "root ::= \"abcdefgh\"")";
  CHECK(same("/v1/completions", abc, "tokens") == 8);
  CHECK(same("/v1/completions", abc + R"(, "stop": "defz")", "tokens") == 8);
  CHECK(same("/v1/completions", abc + R"(, "stop": ["defz", "efg"])", "tokens") == 4);
  CHECK(same("/v1/completions", R"("prompt": "x", "max_tokens": 5, "logprobs": 1, "logit_bias": {"2": 1000})",
             "tokens") == 0);  // </s>
  const std::string chat = R"("messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50, "logprobs": true)";
  CHECK(same("/v1/chat/completions", chat + R"(, "stop": "ef", "grammar": "root ::= \"abcdefgh\"")", "content") == 4);
  CHECK(same("/v1/chat/completions", chat + R"(, "tools": [], "grammar": "root ::= \"<think>a</think>\"")",
             "content") == 16);
}
