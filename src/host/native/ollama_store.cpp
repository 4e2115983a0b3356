#include "host/native/ollama_store.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "base/text.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kDefaultHost = "registry.ollama.ai", kDefaultNamespace = "library", kDefaultTag = "latest";
constexpr std::string_view kLayerPrefix = "application/vnd.ollama.image.";
constexpr std::uintmax_t kMaxText = 4u << 20;  // bytes of a manifest, system prompt or parameter list

// The four parts of a name, which are the path of its manifest.
using Name = std::array<std::string, 4>;

// A part becomes a piece of a path, so it must not lead elsewhere.
bool valid_part(std::string_view part) {
  return !part.empty() && part.size() <= 255 && part != "." && part != ".." && part.find_first_of("/\\") == part.npos &&
         part.find('\0') == part.npos;
}

std::optional<Name> parse_name(std::string_view text) {
  if (const auto scheme = text.find("://"); scheme != text.npos) text.remove_prefix(scheme + 3);
  Name name{std::string(kDefaultHost), std::string(kDefaultNamespace), "", std::string(kDefaultTag)};
  const auto slash = text.rfind('/');
  if (const auto colon = text.rfind(':'); colon != text.npos && (slash == text.npos || colon > slash)) {
    name[3] = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  name[2] = slash == text.npos ? text : text.substr(slash + 1);
  if (slash != text.npos) {
    std::string_view front = text.substr(0, slash);
    const auto first = front.find('/');
    if (first != front.npos) {
      name[0] = front.substr(0, first);
      front.remove_prefix(first + 1);
    }
    name[1] = front;
  }
  return std::all_of(name.begin(), name.end(), valid_part) ? std::optional(name) : std::nullopt;
}

std::string short_name(const Name& name) {
  std::string out;
  if (name[0] != kDefaultHost) out += name[0] + "/";
  if (name[0] != kDefaultHost || name[1] != kDefaultNamespace) out += name[1] + "/";
  return out + name[2] + ":" + name[3];
}

std::optional<std::string> small_file(const fs::path& path) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  if (failed || size > kMaxText) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) return std::nullopt;
  return text;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A digest is "sha256:" and 64 hexadecimal digits; the blob's file name has a dash for the colon.
std::optional<fs::path> blob_path(const fs::path& root, std::string digest) {
  if (digest.size() != 71 || !digest.starts_with("sha256:")) return std::nullopt;
  if (digest.find_first_not_of("0123456789abcdef", 7) != digest.npos) return std::nullopt;
  digest[6] = '-';
  return root / "blobs" / digest;
}

Result<StoredModel> read_manifest(const fs::path& root, const fs::path& manifest, const Name& name) {
  const std::string shown = short_name(name);
  const auto text = small_file(manifest);
  if (!text) return fail(ErrorCode::io, cat("the manifest ", manifest.string(), " of ", shown, " cannot be read"));
  const auto parsed = parse_json<json>(*text);
  if (!parsed || !parsed->is_object() || !parsed->contains("layers") || !(*parsed)["layers"].is_array())
    return fail(
        cat("the manifest ", manifest.string(), " of ", shown, " is damaged; `ollama pull ", shown, "` mends it"));
  StoredModel model{.name = shown};
  std::error_code failed;
  for (const json& layer : (*parsed)["layers"]) {
    if (!layer.is_object()) continue;
    const std::string type = text_of(layer, "mediaType");
    const auto blob = blob_path(root, text_of(layer, "digest"));
    if (!blob || !type.starts_with(kLayerPrefix)) continue;
    const std::string_view kind = std::string_view(type).substr(kLayerPrefix.size());
    if (kind == "model" && model.path.empty()) {
      model.path = blob->string();
      model.bytes = fs::file_size(*blob, failed);
      if (failed)
        return fail(ErrorCode::io, cat("the store names ", blob->string(), " for ", shown,
                                       ", and it is not there; `ollama pull ", shown, "` gets it"));
    } else if (kind == "template") {
      model.has_template = true;
    } else if (kind == "system") {
      model.system = small_file(*blob).value_or("");
    } else if (kind == "params") {
      model.parameters = small_file(*blob).value_or("");
    }
  }
  if (model.path.empty()) return fail(ErrorCode::unsupported, cat(shown, " in Ollama's store has no GGUF file"));
  const auto written = fs::last_write_time(manifest, failed);
  if (!failed)
    model.modified =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(written).time_since_epoch())
            .count();
  return model;
}

std::vector<std::string> default_roots() {
  if (const char* set = std::getenv("OLLAMA_MODELS"); set && *set) return {set};
  std::vector<std::string> roots;
  if (const char* home = std::getenv("HOME"); home && *home)
    roots.push_back((fs::path(home) / ".ollama" / "models").string());
  roots.emplace_back("/usr/share/ollama/.ollama/models");
  return roots;
}

}  // namespace

OllamaStore::OllamaStore() : roots_(default_roots()) {}

std::vector<StoredModel> OllamaStore::list() const {
  std::vector<StoredModel> models;
  for (const std::string& root : roots_) {
    const fs::path manifests = fs::path(root) / "manifests";
    std::error_code failed;
    // depth 3 below manifests/: HOST/NAMESPACE/MODEL/TAG
    auto entry = fs::recursive_directory_iterator(manifests, fs::directory_options::skip_permission_denied, failed);
    for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
      if (entry.depth() == 3) entry.disable_recursion_pending();
      std::error_code ignored;
      if (entry.depth() != 3 || !entry->is_regular_file(ignored)) continue;
      Name name;
      auto part = entry->path().end();
      for (std::size_t i = 4; i-- > 0;) name[i] = (--part)->string();
      if (auto model = read_manifest(root, entry->path(), name)) models.push_back(std::move(*model));
    }
  }
  std::stable_sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto same = [](const auto& a, const auto& b) { return a.name == b.name; };
  models.erase(std::unique(models.begin(), models.end(), same), models.end());
  return models;
}

Result<StoredModel> OllamaStore::find(std::string_view text) const {
  const auto name = parse_name(text);
  if (!name) return fail(ErrorCode::not_found, cat(quote(text), " is not a model's name"));
  for (const std::string& root : roots_) {
    const fs::path manifest = fs::path(root) / "manifests" / (*name)[0] / (*name)[1] / (*name)[2] / (*name)[3];
    std::error_code failed;
    if (fs::is_regular_file(manifest, failed)) return read_manifest(root, manifest, *name);
  }
  std::string places;
  for (const std::string& root : roots_) places += (places.empty() ? "" : ", ") + root;
  return fail(ErrorCode::not_found, cat("there is no model ", short_name(*name), " in Ollama's store (", places, ")"));
}

Result<StoredModel> find_model(const std::string& model, const OllamaStore& store) {
  std::error_code failed;
  const fs::path path(model);
  if (fs::is_directory(path, failed)) return fail(cat(quote(model), " is a folder; give the GGUF file in it"));
  if (fs::exists(path, failed))
    return StoredModel{.name = path.filename().string(), .path = model, .bytes = fs::file_size(path, failed)};
  const bool looks_like_path = model.ends_with(".gguf") || model.starts_with("/") || model.starts_with(".");
  if (looks_like_path) return fail(ErrorCode::not_found, cat("there is no file ", quote(model)));
  auto stored = store.find(model);
  if (!stored && stored.error().code == ErrorCode::not_found)
    stored.error().message = cat("there is no file ", quote(model), ", and ", stored.error().message,
                                 "; `rullama list` shows what is there");
  return stored;
}

}  // namespace rullama
