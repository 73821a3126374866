#include "dsl/document/document.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "engine/base/read_file.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::document {

namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";  // byte order mark
constexpr size_t kMostErrors = 20;

// Builds the tree from the parser's events.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const SourceText& source, size_t skipped, const Limits& limits)
      : source_(source), skipped_(skipped), limits_(limits) {}

  Node& root() { return root_; }
  std::vector<Error>& errors() { return errors_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.span = span_of(mark, 1);
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto at = anchors_.find(anchor);
    if (at == anchors_.end()) fail(span_of(mark, 1), "an alias is inside the value that it names");
    Node copy = at->second.node;
    count(copy.span, at->second.nodes, at->second.bytes);
    if (open_.size() + at->second.depth > limits_.depth) too_deep(span_of(mark, 1));
    copy.span = span_of(mark, 1);
    put(std::move(copy), mark, at->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node;
    node.kind = Kind::scalar;
    node.quoted = tag != "?";
    node.span = scalar_span(mark, value);
    expect_closed(mark);
    expect_tag(node.span, tag);
    node.text = value;
    add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::map);
  }
  void OnMapEnd() override { close(); }

  Span span_of(const YAML::Mark& mark, size_t length) const {
    if (mark.is_null() || mark.pos < 0) return {};
    return source_.span(skipped_ + static_cast<size_t>(mark.pos), length);
  }

 private:
  struct Size {
    size_t nodes = 1, bytes = 0, depth = 1;
  };
  struct Anchored : Size {
    Node node;
  };
  struct Open : Size {
    Node node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::string key;
    Span key_place;
    std::map<std::string, Span, std::less<>> keys;
  };

  [[noreturn]] void fail(Span place, const std::string& what, const std::string& remedy = "") {
    Error error(ErrorKind::Syntax, what, place);
    if (!remedy.empty()) error.note(remedy);
    errors_.push_back(std::move(error));
    throw_errors(&source_, std::move(errors_));
  }
  [[noreturn]] void too_deep(Span place) {
    fail(place, fmt::format("lists and maps are nested more than {} deep", limits_.depth));
  }
  // Rejects an unclosed quotation, whose value the parser extends to the end of the text.
  void expect_closed(const YAML::Mark& mark) {
    const std::string_view text = source_.text();
    const size_t from = skipped_ + static_cast<size_t>(std::max(mark.pos, 0));
    if (from < text.size() && (text[from] == '"' || text[from] == '\'') && text.find(text[from], from + 1) == text.npos)
      fail(span_of(mark, 1), "this quotation mark is not closed", fmt::format("end the text with {}", text[from]));
  }
  void expect_tag(Span place, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(place, fmt::format("the tag {} is not supported here", shown_name(tag)), "write the value without a tag");
  }
  void count(Span place, size_t nodes, size_t bytes) {
    if (nodes > limits_.nodes - nodes_)
      fail(place, fmt::format("the text has more than {} values, counting aliases as the values they refer to",
                              limits_.nodes));
    if (bytes > limits_.expanded_bytes - bytes_)
      fail(place, fmt::format("its strings have more than {} bytes, counting aliases as the values they refer to",
                              limits_.expanded_bytes));
    nodes_ += nodes;
    bytes_ += bytes;
  }
  // Returns the span of a scalar as written: with its quotes, or only the sign of a block.
  Span scalar_span(const YAML::Mark& mark, const std::string& value) const {
    const std::string_view text = source_.text();
    const size_t from = std::min(skipped_ + static_cast<size_t>(std::max(mark.pos, 0)), text.size());
    const size_t end = std::min(text.find('\n', from), text.size());
    if (text.substr(from, value.size()) == value && value.find('\n') == std::string::npos)
      return span_of(mark, std::max<size_t>(1, value.size()));
    const char first = from < text.size() ? text[from] : ' ';
    const bool fits = (first == '"' || first == '\'') && from + value.size() + 2 <= end;
    return span_of(mark, fits ? value.size() + 2 : 1);
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    const Span place = span_of(mark, 1);
    expect_tag(place, tag);
    count(place, 1, 0);
    if (open_.size() >= limits_.depth) too_deep(place);
    if (!open_.empty() && open_.back().node.kind == Kind::map && !open_.back().has_key)
      fail(place, "a key is a list or a map", "a key is a string");
    Open next;
    next.node.kind = kind;
    next.node.span = place;
    next.anchor = anchor;
    open_.push_back(std::move(next));
  }
  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    const Size size = done;
    if (done.anchor) anchors_[done.anchor] = {size, done.node};
    attach(std::move(done.node), size);
  }
  void add(Node&& node, YAML::anchor_t anchor) {
    const Size size{1, node.text.size(), 1};
    count(node.span, 1, size.bytes);
    if (anchor) anchors_[anchor] = {size, node};
    attach(std::move(node), size);
  }
  void put(Node&& node, const YAML::Mark& mark, const Size& size) {
    if (!open_.empty() && open_.back().node.kind == Kind::map && !open_.back().has_key && node.kind != Kind::scalar)
      fail(span_of(mark, 1), "a key is a list or a map", "a key is a string");
    attach(std::move(node), size);
  }
  void attach(Node&& node, const Size& size) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& to = open_.back();
    to.nodes += size.nodes;
    to.bytes += size.bytes;
    to.depth = std::max(to.depth, size.depth + 1);
    if (to.node.kind == Kind::list) {
      to.node.items.push_back(std::move(node));
    } else if (!to.has_key) {
      key(to, node);
    } else {
      to.has_key = false;
      to.node.entries.push_back({std::move(to.key), to.key_place, std::move(node)});
    }
  }
  void key(Open& to, Node& node) {
    if (node.kind != Kind::scalar) fail(node.span, "a key is missing");
    if (node.text == "<<" && !node.quoted)
      fail(node.span, "the merge key '<<' is not supported", "write the entries, or name the values by aliases");
    const auto [at, fresh] = to.keys.emplace(node.text, node.span);
    if (!fresh) {
      Error error(ErrorKind::Syntax, fmt::format("the key {} is given twice", shown_name(node.text)), node.span);
      error.note(fmt::format("note: it is also given at {}", source_.place(at->second)));
      errors_.push_back(std::move(error));
      if (errors_.size() >= kMostErrors) throw_errors(&source_, std::move(errors_));
    }
    to.has_key = true;
    to.key = std::move(node.text);
    to.key_place = node.span;
  }

  const SourceText& source_;
  size_t skipped_;
  const Limits& limits_;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::vector<Error> errors_;
  size_t nodes_ = 0, bytes_ = 0;
};

}  // namespace

Document parse_document(std::shared_ptr<const SourceText> source, const Limits& limits) {
  const std::string& text = source->text();
  if (text.size() > limits.bytes)
    throw Error(ErrorKind::Syntax,
                fmt::format("'{}' holds {} bytes; the limit is {}", source->name(), text.size(), limits.bytes));
  const std::string_view view = text;
  const auto refuse = [&](size_t at, const std::string& what) {
    throw Error(ErrorKind::Syntax, what, source->span(at, 1));
  };
  if (const auto invalid = find_invalid_utf8(view)) refuse(*invalid, "the text is not UTF-8");
  for (size_t i = 0; i < view.size(); ++i) {
    const auto byte = static_cast<unsigned char>(view[i]);
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F)
      refuse(i, "the text has a control character");
  }
  const size_t skipped = view.substr(0, kMark.size()) == kMark ? kMark.size() : 0;
  TreeBuilder builder(*source, skipped, limits);
  try {
    std::istringstream stream(text.substr(skipped));
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      TreeBuilder second(*source, skipped, limits);
      if (parser.HandleNextDocument(second)) {
        const Span place = second.root().span;
        throw_errors(source.get(),
                     {Error(ErrorKind::Syntax, "a second document begins, but a file has only one", place)});
      }
    }
  } catch (const YAML::Exception& e) {
    const Span place = builder.span_of(e.mark, 1);
    Error error(ErrorKind::Syntax, fmt::format("this is not YAML: {}", printable(e.msg, 200)), place);
    const std::string_view rest =
        view.substr(std::min(view.size(), skipped + static_cast<size_t>(std::max(e.mark.pos, 0))));
    if (rest.starts_with('*')) error.note("a string that begins with * needs quotes: '*.txt'");
    if (place.column > 1 && source->line(place.line).starts_with('\t')) error.note("indent with spaces, not with tabs");
    builder.errors().push_back(std::move(error));
  }
  if (!builder.errors().empty()) throw_errors(source.get(), std::move(builder.errors()));
  return {std::move(source), std::move(builder.root())};
}

Document read_document(const std::string& path, const Limits& limits) {
  return parse_document(std::make_shared<const SourceText>(path, read_file(path, limits.bytes)), limits);
}

}  // namespace harmonics::engine::document
