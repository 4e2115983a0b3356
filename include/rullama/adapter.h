// LoRA adapters: what training adds to a model, in files of their own.
#pragma once

#include <memory>
#include <string>

#include "rullama/result.h"

namespace rullama {

struct Adapter;

// An adapter loaded for one model (Model::load_adapter). Cheap to copy.
class LoadedAdapter {
 public:
  explicit LoadedAdapter(std::shared_ptr<const Adapter> adapter) : adapter_(std::move(adapter)) {}
  [[nodiscard]] const std::shared_ptr<const Adapter>& get() const { return adapter_; }

 private:
  std::shared_ptr<const Adapter> adapter_;
};

// How strongly a session uses an adapter: 0 is the base model, 1 the adapter as it was trained.
struct AdapterUse {
  LoadedAdapter adapter;
  float strength = 1;
};

}  // namespace rullama
