// The whole API: for embedding (graphs, streams, deployment) and for plugins (functions of every kind, the descriptor).
// A plugin that includes it links nothing unless it creates graphs; a program links Harmonics::harmonics. Programs that
// send samples to a run also include <harmonics/sender.hpp>.
#pragma once

#include <harmonics/async.hpp>
#include <harmonics/augment.hpp>
#include <harmonics/augmentation.hpp>
#include <harmonics/budget.hpp>
#include <harmonics/cache.hpp>
#include <harmonics/checked.hpp>
#include <harmonics/deploy.hpp>
#include <harmonics/device.hpp>
#include <harmonics/error.hpp>
#include <harmonics/function.hpp>
#include <harmonics/functional.hpp>
#include <harmonics/graph.hpp>
#include <harmonics/memory.hpp>
#include <harmonics/memory_device.hpp>
#include <harmonics/metric.hpp>
#include <harmonics/models.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>
#include <harmonics/plugin.hpp>
#include <harmonics/quantity.hpp>
#include <harmonics/registering.hpp>
#include <harmonics/scoped_registry.hpp>
#include <harmonics/select.hpp>
#include <harmonics/stream.hpp>
#include <harmonics/tensor.hpp>
#include <harmonics/training.hpp>
#include <harmonics/wrappers.hpp>
