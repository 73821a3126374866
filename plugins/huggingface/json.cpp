#include "formats/exact_json.hpp"
#include "json.hpp"

#include <algorithm>
#include <limits>

#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

constexpr size_t kDeepest = 32, kShown = 60;

size_t line_of(std::string_view text, size_t at) {
  return 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

}  // namespace

void refuse(const std::string& path, const std::string& what, const std::string& remedy) {
  Error error(ErrorKind::Weights, "'" + path + "' " + what);
  if (!remedy.empty()) error.note(remedy);
  throw error;
}

Node Node::parse(std::string_view text, const std::string& path, size_t most) {
  if (text.size() > most)
    refuse(path, "holds " + std::to_string(text.size()) + " bytes; the limit is " + std::to_string(most));
  json::error_code failure;
  size_t read = 0;
  json::value root = harmonics::parse_json(text, failure, kDeepest, &read);
  if (failure)
    refuse(path, "is not JSON: line " + std::to_string(line_of(text, read)) + ": " + failure.message() +
                     "; fetch or save it again");
  return Node(std::make_shared<const json::value>(std::move(root)), path);
}

Node Node::child(const json::value* value, const std::string& step) const {
  Node node;
  node.root_ = root_;
  node.value_ = value;
  node.path_ = path_;
  node.place_ = place_ + step;
  return node;
}

Node Node::operator[](std::string_view key) const {
  const json::value* found = is_object() ? value_->get_object().if_contains(key) : nullptr;
  return child(found, "." + printable(std::string(key), kShown));
}

Node Node::operator[](size_t index) const {
  return child(is_list() && index < size() ? &value_->get_array()[index] : nullptr, "[" + std::to_string(index) + "]");
}

size_t Node::size() const {
  if (is_list()) return value_->get_array().size();
  return is_object() ? value_->get_object().size() : 0;
}

std::vector<std::pair<std::string_view, Node>> Node::entries() const {
  if (!is_object()) fail("is not an object");
  std::vector<std::pair<std::string_view, Node>> all;
  for (const auto& item : value_->get_object()) {
    const std::string_view key(item.key().data(), item.key().size());
    all.emplace_back(key, child(&item.value(), "." + printable(std::string(key), kShown)));
  }
  return all;
}

std::string Node::message(const std::string& what) const {
  return "'" + path_ + "': " + (place_.empty() ? "the text" : place_) + " " +
         (value_ ? what : "is missing; expected in this file");
}

void Node::fail(const std::string& what) const { throw Error(ErrorKind::Weights, message(what)); }
void Node::lack(const std::string& what) const { throw Unsupported(ErrorKind::Weights, message(what)); }

std::string Node::shown() const { return value_ ? printable(json::serialize(*value_), kShown) : "missing"; }

std::string_view Node::text() const {
  if (!is_text()) fail("is " + shown() + ", not a string");
  const json::string& text = value_->get_string();
  return {text.data(), text.size()};
}

int64_t Node::integer() const {
  if (value_ && value_->is_int64()) return value_->get_int64();
  fail("is " + shown() + ", not a whole number");
}

double Node::number() const {
  if (!is_number()) fail("is " + shown() + ", not a number");
  return value_->to_number<double>();
}

bool Node::truth() const {
  if (!value_ || !value_->is_bool()) fail("is " + shown() + ", not true or false");
  return value_->get_bool();
}

}  // namespace huggingface
