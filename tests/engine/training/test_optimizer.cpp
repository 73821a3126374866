// Parsing of optimizers and schedules, their errors, and each parameter's update rule.
#include <catch2/catch.hpp>

#include <functional>

#include "engine/program/functional.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string refused(const std::string& optimizer) {
  return message_of([&] { parse_optimizer(optimizer); });
}
std::string refused_schedule(const std::string& schedule) {
  return message_of([&] { parse_schedule(schedule); });
}

const TensorType kMatrix{DType::F32, {3, 5}}, kVector{DType::F32, {5}}, kKernel{DType::F32, {4, 3, 3, 3}};

std::string rule(const std::string& optimizer, const TensorType& type, bool hidden = true) {
  const UpdateRule r = update_rule(parse_optimizer(optimizer), type, hidden);
  std::string s = r.functional + r.attributes.str();
  for (const UpdateRule::Moment& m : r.moments) s += " " + m.name + m.type.shape.str();
  return s + (r.counts_steps ? " step" : "");
}

}  // namespace

TEST_CASE("optimizer: name with settings, others have defaults") {
  CHECK(parse_optimizer("adamw").str() == "adamw(lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, weight_decay=0.01)");
  CHECK(parse_optimizer(" sgd ( momentum = 0.9 , nesterov=true,) ").str() ==
        "sgd(lr=0.001, momentum=0.9, nesterov=true, weight_decay=0)");
  CHECK(parse_optimizer("rmsprop(centered=1)").str() ==
        "rmsprop(lr=0.01, alpha=0.99, epsilon=1e-08, momentum=0, centered=true, weight_decay=0)");
  CHECK(parse_optimizer("lion()").lr == 1e-4);
  CHECK(parse_optimizer("lamb(lr=2)").settings.given("lr"));
  CHECK_FALSE(parse_optimizer("lamb").settings.given("lr"));
}

TEST_CASE("optimizer: errors suggest a correction") {
  CHECK(refused("adamv") == "unknown optimizer 'adamv'\ndid you mean 'adam'?");
  CHECK(refused("zzz") ==
        "unknown optimizer 'zzz'\noptimizers are sgd, rmsprop, adam, adamw, lamb, lion and normuon, e.g. "
        "'adamw(lr=1e-3)'");
  CHECK(refused("rmsprop(alpa=0.9)") == "optimizer 'rmsprop' has no setting 'alpa'\ndid you mean 'alpha'?");
  CHECK(refused("lion(epsilon=1e-8)") ==
        "optimizer 'lion' has no setting 'epsilon'\nit has lr, beta1, beta2, weight_decay, moments");
  CHECK(refused("adam(beta1=1)") ==
        "optimizer setting 'beta1' has the value '1'\ngive a number of at least 0 and below 1, e.g. beta1=0.9");
  CHECK(refused("adam(lr=-1)") ==
        "optimizer setting 'lr' has the value '-1'\ngive a number from 0 to 1e6, e.g. lr=0.001");
  CHECK(refused("adam(lr=nan)") ==
        "optimizer setting 'lr' has the value 'nan'\ngive a number from 0 to 1e6, e.g. lr=0.001");
  CHECK(refused("sgd(nesterov=maybe)") ==
        "optimizer setting 'nesterov' has the value 'maybe'\ngive true or false, e.g. nesterov=false");
  CHECK(refused("sgd(lr=true)") ==
        "optimizer setting 'lr' has the value 'true'\ngive a number from 0 to 1e6, e.g. lr=0.001");
  CHECK(refused("sgd(nesterov=true)") ==
        "optimizer 'sgd': nesterov needs momentum\nwrite sgd(momentum=0.9, nesterov=true)");
  CHECK(refused("adam(lr)") == "optimizer setting 'lr' lacks its value\nwrite NAME=VALUE, e.g. adamw(lr=1e-3)");
  CHECK(refused("adam(lr=1, lr=2)") == "optimizer setting 'lr' is given twice\nkeep one of them");
  CHECK(refused("adam(lr=1") == "optimizer 'adam(lr=1' lacks its closing parenthesis");
}

TEST_CASE("optimizer: moments in fewer bits") {
  CHECK(parse_optimizer("adamw(moments=f32)").str() == parse_optimizer("adamw").str());
  CHECK(parse_optimizer("adam(moments=bf16)").str() ==
        "adam(lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, weight_decay=0, moments=bf16)");
  CHECK(refused("adamw(moments=f64)") == "optimizer setting 'moments' has the value 'f64'\ngive f32, bf16 or q8");
  CHECK(refused("lamb(moments=q8)") ==
        "optimizer 'lamb' has no setting 'moments'\nit has lr, beta1, beta2, epsilon, weight_decay");
  CHECK(refused("sgd(moments=q8)") ==
        "optimizer 'sgd': moments in fewer bits need momentum\nwrite sgd(momentum=0.9, moments=bf16)");
  const auto types = [](const char* optimizer, const Shape& shape) {
    std::string s;
    for (const UpdateRule::Moment& m : update_rule(parse_optimizer(optimizer), {DType::F32, shape}, true).moments)
      s += m.name + " " + m.type.str() + ", ";
    return s;
  };
  CHECK(types("adamw(moments=bf16)", {64, 100}) == "m bf16[64, 100], v bf16[64, 100], ");
  CHECK(types("adamw(moments=q8)", {64, 100}) == "m u8[64, 100], v u8[64, 100], m_scale u8[4, 7], v_scale u8[4, 7], ");
  CHECK(types("adam(moments=q8)", {17, 30, 3, 3}) ==
        "m u8[17, 30, 3, 3], v u8[17, 30, 3, 3], m_scale u8[2, 17], v_scale u8[2, 17], ");
  CHECK(types("lion(moments=bf16)", {64, 100}) == "m bf16[64, 100], ");
  CHECK(types("lion(moments=q8)", {64, 100}) == "m u8[64, 100], m_scale u8[4, 7], ");
  CHECK(types("sgd(momentum=0.9, moments=q8)", {64, 100}) == "momentum u8[64, 100], momentum_scale u8[4, 7], ");
  CHECK(types("adamw(moments=q8)", {5000}) == "m f32[5000], v f32[5000], ");
  CHECK(types("adamw(moments=q8)", {10, 20}) == "m f32[10, 20], v f32[10, 20], ");
}

TEST_CASE("schedule: errors suggest a correction") {
  CHECK(refused_schedule("cosinus") == "unknown schedule 'cosinus'\ndid you mean 'cosine'?");
  CHECK(refused_schedule("up") ==
        "unknown schedule 'up'\nschedules are constant, linear, cosine, step and wsd, e.g. 'cosine(warmup=500, "
        "final=0.1)'");
  CHECK(refused_schedule("cosine(final=2)") ==
        "schedule setting 'final' has the value '2'\ngive a number from 0 to 1, e.g. final=0");
  CHECK(
      refused_schedule("linear(warmup=2.5)") ==
      "schedule setting 'warmup' has the value '2.5'\ngive a whole number of steps, or a fraction of the run below 1, "
      "e.g. warmup=0");
  CHECK(
      refused_schedule("step(every=0)") ==
      "schedule setting 'every' is 0\ngive a whole number of steps, or a fraction of the run below 1, e.g. every=0.3");
  CHECK(
      refused_schedule("wsd(decay=0)") ==
      "schedule setting 'decay' is 0\ngive a whole number of steps, or a fraction of the run below 1, e.g. decay=0.2");
}

TEST_CASE("schedule: needs the end of the run") {
  const auto made = [](const char* schedule, const Horizon& horizon) {
    return message_of([&] { LearningRate(parse_schedule(schedule), 1, horizon); });
  };
  for (const char* schedule : {"linear", "cosine", "wsd(decay=5)", "step", "constant(warmup=0.1)"}) {
    INFO(schedule);
    CHECK(made(schedule, {})
              .find("depends on the length of the run, which is not known\ngive steps, epochs or for, e.g. "
                    "--steps 1000") != std::string::npos);
    CHECK(made(schedule, {100, false}) == "no error");
  }
  for (const char* schedule : {"linear", "cosine(warmup=10)", "wsd", "step", "constant(warmup=0.1)"})
    CHECK(made(schedule, {std::nullopt, true}) == "no error");
  for (const char* schedule : {"constant", "constant(warmup=9)", "step(every=9)"})
    CHECK(made(schedule, {}) == "no error");
  CHECK(made("wsd(decay=500)", {std::nullopt, true}) ==
        "schedule 'wsd' decays over the last 500 steps, but the run ends by time\ngive a fraction of the run, e.g. "
        "decay=0.2");
  CHECK(*LearningRate(parse_schedule("cosine(warmup=500)"), 1, {20, false}).note() ==
        "the run of 20 steps ends within the schedule's warmup of 500");
  CHECK_FALSE(LearningRate(parse_schedule("cosine(warmup=5)"), 1, {20, false}).note());
}

TEST_CASE("schedule: follows elapsed time in timed runs") {
  const Horizon by_time{std::nullopt, true};
  LearningRate cosine(parse_schedule("cosine(final=0.5)"), 2, by_time);
  CHECK(cosine.at(0, 0) == Approx(2));
  CHECK(cosine.at(1, 0.5) == Approx(1.5));
  CHECK(cosine.at(7, 1) == Approx(1));
  CHECK(cosine.at(8, 1.5) == Approx(1));
  LearningRate counted(parse_schedule("linear(warmup=3)"), 1, by_time);  // warm-up takes three steps in any time
  CHECK(counted.at(0, 0.0) == Approx(0.25));
  CHECK(counted.at(2, 0.2) == Approx(0.75));
  CHECK(counted.at(3, 0.4) == Approx(1));
  CHECK(counted.at(4, 0.7) == Approx(0.5));
  LearningRate part(parse_schedule("linear(warmup=0.2)"), 1, by_time);
  CHECK(part.at(0, 0.1) == Approx(0.5));
  CHECK(part.at(1, 0.2) == Approx(1));
  CHECK(part.at(2, 0.6) == Approx(0.5));
  LearningRate step(parse_schedule("step(every=0.25, factor=0.5)"), 1, by_time);
  CHECK(step.at(0, 0.24) == Approx(1));
  LearningRate wsd(parse_schedule("wsd(decay=0.5)"), 1, by_time);
  CHECK(wsd.at(0, 0.4) == 1);
  CHECK(wsd.at(1, 0.75) == Approx(0.5));
  LearningRate either(parse_schedule("linear"), 1, {10, true});  // the larger fraction counts
  CHECK(either.at(5, 0.1) == Approx(0.5));
  CHECK(either.at(6, 0.8) == Approx(0.2));
}

TEST_CASE("schedule: a timed run that is resumed after its warmup continues") {
  const Horizon by_time{std::nullopt, true};
  const auto resumed = [&](const char* schedule, int64_t step, double elapsed) {
    return LearningRate(parse_schedule(schedule), 1, by_time).at(step, elapsed);
  };
  CHECK(resumed("linear(warmup=0.2)", 60, 0.6) == Approx(0.5));
  CHECK(resumed("cosine(warmup=0.2)", 60, 0.6) == Approx(0.5));
  CHECK(resumed("linear(warmup=20)", 60, 0.6) == Approx(0.5));  // the warmup took a fifth of the time
  CHECK(resumed("step(warmup=0.2, every=0.3, factor=0.5)", 60, 0.6) == Approx(0.5));
  CHECK(resumed("step(warmup=0.2, every=15, factor=0.5)", 60, 0.6) == Approx(0.25));
  CHECK(resumed("step(warmup=20, every=15, factor=0.5)", 60, 0.6) == Approx(0.25));
  CHECK(resumed("wsd(warmup=0.2, decay=0.5)", 60, 0.75) == Approx(0.5));
}

TEST_CASE("update_rule: by parameter shape and role") {
  CHECK(rule("sgd", kMatrix) == "sgd{momentum = 0.0, nesterov = false, weight_decay = 0.0}");
  CHECK(rule("sgd(momentum=0.5)", kVector) == "sgd{momentum = 0.5, nesterov = false, weight_decay = 0.0} momentum[5]");
  CHECK(rule("adamw", kMatrix).find("weight_decay = 0.01") != std::string::npos);
  CHECK(rule("adamw", kVector).find("weight_decay = 0.0}") != std::string::npos);
  CHECK(rule("rmsprop(momentum=0.5, centered=true)", kVector).find(" v[5] momentum[5] mean[5]") != std::string::npos);
  CHECK(rule("lamb", kMatrix).find("adapt = true") != std::string::npos);
  CHECK(rule("lamb", kVector).find("adapt = false") != std::string::npos);
  CHECK(rule("normuon", kMatrix).find("normuon{") == 0);
  CHECK(rule("normuon", kMatrix).find(" m[3, 5] rows[3]") != std::string::npos);
  for (const std::string& other :
       {rule("normuon", kMatrix, false), rule("normuon", kVector), rule("normuon", kKernel)}) {
    CHECK(other.find("adamw{") == 0);
    CHECK(other.find("beta1 = 0.9,") != std::string::npos);
    CHECK(other.find(" step") != std::string::npos);
  }
  for (const NamedRow& row : optimizer_rows()) {
    INFO(row.name);
    CHECK(FunctionalTable::global().find(row.name) != nullptr);
    CHECK(row.settings.at(0).name == "lr");
    CHECK(parse_optimizer(signature(row)).str() == parse_optimizer(row.name).str());
  }
}
