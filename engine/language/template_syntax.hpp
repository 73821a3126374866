// Parser of chat templates. Supports the part of Jinja that templates of language models use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/error.hpp>

#include "engine/language/template_value.hpp"

namespace harmonics::engine::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;

enum class NodeKind {
  // Expressions. `text` is a name; `children` are operands.
  literal,
  name,
  attribute,  // children[0].text
  item,       // children[0][children[1]]
  slice,      // children[0][children[1] : children[2] : children[3]]; omitted ones are null
  call,       // children[0](arguments)
  filter,     // children[0] | text(arguments)
  test,       // children[0] is text(arguments)
  list,
  map,  // key, value, key, value, ...
  unary,
  binary,   // text: the operator
  compare,  // children[0] operators[0] children[1] operators[1] ...
  both,     // and
  either,   // or
  choice,   // children[1] if children[0] else children[2], which may be null
  // Statements.
  data,       // text
  output,     // children[0]
  block,      // children in order
  branch,     // condition, body, condition, body, ..., and optionally the body of else
  loop,       // children: list, body, and (null if absent) body of else, condition
  set,        // targets = children[0]
  set_block,  // targets = the text of children[0], filtered
  macro,
  scope,  // with: targets[i] = children[i], then the body, which is the last child
  leave,  // break or continue, as in `text`
};

struct Parameter {
  std::string name;
  NodePtr value;  // of a call, or the default of a macro; null for none
};

struct Node {
  NodeKind kind;
  Span at;
  int depth = 1;  // of the tree below
  std::string text;
  Value value;  // of a literal
  Nodes children;
  std::vector<std::string> operators;
  std::vector<Parameter> arguments;  // of a call, filter, test or macro
  // Names that are assigned; several names take the items of a list. With target_attribute: an attribute of a
  // namespace.
  std::vector<std::string> targets;
  std::string target_attribute;
};

// Limits of a template.
constexpr size_t kTemplateBytes = size_t{1} << 20;
constexpr int kSyntaxDepth = 160;

// Throws ErrorKind::Syntax with the location. `name` is for messages.
NodePtr parse_template(std::string_view text, const std::string& name);

}  // namespace harmonics::engine::jinja
