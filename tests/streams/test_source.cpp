#include <harmonics/memory.hpp>

#include "engine/streams/stream_source.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using Gives = CountingProducer::Gives;

namespace {

Source counted_source(uint64_t n, Gives gives) {
  return Source("counted", std::make_shared<CountingProducer>(n, gives));
}

// A C producer of an older contract, whose table ends at next.
struct Old {
  int given = 0;
  bool destroyed = false;
};
const hx_producer_vt* old_table() {
  static const hx_producer_vt table = [] {
    hx_producer_vt t{};
    t.struct_size = offsetof(hx_producer_vt, read);
    t.next = [](void* self, hx_value** out) {
      auto& old = *static_cast<Old*>(self);
      if (old.given == 3) return HX_END;
      const float v = static_cast<float>(old.given++);
      *out = HTensor(DType::F32, {}, &v).release();
      return HX_OK;
    };
    t.destroy = [](void*) { std::abort(); };  // beyond struct_size: must not be called
    return t;
  }();
  return &table;
}

// Fails on the n-th call, in the given way.
hx_producer_vt broken_table(hx_status (*describe)(void*, hx_stream_info*), hx_status (*next)(void*, hx_value**),
                            hx_status (*read)(void*, uint64_t, void*, uint64_t*) = nullptr) {
  hx_producer_vt t{};
  t.struct_size = sizeof t;
  t.describe = describe;
  t.next = next;
  t.read = read;
  return t;
}
hx_status scalar_f32(void*, hx_stream_info* out) {
  out->sample = make_type(DType::F32, {});
  return HX_OK;
}
hx_status end(void*, hx_value**) { return HX_END; }

}  // namespace

TEST_CASE("a source knows its samples' type, with or without description") {
  for (const Gives gives : {Gives::Blocks, Gives::Singles, Gives::SinglesWithoutType}) {
    Source source = counted_source(5, gives);
    CHECK(source.info().dtype == DType::I32);
    CHECK(source.info().sample == Shape{2});
    CHECK(source.info().size == 5);
    CHECK(source.sample_bytes() == 8);
    source.rewind(0);  // before the first sample: no effect
    std::vector<int32_t> to(12, -1);
    CHECK(source.next().data<int32_t>()[0] == 0);  // reading the type did not lose the first sample
    CHECK(source.read(2, to.data()) == 2);
    CHECK((to[0] == 10 && to[3] == 21 && to[4] == -1));
    CHECK(source.skip(1) == 1);
    CHECK(source.position() == 4);
    CHECK(source.read(6, to.data()) == 1);
    CHECK(to[0] == 40);
    CHECK(source.read(6, to.data()) == 0);
    CHECK(source.skip(1) == 0);
    CHECK(!source.next());
    source.rewind(1);
    CHECK(source.position() == 0);
    CHECK(source.skip(100000) == 5);
  }
}

TEST_CASE("every sample is checked against the announced type") {
  const auto gives = [](std::vector<HTensor> samples) {
    return Source("mixed", std::make_shared<MemoryProducer>(std::move(samples)));
  };
  Source shapes = gives({HTensor(DType::F32, {2, 3}), HTensor(DType::F32, {2, 3}), HTensor(DType::F32, {6})});
  float to[18];
  CHECK(refusal([&] { shapes.read(3, to); }) ==
        "stream 'mixed': sample 2 is f32[6], the stream was announced as f32[2, 3]; all samples of a stream have one "
        "type");
  Source dtypes = gives({HTensor(DType::U8, {}), HTensor(DType::I64, {})});
  dtypes.next();
  CHECK(refusal([&] { dtypes.next(); }) ==
        "stream 'mixed': sample 1 is i64, the stream was announced as u8; all samples of a stream have one type");
  CHECK(refusal([&] { gives({}); }) == "stream 'mixed' ended before its first sample, so its type is not known");
}

TEST_CASE("tables of an older contract are read up to their size") {
  Old old;
  Source source("old", old_table(), &old);
  float to[5];
  CHECK(source.read(5, to) == 3);
  CHECK(to[2] == 2);
  CHECK(refusal([&] { source.rewind(1); }) ==
        "stream 'old' cannot be read a second time, its producer does not rewind; run one epoch, or keep its samples "
        "in a file");
}

TEST_CASE("producers that break the contract are named") {
  const auto open = [](const hx_producer_vt& table) { Source source("bad", &table, nullptr); };
  CHECK(refusal([&] { open(broken_table(scalar_f32, nullptr)); }) == "stream 'bad' has no next function");
  CHECK(refusal([&] {
          open(broken_table([](void*, hx_stream_info* out) { return out->sample.rank = 9, HX_OK; }, end));
        }) == "stream 'bad' announces samples of rank 9; the maximum is 8");
  CHECK(refusal([&] {
          open(broken_table([](void*, hx_stream_info* out) { return out->sample.dtype = 99, HX_OK; }, end));
        }) == "stream 'bad' announces samples of the unknown dtype 99");
  CHECK(refusal([&] {
          open(broken_table(
              [](void*, hx_stream_info* out) {
                return out->sample = make_type(DType::F32, {2, 0}), HX_OK;
              },
              end));
        }) == "stream 'bad' announces samples of shape [2, 0]; every size must be at least 1");
  CHECK(refusal([&] {
          open(broken_table(
              [](void*, hx_stream_info* out) {
                return out->sample = make_type(DType::F32, {1ll << 40, 1ll << 40}), HX_OK;
              },
              end));
        }) == "stream 'bad' announces samples of shape [1099511627776, 1099511627776], which no memory holds");
  CHECK(refusal([&] {
          open(broken_table(
              [](void*, hx_stream_info* out) {
                return out->sample = make_type(DType::F32, {2}), out->position_axes = 2, HX_OK;
              },
              end));
        }) == "stream 'bad' announces 2 position axes for samples of shape [2]");
  CHECK(refusal([&] { open(broken_table(nullptr, [](void*, hx_value**) { return HX_OK; })); }) ==
        "stream 'bad' returned neither a sample nor the end");
  const auto table =
      broken_table(scalar_f32, end, [](void*, uint64_t n, void*, uint64_t* got) { return *got = n + 1, HX_OK; });
  Source greedy("bad", &table, nullptr);
  float to[2];
  CHECK(refusal([&] { greedy.read(1, to); }) == "stream 'bad' gave 2 samples for a request of 1");
}

TEST_CASE("an error of a producer keeps its kind and gets the stream's name") {
  const auto table = broken_table(scalar_f32, [](void*, hx_value**) {
    detail::api()->set_error(HX_ERROR_NO_INPUT, "the cable is out");
    return HX_ERROR;
  });
  Source source("far", &table, nullptr);
  try {
    source.next();
    FAIL("it threw nothing");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::NoInput);
    CHECK(std::string(e.what()) == "stream 'far': the cable is out");
  }
}

TEST_CASE("a sink forwards samples and names itself in errors") {
  const auto collected = std::make_shared<CollectConsumer>();
  Sink sink("out", collected);
  const float data[] = {1, 2, 3, 4};
  sink.push(DType::F32, {2}, 2, data);
  sink.push(HTensor(DType::F32, {2}, data));
  sink.finish();
  REQUIRE(collected->samples().size() == 3);
  CHECK(collected->samples()[1].data<float>()[0] == 3);
  CHECK(collected->finished());
  CHECK(sink.position() == 3);
  CHECK(refusal([&] { sink.push(HTensor(DType::F8_E4M3, {2})); }) ==
        "a sample of f8_e4m3 cannot be written: that is a stored type; cast it to f32");
  struct Full : Consumer {
    void push(const HTensor&) override { throw Error(ErrorKind::Output, "no room"); }
  };
  Sink full("out", std::make_shared<Full>());
  CHECK(refusal([&] { full.push(HTensor::scalar(1)); }) == "consumer 'out': no room");
}
