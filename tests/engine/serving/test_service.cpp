// The service without sockets: paths, tokens, bodies, errors.
#include "tests/engine/serving/served.hpp"

#include <atomic>
#include <fstream>
#include <set>
#include <sstream>

#include <boost/json.hpp>

#include "engine/model/safetensors.hpp"
#include "engine/serving/event_feed.hpp"
#include "engine/serving/predict_request.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

json::object parsed(const ServiceReply& reply) { return json::parse(reply.body).as_object(); }

json::value schema(const std::string& name) {
  std::ifstream in(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/" + name + ".json");
  std::stringstream s;
  s << in.rdbuf();
  return json::parse(s.str());
}

ModelPorts ports_of(DType dtype, Shape sample) {
  ModelPorts ports;
  ports.graph = "g";
  ports.inputs = {{"x", {dtype, sample}, 0}};
  return ports;
}

std::string refusal_of(const std::string& text, const ModelPorts& ports) {
  return message_of([&] { inputs_from_json(text, ports); });
}

}  // namespace

TEST_CASE("service: predictions over JSON and tensors are equal") {
  Served run;
  run.start();
  run.control.pause();
  REQUIRE(await([&] { return run.snapshots->newest()->version().step == run.control.status().step; }));
  const ServiceReply text =
      call(run.service, post("/v1/predict", R"({"inputs": {"x": [[1, 0, 0, 0], [0, 0.5, 0, -1]]}})"));
  REQUIRE(text.status == 200);
  const json::object body = parsed(text);
  CHECK(body.at("samples") == 2);
  CHECK(body.at("version").at("step") == run.control.status().step);
  CHECK(body.at("version").at("cycle") == 1);
  const Affine affine = affine_of(*run.graph);
  const float x[] = {0, 0.5, 0, -1};
  CHECK(body.at("outputs").at("o").at(1).at(0).as_double() == Approx(affine(x)[0]).margin(1e-6));

  TensorFile file;
  file.tensors["x"] = HTensor::from({2, 4}, std::vector<float>{1, 0, 0, 0, 0, 0.5, 0, -1});
  const ServiceReply binary =
      call(run.service, post("/v1/predict", write_safetensors(file), "application/x-safetensors"));
  REQUIRE(binary.status == 200);
  CHECK(binary.content_type == "application/x-safetensors");
  const TensorFile answer = read_safetensors(binary.body.data(), binary.body.size(), "answer");
  CHECK(answer.metadata.at("step") == std::to_string(run.control.status().step));
  const HTensor& o = answer.tensors.at("o");
  CHECK(o.shape() == Shape{2, 2});
  CHECK(o.data<float>()[2] == static_cast<float>(body.at("outputs").at("o").at(1).at(0).as_double()));
}

TEST_CASE("service: model, status, history and log match their schemas") {
  Served run;
  CHECK(call(run.service, get("/v1/model")).status == 503);
  CHECK(call(run.service, post("/v1/predict", "{}")).status == 503);
  run.start();
  const json::object model = parsed(call(run.service, get("/v1/model")));
  CHECK(model.at("inputs").at(0).at("name") == "x");
  CHECK(model.at("inputs").at(0).at("dtype") == "f32");
  CHECK(model.at("inputs").at(0).at("shape") == json::array{4});
  const json::object status = parsed(call(run.service, get("/v1/status")));
  CHECK(journeys::SchemaCheck::run(schema("status"), status) == std::vector<std::string>{});
  CHECK(status.at("graph") == "line");
  CHECK(status.at("streams").as_array().size() == 2);
  CHECK(await([&] { return parsed(call(run.service, get("/v1/history"))).at("points").as_array().size() > 10; }));
  const json::object history = parsed(call(run.service, get("/v1/history")));
  CHECK(history.at("names").as_array().size() == history.at("points").at(0).at("values").as_array().size());
  run.control.note("note", "something");
  CHECK(parsed(call(run.service, get("/v1/log"))).at("lines").at(0).at("text") == "something");
  CHECK(parsed(call(run.service, get("/v1/log?after=1"))).at("lines").as_array().empty());
  CHECK(call(run.service, get("/v1/log?after=x")).status == 400);
  const ServiceReply metrics = call(run.service, get("/metrics"));
  CHECK(metrics.content_type.rfind("text/plain; version=0.0.4", 0) == 0);
  for (const char* part :
       {"\nharmonics_steps_total ", "\nharmonics_metric{name=\"loss\"} ",
        "\nharmonics_stream_samples_total{stream=\"x\"} ", "harmonics_predict_seconds_bucket{le=\"+Inf\"} 0\n"})
    CHECK_THAT(metrics.body, Catch::Contains(part));
  const ServiceReply health = call(run.service, get("/healthz"));
  CHECK(health.status == 200);
  CHECK(parsed(health).at("streams").at("y").at("health") == "ok");
}

TEST_CASE("service: repeated keys and numbers out of range are refused") {
  Served run;
  run.start();
  const auto refused = [&](const std::string& body) {
    const ServiceReply reply = call(run.service, post("/v1/predict", body));
    return std::to_string(reply.status) + " " + std::string(parsed(reply).at("error").as_string());
  };
  const std::string twice = "400 the body has 'x' twice";
  CHECK(refused(R"({"inputs": {"x": [[1, 2, 3, 4]], "x": [[5, 6, 7, 8]]}})") == twice);
  CHECK(refused(R"({"inputs": {"x": [[1, 2, 3, 4]], "\u0078": [[5, 6, 7, 8]]}})") == twice);
  CHECK(refused(R"({"inputs": {"x": [[1, 2, 3, 4]]}, "inputs" : {"x": [[5, 6, 7, 8]]}})") ==
        "400 the body has 'inputs' twice");
  for (const char* number : {"1e400", "-1e400", "1e39"})
    CHECK_THAT(
        refused(std::string(R"({"inputs": {"x": [[1, 2, 3, )") + number + "]]}}"),
        Catch::StartsWith("400 sample 0 of input 'x' holds ") && Catch::EndsWith(", which is out of range for f32"));
  const auto control = [&](const std::string& body) {
    return call(run.service, with_token(post("/v1/control", body))).status;
  };
  CHECK(control(R"({"do": "status", "do": "stop"})") == 400);
  CHECK(control(R"({"do": "learning_rate", "value": 1e400})") == 400);
  CHECK(control(R"({"do": "status"})") == 200);
}

TEST_CASE("service: each request needs the right token, host and origin") {
  Served run;
  run.start();
  const std::string pause = R"({"do": "pause"})";
  CHECK(call(run.service, post("/v1/control", pause)).status == 401);
  ServiceRequest wrong = post("/v1/control", pause);
  for (const std::string token :
       {"Bearer secret-tokem", "Bearer secret-token-and-more", "Bearer ", "Basic secret-token"}) {
    wrong.authorization = token;
    CHECK(call(run.service, wrong).status == 401);
  }
  CHECK(run.control.status().phase == RunPhase::running);
  CHECK(call(run.service, post("/v1/control?token=secret-token", pause)).status == 200);
  CHECK(call(run.service, with_token(post("/v1/control", R"({"do": "resume"})"))).status == 200);
  CHECK(call(run.service, get("/v1/status")).status == 200);

  ServiceRequest rebound = get("/v1/status");
  for (const char* host : {"attacker.example:80", "[::1].evil.com", "[::1]evil", "localhost:80@evil.com",
                           "localhost:evil.com", "localhost.evil.com", "127.0.0.1.evil.com", "127.0.0.1:123456"}) {
    INFO(host);
    rebound.host = host;
    CHECK(call(run.service, rebound).status == 403);
  }
  for (const char* host : {"localhost", "localhost:", "localhost:8080", "127.0.0.1:1", "[::1]", "[::1]:65535"}) {
    rebound.host = host;
    CHECK(call(run.service, rebound).status == 200);
  }
  ServiceRequest foreign = post("/v1/predict", "{}");
  foreign.origin = "http://attacker.example";
  CHECK(call(run.service, foreign).status == 403);
  ServiceRequest own = get("/v1/status");
  own.origin = "http://127.0.0.1:80";
  CHECK(call(run.service, own).status == 200);

  for (const auto& [loopback, all] : {std::pair{true, true}, std::pair{false, false}}) {
    Service other({"secret-token", loopback, all}, run.control, run.predictor);
    for (const char* path : {"/v1/status", "/v1/model", "/metrics", "/v1/layers", "/v1/log"})
      CHECK(call(other, get(path)).status == 401);
    CHECK(call(other, post("/v1/predict", "{}")).status == 401);
    CHECK(call(other, get("/healthz")).status == 200);
    CHECK(call(other, with_token(get("/v1/status"))).status == 200);
  }
}

TEST_CASE("service: unknown paths and methods are refused") {
  Served run;
  CHECK(call(run.service, get("/v1/nothing")).status == 404);
  const ServiceReply method = call(run.service, get("/v1/predict"));
  CHECK(method.status == 405);
  CHECK(method.headers.at(0) == std::pair<std::string, std::string>{"Allow", "POST"});
  CHECK(call(run.service, post("/v1/status", "")).status == 405);
  run.service.put("/", {200, "text/html", "<p>page", {}});
  CHECK(call(run.service, get("/")).body == "<p>page");
  CHECK(call(run.service, post("/", "")).status == 405);
  ServiceRequest head = get("/healthz");
  head.method = "HEAD";
  CHECK(call(run.service, head).status == 200);
  ServiceRequest r;
  CHECK_FALSE(parse_target("nothing", r));
  CHECK_FALSE(parse_target("/%zz", r));
  CHECK(parse_target("/a%20b?x=%41&flag&y=", r));
  CHECK(r.path == "/a b");
  CHECK(r.query == std::map<std::string, std::string>{{"x", "A"}, {"flag", ""}, {"y", ""}});
}

TEST_CASE("service: an invalid JSON body gets an error that describes it") {
  const ModelPorts f = ports_of(DType::F32, {2}), u = ports_of(DType::U8, {}), m = ports_of(DType::F32, {2, 2});
  CHECK_THAT(refusal_of("{", f), Catch::StartsWith("the body is not JSON"));
  CHECK_THAT(refusal_of("[]", f), Catch::StartsWith("the body has no object 'inputs'"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [[1, 2]]}, "more": 1})", f), Catch::StartsWith("unknown key 'more'"));
  CHECK_THAT(refusal_of(R"({"inputs": {"y": []}})", f), Catch::StartsWith("'g' has no input 'y'"));
  CHECK_THAT(refusal_of(R"({"inputs": {}})", f), Catch::StartsWith("input 'x' is missing"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": 3}})", f), Catch::StartsWith("input 'x' is not a list"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": []}})", f), Catch::StartsWith("input 'x' has 0 samples"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [[1, 2], [1]]}})", f),
             Catch::StartsWith("sample 1 of input 'x' has 1 entry, expected 2"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [[1, "2"]]}})", f),
             Catch::StartsWith("sample 0 of input 'x' holds values that are not numbers"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [[1, [2]]]}})", f),
             Catch::StartsWith("sample 0 of input 'x' holds values that are not"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [256]}})", u),
             Catch::StartsWith("sample 0 of input 'x' holds 256, which is not a valid u8"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [-1]}})", u),
             Catch::StartsWith("sample 0 of input 'x' holds -1, which is not a valid u8"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [0.5]}})", u),
             Catch::StartsWith("sample 0 of input 'x' holds values that are not whole"));
  CHECK_THAT(refusal_of(R"({"inputs": {"x": [1e300]}})", u), Catch::StartsWith("sample 0 of input 'x' holds 1E300"));
  CHECK_THAT(refusal_of(std::string(100, '[') + std::string(100, ']'), f), Catch::StartsWith("the body is not JSON"));
  std::string many = R"({"inputs": {"x": [0)";
  for (int i = 0; i < 256; ++i) many += ", 0";
  CHECK_THAT(refusal_of(many + "]}}", u), Catch::StartsWith("input 'x' has 257 samples"));

  const PredictInputs nested = inputs_from_json(R"({"inputs": {"x": [[[1, 2], [3, 4]]]}})", m),
                      flat = inputs_from_json(R"({"inputs": {"x": [[1, 2, 3, 4]]}})", m);
  CHECK(nested.bytes == flat.bytes);
  CHECK(floats_of(flat.bytes.at(0)) == std::vector<float>{1, 2, 3, 4});
  CHECK(inputs_from_json(R"({"inputs": {"x": [255, 1.0]}})", u).bytes.at(0) ==
        std::vector<std::byte>{std::byte{255}, std::byte{1}});
}

TEST_CASE("service: an invalid tensors body gets an error that describes it") {
  const ModelPorts ports = ports_of(DType::F32, {2});
  const auto refused = [&](const TensorFile& file) {
    return message_of([&] { inputs_from_tensors(write_safetensors(file), ports); });
  };
  CHECK_THAT(message_of([&] { inputs_from_tensors("not a file", ports); }),
             Catch::Contains("is not a safetensors file"));
  TensorFile file;
  CHECK_THAT(refused(file), Catch::StartsWith("input 'x' is missing"));
  file.tensors["x"] = HTensor::from({3}, std::vector<float>{1, 2, 3});
  CHECK_THAT(refused(file), Catch::StartsWith("input 'x' is f32[3]"));
  file.tensors["x"] = HTensor::from({1, 2}, std::vector<int32_t>{1, 2});
  CHECK_THAT(refused(file), Catch::StartsWith("input 'x' is i32[1, 2]"));
  file.tensors["x"] = HTensor::from({1, 2}, std::vector<float>{1, 2});
  file.tensors["other"] = file.tensors["x"];
  CHECK_THAT(refused(file), Catch::StartsWith("'g' has no input 'other'"));
}

TEST_CASE("service: samples are computed at most ten times a second for all clients") {
  Served run;
  std::atomic<int> looks{0};
  run.service.set_looks({nullptr, [&](const std::string& edge, uint64_t samples) {
                           ++looks;
                           return json::object{{"edge", edge}, {"samples", samples}};
                         }});
  const auto begun = std::chrono::steady_clock::now();
  int answered = 0, refused = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const ServiceReply reply = call(run.service, get("/v1/tap?edge=x&samples=" + std::to_string(1 + i % 32)));
    answered += reply.status == 200;
    refused += reply.status == 429;
    if (reply.status != 429) continue;
    CHECK(reply.headers.at(0) == std::pair<std::string, std::string>{"Retry-After", "1"});
    CHECK_THAT(reply.body, Catch::Contains("more than 10 requests for samples per second"));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  CHECK(answered + refused == 200);
  CHECK(looks >= 10);
  CHECK(looks <= 10 + 10 * seconds + 1);
  // A repeated request within a tenth of a second gets the same reply.
  const auto looked = [&] { return call(run.service, get("/v1/tap?edge=y")).status == 200; };
  CHECK(await([&] {
    looks = 0;
    return looked() && looked() && looks == 1;
  }));
}

TEST_CASE("service: layers are changed by messages, and the reply has the old and the new values") {
  struct Changer final : LayerChanger {
    LayerChange change_layer(const std::string& layer, const std::vector<ArgumentText>& arguments) override {
      if (layer == "hh") throw Error(ErrorKind::Name, "no layer 'hh'", {}, {"did you mean 'h'?"});
      LayerChange change{layer, {}};
      for (const ArgumentText& a : arguments) change.arguments.push_back({a.argument, "", a.value, "0.5"});
      return change;
    }
    LayerChange undo_layer() override { return {"h", {{"rate", "0.25", "", ""}}}; }
  } changer;
  Served run;
  const auto told = [&](const std::string& message) { return run.service.control(message); };
  CHECK(told(R"({"do": "undo"})").at("error") == "the run cannot be changed now");
  run.start();
  CHECK(told(R"({"do": "undo"})").at("error") == "the layers of this run cannot be changed");
  run.control.set_changer(&changer);
  const std::string arguments = R"({"rate": 0.25, "n": 3, "on": true, "kernel": [3, 5], "kind": "rms", "x": null})";
  const json::object changed = told(R"({"do": "layer", "layer": "h", "arguments": )" + arguments + "}");
  CHECK(changed.at("done") == "layer");
  CHECK(changed.at("status").at("state") == "running");
  CHECK(changed.at("change") ==
        json::parse(R"({"layer": "h", "arguments": [{"name": "rate", "before": "0.5", "after": "0.25"},
          {"name": "n", "before": "0.5", "after": "3"}, {"name": "on", "before": "0.5", "after": "true"},
          {"name": "kernel", "before": "0.5", "after": "[3, 5]"}, {"name": "kind", "before": "0.5", "after": "rms"},
          {"name": "x", "before": "0.5", "after": "0.5"}]})"));
  CHECK(told(R"({"do": "undo"})").at("change") ==
        json::parse(R"({"layer": "h", "arguments": [{"name": "rate", "before": "0.25", "after": null}]})"));
  const json::object unknown = told(R"({"do": "layer", "layer": "hh", "arguments": {"rate": 1}})");
  CHECK(unknown.at("error") == "no layer 'hh'");
  CHECK(unknown.at("note") == "did you mean 'h'?");
  for (const std::string wrong :
       {R"({"do": "layer"})", R"({"do": "layer", "layer": "h"})", R"({"do": "layer", "layer": "h", "arguments": {}})",
        R"({"do": "layer", "arguments": {"rate": 1}})", R"({"do": "layer", "layer": 3, "arguments": {"rate": 1}})",
        R"({"do": "layer", "layer": "h", "arguments": {"rate": {}}})",
        R"({"do": "layer", "layer": "h", "arguments": {"rate": ["a"]}})",
        R"({"do": "layer", "layer": "h", "arguments": {"rate": 1, "rate": 2}})", R"({"do": "undo", "layer": "h"})"}) {
    INFO(wrong);
    CHECK_FALSE(told(wrong).contains("now"));  // rejected by the parser, without a state of the run
    CHECK(told(wrong).contains("error"));
  }
  run.end();
  run.control.set_changer(nullptr);
}

TEST_CASE("service: an unexpected exception is answered and counted, and the service goes on") {
  Served run;
  run.service.set_looks({[]() -> json::object { throw std::runtime_error("no cards"); },
                         [](const std::string& edge, uint64_t) -> json::object {
                           if (edge == "bad") throw std::runtime_error("no samples");
                           return {{"edge", edge}};
                         }});
  const ServiceReply tapped = call(run.service, get("/v1/tap?edge=bad"));
  CHECK(tapped.status == 500);
  CHECK(parsed(tapped).at("error") == "the request failed: no samples");
  CHECK(call(run.service, get("/v1/layers")).status == 500);
  auto seen = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) {  // also for events, without a request to answer
    CHECK_FALSE(run.service.layers_since(seen));
    CHECK(call(run.service, get("/v1/tap?edge=x" + std::to_string(i))).status == 200);
  }
  CHECK_THAT(call(run.service, get("/metrics")).body, Catch::Contains("harmonics_requests_failed_total 4\n"));
}

TEST_CASE("service: control by messages") {
  Served run;
  run.start();
  const auto told = [&](const std::string& message) { return run.service.control(message); };
  CHECK(told(R"({"do": "status"})").at("status").at("state") == "running");
  CHECK(told(R"({"do": "pause"})").at("status").at("state") == "paused");
  const int64_t step = told(R"({"do": "status"})").at("status").at("step").to_number<int64_t>();
  CHECK(told(R"({"do": "step", "count": 3})").at("status").at("step") == step + 3);
  CHECK(told(R"({"do": "learning_rate", "value": 0.25})").at("status").at("learning_rate_set") == true);
  CHECK(told(R"({"do": "learning_rate", "value": null})").at("status").at("learning_rate_set") == false);
  CHECK(told(R"({"do": "checkpoint"})").at("error") == "this run keeps no checkpoints");
  CHECK(told(R"({"do": "resume"})").at("status").at("state") == "running");
  const json::object early = told(R"({"do": "step"})");
  CHECK(early.at("error") == "the run is not paused");
  CHECK(early.at("now") == "running");
  CHECK(call(run.service, with_token(post("/v1/control", R"({"do": "step"})"))).status == 409);
  CHECK(call(run.service, with_token(post("/v1/control", "nonsense"))).status == 400);
  for (const std::string wrong :
       {"", "[]", "{}", R"({"do": 3})", R"({"do": "fly"})", R"({"do": "pause", "count": 1})",
        R"({"do": "step", "count": "3"})", R"({"do": "step", "count": 1e300})", R"({"do": "step", "count": -1})",
        R"({"do": "learning_rate"})", R"({"do": "learning_rate", "value": "x"})", R"({"do": "events"})"}) {
    INFO(wrong);
    CHECK(told(wrong).contains("error"));
  }
  CHECK(told(R"({"do": "stop"})").at("done") == "stop");
  CHECK(await([&] { return !told(R"({"do": "pause"})").contains("done"); }));
}

TEST_CASE("service: invalid UTF-8 is not passed on") {
  Served run;
  run.start();
  run.control.note("note", "caf\xc3\xa9 \xff, and cut \xe2\x82");
  const char* told = "caf\xc3\xa9 ?, and cut ??";
  EventFeed feed(run.service, {});
  const std::vector<std::string> hello = feed.tick(EventFeed::Clock::now(), true);
  REQUIRE(hello.size() == 1);
  CHECK(json::parse(hello[0]).at("log").at("lines").at(0).at("text").as_string() == told);
  CHECK(parsed(call(run.service, get("/v1/log"))).at("lines").at(0).at("text").as_string() == told);
}

TEST_CASE("service: events are sent once, and dropped if the client does not read") {
  Served run;
  run.start();
  run.control.note("note", "before");
  EventFeed feed(run.service, {{"every", "0.05"}});
  auto now = EventFeed::Clock::now();
  std::vector<json::object> got;
  const auto tick = [&](bool can_take) {
    got.clear();
    for (const std::string& m : feed.tick(now += 60ms, can_take)) {
      got.push_back(json::parse(m).as_object());
      CHECK(journeys::SchemaCheck::run(schema("event"), got.back()) == std::vector<std::string>{});
    }
  };
  tick(true);
  REQUIRE(got.size() == 1);
  CHECK(got[0].at("kind") == "hello");
  CHECK(got[0].at("number") == 1);
  CHECK(got[0].at("log").at("lines").at(0).at("text") == "before");
  CHECK(journeys::SchemaCheck::run(schema("status"), got[0].at("status")) == std::vector<std::string>{});
  run.control.note("warning", "after");
  tick(true);
  std::set<std::string> kinds;
  for (const json::object& o : got) kinds.insert(std::string(o.at("kind").as_string()));
  CHECK(kinds.count("log"));
  CHECK(kinds.count("step"));
  CHECK(kinds.count("status"));
  const auto last = got.back().at("number").to_number<int64_t>();
  run.control.note("note", "lost");
  tick(false);
  CHECK(got.empty());
  tick(true);
  const auto status =
      std::find_if(got.begin(), got.end(), [](const json::object& o) { return o.at("kind") == "status"; });
  REQUIRE(status != got.end());
  CHECK(status->at("dropped").to_number<int64_t>() >= 2);
  CHECK(got.front().at("number").to_number<int64_t>() > last + 1);
  for (const char* every : {"0", "0.01", "61", "x", "nan", ""})
    CHECK_THAT(message_of([&] {
                 EventFeed(run.service, {{"every", every}});
               }),
               Catch::StartsWith("'every' is not a number"));
}
