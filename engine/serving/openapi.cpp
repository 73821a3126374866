#include <set>

#include <boost/json.hpp>

#include "engine/serving/api_route.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

json::object reference(const char* schema) { return {{"$ref", "#/components/schemas/" + std::string(schema)}}; }

// Returns the operation id: "post_v1_samples_name" for "POST /v1/samples/{name}".
std::string operation_of(const ApiRoute& route) {
  std::string id;
  for (const char c : std::string(route.method) + route.path) {
    if (c == '/') id += '_';
    if (c >= 'A' && c <= 'Z') id += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) id += c;
  }
  return id.ends_with('_') ? id + "page" : id;
}

json::object content_of(const std::vector<RouteContent>& contents, const char* example, std::set<std::string>& used) {
  json::object all;
  for (const RouteContent& content : contents) {
    json::object media;
    if (content.schema) {
      media["schema"] = reference(content.schema);
      used.insert(content.schema);
    }
    if (example && std::string_view(content.type) == "application/json") media["example"] = json::parse(example);
    all[content.type] = std::move(media);
  }
  return all;
}

json::array parameters_of(const ApiRoute& route) {
  json::array all;
  for (const RouteParameter& p : route.parameters)
    all.push_back({{"name", p.name},
                   {"in", p.in == RouteParameter::In::path ? "path" : "query"},
                   {"description", p.text},
                   {"required", p.required},
                   {"schema", {{"type", p.type}}}});
  return all;
}

// Returns the security requirement; an empty object in it means that no token is needed.
json::array security_of(RouteAccess access) {
  json::array all;
  if (access == RouteAccess::reads) all.push_back(json::object());
  if (access == RouteAccess::open) return all;
  all.push_back(json::object{{"bearer", json::array()}});
  all.push_back(json::object{{"query", json::array()}});
  return all;
}

json::object operation(const ApiRoute& route, std::set<std::string>& used) {
  json::object o{{"operationId", operation_of(route)},
                 {"summary", route.summary},
                 {"description", route.text},
                 {"security", security_of(route.access)}};
  if (!route.parameters.empty()) o["parameters"] = parameters_of(route);
  if (!route.body.empty())
    o["requestBody"] = json::object{{"required", true}, {"content", content_of(route.body, route.example, used)}};
  else if (route.example)
    o["x-example"] = route.example;
  used.insert("refusal");
  o["responses"] = json::object{{std::to_string(route.status),
                                 {{"description", route.summary}, {"content", content_of(route.reply, nullptr, used)}}},
                                {"default",
                                 {{"description", "refused: the error, and a remedy"},
                                  {"content", {{"application/json", {{"schema", reference("refusal")}}}}}}}};
  return o;
}

json::object schemas_of(const std::set<std::string>& used) {
  json::object all;
  for (unsigned i = 0; i < kSchemaFileCount; ++i) {
    const std::string file = kSchemaFiles[i].name, name = file.substr(0, file.rfind('.'));
    if (!used.count(name)) continue;
    json::object schema = json::parse(kSchemaFiles[i].text).as_object();
    schema.erase("$schema");  // the default of OpenAPI 3.1
    all[name] = std::move(schema);
  }
  return all;
}

}  // namespace

std::string openapi_document(const std::vector<const ApiRoute*>& routes, const char* about) {
  json::object paths;
  std::set<std::string> used;
  for (const ApiRoute* route : routes) {
    std::string method = operation_of(*route);
    method.resize(method.find('_'));
    json::value& path = paths[route->path];
    if (!path.is_object()) path = json::object();
    path.as_object()[method] = operation(*route, used);
  }
  const json::object document{
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Harmonics"},
        {"version", HARMONICS_VERSION},
        {"description", about},
        {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", schemas_of(used)},
        {"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}, {"description", "Authorization: Bearer TOKEN"}}},
          {"query", {{"type", "apiKey"}, {"in", "query"}, {"name", "token"}}}}}}}};
  return json::serialize(document) + "\n";
}

}  // namespace harmonics::engine
