#include "rullama/adapter.h"

#include <filesystem>

#include "api/impl.h"
#include "base/text.h"
#include "host/native/mapped_file.h"
#include "lora/adapter_file.h"

namespace rullama {
namespace {

constexpr std::uint64_t kMostConfig = 16u << 20;  // bytes of an adapter_config.json

Result<AdapterSettings> read_settings(const std::string& path) {
  const auto text = read_text_file(path, kMostConfig);
  if (!text) return std::unexpected(text.error());
  return settings_from_json(*text, path);
}

// The settings are in the file itself (ours), beside it (PEFT's), or nowhere (the Rust program's). What is in the file
// was written with its matrices; adapter_config.json may be that of another adapter in the folder.
Result<Adapter> read_safetensors(std::shared_ptr<const ByteSource> source, const std::filesystem::path& path,
                                 const AdapterHost& host) {
  auto file = Safetensors::read(std::move(source));
  if (!file) return failed(file);
  std::error_code none;
  const std::filesystem::path beside = path.parent_path() / "adapter_config.json";
  const std::string* inside = file->metadata("adapter_config");
  if (!inside && !std::filesystem::exists(beside, none)) return read_adapter(*file, nullptr, host);
  auto settings = inside ? settings_from_json(*inside, path.string()) : read_settings(beside.string());
  if (!settings) return failed(settings);
  return read_adapter(*file, &*settings, host);
}

}  // namespace

Result<LoadedAdapter> Model::load_adapter(const std::string& path) const {
  std::error_code none;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file, none)) file /= "adapter_model.safetensors";
  auto source = open_mapped(file.string());
  if (!source) return failed(source);
  char magic[4] = {};
  if ((*source)->size() >= sizeof magic)
    if (auto ok = (*source)->read(0, std::as_writable_bytes(std::span(magic))); !ok) return failed(ok);
  const AdapterHost host{impl_->text->config, impl_->text->weights, *impl_->text->backend};
  Result<Adapter> adapter;
  if (std::string_view(magic, sizeof magic) == "GGUF") {
    auto gguf = Gguf::read(*source);
    if (!gguf) return failed(gguf);
    adapter = read_adapter(*gguf, host);
  } else {
    adapter = read_safetensors(*source, file, host);
  }
  if (!adapter) return failed(adapter);
  return LoadedAdapter(std::make_shared<const Adapter>(std::move(*adapter)));
}

void Session::set_adapters(std::span<const AdapterUse> adapters) {
  std::vector<ActiveAdapter> active;
  for (const AdapterUse& use : adapters) active.push_back({use.adapter.get(), use.strength});
  impl_->sequence->set_adapters(std::move(active));
}

}  // namespace rullama
