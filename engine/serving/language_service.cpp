#include "engine/serving/language_service.hpp"

#include <ctime>
#include <mutex>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/language/call_grammar.hpp"
#include "engine/language/chat_session.hpp"
#include "engine/language/json_grammar.hpp"
#include "engine/serving/json_text.hpp"
#include "engine/serving/route_table.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

int64_t seconds_now() { return static_cast<int64_t>(std::time(nullptr)); }

int status_for(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::Usage:
    case ErrorKind::Syntax:
      return 400;
    case ErrorKind::Unavailable:
      return 503;
    default:
      return 500;
  }
}

ServiceReply refused_text(TextApi api, const std::string& message, int status) {
  return {status, "application/json", TextReply::error_body(api, message, status), {}};
}

std::string message_with_notes(const Error& error) {
  std::string message = error.what();
  for (const std::string& note : error.notes()) message += "; " + note;
  return message;
}

// A text being sent to a client. Filled by the worker's thread and drained by the server's.
class SentText : public std::enable_shared_from_this<SentText> {
 public:
  SentText(TextRequest request, HttpHandler::Answer answer) : request(std::move(request)), answer_(std::move(answer)) {}
  // Answers a cancelled request, so that the server releases the connection; the client is already gone.
  ~SentText() {
    if (answer_ && job->is_cancelled()) answer_(refused_text(request.api, "the client closed the connection", 499));
  }
  SentText(const SentText&) = delete;
  SentText& operator=(const SentText&) = delete;

  TextRequest request;
  std::optional<TextReply> reply;  // set when the prompt is known
  std::shared_ptr<TextJob> job = std::make_shared<TextJob>();

  void take(const TextJob::News& news);
  void next(ReplyStream::Take take);
  void refuse(ServiceReply reply) { std::exchange(answer_, nullptr)(std::move(reply)); }

 private:
  void send(std::string more, bool last);

  HttpHandler::Answer answer_;  // null after it was called
  std::mutex mutex_;
  std::string buffer_;
  bool last_ = false;
  ReplyStream::Take take_;  // set while the server waits for more text
};

// The server's reference to a text. Its destruction cancels the text.
class SentStream : public ReplyStream {
 public:
  explicit SentStream(std::shared_ptr<SentText> text) : text_(std::move(text)) {}
  ~SentStream() override { text_->job->cancelled = true; }
  void next(Take take) override { text_->next(std::move(take)); }

 private:
  std::shared_ptr<SentText> text_;
};

void SentText::take(const TextJob::News& news) {
  if (news.error) {
    if (!answer_) return send(reply->failed(*news.error), true);
    const HttpHandler::Answer answer = std::exchange(answer_, nullptr);
    return answer(refused_text(request.api, message_with_notes(*news.error), status_for(*news.error)));
  }
  if (news.begun) {
    if (!request.stream) return;
    send(reply->begin(), false);
    const HttpHandler::Answer answer = std::exchange(answer_, nullptr);
    return answer({200, reply->stream_type(), "", {}, std::make_shared<SentStream>(shared_from_this())});
  }
  std::string more = reply->more(news.text, *news.done);
  if (news.over) more += reply->end(*news.done);
  if (request.stream) return send(std::move(more), news.over);
  if (!news.over) return;
  const HttpHandler::Answer answer = std::exchange(answer_, nullptr);
  answer({200, "application/json", reply->whole(*news.done), {}});
}

void SentText::send(std::string more, bool last) {
  ReplyStream::Take take;
  {
    const std::lock_guard lock(mutex_);
    buffer_ += more;
    last_ = last;
    if (!take_ || (buffer_.empty() && !last)) return;
    take = std::exchange(take_, nullptr);
    more = std::exchange(buffer_, "");
  }
  take(std::move(more), last);
}

void SentText::next(ReplyStream::Take take) {
  std::string more;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    if (buffer_.empty() && !last_) {
      take_ = std::move(take);
      return;
    }
    more = std::exchange(buffer_, "");
    last = last_;
  }
  take(std::move(more), last);
}

}  // namespace

LanguageService::LanguageService(ServiceSettings settings, ServedModel model, TextWorker& worker,
                                 const Tokenizer& tokenizer, const ChatTemplate& format, ContinuationSettings usual)
    : settings_(std::move(settings)),
      model_(std::move(model)),
      worker_(worker),
      tokenizer_(tokenizer),
      format_(format),
      usual_(std::move(usual)) {}

void LanguageService::handle(ServiceRequest request, Answer answer) {
  const auto [route, methods] = find_route(table(), request);
  if (!route && methods.empty()) {
    if (request.method == "GET" || request.method == "HEAD") return file(request, answer);
    return answer(Service::refusal(404, "unknown path", known_paths()));
  }
  if (!route) {
    ServiceReply reply = Service::refusal(405, "this path takes " + methods, "use " + methods);
    reply.headers.emplace_back("Allow", methods);
    return answer(reply);
  }
  if (route->access != RouteAccess::open)
    if (const auto refused = Service::refuse(settings_, request, false)) return answer(*refused);
  try {
    (this->*route->handle)(request, answer);
  } catch (const Error& e) {
    answer(Service::reply(error_json(e), status_for(e)));
  }
}

void LanguageService::chat(ServiceRequest& r, const Answer& answer) { write_text(TextApi::chat, r, answer); }
void LanguageService::completion(ServiceRequest& r, const Answer& answer) {
  write_text(TextApi::completion, r, answer);
}
void LanguageService::ollama_chat(ServiceRequest& r, const Answer& answer) {
  write_text(TextApi::ollama_chat, r, answer);
}
void LanguageService::ollama_generate(ServiceRequest& r, const Answer& answer) {
  write_text(TextApi::ollama_generate, r, answer);
}

void LanguageService::write_text(TextApi api, ServiceRequest& r, const Answer& answer,
                                 std::shared_ptr<const ResponseRecord> response) {
  std::shared_ptr<SentText> text;
  try {
    text = std::make_shared<SentText>(read_text_request(api, r.body, usual_), answer);
  } catch (const Error& e) {
    return answer(refused_text(api, message_with_notes(e), status_for(e)));
  }
  if (text->request.model.empty()) text->request.model = model_.name;
  text->request.response = std::move(response);
  const int64_t now = seconds_now();
  const char* const kind = api == TextApi::chat ? "chatcmpl" : api == TextApi::responses ? "resp" : "cmpl";
  const std::string id = fmt::format("{}-{:x}-{}", kind, now, ++number_);
  // Job and text own each other until the worker calls release() on the job.
  text->job->prepare = [this, text, id, now] {
    std::string prompt;
    TextJob::Prompt made = prompt_of(text->request, prompt);
    text->reply.emplace(text->request, tokenizer_, prompt, id, now);
    return made;
  };
  text->job->tell = [text](const TextJob::News& news) { text->take(news); };
  text->job->gone = r.gone;
  if (worker_.add(text->job)) return;
  text->job->release();
  ServiceReply busy = refused_text(api, "too many requests are waiting", 503);
  busy.headers.emplace_back("Retry-After", "1");
  text->refuse(std::move(busy));
}

TextJob::Prompt LanguageService::prompt_of(TextRequest& request, std::string& text) {
  TextJob::Prompt prompt;
  if (!request.schema.empty()) {
    const json::value schema = json::parse(request.schema);
    const bool any = schema.is_object() && schema.get_object().empty();
    request.settings.grammar = std::make_shared<const Grammar>(any ? json_object_grammar() : grammar_of_schema(schema));
  }
  if (!request.grammar.empty()) request.settings.grammar = std::make_shared<const Grammar>(request.grammar);
  if (request.conversation) {
    request.conversation->now = static_cast<std::time_t>(seconds_now());
    text = format_.render(*request.conversation);
    if (request.call)
      request.settings.grammar = std::make_shared<const Grammar>(grammar_of_call(
          request.conversation->tools, *request.call, format_.text(), AnswerReader::begins_in_reasoning(text)));
    prompt.ids = prompt_tokens(text, format_, tokenizer_);
  } else if (!request.ids.empty()) {
    for (const int32_t id : request.ids)
      if (id >= tokenizer_.size())
        throw Error(ErrorKind::Usage,
                    fmt::format("the token {} is outside the vocabulary of {}", id, tokenizer_.size()));
    prompt.ids = request.ids;
  } else {
    prompt.ids = tokenizer_.encode(request.prompt);
  }
  prompt.settings = request.settings;
  return prompt;
}

json::object LanguageService::ollama_model() const {
  return {{"name", model_.name},
          {"model", model_.name},
          {"modified_at", timestamp(model_.since)},
          {"size", model_.bytes},
          {"digest", ""},
          {"details",
           {{"format", "gguf"},
            {"family", model_.architecture},
            {"families", json::array{json::string_view(model_.architecture)}},
            {"parameter_size", fmt::format("{:.1f}M", static_cast<double>(model_.parameters) / 1e6)},
            {"quantization_level", ""}}}};
}

void LanguageService::tags(ServiceRequest&, const Answer& answer) {
  answer(Service::reply({{"models", json::array{ollama_model()}}}));
}

void LanguageService::show(ServiceRequest&, const Answer& answer) {
  json::object model = ollama_model();
  answer(Service::reply({{"template", format_.text()},
                         {"details", model["details"]},
                         {"modified_at", timestamp(model_.since)},
                         {"capabilities", json::array{"completion", "tools"}},
                         {"model_info",
                          {{"general.architecture", model_.architecture},
                           {"general.parameter_count", model_.parameters},
                           {model_.architecture + ".context_length", model_.context},
                           {model_.architecture + ".vocab_size", model_.vocabulary}}}}));
}

void LanguageService::running(ServiceRequest&, const Answer& answer) {
  json::object model = ollama_model();
  model["size_vram"] = 0;
  model["context_length"] = model_.context;
  answer(Service::reply({{"models", json::array{std::move(model)}}}));
}

void LanguageService::version(ServiceRequest&, const Answer& answer) {
  answer(Service::reply({{"version", HARMONICS_VERSION}}));
}

void LanguageService::metrics(ServiceRequest&, const Answer& answer) {
  const TextWorker::Report r = worker_.report();
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, double value) {
    text += fmt::format("# HELP harmonics_{} {}\n# TYPE harmonics_{} {}\nharmonics_{} {}\n", name, help, name, type,
                        name, value);
  };
  add("text_requests_total", "counter", "Texts started.", static_cast<double>(r.requests));
  add("text_failed_total", "counter", "Texts that ended with an error.", static_cast<double>(r.failed));
  add("text_cancelled_total", "counter", "Texts whose client disconnected.", static_cast<double>(r.cancelled));
  add("text_refused_total", "counter", "Requests refused because the queue was full.", static_cast<double>(r.refused));
  add("text_prompt_tokens_total", "counter", "Tokens of prompts.", static_cast<double>(r.prompt_tokens));
  add("text_reused_tokens_total", "counter", "Prompt tokens taken from the cache.",
      static_cast<double>(r.reused_tokens));
  add("text_tokens_total", "counter", "Tokens written.", static_cast<double>(r.tokens));
  add("text_seconds_total", "counter", "Computing time.", r.seconds);
  add("text_prefix_hits_total", "counter", "Texts whose prompt began with cached tokens.",
      static_cast<double>(r.prefix_hits));
  add("text_preempted_total", "counter", "Preemptions: a text released its pages to an older one.",
      static_cast<double>(r.preempted));
  add("text_steps_total", "counter", "Model runs, each over tokens of all texts.", static_cast<double>(r.steps));
  add("text_step_tokens_total", "counter", "Tokens of these runs.", static_cast<double>(r.step_tokens));
  add("text_drafted_tokens_total", "counter", "Tokens drafted.", static_cast<double>(r.drafted));
  add("text_accepted_tokens_total", "counter", "Drafted tokens that were accepted.", static_cast<double>(r.accepted));
  add("text_pages", "gauge", "Pages of the caches.", static_cast<double>(r.pages));
  add("text_pages_used", "gauge", "Pages in use by texts.", static_cast<double>(r.pages_used));
  add("text_pages_kept", "gauge", "Pages cached for common prefixes of prompts.", static_cast<double>(r.pages_kept));
  add("text_active", "gauge", "Texts being generated.", static_cast<double>(r.active));
  add("text_waiting", "gauge", "Texts waiting.", static_cast<double>(r.waiting));
  answer({200, "text/plain; version=0.0.4", text, {}});
}

void LanguageService::health(ServiceRequest&, const Answer& answer) {
  const TextWorker::Report r = worker_.report();
  answer(Service::reply({{"status", "ok"}, {"active", r.active}, {"waiting", r.waiting}}));
}

void LanguageService::describe(ServiceRequest&, const Answer& answer) {
  static const std::string document = openapi_document(
      routes(), "Texts of a language model, as served by 'harmonics serve MODEL': the APIs of OpenAI and Ollama.");
  answer({200, "application/json", document, {}});
}

void LanguageService::file(ServiceRequest& r, const Answer& answer) {
  const auto found = files_.find(r.path);
  if (found == files_.end()) return answer(Service::refusal(404, "unknown path", known_paths()));
  if (const auto refused = Service::refuse(settings_, r, false); refused && refused->status == 403)
    return answer(*refused);
  answer(found->second);
}

}  // namespace harmonics::engine
