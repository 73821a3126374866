// The routes of the HTTP API and their description in /openapi.json.
#include "tests/engine/serving/served.hpp"

#include <map>
#include <set>

#include <boost/json.hpp>

#include "engine/serving/json_text.hpp"
#include "engine/serving/page.hpp"
#include "tests/journeys/schema.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
namespace json = boost::json;

namespace {

// The subset of OpenAPI 3.1 that the document uses.
constexpr const char* kOperation = R"({
  "type": "object",
  "properties": {
    "operationId": {"type": "string"}, "summary": {"type": "string"}, "description": {"type": "string"},
    "security": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "array"}}},
    "parameters": {"type": "array", "items": {
      "type": "object",
      "properties": {
        "name": {"type": "string"}, "in": {"enum": ["path", "query"]}, "description": {"type": "string"},
        "required": {"type": "boolean"},
        "schema": {"type": "object", "properties": {"type": {"enum": ["string", "integer", "number", "boolean"]}},
                   "required": ["type"], "additionalProperties": false}
      },
      "required": ["name", "in", "schema"], "additionalProperties": false
    }},
    "requestBody": {
      "type": "object",
      "properties": {"required": {"type": "boolean"},
                     "content": {"type": "object", "additionalProperties": {"type": "object"}}},
      "required": ["content"], "additionalProperties": false
    },
    "x-example": {"type": "string"},
    "responses": {"type": "object", "additionalProperties": {
      "type": "object",
      "properties": {"description": {"type": "string"},
                     "content": {"type": "object", "additionalProperties": {"type": "object"}}},
      "required": ["description"], "additionalProperties": false
    }}
  },
  "required": ["operationId", "summary", "responses", "security"], "additionalProperties": false
})";
constexpr const char* kDocument = R"({
  "type": "object",
  "properties": {
    "openapi": {"const": "3.1.0"},
    "info": {
      "type": "object",
      "properties": {
        "title": {"type": "string"}, "version": {"type": "string"}, "description": {"type": "string"},
        "license": {"type": "object", "properties": {"name": {"type": "string"}, "identifier": {"type": "string"}},
                    "required": ["name"], "additionalProperties": false}
      },
      "required": ["title", "version"], "additionalProperties": false
    },
    "paths": {"type": "object", "additionalProperties": {
      "type": "object", "properties": {"get": {"type": "object"}, "post": {"type": "object"}},
      "additionalProperties": false
    }},
    "components": {
      "type": "object",
      "properties": {
        "schemas": {"type": "object", "additionalProperties": {"type": "object"}},
        "securitySchemes": {"type": "object", "additionalProperties": {"type": "object"}}
      },
      "required": ["schemas", "securitySchemes"], "additionalProperties": false
    }
  },
  "required": ["openapi", "info", "paths", "components"], "additionalProperties": false
})";

json::object document() {
  Served run;
  const ServiceReply reply = call(run.service, get("/openapi.json"));
  REQUIRE(reply.status == 200);
  CHECK(reply.content_type == "application/json");
  return json::parse(reply.body).as_object();
}

std::string key_of(std::string method) {
  for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
  return method;
}

void each_operation(
    const json::object& document,
    const std::function<void(const std::string& path, const std::string& key, const json::object&)>& f) {
  for (const auto& [path, operations] : document.at("paths").as_object())
    for (const auto& [key, operation] : operations.as_object()) f(path, key, operation.as_object());
}

void collect_references(const json::value& v, std::set<std::string>& names) {
  if (v.is_array())
    for (const json::value& item : v.as_array()) collect_references(item, names);
  if (!v.is_object()) return;
  for (const auto& [key, inner] : v.as_object()) {
    if (key == "$ref") names.insert(std::string(inner.as_string()));
    collect_references(inner, names);
  }
}

// Returns the schema of a route's JSON reply, or null.
const json::value* schema_of(const json::object& document, const json::object& operation, const char* status) {
  const json::object& contents = operation.at("responses").at(status).at("content").as_object();
  const json::value* media = contents.if_contains("application/json");
  const json::value* reference = media ? media->as_object().if_contains("schema") : nullptr;
  if (!reference) return nullptr;
  const std::string name(reference->at("$ref").as_string());
  return &document.at("components").at("schemas").at(name.substr(name.rfind('/') + 1));
}

}  // namespace

TEST_CASE("openapi: the document has every route that is served, and no other") {
  const json::object all = document();
  std::set<std::string> described, served;
  each_operation(all, [&](const std::string& path, const std::string& key, const json::object&) {
    described.insert(key + " " + path);
  });
  for (const ApiRoute* route : Service::routes()) served.insert(key_of(route->method) + " " + route->path);
  CHECK(described == served);
  CHECK(served.size() == Service::routes().size());
  CHECK(served.count("post /v1/predict") == 1);
  CHECK(served.count("get /v1/events") == 1);
}

TEST_CASE("openapi: what the document describes is dispatched, and other methods are refused") {
  Served run;
  put_page(run.service);
  run.start();
  each_operation(document(), [&](std::string path, const std::string& key, const json::object&) {
    if (const size_t at = path.find('{'); at != std::string::npos) path.resize(at), path += "somewhere";
    CAPTURE(path);
    const bool posts = key == "post";
    const ServiceReply right = call(run.service, posts ? post(path, "") : get(path)),
                       wrong = call(run.service, posts ? get(path) : post(path, ""));
    CHECK(right.status != 405);
    CHECK(right.body.find("unknown path") == std::string::npos);
    CHECK(wrong.status == 405);
  });
}

TEST_CASE("openapi: the document is valid") {
  const json::object all = document();
  CHECK(journeys::SchemaCheck::run(json::parse(kDocument), all) == std::vector<std::string>{});
  const json::value schema = json::parse(kOperation);
  std::set<std::string> names;
  size_t operations = 0;
  each_operation(all, [&](const std::string& path, const std::string&, const json::object& operation) {
    CAPTURE(path);
    ++operations;
    names.insert(std::string(operation.at("operationId").as_string()));
    CHECK(journeys::SchemaCheck::run(schema, operation) == std::vector<std::string>{});
    std::set<std::string> in_path;
    if (const json::value* parameters = operation.if_contains("parameters"))
      for (const json::value& p : parameters->as_array())
        if (p.at("in") == "path") {
          CHECK(p.at("required") == true);
          in_path.insert("{" + std::string(p.at("name").as_string()) + "}");
        }
    for (const std::string& name : in_path) CHECK(path.find(name) != std::string::npos);
    CHECK(in_path.size() == static_cast<size_t>(std::count(path.begin(), path.end(), '{')));
    for (const json::value& way : operation.at("security").as_array())
      for (const auto& [scheme, scopes] : way.as_object())
        CHECK(all.at("components").at("securitySchemes").as_object().contains(scheme));
  });
  CHECK(names.size() == operations);
  std::set<std::string> references, defined;
  collect_references(all, references);
  for (const auto& [name, body] : all.at("components").at("schemas").as_object())
    defined.insert("#/components/schemas/" + std::string(name));
  CHECK(references == defined);
}

TEST_CASE("openapi: replies and examples match the schemas of their routes") {
  Served run;
  run.start();
  const json::object all = document();
  const auto fits = [](const json::value* schema, const std::string& text) {
    REQUIRE(schema);
    CHECK(journeys::SchemaCheck::run(*schema, json::parse(text)) == std::vector<std::string>{});
  };
  run.control.note("note", "something");
  run.service.set_graph(graph_json(run.graph->graph(), {}, Widths{}, run.graph->store()));
  REQUIRE(await([&] { return call(run.service, get("/v1/history")).body.find("\"step\"") != std::string::npos; }));
  size_t replies = 0;
  each_operation(all, [&](const std::string& path, const std::string& key, const json::object& operation) {
    CAPTURE(path);
    const bool looks = path == "/v1/layers" || path == "/v1/tap";  // tested with the layer cards
    if (key == "post" || looks || !operation.at("responses").as_object().contains("200")) return;
    if (const json::value* schema = schema_of(all, operation, "200"))
      fits(schema, call(run.service, get(path)).body), ++replies;
  });
  CHECK(replies == 6);
  const auto post_of = [&](const char* path) -> const json::object& {
    return all.at("paths").at(path).at("post").as_object();
  };
  fits(schema_of(all, post_of("/v1/predict"), "200"),
       call(run.service, post("/v1/predict", R"({"inputs": {"x": [[1, 0, 0, 0]]}})")).body);
  fits(schema_of(all, post_of("/v1/predict"), "default"), call(run.service, post("/v1/predict", "{")).body);
  ServiceRequest pause = post("/v1/control", R"({"do": "pause"})");
  pause.trusted = true;
  fits(schema_of(all, post_of("/v1/control"), "200"), call(run.service, pause).body);
  each_operation(all, [&](const std::string& path, const std::string&, const json::object& operation) {
    CAPTURE(path);
    const json::value* body = operation.if_contains("requestBody");
    const json::value* media = body ? body->at("content").as_object().if_contains("application/json") : nullptr;
    const json::value* reference = media ? media->as_object().if_contains("schema") : nullptr;
    if (!reference) return;
    const std::string name(reference->at("$ref").as_string());
    fits(&all.at("components").at("schemas").at(name.substr(name.rfind('/') + 1)),
         json::serialize(media->at("example")));
  });
}

TEST_CASE("docs: the page of the API is served without a token, also without the dashboard") {
  Served run;
  CHECK(call(run.service, get("/docs")).status == 404);
  put_docs(run.service);
  CHECK(call(run.service, get("/")).status == 404);
  const ServiceReply page = call(run.service, get("/docs"));
  CHECK(page.status == 200);
  CHECK(page.content_type == "text/html; charset=utf-8");
  for (const char* file : {"/docs.js", "/page.css", "/icon.svg"}) CHECK(call(run.service, get(file)).status == 200);
  ServiceRequest foreign = get("/docs");
  foreign.host = "attacker.example";
  CHECK(call(run.service, foreign).status == 403);
}
