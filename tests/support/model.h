// Tiny models loaded on a backend.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "formats/gguf.h"
#include "host/native/crew.h"
#include "host/native/mapped_file.h"
#include "ops/cpu_backend.h"
#include "ops/gpu_backend.h"
#include "runtime/runner.h"
#include "support/golden.h"
#include "support/gpu_device.h"

namespace rullama::test {

enum class Where { cpu, gpu };

// One backend of each kind for the whole test program. Null if there is no GPU driver and RULLAMA_TEST_NO_GPU accepts
// that.
inline std::shared_ptr<Backend> backend(Where where) {
  static std::map<Where, std::shared_ptr<Backend>> backends;
  auto& known = backends[where];
  if (known) return known;
  if (where == Where::cpu) return known = make_cpu_backend(make_crew());
  auto device = open_gpu_device();
  return device ? known = make_gpu_backend(std::move(device)) : nullptr;
}

inline std::shared_ptr<TextModel> load_model(std::shared_ptr<const ByteSource> source, std::shared_ptr<Backend> backend,
                                             const WeightOptions& options = {}) {
  auto file = Gguf::read(std::move(source));
  if (!file) return ADD_FAILURE() << file.error().message, nullptr;
  auto config = read_gemma_config(*file);
  if (!config) return ADD_FAILURE() << config.error().message, nullptr;
  auto weights = load_gemma_weights(*file, *config, *backend, options);
  if (!weights) return ADD_FAILURE() << weights.error().message, nullptr;
  auto model = std::make_shared<TextModel>();
  model->config = std::move(*config);
  model->weights = std::move(*weights);
  model->backend = std::move(backend);
  if (const GgufTensor* t = file->tensor("per_layer_token_embd.weight"))
    model->per_layer_table = {file->source(), t->offset, {*t->dtype, row_major(*t)}};
  return model;
}

inline std::shared_ptr<TextModel> load_model(const std::string& path, std::shared_ptr<Backend> backend,
                                             const WeightOptions& options = {}) {
  auto source = open_mapped(path);
  if (!source) return ADD_FAILURE() << source.error().message, nullptr;
  return load_model(*source, std::move(backend), options);
}

inline std::shared_ptr<TextModel> load_golden_model(const std::string& name, Where where,
                                                    const WeightOptions& options = {}) {
  auto b = backend(where);
  return b ? load_model(data_path("models/" + name + ".gguf"), b, options) : nullptr;
}

inline std::string place_name(Where where) { return where == Where::cpu ? "cpu" : "gpu"; }

}  // namespace rullama::test
