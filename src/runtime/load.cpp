#include "runtime/load.h"

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "base/text.h"

namespace rullama {
namespace {

// Where the per-layer table lies in the file.
HostTable host_table(const Gguf& file) {
  const GgufTensor* tensor = file.tensor("per_layer_token_embd.weight");
  if (!tensor || !tensor->dtype) return {};
  return {file.source(), tensor->offset, {*tensor->dtype, row_major(*tensor)}};
}

// The errors of what is read out of a file name a key or a tensor: here they get the file.
template <class T>
Result<T> in_file(const Gguf& file, Result<T> result) {
  if (!result) result.error().message = cat(quote(file.source()->name(), 200), ": ", result.error().message);
  return result;
}

Result<Tokenizer> tokenizer_of(const Gguf& file, std::optional<std::uint32_t> rows) {
  auto vocabulary = read_vocabulary(file);
  if (!vocabulary) return failed(vocabulary);
  if (rows && vocabulary->tokens.size() != *rows)
    return fail(cat("key 'tokenizer.ggml.tokens' has ", vocabulary->tokens.size(),
                    " entries and tensor 'token_embd.weight' ", *rows, " rows; they must be equal"));
  return Tokenizer::create(std::move(*vocabulary));
}

// Of samples of each tensor: models of one shape, as before and after a training, differ nearly everywhere, and to read
// all of a large file takes long.
Result<std::uint64_t> content_hash(const Gguf& file) {
  constexpr std::uint64_t kSamples = 4, kBytes = 256;
  std::uint64_t h = kFnvBasis;
  std::vector<std::byte> sample;
  for (const GgufTensor& tensor : file.tensors()) {
    sample.resize(std::min(tensor.bytes, kBytes));
    for (std::uint64_t i = 0; i < kSamples; i++) {
      const std::uint64_t at = (tensor.bytes - sample.size()) / (kSamples - 1) * i;
      if (auto ok = file.source()->read(tensor.offset + at, sample); !ok) return failed(ok);
      for (const std::byte b : sample) h = fnv1a(h, std::to_integer<std::uint64_t>(b));
    }
  }
  return h;
}

Result<ModelFile> parts_of(std::shared_ptr<const Gguf> file) {
  auto config = read_gemma_config(*file);
  if (!config) return failed(config);
  if (auto ok = check_gemma_weights(*file, *config, {}); !ok) return failed(ok);
  auto tokenizer = tokenizer_of(*file, config->vocab);
  if (!tokenizer) return failed(tokenizer);
  config->suppressed.assign(tokenizer->suppressed().begin(), tokenizer->suppressed().end());
  return ModelFile{std::move(file), std::move(*config), std::move(*tokenizer)};
}

}  // namespace

Result<Tokenizer> read_tokenizer(const Gguf& file) { return in_file(file, tokenizer_of(file, {})); }

Result<ModelFile> read_model_file(std::shared_ptr<const ByteSource> source) {
  auto read = Gguf::read(std::move(source));
  if (!read) return failed(read);
  const auto file = std::make_shared<const Gguf>(std::move(*read));
  return in_file(*file, parts_of(file));
}

Result<std::shared_ptr<const TextModel>> load_text_model(const ModelFile& file, std::shared_ptr<Backend> backend,
                                                         WeightOptions options) {
  auto text = std::make_shared<TextModel>();
  auto content = content_hash(*file.gguf);
  if (!content) return failed(content);
  text->content = *content;
  text->config = file.config;
  text->backend = std::move(backend);
  text->per_layer_table = host_table(*file.gguf);
  if (!text->backend->is_gpu()) options.per_layer_on_host = false;
  auto weights = load_gemma_weights(*file.gguf, text->config, *text->backend, options);
  if (!weights && weights.error().code == ErrorCode::out_of_memory && file.config.per_layer &&
      !options.per_layer_on_host) {
    options.per_layer_on_host = true;  // the table is often half of the file, and only a row a token is needed
    weights = load_gemma_weights(*file.gguf, text->config, *text->backend, options);
  }
  if (!weights) {
    if (weights.error().code != ErrorCode::out_of_memory) return failed(weights);
    return fail(ErrorCode::out_of_memory,
                cat("the model does not fit on ", text->backend->device_name(), ": its weights take ",
                    bytes_text(static_cast<double>(*check_gemma_weights(*file.gguf, file.config, options))), " (",
                    weights.error().message, "); use a smaller model or --device cpu"));
  }
  text->weights = std::move(*weights);
  return text;
}

}  // namespace rullama
