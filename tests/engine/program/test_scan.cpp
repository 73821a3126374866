// Compares scan with the unrolled program: values, gradients, text.
#include <catch2/catch.hpp>

#include "engine/base/source_text.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/print.hpp"
#include "engine/program/scan.hpp"
#include "numbers.hpp"
#include "tests/conformance/gradcheck.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Unrolls the loop: one copy of the body's operations per step.
Values unrolled(const ScanBody& body, const Values& carries, const Values& constants, const Values& xs, bool reversed,
                int64_t length) {
  Values carry = carries;
  std::vector<Values> ys(static_cast<size_t>(length));
  for (int64_t step = 0; step < length; ++step) {
    const int64_t place = reversed ? length - 1 - step : step;
    Values operands = carry;
    operands.insert(operands.end(), constants.begin(), constants.end());
    for (const HTensor& x : xs) operands.push_back(reshape(slice_axis(x, 0, place, place + 1), x.shape().from(1)));
    Values results = body(operands);
    carry.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(carry.size()));
    ys[static_cast<size_t>(place)].assign(results.begin() + static_cast<std::ptrdiff_t>(carry.size()), results.end());
  }
  Values all = carry;
  for (size_t i = 0; i < ys[0].size(); ++i) {
    Values pieces;
    for (const Values& y : ys) {
      const Shape shape = y[i].shape();
      std::vector<int64_t> dims{1};
      dims.insert(dims.end(), shape.begin(), shape.end());
      pieces.push_back(reshape(y[i], Shape(dims)));
    }
    all.push_back(concat(pieces, 0));
  }
  return all;
}

// h' = tanh(w h + x), and a count of steps that gates the result: carries (h, n), constants (w), xs (x, gate).
Values recurrent(const Values& in) {
  const HTensor &h = in[0], &n = in[1], &w = in[2], &x = in[3], &gate = in[4];
  const HTensor next = tanh(dot(w, h, {1}, {0}) + x);
  return {next, n + 1, next * cast(n, DType::F64) + gate * h, cast(less(gate, 0.0), DType::I64)};
}

const Values& operands() {
  static const Values all{random_tensor({3}, 1), HTensor::from<int64_t>({}, {2}), random_tensor({3, 3}, 2),
                          random_tensor({5, 3}, 3), random_tensor({5}, 4)};
  return all;
}
using Runner = std::function<Values(const Values& in, bool reversed)>;
Values by_scan(const Values& in, bool reversed) {
  return scan(recurrent, {in[0], in[1]}, {in[2]}, {in[3], in[4]}, reversed);
}
Values by_hand(const Values& in, bool reversed) {
  return unrolled(recurrent, {in[0], in[1]}, {in[2]}, {in[3], in[4]}, reversed, 5);
}

// Returns results, and the gradients of their sum with respect to the float operands.
Program traced(const Runner& run, bool reversed) {
  Tracer tracer("traced");
  Values in, wrt;
  for (size_t i = 0; i < operands().size(); ++i) {
    in.push_back(tracer.input(std::to_string(i), type_of(operands()[i])));
    if (is_float(in.back().dtype())) wrt.push_back(in.back());
  }
  const Values out = run(in, reversed);
  const HTensor sum = reduce_sum(out[0] * out[0], {0}) + reduce_sum(out[2] * sin(out[2]), {0, 1});
  for (size_t i = 0; i < out.size(); ++i) tracer.output("y" + std::to_string(i), out[i]);
  const Values gradients = gradient(tracer, sum, wrt);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("g" + std::to_string(i), gradients[i]);
  return tracer.take();
}

Values results_of(const Program& program) {
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < operands().size(); ++i) leaves[std::to_string(i)] = operands()[i];
  return interpret(program, leaves);
}

void check_close(const Values& a, const Values& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(type_of(a[i]) == type_of(b[i]));
    const std::vector<double> x = doubles(a[i]), y = doubles(b[i]);
    for (size_t k = 0; k < x.size(); ++k) CHECK(x[k] == Approx(y[k]).epsilon(tolerance).margin(tolerance));
  }
}

}  // namespace

TEST_CASE("scan equals the unrolled loop, in both directions") {
  for (const bool reversed : {false, true})
    check_close(by_scan(operands(), reversed), by_hand(operands(), reversed), 1e-15);
}

TEST_CASE("scan: values and gradients of the traced program equal those of the unrolled one") {
  for (const bool reversed : {false, true}) {
    const Program loop = traced(by_scan, reversed), whole = traced(by_hand, reversed);
    check_close(results_of(loop), results_of(whole), 1e-12);
    CHECK(loop.nodes.size() < whole.nodes.size());
  }
}

TEST_CASE("scan: gradients agree with finite differences") {
  for (const bool reversed : {false, true})
    check_gradient(
        [&](const Values& in) {
          const Values out = by_scan(in, reversed);
          return Values{out[0], out[2]};
        },
        operands());
}

TEST_CASE("scan: gradients of a loop without xs, of unused operands, and through calls in the body") {
  const auto body = [](const Values& in) {
    return Values{call1("gelu", {in[0]}) * in[2], in[0]};  // the second carry and the last constant are not read
  };
  check_gradient(
      [&](const Values& in) {
        return scan(body, {in[0], in[1]}, {in[2], in[3]}, {}, false, 4);
      },
      {random_tensor({2}, 5), random_tensor({2}, 6), random_tensor({2}, 7), random_tensor({1}, 8)});
}

TEST_CASE("scan: a scan in a scan, and the gradient of its gradient") {
  const auto power = [](const Values& in) {
    const auto inner = [](const Values& i) { return Values{i[0] * i[1] + 0.5 * i[0]}; };
    return Values{scan(inner, {in[0]}, {in[1]}, {}, false, 2)[0] + in[2]};
  };
  const auto outer = [&](const Values& in) { return scan(power, {in[0]}, {in[1]}, {in[2]})[0]; };
  const Values in{random_tensor({2}, 9), random_tensor({2}, 10), random_tensor({3, 2}, 11)};
  check_gradient([&](const Values& x) { return Values{outer(x)}; }, in);
  // The gradient of a sum of squares of gradients.
  Tracer tracer("second");
  Values x;
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < in.size(); ++i) {
    x.push_back(tracer.input(std::to_string(i), type_of(in[i])));
    leaves[std::to_string(i)] = in[i];
  }
  const Values first = gradient(tracer, reduce_sum(outer(x), {0}), {x[1]});
  const HTensor sum = reduce_sum(first[0] * first[0], {0});
  tracer.output("sum", sum);
  tracer.output("g", gradient(tracer, sum, {x[0]})[0]);
  const Program program = tracer.take();
  const auto sum_at = [&](double by) {
    std::map<std::string, HTensor> moved = leaves;
    HTensor a = in[0];
    a.mutable_data<double>()[1] += by;
    moved["0"] = a;
    return interpret(program, moved)[0].item<double>();
  };
  const double expected = (sum_at(1e-5) - sum_at(-1e-5)) / 2e-5;
  CHECK(numbers<double>(interpret(program, leaves)[1])[1] == Approx(expected).epsilon(1e-6));
}

TEST_CASE("scan: values of enclosing traces are constants, once each, in nested loops too") {
  // h' = tanh(w h + x) + b, where w and b are not operands; the inner loop uses b as well.
  const auto by_capture = [](const Values& in) {
    const HTensor &w = in[2], &b = in[4];
    const auto step = [&](const Values& at) {
      const HTensor next = tanh(dot(w, at[0], {1}, {0}) + at[1]) + b + 0.0 * dot(w, at[0], {1}, {0});
      const auto twice = [&](const Values& v) { return Values{v[0] * b}; };
      return Values{next, scan(twice, {next}, {}, {}, false, 2)[0]};
    };
    return scan(step, {in[0]}, {}, {in[3]});
  };
  const auto by_operand = [](const Values& in) {
    const auto step = [](const Values& at) {
      const HTensor &w = at[1], &b = at[2];
      const HTensor next = tanh(dot(w, at[0], {1}, {0}) + at[3]) + b;
      return Values{next, next * b * b};
    };
    return scan(step, {in[0]}, {in[2], in[4]}, {in[3]});
  };
  Values in = operands();
  in[4] = random_tensor({3}, 12);
  const auto program_of = [&](const auto& run) {
    Tracer tracer("captures");
    Values x;
    for (size_t i = 0; i < in.size(); ++i) x.push_back(tracer.input(std::to_string(i), type_of(in[i])));
    const Values out = run(x);
    const HTensor sum = reduce_sum(out[0] * out[0], {0}) + reduce_sum(sin(out[1]), {0, 1});
    tracer.output("y", out[1]);
    const Values gradients = gradient(tracer, sum, {x[0], x[2], x[3], x[4]});
    for (size_t i = 0; i < gradients.size(); ++i) tracer.output("g" + std::to_string(i), gradients[i]);
    return tracer.take();
  };
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < in.size(); ++i) leaves[std::to_string(i)] = in[i];
  const Program captured = program_of(by_capture);
  check_close(interpret(captured, leaves), interpret(program_of(by_operand), leaves), 1e-12);
  for (const Node& node : captured.nodes)
    if (node.op == Op::scan) {
      CHECK(node.inputs.size() == 4);  // h, w, b, x
      break;
    }
  // Constants are not operands.
  check_close(by_capture(in), by_operand(in), 1e-15);
}

TEST_CASE("scan of no steps gives the initial carries and empty results") {
  const Values out = scan(
      [](const Values& in) {
        return Values{in[0] + in[1], in[0]};
      },
      {f32({2}, {1, 2})}, {}, {HTensor(DType::F32, {0, 2})});
  CHECK(numbers<float>(out[0]) == std::vector<float>{1, 2});
  CHECK(out[1].shape() == Shape{0, 2});
}

TEST_CASE("scan: carries may be passed on, swapped and given twice") {
  const auto body = [](const Values& in) { return Values{in[1], in[0], in[2], in[2]}; };
  const Values out = scan(body, {f32({}, {1}), f32({}, {2})}, {}, {f32({3}, {7, 8, 9})}, true);
  CHECK(out[0].item<float>() == 2);
  CHECK(out[1].item<float>() == 1);
  CHECK(numbers<float>(out[2]) == std::vector<float>{7, 8, 9});
  CHECK(numbers<float>(out[3]) == std::vector<float>{7, 8, 9});
}

TEST_CASE("scan: the text holds the body and reads back") {
  for (const bool reversed : {false, true}) {
    const Program program = traced(by_scan, reversed);
    const std::string text = print(program);
    const Program back = parse_program(text, "scan.program");
    CHECK(print(back) == text);
    check_close(results_of(back), results_of(program), 0);
  }
  Tracer tracer("short");
  const HTensor h = tracer.input("h", {DType::F32, {2}}), x = tracer.input("x", {DType::F32, {3, 2}});
  tracer.output("h", scan([](const Values& in) { return Values{in[0] + in[1]}; }, {h}, {}, {x})[0]);
  CHECK(print(tracer.take()) ==
        "program \"short\"\n"
        "%0: f32[2] = input \"h\"\n"
        "%1: f32[3, 2] = input \"x\"\n"
        "%2: f32[2] = scan(%0, %1) {carries = 1, constants = 0, length = 3, reverse = false}\n"
        "begin \"scan\"\n"
        "  %0: f32[2] = input \"0\"\n"
        "  %1: f32[2] = input \"1\"\n"
        "  %2: f32[2] = add(%0, %1)\n"
        "  output \"0\" = %2\n"
        "end\n"
        "output \"h\" = %2\n");
}

namespace {

std::string text_of_scan(const std::string& types, const std::string& attributes, const std::string& body) {
  return "program \"p\"\n%0: f32[2] = input \"h\"\n%1: f32[3, 2] = input \"x\"\n" + types + " = scan(%0, %1) {" +
         attributes + "}\n" + body;
}

std::string error_of_text(const std::string& text) {
  try {
    parse_program(text, "bad.program");
  } catch (const SourceErrors& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("scan: errors of its text and its types") {
  const std::string attributes = "carries = 1, length = 3",
                    body = "begin \"b\"\n%0: f32[2] = input \"0\"\n%1: f32[2] = input \"1\"\noutput \"0\" = %1\nend\n";
  const auto says = [&](const std::string& text, const std::string& part) {
    INFO(error_of_text(text));
    CHECK(error_of_text(text).find(part) != std::string::npos);
  };
  CHECK(error_of_text(text_of_scan("%2: f32[2]", attributes, body)) == "none");
  says(text_of_scan("%2: f32[2]", attributes, ""), "begins with begin");
  says(text_of_scan("%2: f32[2]", attributes, body.substr(0, body.size() - 4)), "ends with the line end");
  says(text_of_scan("%2: f32[2]", "carries = 1, length = 4", body), "must have a first axis of length = 4");
  says(text_of_scan("%2: f32[2]", "carries = 3, length = 3", body), "exceed the 2 operands");
  says(text_of_scan("%2: f32[2]", "carries = 1, length = -1", body), "must not be negative");
  says(text_of_scan("%2: f32[2], %3: f32[2]", attributes, body), "1 result, not 2");
  says(text_of_scan("%2: f32[2]", attributes, "begin \"b\"\n%0: f32[3] = input \"0\"\noutput \"0\" = %0\nend\n"),
       "its input '0' is f32[3]");
  says(text_of_scan("%2: f32[2]", attributes, "begin \"b\"\n%0: f32[2] = input \"9\"\noutput \"0\" = %0\nend\n"),
       "inputs must be named");
  says(text_of_scan("%2: f32[2]", attributes, "begin \"b\"\n%0: f32[2] = parameter \"w\"\noutput \"0\" = %0\nend\n"),
       "the body has the parameter 'w'");
  says(text_of_scan("%2: f32[2]", attributes,
                    "begin \"b\"\n%0: i64[2] = iota() {axis = 0, dtype = i64, shape = [2]}\n"
                    "output \"0\" = %0\nend\n"),
       "a carry keeps its type");
  std::string deep = "program \"p\"\n%0: f32[] = input \"x\"\n";
  for (int i = 0; i < 40; ++i)
    deep += "%1: f32[] = scan(%0) {carries = 1, length = 1}\nbegin \"b\"\n%0: f32[] = input \"0\"\n";
  says(deep, "nested more than");
  CHECK(refusal([] { scan([](const Values& in) { return in; }, {f32({}, {1})}, {}, {}); }).find("must be given") !=
        std::string::npos);
  CHECK(refusal([] { scan([](const Values& in) { return in; }, {}, {}, {f32({}, {1})}); }).find("no axis") !=
        std::string::npos);
}

TEST_CASE("scan: passes see the body") {
  Tracer tracer("passes");
  const HTensor h = tracer.input("h", {DType::F32, {2}}), x = tracer.input("x", {DType::F32, {3, 2}});
  const auto body = [](const Values& in) { return Values{in[0] + in[1]}; };
  const auto other = [](const Values& in) { return Values{in[0] * in[1]}; };
  const Values equal{scan(body, {h}, {}, {x})[0], scan(body, {h}, {}, {x})[0], scan(other, {h}, {}, {x})[0]};
  for (size_t i = 0; i < equal.size(); ++i) tracer.output(std::to_string(i), equal[i]);
  const Program merged = cse(tracer.take());
  CHECK(merged.outputs[0].value == merged.outputs[1].value);
  CHECK(merged.outputs[0].value != merged.outputs[2].value);
}

TEST_CASE("scan: unused results, and what only they read, are removed") {
  Tracer tracer("unused");
  const HTensor h = tracer.input("h", {DType::F32, {2}}), x = tracer.input("x", {DType::F32, {3, 2}}),
                y = tracer.input("y", {DType::F32, {3, 2}}), w = tracer.input("w", {DType::F32, {2}});
  const auto body = [](const Values& in) { return Values{in[0] + in[2], exp(in[3] * in[1]), in[2] + in[0]}; };
  const Values out = scan(body, {h}, {w}, {x, y});
  tracer.output("h", out[0]);
  tracer.output("y", out[2]);
  const Program whole = tracer.take(), less = dce(whole);
  CHECK(less.leaf(Op::input, "x"));
  CHECK_FALSE(less.leaf(Op::input, "y"));
  CHECK_FALSE(less.leaf(Op::input, "w"));
  const Node& node = less.producer(less.outputs[0].value);
  CHECK(node.outputs.size() == 2);
  CHECK(node.body->nodes.size() < whole.producer(whole.outputs[0].value).body->nodes.size());
  const std::map<std::string, HTensor> leaves{{"h", f32({2}, {1, 2})},
                                              {"w", f32({2}, {3, 4})},
                                              {"x", f32({3, 2}, {1, 2, 3, 4, 5, 6})},
                                              {"y", f32({3, 2}, {1, 1, 1, 1, 1, 1})}};
  check_close(interpret(less, leaves), interpret(whole, leaves), 0);
}
