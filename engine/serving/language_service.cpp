#include "engine/serving/language_service.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <mutex>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/language/call_grammar.hpp"
#include "engine/language/chat_session.hpp"
#include "engine/language/json_grammar.hpp"
#include "engine/serving/json_fields.hpp"
#include "engine/serving/json_text.hpp"
#include "engine/serving/route_table.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr size_t kMostReported = size_t{1} << 20;  // log probabilities of the prompts of a request

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

ServiceReply refused_text(TextApi api, const Error& error) {
  std::string message = error.what();
  for (const std::string& note : error.notes()) message += "; " + note;
  const auto* const invalid = dynamic_cast<const FieldError*>(&error);
  const char* const code = dynamic_cast<const PromptTooLong*>(&error) ? "context_length_exceeded" : nullptr;
  const int status = status_for(error);
  return {
      status, "application/json", TextReply::error_body(api, message, status, code, invalid ? invalid->field : ""), {}};
}

// One of the texts of a reply.
struct SentChoice {
  std::shared_ptr<TextJob> job = std::make_shared<TextJob>();
  std::optional<TextReply> reply;  // set when the prompt is known
  std::optional<Continuation> done;
};

// The texts of a request, being sent to a client. Filled by the worker's thread and drained by the server's.
class SentTexts : public std::enable_shared_from_this<SentTexts> {
 public:
  SentTexts(TextRequest request, HttpHandler::Answer answer)
      : request(std::move(request)), choices(this->request.texts()), answer_(std::move(answer)) {}
  // Answers a cancelled request, so that the server releases the connection; the client is already gone.
  ~SentTexts() {
    const auto is_cancelled = [](const SentChoice& choice) { return choice.job->is_cancelled(); };
    if (answer_ && std::any_of(choices.begin(), choices.end(), is_cancelled))
      answer_(refused_text(request.api, "the client closed the connection", 499));
  }
  SentTexts(const SentTexts&) = delete;
  SentTexts& operator=(const SentTexts&) = delete;

  TextRequest request;
  std::vector<SentChoice> choices;
  size_t reported = 0;  // log probabilities of prompts

  void take(SentChoice& choice, const TextJob::News& news);
  void next(ReplyStream::Take take);
  void expect_prompt(TextJob::Prompt& prompt, size_t index);
  void answer(ServiceReply reply) { std::exchange(answer_, nullptr)(std::move(reply)); }
  void cancel() {
    for (SentChoice& choice : choices) choice.job->cancelled = true;
  }

 private:
  void fail(const Error& error);
  Continuation total() const;
  void send(std::string more, bool last);

  HttpHandler::Answer answer_;                                     // null after it was called
  std::map<size_t, std::shared_ptr<const PromptScores>> prompts_;  // by prompt: computed with its first text
  bool failed_ = false;
  std::mutex mutex_;
  std::string buffer_;
  bool last_ = false;
  ReplyStream::Take take_;  // set while the server waits for more text
};

// The server's reference to the texts. Its destruction cancels them.
class SentStream : public ReplyStream {
 public:
  explicit SentStream(std::shared_ptr<SentTexts> texts) : texts_(std::move(texts)) {}
  ~SentStream() override { texts_->cancel(); }
  void next(Take take) override { texts_->next(std::move(take)); }

 private:
  std::shared_ptr<SentTexts> texts_;
};

// Refuses more log probabilities than a reply should hold. Texts after the first one of a prompt take its scores.
void SentTexts::expect_prompt(TextJob::Prompt& prompt, size_t index) {
  std::optional<size_t>& best = prompt.settings.prompt_probabilities;
  if (!best) return;
  reported += prompt.ids.size() * (1 + *best);
  if (reported > kMostReported)
    throw Error(ErrorKind::Usage,
                fmt::format("the request asks for {} log probabilities of prompts or more; the limit is {}", reported,
                            kMostReported),
                {}, {"send fewer prompts in a request, or ask for fewer likely tokens"});
  if (index % request.each > 0) best.reset();
}

// An error of one text ends all of them.
void SentTexts::fail(const Error& error) {
  failed_ = true;
  cancel();
  const auto has_reply = [](const SentChoice& choice) { return choice.reply.has_value(); };
  if (!answer_) return send(std::find_if(choices.begin(), choices.end(), has_reply)->reply->failed(error), true);
  answer(refused_text(request.api, error));
}

// Returns sums over the texts, in which each prompt counts once.
Continuation SentTexts::total() const {
  Continuation total = *choices.front().done;
  total.chosen.clear();
  for (size_t i = 1; i < choices.size(); ++i) {
    total.tokens += choices[i].done->tokens;
    if (i % request.each > 0) continue;
    total.prompt_tokens += choices[i].done->prompt_tokens;
    total.reused_tokens += choices[i].done->reused_tokens;
  }
  return total;
}

void SentTexts::take(SentChoice& choice, const TextJob::News& news) {
  if (failed_) return;
  if (news.error) return fail(*news.error);
  if (news.begun) {
    if (!request.stream) return;
    send(choice.reply->begin(), false);
    if (answer_) answer({200, choice.reply->stream_type(), "", {}, std::make_shared<SentStream>(shared_from_this())});
    return;
  }
  std::shared_ptr<const PromptScores>& scores = prompts_[static_cast<size_t>(&choice - choices.data()) / request.each];
  if (news.done->prompt) scores = news.done->prompt;
  choice.reply->set_prompt(scores);
  std::string more = choice.reply->more(news.text, *news.done);
  if (news.over) {
    more += choice.reply->end(*news.done);
    choice.done = *news.done;
  }
  const auto is_done = [](const SentChoice& one) { return one.done.has_value(); };
  const bool last = news.over && std::all_of(choices.begin(), choices.end(), is_done);
  if (request.stream) {
    if (last) more += choice.reply->close(total());
    return send(std::move(more), last);
  }
  if (!last) return;
  json::array texts;
  for (const SentChoice& one : choices) texts.push_back(one.reply->choice(*one.done));
  answer({200, "application/json", choice.reply->whole(total(), std::move(texts)), {}});
}

void SentTexts::send(std::string more, bool last) {
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

void SentTexts::next(ReplyStream::Take take) {
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
    return answer(refusal_at(request.path, Service::refusal(404, "unknown path", known_paths())));
  }
  if (!route) {
    ServiceReply reply = Service::refusal(405, "this path takes " + methods, "use " + methods);
    reply.headers.emplace_back("Allow", methods);
    return answer(refusal_at(request.path, std::move(reply)));
  }
  if (route->access != RouteAccess::open)
    if (const auto refused = Service::refuse(settings_, request, false))
      return answer(refusal_at(request.path, *refused));
  try {
    (this->*route->handle)(request, answer);
  } catch (const Error& e) {
    answer(Service::reply(error_json(e), status_for(e)));
  } catch (const std::exception& e) {  // a request must not terminate the process
    answer(
        refusal_at(request.path, Service::refusal(500, std::string("the request failed: ") + e.what(), "try again")));
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
  std::shared_ptr<SentTexts> texts;
  try {
    texts = std::make_shared<SentTexts>(read_text_request(api, r.body, usual_), answer);
  } catch (const Error& e) {
    return answer(refused_text(api, e));
  }
  TextRequest& request = texts->request;
  if (request.model.empty()) request.model = model_.name;
  const int64_t now = seconds_now();
  if (request.loads) return texts->answer({200, "application/json", loaded_reply(request, now), {}});
  if (const size_t most = worker_.settings().queue + worker_.settings().sequences; request.texts() > most)
    return texts->answer(refused_text(
        api, fmt::format("the request asks for {} texts; this server takes {}", request.texts(), most), 400));
  if (request.tools && !format_.shows_tools())
    return texts->answer(refused_text(
        api, "'tools' have no place in the model's chat template; --chat-template of the server sets another one",
        400));
  request.response = std::move(response);
  const uint64_t number = number_.fetch_add(request.texts()) + 1;
  if (!request.seeded) request.settings.seed += number;
  const char* const kind = api == TextApi::chat ? "chatcmpl" : api == TextApi::responses ? "resp" : "cmpl";
  const std::string id = fmt::format("{}-{:x}-{}", kind, now, number);
  std::vector<std::shared_ptr<TextJob>> jobs;
  std::shared_ptr<std::atomic<bool>> ready;  // the first text of a prompt has computed it
  for (size_t i = 0; i < texts->choices.size(); ++i) {
    SentChoice& choice = texts->choices[i];
    const bool first = i % request.each == 0;
    if (first) ready = std::make_shared<std::atomic<bool>>(false);
    // Jobs and texts own each other until the worker calls release() on the jobs.
    choice.job->prepare = [this, texts, &choice, i, id, now] {
      std::string prompt;
      TextJob::Prompt made = prompt_of(texts->request, i, prompt);
      texts->expect_prompt(made, i);
      choice.reply.emplace(texts->request, tokenizer_, prompt, id, now, i);
      return made;
    };
    choice.job->tell = [texts, &choice, ready](const TextJob::News& news) {
      if (!news.begun) *ready = true;
      texts->take(choice, news);
    };
    choice.job->gone = r.gone;
    if (!first) choice.job->ready = ready;
    jobs.push_back(choice.job);
  }
  if (worker_.add(jobs)) return;
  for (const std::shared_ptr<TextJob>& job : jobs) job->release();
  ServiceReply busy =
      refused_text(api, worker_.is_draining() ? "the server is shutting down" : "too many requests are waiting", 503);
  busy.headers.emplace_back("Retry-After", "1");
  texts->answer(std::move(busy));
}

namespace {

// Ends a rendered conversation with the text of its last message, as transformers does.
void end_with_message(std::string& text, const ChatPrompt& conversation) {
  const json::value* const content = conversation.messages.back().as_object().if_contains("content");
  const std::string message = content && content->is_string() ? copied(content->get_string()) : "";
  const auto trimmed = [](std::string_view all) {
    const size_t first = all.find_first_not_of(" \t\r\n");
    return first == std::string_view::npos ? "" : all.substr(first, all.find_last_not_of(" \t\r\n") + 1 - first);
  };
  const std::string_view core = trimmed(message);
  const size_t at = core.empty() ? std::string::npos : text.rfind(core);
  if (at == std::string::npos)
    refuse_field("continue_final_message", "needs a last message whose text the chat template shows unchanged");
  // Blanks at the end of the message belong to it, if the template keeps them.
  const std::string_view whole = std::string_view(message).substr(message.find(core));
  text.resize(at + (text.compare(at, whole.size(), whole) == 0 ? whole.size() : core.size()));
}

}  // namespace

TextJob::Prompt LanguageService::prompt_of(TextRequest& request, size_t index, std::string& text) const {
  TextJob::Prompt prompt;
  prompt.settings = request.settings;
  prompt.settings.seed += index;
  const auto grammar_of_format = [&](const json::array& tools, bool thinking) {
    const std::string rules =
        request.rules.empty() ? rules_of_schema(parse_json(request.schema), "text") : request.rules;
    prompt.settings.grammar =
        std::make_shared<const Grammar>(grammar_of_answer(rules, tools, format_.text_with_tools(), thinking));
  };
  if (!request.grammar.empty()) prompt.settings.grammar = std::make_shared<const Grammar>(request.grammar);
  if (request.conversation) {
    request.conversation->now = static_cast<std::time_t>(seconds_now());
    text = format_.render(*request.conversation);
    if (request.continues) end_with_message(text, *request.conversation);
    if (std::string stop = format_.stop_text(tokenizer_); !stop.empty() && prompt.settings.usual_ends)
      prompt.settings.stop.push_back(std::move(stop));
    const bool thinking = AnswerReader::begins_in_reasoning(text);
    const json::array& tools = request.conversation->tools;
    if (request.call)
      prompt.settings.grammar =
          std::make_shared<const Grammar>(grammar_of_call(tools, *request.call, format_.text_with_tools(), thinking));
    else if (!request.schema.empty() || !request.rules.empty())
      grammar_of_format(tools, thinking);
    prompt.ids = prompt_tokens(text, format_, tokenizer_);
    return prompt;
  }
  if (!request.schema.empty() || !request.rules.empty()) grammar_of_format({}, false);
  const PlainPrompt& given = request.prompts[index / request.each];
  for (const int32_t id : given.ids)
    if (id >= tokenizer_.size())
      throw Error(ErrorKind::Usage, fmt::format("the token {} is outside the vocabulary of {}", id, tokenizer_.size()));
  prompt.ids = given.ids.empty() ? tokenizer_.encode(given.text, {.begin = given.begin, .special = true}) : given.ids;
  text = given.ids.empty() ? given.text : tokenizer_.decode(given.ids);
  return prompt;
}

json::object LanguageService::ollama_model() const {
  return {{"name", model_.name},
          {"model", model_.name},
          {"modified_at", timestamp(model_.since)},
          {"size", model_.bytes},
          {"digest", model_.digest},
          {"details",
           {{"format", "gguf"},
            {"family", model_.architecture},
            {"families", json::array{json::string_view(model_.architecture)}},
            {"parameter_size", fmt::format("{:.1f}M", static_cast<double>(model_.parameters) / 1e6)},
            {"quantization_level", model_.quantization}}}};
}

void LanguageService::tags(ServiceRequest&, const Answer& answer) {
  answer(Service::reply({{"models", json::array{ollama_model()}}}));
}

void LanguageService::show(ServiceRequest&, const Answer& answer) {
  json::object model = ollama_model();
  const auto mentions = [&](std::string_view word) { return format_.text().find(word) != std::string::npos; };
  json::array capabilities{"completion"};
  if (format_.shows_tools()) capabilities.emplace_back("tools");
  if (mentions("<think>") || mentions("enable_thinking") || mentions("<|channel|>"))
    capabilities.emplace_back("thinking");
  json::object info{{"general.architecture", model_.architecture}, {"general.parameter_count", model_.parameters}};
  for (const auto& [key, value] : model_.sizes) info[key] = value;
  info[model_.architecture + ".context_length"] = model_.context;
  info[model_.architecture + ".vocab_size"] = model_.vocabulary;
  answer(Service::reply({{"template", format_.text()},
                         {"details", model["details"]},
                         {"modified_at", timestamp(model_.since)},
                         {"capabilities", std::move(capabilities)},
                         {"model_info", std::move(info)}}));
}

void LanguageService::running(ServiceRequest&, const Answer& answer) {
  json::object model = ollama_model();
  model["size_vram"] = 0;
  model["context_length"] = model_.context;
  answer(Service::reply({{"models", json::array{std::move(model)}}}));
}

void LanguageService::version(ServiceRequest&, const Answer& answer) { answer(version_reply()); }

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
  if (found == files_.end()) return answer(refusal_at(r.path, Service::refusal(404, "unknown path", known_paths())));
  if (const auto refused = Service::refuse(settings_, r, false); refused && refused->status == 403)
    return answer(*refused);
  answer(found->second);
}

}  // namespace harmonics::engine
