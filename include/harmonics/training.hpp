// Optimizers, learning rate schedules and predicates of plugins.
#pragma once

#include <string>
#include <vector>

#include <harmonics/function.hpp>
#include <harmonics/quantity.hpp>
#include <harmonics/training_abi.h>

namespace harmonics {

// The parameter to update.
struct ParameterInfo {
  std::string name;
  DType dtype;
  Shape shape;
  bool hidden;  // neither an embedding table nor a parameter of an arrow into a tapped layer
};

// Optimizer state of a parameter, initially zero.
struct Moment {
  std::string name;
  DType dtype;
  Shape shape;
};

// One step of one parameter.
struct UpdateStep {
  HTensor value, gradient;
  HTensor rate;  // f32 scalar: the learning rate of this step
  HTensor step;  // i64 scalar: its number, from 1
  std::vector<HTensor> moments;
};

// An optimizer, by traced operations that are part of the training step: --optimizer 'name(lr=0.1)'.
class OptimizerFunction {
 public:
  virtual std::vector<Moment> moments(const ParameterInfo& parameter, const Arguments& arguments) const {
    (void)parameter, (void)arguments;
    return {};
  }
  // Returns the next value of the parameter, then the next values of the moments. Cannot read values.
  virtual std::vector<HTensor> step(const ParameterInfo& parameter, const UpdateStep& update,
                                    const Arguments& arguments) const = 0;
  virtual ~OptimizerFunction() = default;
};

// Progress of a run.
struct RunPoint {
  int64_t step;     // from 0
  int64_t steps;    // of the whole run; 0: unknown
  double progress;  // from 0 to 1; below 0: the end is unknown
};

class ScheduleFunction {
 public:
  // Returns the factor of the learning rate, at least 0. Pure.
  virtual double factor(const RunPoint& point, const Arguments& arguments) const = 0;
  virtual ~ScheduleFunction() = default;
};

// A predicate's access to the run; valid during the call.
class RunView {
 public:
  explicit RunView(const hx_run_view& raw) : raw_(raw) {}
  int64_t step() const { return raw_.step; }  // finished so far
  int64_t epoch() const { return raw_.epoch; }
  int64_t samples() const { return raw_.samples; }
  // Gets the value of "loss", "output.accuracy" ...; returns false while it has none.
  bool metric(const std::string& name, double& value) const {
    const hx_status status = raw_.metric(raw_.run, name.c_str(), &value);
    if (status == HX_DECLINED) return false;
    detail::check(status);
    return true;
  }

 private:
  const hx_run_view& raw_;
};

// A predicate: if name(arguments) { ... }. Evaluated before every step. Must be stateless, since a resumed run
// evaluates it again.
class PredicateFunction {
 public:
  virtual bool operator()(const RunView& run, const Arguments& arguments) const = 0;
  virtual ~PredicateFunction() = default;
};

namespace detail {

HARMONICS_FACE inline ParameterInfo parameter_of(const hx_parameter& p) {
  return {p.name, static_cast<DType>(p.type.dtype), Shape(p.type.dims, p.type.dims + p.type.rank),
          (p.flags & HX_PARAMETER_HIDDEN) != 0};
}

HARMONICS_FACE inline const hx_optimizer_vt* optimizer_vt() {
  static const hx_optimizer_vt vt = {
      sizeof(hx_optimizer_vt),
      [](void* self, const hx_attributes* args, const hx_parameter* parameter, hx_moment* out, uint32_t* count) {
        return guarded([&] {
          thread_local std::vector<Moment> given;  // owns the names until the next call
          given = object<OptimizerFunction>(self).moments(parameter_of(*parameter), Arguments(args));
          if (given.size() > HX_MAX_MOMENTS)
            throw Error(ErrorKind::Plugin, "it keeps " + std::to_string(given.size()) + " moments; at most " +
                                               std::to_string(HX_MAX_MOMENTS) + " are possible");
          *count = static_cast<uint32_t>(given.size());
          for (size_t i = 0; i < given.size(); ++i)
            out[i] = {given[i].name.c_str(), make_type(given[i].dtype, given[i].shape)};
          return HX_OK;
        });
      },
      [](void* self, const hx_attributes* args, const hx_parameter* parameter, const hx_update* u, hx_value** next) {
        return guarded([&] {
          UpdateStep update{HTensor::borrow(u->value),
                            HTensor::borrow(u->gradient),
                            HTensor::borrow(u->rate),
                            HTensor::borrow(u->step),
                            {}};
          for (uint32_t i = 0; i < u->n_moments; ++i) update.moments.push_back(HTensor::borrow(u->moments[i]));
          std::vector<HTensor> results =
              object<OptimizerFunction>(self).step(parameter_of(*parameter), update, Arguments(args));
          if (results.size() != 1 + u->n_moments)
            throw Error(ErrorKind::Plugin, "step() gave " + quantity(results.size(), "tensor") + " instead of " +
                                               std::to_string(1 + u->n_moments));
          for (const HTensor& t : results)
            if (!t) throw Error(ErrorKind::Plugin, "step() returned an empty tensor");
          for (size_t i = 0; i < results.size(); ++i) next[i] = results[i].release();
          return HX_OK;
        });
      },
      destroy<OptimizerFunction>};
  return &vt;
}

HARMONICS_FACE inline const hx_schedule_vt* schedule_vt() {
  static const hx_schedule_vt vt = {
      sizeof(hx_schedule_vt),
      [](void* self, const hx_attributes* args, const hx_run_point* p, double* out) {
        return guarded([&] {
          *out = object<ScheduleFunction>(self).factor({p->step, p->steps, p->progress}, Arguments(args));
          return HX_OK;
        });
      },
      destroy<ScheduleFunction>};
  return &vt;
}

HARMONICS_FACE inline const hx_predicate_vt* predicate_vt() {
  static const hx_predicate_vt vt = {sizeof(hx_predicate_vt),
                                     [](void* self, const hx_attributes* args, const hx_run_view* run, int32_t* out) {
                                       return guarded([&] {
                                         *out = object<PredicateFunction>(self)(RunView(*run), Arguments(args)) ? 1 : 0;
                                         return HX_OK;
                                       });
                                     },
                                     destroy<PredicateFunction>};
  return &vt;
}

}  // namespace detail

HARMONICS_FACE inline void FunctionRegistry::register_optimizer(const std::string& name,
                                                                std::shared_ptr<OptimizerFunction> f,
                                                                const std::string& description,
                                                                const std::vector<Argument>& arguments) {
  add(HX_OPTIMIZER, name, description, arguments, 0, detail::held(std::move(f), "optimizer", name),
      [] { return static_cast<const void*>(detail::optimizer_vt()); });
}
HARMONICS_FACE inline void FunctionRegistry::register_schedule(const std::string& name,
                                                               std::shared_ptr<ScheduleFunction> f,
                                                               const std::string& description,
                                                               const std::vector<Argument>& arguments, uint32_t flags) {
  add(HX_SCHEDULE, name, description, arguments, flags, detail::held(std::move(f), "schedule", name),
      [] { return static_cast<const void*>(detail::schedule_vt()); });
}
HARMONICS_FACE inline void FunctionRegistry::register_predicate(const std::string& name,
                                                                std::shared_ptr<PredicateFunction> f,
                                                                const std::string& description,
                                                                const std::vector<Argument>& arguments,
                                                                uint32_t flags) {
  add(HX_PREDICATE, name, description, arguments, flags, detail::held(std::move(f), "predicate", name),
      [] { return static_cast<const void*>(detail::predicate_vt()); });
}

}  // namespace harmonics
