// Sessions over shared plans: chunks, growth and other sessions leave the scores bitwise equal.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/language/decoder.hpp"
#include "engine/program/host_function.hpp"
#include "engine/transformer/architectures.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/execution/interposed_malloc.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

CompileOptions on_device(const std::string& device) {
  CompileOptions options;
  options.device = device;
  return options;
}

std::vector<float> copied(std::span<const float> scores) { return {scores.begin(), scores.end()}; }

// Returns the scores after every token, one token at a time.
std::vector<std::vector<float>> one_by_one(Session& session, std::span<const int32_t> tokens) {
  std::vector<std::vector<float>> all;
  for (const int32_t& t : tokens) all.push_back(copied(session.append({&t, 1})));
  return all;
}

// The forward pass in double, without a cache, written from the paper.
class Plainly {
 public:
  Plainly(const SmallLlama& s, const Model& model) : s_(s), model_(model) {}

  std::vector<double> scores(std::span<const int32_t> tokens) const {
    const auto n = static_cast<int64_t>(tokens.size());
    std::vector<std::vector<double>> x;
    for (int32_t t : tokens) x.push_back(row("token_embd.weight", t, s_.width));
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      const std::string b = "blk." + std::to_string(layer) + ".";
      std::vector<std::vector<double>> q, k, v;
      for (int64_t t = 0; t < n; ++t) {
        const auto h = norm(x[static_cast<size_t>(t)], b + "attn_norm.weight");
        q.push_back(turned(times(b + "attn_q.weight", h), t));
        k.push_back(turned(times(b + "attn_k.weight", h), t));
        v.push_back(times(b + "attn_v.weight", h));
      }
      for (int64_t t = 0; t < n; ++t) {
        auto& here = x[static_cast<size_t>(t)];
        add(here, times(b + "attn_output.weight", seen(q[static_cast<size_t>(t)], k, v, t)));
        const auto h = norm(here, b + "ffn_norm.weight");
        auto gate = times(b + "ffn_gate.weight", h);
        const auto up = times(b + "ffn_up.weight", h);
        for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        add(here, times(b + "ffn_down.weight", gate));
      }
    }
    return times(s_.own_head ? "output.weight" : "token_embd.weight", norm(x.back(), "output_norm.weight"));
  }

 private:
  using Row = std::vector<double>;
  const float* data(const std::string& name) const {
    return static_cast<const float*>(model_.parameters->all().at(name).data());
  }
  Row row(const std::string& name, int64_t r, int64_t width) const {
    return {data(name) + r * width, data(name) + (r + 1) * width};
  }
  Row times(const std::string& name, const Row& x) const {
    const Shape shape = model_.parameters->all().at(name).type.shape;
    Row y(static_cast<size_t>(shape[0]), 0);
    for (size_t i = 0; i < y.size(); ++i)
      for (size_t j = 0; j < x.size(); ++j) y[i] += static_cast<double>(data(name)[i * x.size() + j]) * x[j];
    return y;
  }
  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Row norm(const Row& x, const std::string& name) const {
    double square = 0;
    for (double v : x) square += v * v;
    const double r = 1 / std::sqrt(square / static_cast<double>(x.size()) + 1e-5);
    Row y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * r * static_cast<double>(data(name)[i]));
    return y;
  }
  Row turned(const Row& x, int64_t t) const {
    const auto width = static_cast<size_t>(s_.width / s_.heads);
    Row y = x;
    for (size_t head = 0; head < x.size(); head += width)
      for (size_t i = 0; i < width / 2; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        const size_t a = head + (s_.pairing == "half" ? i : 2 * i), b = s_.pairing == "half" ? a + width / 2 : a + 1;
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
      }
    return y;
  }
  Row seen(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v, int64_t last) const {
    const auto width = static_cast<size_t>(s_.width / s_.heads), group = static_cast<size_t>(s_.heads / s_.shared);
    Row out(q.size(), 0);
    for (size_t head = 0; head < static_cast<size_t>(s_.heads); ++head) {
      const size_t from = head / group * width;
      Row weights;
      double sum = 0;
      for (size_t t = 0; t <= static_cast<size_t>(last); ++t) {
        double score = 0;
        for (size_t i = 0; i < width; ++i) score += q[head * width + i] * k[t][from + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
        sum += weights.back();
      }
      for (size_t t = 0; t < weights.size(); ++t)
        for (size_t i = 0; i < width; ++i) out[head * width + i] += weights[t] / sum * v[t][from + i];
    }
    return out;
  }

  const SmallLlama& s_;
  const Model& model_;
};

}  // namespace

TEST_CASE("decoder: scores are those of the plain computation without a cache") {
  for (const bool own_head : {true, false})
    for (const char* pairing : {"interleaved", "half"})
      for (const char* device : {"cpu", "reference"}) {
        SmallLlama s;
        s.own_head = own_head;
        s.pairing = pairing;
        const Model model = small_llama(s);
        const auto executor = make_team_executor(2);
        Decoder decoder(model, *executor, on_device(device));
        Session session(decoder);
        const auto tokens = some_tokens(11, s.vocabulary);
        const Plainly plainly(s, model);
        INFO(own_head << " " << pairing << " " << device);
        for (size_t n = 1; n <= tokens.size(); ++n) {
          const auto scores = session.append({&tokens[n - 1], 1});
          const auto expected = plainly.scores({tokens.data(), n});
          for (size_t i = 0; i < expected.size(); ++i)
            REQUIRE(static_cast<double>(scores[i]) == Approx(expected[i]).margin(2e-5).epsilon(2e-5));
        }
      }
}

TEST_CASE("decoder: whole, in chunks and one by one a prompt gives the same bits, also where capacity grows") {
  const Model model = small_llama();
  const auto tokens = some_tokens(200, model.vocabulary);
  for (const int threads : {1, 2, 3}) {
    const auto executor = make_team_executor(threads);
    Decoder decoder(model, *executor, on_device("cpu"));
    Session alone(decoder);
    const auto expected = one_by_one(alone, tokens);
    Session reserved(decoder, 0, true);
    for (size_t at = 0, step = 1; at < tokens.size(); at += step, step = step % 47 + 5) {
      const size_t n = std::min(step, tokens.size() - at);
      CHECK(copied(reserved.append({tokens.data() + at, n})) == expected[at + n - 1]);
    }
    Session whole(decoder);
    CHECK(copied(whole.append(tokens)) == expected.back());
    CHECK(whole.capacity() == 256);
    CHECK(reserved.capacity() == model.context);
  }
}

TEST_CASE("decoder: sessions on one decoder do not see each other") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor, on_device("cpu"));
  const auto a = some_tokens(90, model.vocabulary, 1), b = some_tokens(90, model.vocabulary, 2);
  Session first(decoder), second(decoder);
  std::vector<std::vector<float>> of_first, of_second;
  for (size_t i = 0; i < a.size(); ++i) {
    of_first.push_back(copied(first.append({&a[i], 1})));
    if (i % 3 != 1) of_second.push_back(copied(second.append({&b[of_second.size()], 1})));
  }
  Decoder other(model, *executor, on_device("cpu"));
  Session third(other), fourth(other);
  CHECK(one_by_one(third, a) == of_first);
  CHECK(one_by_one(fourth, {b.data(), of_second.size()}) == of_second);
}

TEST_CASE("decoder: plans are shared, and without pages they go with the last session of their capacity") {
  Model model = small_llama();
  model.paged = false;
  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor, on_device("cpu"));
  const auto tokens = some_tokens(64, model.vocabulary);
  Session first(decoder);
  one_by_one(first, tokens);
  CHECK(decoder.plans() == 1);
  {
    Session second(decoder);
    one_by_one(second, tokens);
    CHECK(decoder.plans() == 1);
    first.append({tokens.data(), 1});  // the 65th: capacity 128
    CHECK(decoder.plans() == 2);
    second.append({tokens.data(), 1});
    CHECK(decoder.plans() == 1);
  }
  CHECK(first.capacity() == 128);
  CHECK(first.cache_bytes() == static_cast<uint64_t>(2 * 3 * 128 * 2 * 4 * 4));
}

TEST_CASE("decoder: a token allocates nothing, and writes its caches in place") {
  const Model model = small_llama();
  for (const int threads : {1, 2}) {
    const auto executor = make_team_executor(threads);
    Decoder decoder(model, *executor, on_device("cpu"));
    Session session(decoder);
    const auto tokens = some_tokens(60, model.vocabulary);
    session.append({tokens.data(), 1});
    if (kCountsAllocations) {
      start_counting();
      for (size_t i = 1; i < tokens.size(); ++i) session.append({&tokens[i], 1});
      CHECK(stop_counting() == 0);
    }
  }
  struct Caches final : TensorBinding {
    const Model& model;
    std::map<std::string, std::shared_ptr<Storage>> memory;
    explicit Caches(const Model& m) : model(m) {}
    void* parameter(const std::string& name, const TensorType& type) override {
      if (model.parameters->find(name)) return model.parameters->parameter(name, type);
      auto& storage = memory[name];
      if (!storage) storage = std::make_shared<Storage>(type.bytes());
      return storage->data();
    }
  } binding(model);
  const auto executor = make_sequential_executor();
  const auto plan = compile(model.trace(model.entry("decode"), {1, 1, 128}), &binding, *executor, on_device("cpu"));
  int appended = 0;
  for (const PlanStep& step : plan->steps()) {
    CHECK(step.what != "store");
    CHECK(step.what != "keep");
    if (step.what != "cache_append") continue;
    ++appended;
    CHECK(step.in_place);
    CHECK(step.target.substr(0, 6) == "cache.");
  }
  CHECK(appended == 6);
}

TEST_CASE("decoder: a sequence that grows allocates at one token only, and a given context none after the first") {
  const Model model = small_llama();
  const auto executor = make_sequential_executor();
  const auto tokens = some_tokens(120, model.vocabulary);
  for (const bool given : {false, true}) {
    Decoder decoder(model, *executor, on_device("cpu"));
    Session session(decoder, given ? 128 : 0, given);
    CHECK(session.capacity() == (given ? 128 : 64));
    std::vector<size_t> allocating;
    int64_t grown = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t before = session.capacity();
      if (kCountsAllocations) start_counting();
      session.append({&tokens[i], 1});
      if (kCountsAllocations && stop_counting() > 0) allocating.push_back(i);
      grown += session.capacity() != before;
    }
    CHECK(grown == (given ? 0 : 1));
    if (kCountsAllocations) CHECK(allocating == (given ? std::vector<size_t>{0} : std::vector<size_t>{0, 64}));
  }
}

TEST_CASE(
    "decoder: stored weights and caches of f16, bf16 and q8_0 give nearly the same scores, and equal bits in chunks") {
  SmallLlama s;
  s.width = 128, s.heads = 4, s.shared = 2, s.hidden = 96, s.vocabulary = 70;
  const Model exact = small_llama(s);
  const auto executor = make_team_executor(2);
  const auto tokens = some_tokens(70, s.vocabulary);
  Decoder reference(exact, *executor, on_device("cpu"));
  Session of_exact(reference);
  const auto expected = one_by_one(of_exact, tokens);
  struct Case {
    DType weights, cache;
    double bound;  // of the difference, relative to the root mean square of the scores
  };
  // Bounds for an error of half a step of the type in each weight, with random signs, through three blocks.
  for (const Case& c :
       {Case{DType::F32, DType::F16, 0.01}, Case{DType::F16, DType::F32, 0.01}, Case{DType::BF16, DType::F32, 0.05},
        Case{DType::Q8_0, DType::F16, 0.05}, Case{DType::F32, DType::BF16, 0.05}, Case{DType::F32, DType::Q8_0, 0.05},
        Case{DType::Q8_0, DType::Q8_0, 0.08}}) {
    const ImportedModel imported = imported_from(exact);
    ModelOptions options;
    if (c.weights != DType::F32) options.weights = c.weights;
    options.cache = c.cache;
    const Model model = model_of(imported, options);
    INFO(dtype_name(c.weights) << " weights, cache of " << dtype_name(c.cache));
    CHECK(model.parameters->all().at("blk.1.ffn_up.weight").type.dtype == c.weights);
    CHECK(model.parameters->all().at("blk.1.ffn_norm.weight").type.dtype == DType::F32);
    Decoder decoder(model, *executor, on_device("cpu"));
    Session session(decoder), whole(decoder);
    const auto scores = one_by_one(session, tokens);
    double difference = 0, size = 0;
    for (size_t i = 0; i < scores.size(); ++i)
      for (size_t k = 0; k < scores[i].size(); ++k) {
        difference += std::pow(static_cast<double>(scores[i][k] - expected[i][k]), 2);
        size += std::pow(static_cast<double>(expected[i][k]), 2);
      }
    CHECK(std::sqrt(difference / size) < c.bound);
    CHECK(difference > 0);
    CHECK(copied(whole.append(tokens)) == scores.back());
    Session chunks(decoder);
    for (size_t at = 0; at < tokens.size();) {
      const size_t count = std::min<size_t>(tokens.size() - at, 3 + at % 17);
      CHECK(copied(chunks.append({tokens.data() + at, count})) == scores[at + count - 1]);
      at += count;
    }
    CHECK(session.cache_bytes() * 32 * 4 == of_exact.cache_bytes() * run_bytes(c.cache, 32));
  }
}

TEST_CASE("llama: a cache of blocks needs heads of whole blocks") {
  Model model = bare_llama({});
  CHECK(message_of([&] { add_architecture_entries(model, DType::Q8_0); }) ==
        "'small': its heads are 4 wide, and a cache of q8_0 needs whole blocks of 32\n"
        "take another type of the cache: f16");
}

TEST_CASE("decoder: what does not fit is refused, and the sequence is unchanged") {
  SmallLlama s;
  s.context = 10;
  const Model model = small_llama(s);
  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor, on_device("cpu"));
  Session session(decoder);
  const auto tokens = some_tokens(8, s.vocabulary);
  session.append(tokens);
  CHECK(message_of([&] {
          session.append({tokens.data(), 3});
        }) == "the sequence would have 11 tokens, but its context holds 10");
  const std::vector<int32_t> wrong{1, 50};
  CHECK(message_of([&] { session.append(wrong); }) == "token 50 at place 1 is outside the model's vocabulary of 50");
  CHECK(message_of([&] { session.append({}); }) == "a sequence is continued by at least one token");
  CHECK(session.length() == 8);
  Session again(decoder);
  again.append(tokens);
  CHECK(copied(session.append({tokens.data(), 2})) == copied(again.append({tokens.data(), 2})));
}

TEST_CASE("decoder: on a device with a memory of its own, sessions take turns on shared plans and grow") {
  const Model model = small_llama(), same = small_llama();
  const auto executor = make_sequential_executor();
  Registry registry;
  const auto device = add_fake_accelerator(registry, "fake");
  CompileOptions options = on_device("fake");
  options.registry = &registry;
  const auto tokens = some_tokens(80, model.vocabulary), others = some_tokens(80, model.vocabulary, 10);
  Decoder on_host(same, *executor, on_device("cpu"));
  Session first_on_host(on_host), second_on_host(on_host);
  {
    Decoder decoder(model, *executor, options);
    Session first(decoder), second(decoder);
    const auto close = [](const std::vector<float>& scores, const std::vector<float>& expected) {
      for (size_t i = 0; i < expected.size(); ++i) REQUIRE(scores[i] == Approx(expected[i]).margin(1e-5));
    };
    for (size_t at = 0, n = 1; at < tokens.size(); at += n, n = std::min<size_t>(n % 11 + 3, tokens.size() - at)) {
      close(copied(first.append({&tokens[at], n})), copied(first_on_host.append({&tokens[at], n})));
      close(copied(second.append({&others[at], n})), copied(second_on_host.append({&others[at], n})));
    }
    CHECK(first.capacity() == 128);
    CHECK(device->kernels > 0);
    CHECK(decoder.plans() <= 6);
  }
}

TEST_CASE("llama: tensors and sizes that do not fit are refused by name") {
  SmallLlama s;
  const auto refusal = [&](const std::function<void(Model&, AttributeMap&)>& change) {
    Model model = bare_llama(s);
    AttributeMap metadata = metadata_of(s);
    change(model, metadata);
    model.metadata = ModelMetadata("small", metadata);
    return message_of([&] { add_architecture_entries(model); });
  };
  CHECK(refusal([](Model&, AttributeMap& m) { m.set("llama.block_count", int64_t{4}); }) ==
        "'small' has no tensor 'blk.3.attn_norm.weight'");
  CHECK(refusal([](Model&, AttributeMap& m) { m.set("llama.feed_forward_length", int64_t{41}); }) ==
        "'small': the tensor 'blk.0.ffn_gate.weight' is f32[40, 24], and the model's sizes need f32[41, 24]");
  CHECK(refusal([](Model&, AttributeMap& m) { m.set("llama.attention.head_count", int64_t{5}); }) ==
        "'small': 5 heads with 2 of keys do not divide a width of 24 into even parts");
  CHECK(refusal([](Model&, AttributeMap& m) { m.set("llama.rope.pairing", "odd"); }) ==
        "'small': the pairing of rotary positions is half or interleaved, not 'odd'");
}

namespace {

// Returns its input once two runs are inside at the same time, or fails after a long time.
class Meeting : public HostFunction {
 public:
  std::string name() const override { return "a meeting"; }
  std::vector<HTensor> run(const std::vector<HTensor>& in) const override {
    std::unique_lock lock(mutex_);
    ++inside_;
    arrived_.notify_all();
    if (!arrived_.wait_for(lock, std::chrono::seconds(100), [&] { return inside_ >= 2; }))
      throw Error(ErrorKind::Internal, "no second run came");
    return {in[0]};
  }
  std::vector<HTensor> gradient(const std::vector<HTensor>&, const std::vector<HTensor>&,
                                const std::vector<HTensor>&) const override {
    return {};
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  mutable int inside_ = 0;
};

// A symbol's score is the last token. Both sessions must be inside the first run.
Model meeting_model() {
  Model model;
  model.name = "meeting";
  model.context = 8;
  model.vocabulary = 1000;
  const auto meeting = std::make_shared<Meeting>();
  for (const bool decode : {false, true})
    model.entries.push_back(
        {decode ? "decode" : "prefill", [meeting, decode](Tracer& tracer, const EntrySizes& sizes) {
           const HTensor last = slice_axis(tracer.input("tokens", {DType::I32, Shape{1, sizes.tokens}}), 1,
                                           sizes.tokens - 1, sizes.tokens);
           Node node{};
           node.op = Op::host_call;
           node.host = meeting;
           const HTensor met = tracer.append(std::move(node), {cast(last, DType::F32)}, {{DType::F32, {1, 1}}}).at(0);
           if (decode) tracer.output("scores", met + full(DType::F32, Shape{1, 1000}, 0));
         }});
  return model;
}

}  // namespace

TEST_CASE("decoder: sessions of two threads run at once, each on a plan of its own") {
  const Model model = meeting_model();
  const auto executor = make_sequential_executor();
  Decoder decoder(model, *executor, on_device("reference"));
  std::vector<float> found(2);
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      Session session(decoder);
      const int32_t token = 7 + i;
      try {
        found[static_cast<size_t>(i)] = session.append({&token, 1}).back();
      } catch (const Error&) {  // the other session waited outside
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(found == std::vector<float>{7, 8});
  CHECK(decoder.plans() == 2);
  Session third(decoder);
  const int32_t token = 3;
  CHECK(third.append({&token, 1}).back() == 3);
  CHECK(decoder.plans() == 2);
}
