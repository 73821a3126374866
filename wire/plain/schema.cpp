#include <simdjson.h>

#include "wire/plain/selection.hpp"

namespace harmonics::plain {

std::map<std::string, std::string> read_schema(const std::string& path) {
  const auto refuse = [&](const std::string& what) -> Error {
    return Error(ErrorKind::Stream, "'" + path + "' " + what)
        .note("write {\"FIELD\": \"u8:28x28\", \"OTHER\": {\"type\": \"i64\", \"shape\": [], \"classes\": 10}}");
  };
  simdjson::dom::parser parser(1u << 20);
  simdjson::dom::element root;
  if (const auto error = parser.load(path).get(root)) {
    if (error == simdjson::IO_ERROR) throw Error(ErrorKind::NoInput, "cannot read '" + path + "'");
    throw refuse(std::string("is not a schema: ") + simdjson::error_message(error));
  }
  simdjson::dom::object fields;
  if (root.get(fields)) throw refuse("is not a schema: it is not an object");
  std::map<std::string, std::string> types;
  for (const auto& [key, value] : fields) {
    std::string_view text;
    simdjson::dom::object parts;
    const std::string name(key);
    if (!value.get(text)) {
      types[name] = text;
      continue;
    }
    if (value.get(parts) || parts["type"].get(text)) throw refuse("has no type for '" + name + "'");
    std::string type(text);
    simdjson::dom::array shape;
    if (!parts["shape"].get(shape)) {
      std::string dims;
      for (const simdjson::dom::element dim : shape) {
        int64_t size = 0;
        if (dim.get(size) || size < 1) throw refuse("has an invalid shape for '" + name + "'");
        dims += (dims.empty() ? "" : "x") + std::to_string(size);
      }
      type += ":" + dims;
    }
    int64_t classes = 0;
    if (!parts["classes"].get(classes))
      type = type.substr(0, type.find_last_not_of(':') + 1) + "<" + std::to_string(classes);
    types[name] = type;
  }
  return types;
}

std::vector<std::string> read_learned(const std::string& text) {
  std::vector<std::string> words;
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  bool good = parser.parse(simdjson::padded_string(text)).get(list) == simdjson::SUCCESS;
  if (good)
    for (const simdjson::dom::element& element : list) {
      std::string_view word;
      good = good && element.get(word) == simdjson::SUCCESS;
      words.emplace_back(word);
    }
  if (!good)
    throw Error(ErrorKind::Usage,
                "learned=" + text + " is not a JSON array of strings; write symbols=a,b,c to list words");
  return words;
}

}  // namespace harmonics::plain
