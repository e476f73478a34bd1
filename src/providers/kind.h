// Kind: all that is known of a provider without an object of it: its name, its settings, how to
// make one. registry.h lists them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "engine/engine.h"
#include "providers/provider.h"
#include "providers/schema.h"

namespace atl::providers {

// What a provider is made with. The engine outlives it.
struct Surroundings {
  engine::Engine& engine;
  engine::Caller caller;
};

struct Kind {
  std::string_view id;
  std::string_view label;
  std::string_view description;
  Schema schema;
  std::span<const Language> languages;
  std::unique_ptr<SandboxProvider> (*make)(const Surroundings&) = nullptr;
  // What the schema cannot say; invalid_argument names the field. May be null.
  Result<void> (*check)(const json::object& config) = nullptr;
  // Can be used as it is, with nothing stored.
  bool works_unconfigured = false;
};

Kind local_kind();             // local.cc
Kind atoll_kind();             // remote.cc
Kind e2b_kind();               // remote.cc
Kind executor_manager_kind();  // executor_manager.cc
Kind aliyun_kind();            // aliyun.cc

// Schema and check together: the config with its defaults.
Result<json::object> validate(const Kind& kind, const json::object& config);

}  // namespace atl::providers
