// Registration functions for programs that embed Harmonics, members of HarmonicGraph and ScopedRegistry. Names, flags
// and errors are those of FunctionRegistry (function.hpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/augmentation.hpp>
#include <harmonics/function.hpp>
#include <harmonics/functional.hpp>
#include <harmonics/memory_device.hpp>
#include <harmonics/metric.hpp>
#include <harmonics/training.hpp>

namespace harmonics {

// `Owner` has FunctionRegistry& registry(). Registered objects live until the owner and all programs compiled with them
// are destroyed; threads of the run call them. Throws ErrorKind::Plugin with the reason.
template <typename Owner>
class Registering {
 public:
  HARMONICS_FACE void registerActivation(const std::string& name, std::shared_ptr<ActivationFunction> f,
                                         const std::string& description = "",
                                         const std::vector<Argument>& arguments = {}, uint32_t flags = 0) {
    registry_of_owner().register_activation(name, std::move(f), description, arguments, flags);
  }
  HARMONICS_FACE void registerLoss(const std::string& name, std::shared_ptr<LossFunction> f,
                                   const std::string& description = "", const std::vector<Argument>& arguments = {},
                                   uint32_t flags = 0) {
    registry_of_owner().register_loss(name, std::move(f), description, arguments, flags);
  }
  HARMONICS_FACE void registerLayer(const std::string& name, std::shared_ptr<LayerFunction> f,
                                    const std::string& description = "", const std::vector<Argument>& arguments = {},
                                    uint32_t flags = 0) {
    registry_of_owner().register_layer(name, std::move(f), description, arguments, flags);
  }
  // For addresses: bindProducer("x", "scheme:path?option=1").
  HARMONICS_FACE void registerProducer(const std::string& scheme, ProducerFactory open,
                                       const std::string& description = "", const std::vector<Argument>& options = {}) {
    registry_of_owner().register_producer(scheme, std::move(open), description, options);
  }
  HARMONICS_FACE void registerConsumer(const std::string& scheme, ConsumerFactory open,
                                       const std::string& description = "", const std::vector<Argument>& options = {}) {
    registry_of_owner().register_consumer(scheme, std::move(open), description, options);
  }
  // For FitOptions::device.
  HARMONICS_FACE void registerDevice(const std::string& name, std::shared_ptr<Device> device,
                                     const std::string& description = "") {
    registry_of_owner().register_device(name, std::move(device), description);
  }
  HARMONICS_FACE void registerMemoryDevice(const std::string& name, std::shared_ptr<MemoryDevice> device,
                                           const std::string& description = "") {
    registry_of_owner().register_memory_device(name, std::move(device), description);
  }
  // For FitOptions::metrics.
  HARMONICS_FACE void registerMetric(const std::string& name, MetricFactory open, const std::string& description = "",
                                     const std::vector<Argument>& arguments = {}, uint32_t flags = 0) {
    registry_of_owner().register_metric(name, std::move(open), description, arguments, flags);
  }
  // Registers a functional for the whole process: it is visible to every graph.
  HARMONICS_FACE void registerFunctional(const std::string& name, std::shared_ptr<FunctionalBody> body,
                                         const std::string& description = "",
                                         const std::vector<Argument>& arguments = {}, uint32_t flags = 0) {
    registry_of_owner().register_functional(name, std::move(body), description, arguments, flags);
  }
  HARMONICS_FACE void registerImplementation(const std::string& functional, const std::string& name,
                                             std::shared_ptr<Implementation> implementation,
                                             const std::string& description = "") {
    registry_of_owner().register_implementation(functional, name, std::move(implementation), description);
  }
  // For FitOptions::optimizer and schedule.
  HARMONICS_FACE void registerOptimizer(const std::string& name, std::shared_ptr<OptimizerFunction> f,
                                        const std::string& description = "",
                                        const std::vector<Argument>& arguments = {}) {
    registry_of_owner().register_optimizer(name, std::move(f), description, arguments);
  }
  HARMONICS_FACE void registerSchedule(const std::string& name, std::shared_ptr<ScheduleFunction> f,
                                       const std::string& description = "", const std::vector<Argument>& arguments = {},
                                       uint32_t flags = 0) {
    registry_of_owner().register_schedule(name, std::move(f), description, arguments, flags);
  }
  HARMONICS_FACE void registerPredicate(const std::string& name, std::shared_ptr<PredicateFunction> f,
                                        const std::string& description = "",
                                        const std::vector<Argument>& arguments = {}, uint32_t flags = 0) {
    registry_of_owner().register_predicate(name, std::move(f), description, arguments, flags);
  }
  HARMONICS_FACE void registerAugmentation(const std::string& name, std::shared_ptr<AugmentationFunction> f,
                                           const std::string& description = "",
                                           const std::vector<Argument>& arguments = {}) {
    registry_of_owner().register_augmentation(name, std::move(f), description, arguments);
  }

 private:
  friend Owner;
  Registering() = default;
  HARMONICS_FACE FunctionRegistry& registry_of_owner() { return static_cast<Owner&>(*this).registry(); }
};

}  // namespace harmonics
