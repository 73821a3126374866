// Three ways to run a program: by the interpreter, and compiled for the reference and the CPU device.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/execution/executable.hpp"
#include "engine/program/interpret.hpp"

namespace harmonics::engine::parity {

using Leaves = std::map<std::string, HTensor>;

// Runs a program with parameters step by step.
class Runner {
 public:
  virtual ~Runner() = default;
  // Runs a step with these inputs and returns the outputs by name. Keeps the program's updates.
  virtual std::map<std::string, HTensor> step(const Leaves& inputs) = 0;
  virtual HTensor parameter(const std::string& name) const = 0;
};

class InterpretedRunner : public Runner {
 public:
  InterpretedRunner(Program program, Leaves parameters) : program_(std::move(program)), held_(std::move(parameters)) {}

  std::map<std::string, HTensor> step(const Leaves& inputs) override {
    Leaves leaves = held_;
    leaves.insert(inputs.begin(), inputs.end());
    const Values results = interpret(program_, leaves);
    std::map<std::string, HTensor> outputs;
    size_t i = 0;
    for (const NamedValue& v : program_.outputs) outputs[v.name] = results.at(i++);
    for (const NamedValue& v : program_.updates) held_[v.name] = results.at(i++);
    return outputs;
  }
  HTensor parameter(const std::string& name) const override { return held_.at(name); }

 private:
  Program program_;
  Leaves held_;
};

class CompiledRunner : public Runner, TensorBinding {
 public:
  CompiledRunner(const Program& program, const Leaves& parameters, const std::string& device)
      : executor_(make_sequential_executor()) {
    for (const auto& [name, value] : parameters) {
      auto storage = std::make_shared<Storage>(type_of(value).bytes());
      std::memcpy(storage->data(), value.bytes(), storage->bytes());
      held_[name] = make_value(type_of(value), storage);
    }
    for (const NamedValue& v : program.outputs) names_.push_back(v.name);
    CompileOptions options;
    options.device = device;
    plan_ = compile(program, this, *executor_, options);
  }

  std::map<std::string, HTensor> step(const Leaves& inputs) override {
    std::vector<const void*> pointers;
    for (const std::string& name : plan_->input_names()) pointers.push_back(inputs.at(name).bytes());
    plan_->run(pointers.data());
    std::map<std::string, HTensor> outputs;
    for (const std::string& name : names_) {
      const HTensor& view = plan_->output(name);
      outputs[name] = HTensor(view.dtype(), view.shape(), view.bytes());  // the next step reuses the plan's memory
    }
    return outputs;
  }
  HTensor parameter(const std::string& name) const override { return held_.at(name); }

 private:
  void* parameter(const std::string& name, const TensorType& type) override {
    const HTensor& value = held_.at(name);
    if (type_of(value) != type)
      throw Error(ErrorKind::Internal, name + " is " + type_of(value).str() + ", not " + type.str());
    return value.raw()->storage->data();
  }

  Leaves held_;
  std::vector<std::string> names_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executable> plan_;
};

// `backend`: "interpreter", or a device to compile for.
inline std::unique_ptr<Runner> make_runner(const std::string& backend, Program program, const Leaves& parameters) {
  if (backend == "interpreter") return std::make_unique<InterpretedRunner>(std::move(program), parameters);
  return std::make_unique<CompiledRunner>(program, parameters, backend);
}

}  // namespace harmonics::engine::parity
