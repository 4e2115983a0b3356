#include "runtime/sequence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/text.h"

namespace rullama {

// One run of positions of one cache tensor: slot and count, in position order.
struct Sequence::LayerPart {
  TensorPtr tensor;
  std::uint64_t slots = 0, slot_bytes = 0;
  std::uint32_t first = 0, count = 0;  // positions
};

Result<std::unique_ptr<Sequence>> Sequence::make(std::shared_ptr<const TextModel> model, Precision precision,
                                                 std::uint32_t context, std::uint32_t batch, DType kv_type) {
  std::unique_ptr<Sequence> sequence(new Sequence(std::move(model), precision, kv_type));
  if (auto ok = sequence->runner_.make_cache(context, std::min(batch, context), kv_type); !ok) return failed(ok);
  return sequence;
}

Result<> Sequence::check_room(std::size_t more) const {
  if (tokens_.size() + more <= context()) return {};
  return fail(ErrorCode::out_of_memory, cat("the context is full: ", tokens_.size() + more, " tokens are needed and ",
                                            context(), " fit; use a larger --ctx-size or a shorter prompt"));
}

Result<> Sequence::check_ids(std::span<const Token> ids) const {
  for (const Token id : ids)
    if (id >= model_->config.vocab)
      return fail(cat("token id ", id, " is outside the vocabulary of ", model_->config.vocab, " tokens"));
  return {};
}

void Sequence::note_evaluated(std::uint32_t end) {
  evaluated_ = end;
  note_written(end + (runner_.guess() ? 1 : 0));
}

void Sequence::note_written(std::uint32_t written) {
  const KvCache& c = cache();
  for (std::uint32_t i = 0; i < c.layers.size(); i++) {
    if (!c.layers[i].k || !model_->config.layers[i].sliding) continue;
    const auto slots = static_cast<std::uint32_t>(c.layers[i].k->desc().shape[0]);
    if (written > slots) oldest_ = std::max(oldest_, written - slots);
  }
}

Result<> Sequence::evaluate(std::uint32_t best, const std::optional<Draws>& draws, const Cancelled& cancelled) {
  const auto total = static_cast<std::uint32_t>(tokens_.size());
  while (evaluated_ < total) {
    if (cancelled && cancelled()) return fail(ErrorCode::cancelled, "the evaluation of tokens was cancelled");
    const std::uint32_t n = std::min(total - evaluated_, cache().batch);
    const bool last = evaluated_ + n == total;
    const auto ids = std::span(tokens_).subspan(evaluated_, n);
    const bool ranked = last && best > 0;
    logits_valid_ = false, best_valid_ = 0;
    auto ok = ranked ? runner_.run_best(ids, evaluated_, best, best_, draws)
                     : runner_.run(ids, evaluated_, last ? 1 : 0, logits_);
    if (!ok) return note_written(evaluated_ + n + (draws && n == 1)), ok;  // perhaps with a row that went on ahead
    note_evaluated(evaluated_ + n);
    logits_valid_ = last && !ranked;
    best_valid_ = ranked ? best : 0;
  }
  return {};
}

Result<> Sequence::evaluate_rows(std::uint32_t from, const RowSink& row) {
  const auto total = static_cast<std::uint32_t>(tokens_.size());
  const std::uint32_t most = std::min(cache().batch, runner_.max_logit_rows());
  const std::uint32_t vocab = model_->config.vocab;
  while (evaluated_ < total) {
    // rows before `from` need no logits
    const bool quiet = evaluated_ < from;
    const std::uint32_t n = quiet ? std::min(from - evaluated_, cache().batch) : std::min(total - evaluated_, most);
    const auto ids = std::span(tokens_).subspan(evaluated_, n);
    logits_valid_ = false, best_valid_ = 0;
    if (auto ok = runner_.run(ids, evaluated_, quiet ? 0 : n, logits_); !ok) return note_written(evaluated_ + n), ok;
    const std::uint32_t first = evaluated_;
    note_evaluated(evaluated_ + n);
    if (quiet) continue;
    for (std::uint32_t i = 0; i < n; i++) {
      if (row(first + i, std::span(logits_).subspan(static_cast<std::size_t>(i) * vocab, vocab))) continue;
      truncate(first + i + 1);
      return {};
    }
    logits_.erase(logits_.begin(), logits_.end() - vocab);
    logits_valid_ = evaluated_ == total;
  }
  return {};
}

Result<> Sequence::append(std::span<const Token> ids, std::uint32_t best, const std::optional<Draws>& draws,
                          const Cancelled& cancelled) {
  if (ids.empty()) return {};
  if (auto ok = check_ids(ids); !ok) return ok;
  if (auto ok = check_room(ids.size()); !ok) return ok;
  const auto before = static_cast<std::uint32_t>(tokens_.size());
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  auto ok = evaluate(best, draws, cancelled);
  if (!ok) truncate(before);
  return ok;
}

Result<> Sequence::append(std::span<const Token> ids, const RowSink& row) {
  if (auto ok = check_ids(ids); !ok) return ok;
  if (auto ok = check_room(ids.size()); !ok) return ok;
  const auto before = static_cast<std::uint32_t>(tokens_.size());
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  auto ok = evaluate_rows(before, row);
  if (!ok) truncate(before);
  return ok;
}

Result<> Sequence::evaluate_last(std::uint32_t best) {
  if (tokens_.empty()) return fail("there are no logits before the first token");
  if (evaluated_ == tokens_.size()) {
    const std::vector<Token> all = tokens_;
    truncate(static_cast<std::uint32_t>(all.size()) - 1);
    tokens_ = all;
  }
  return evaluate(best);
}

Result<std::span<const float>> Sequence::logits() {
  if (!logits_valid_)
    if (auto ok = evaluate_last(0); !ok) return failed(ok);
  return std::span<const float>(logits_);
}

Result<std::span<const RankedLogit>> Sequence::best_logits(std::uint32_t count) {
  if (best_valid_ < count)
    if (auto ok = evaluate_last(count); !ok) return failed(ok);
  return std::span<const RankedLogit>(best_).first(std::min<std::size_t>(count, best_.size()));
}

// The first position that the row at `next` sees on sliding layers.
std::uint32_t Sequence::first_seen(std::uint32_t next) const {
  const std::uint32_t window = model_->config.window;
  return next + 1 > window ? next + 1 - window : 0;
}

void Sequence::truncate(std::uint32_t length) {
  if (length >= tokens_.size()) return;
  tokens_.resize(length);
  logits_valid_ = false, best_valid_ = 0;
  const std::uint32_t next = std::min(evaluated_, length);
  evaluated_ = oldest_ <= first_seen(next) ? next : 0;
  if (evaluated_ == 0) oldest_ = 0;
}

void Sequence::set_adapters(std::vector<ActiveAdapter> adapters) {
  runner_.set_adapters(std::move(adapters));
  evaluated_ = oldest_ = 0;
  logits_valid_ = false, best_valid_ = 0;
}

std::size_t Sequence::common_prefix(std::span<const Token> ids) const {
  std::size_t n = 0;
  while (n < ids.size() && n < tokens_.size() && ids[n] == tokens_[n]) n++;
  return n;
}

Result<> Sequence::set(std::span<const Token> ids, std::uint32_t best, const Cancelled& cancelled) {
  if (auto ok = check_ids(ids); !ok) return ok;
  const std::size_t common = common_prefix(ids);
  if (ids.size() > context())
    return fail(ErrorCode::out_of_memory, cat("the prompt has ", ids.size(), " tokens and the context ", context(),
                                              "; use a larger --ctx-size or a shorter prompt"));
  truncate(static_cast<std::uint32_t>(common));
  return append(ids.subspan(common), best, {}, cancelled);
}

// --- files: a header, the tokens, each layer's k and v rows in position order for the positions that the writer still
// held, then the logits after the last token, if they were known.

namespace {

constexpr char kMagic[8] = {'r', 'u', 'l', 'l', 'a', 'm', 'k', 'v'};
struct Header {
  char magic[8];
  std::uint32_t version = 2, kv_type = 0;
  std::uint64_t fingerprint = 0;
  std::uint32_t tokens = 0, oldest = 0;  // oldest: position of a sliding layer's first row
  std::uint32_t logits = 0, exact = 0;
};

template <class F>
Result<> for_each_slot_run(std::uint64_t slots, std::uint32_t first, std::uint32_t count, F&& f) {
  for (std::uint32_t done = 0; done < count;) {
    const std::uint64_t slot = (first + done) % slots;
    const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(count - done, slots - slot));
    if (auto ok = f(slot, n); !ok) return ok;
    done += n;
  }
  return {};
}

}  // namespace

std::uint64_t Sequence::fingerprint() const {
  std::uint64_t h = rullama::fingerprint(*model_);
  for (const ActiveAdapter& a : runner_.adapters())
    for (const std::uint64_t v : {a.adapter->fingerprint, std::uint64_t{std::bit_cast<std::uint32_t>(a.strength)}})
      h = fnv1a(h, v);
  return h;
}

std::vector<Sequence::LayerPart> Sequence::parts(const KvCache& cache, std::uint32_t end) const {
  std::vector<LayerPart> parts;
  for (std::uint32_t i = 0; i < cache.layers.size(); i++) {
    if (!cache.layers[i].k) continue;
    for (const TensorPtr& tensor : {cache.layers[i].k, cache.layers[i].v}) {
      const Shape& shape = tensor->desc().shape;
      const std::uint64_t slot_bytes = shape[1] * row_bytes(kv_type_, shape[2]);
      const std::uint32_t first = model_->config.layers[i].sliding ? std::min(oldest_, end) : 0;
      parts.push_back({tensor, shape[0], slot_bytes, first, end - first});
    }
  }
  return parts;
}

Result<> Sequence::save(const Emit& emit) const {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.kv_type = static_cast<std::uint32_t>(kv_type_);
  header.fingerprint = fingerprint();
  header.tokens = evaluated_;
  header.oldest = std::min(oldest_, evaluated_);
  header.logits = logits_valid_ ? model_->config.vocab : 0;
  header.exact = runner_.precision() == Precision::exact;
  if (auto ok = emit(std::as_bytes(std::span(&header, 1))); !ok) return ok;
  if (auto ok = emit(std::as_bytes(std::span(tokens_).first(evaluated_))); !ok) return ok;
  std::vector<std::byte> rows;
  for (const LayerPart& part : parts(cache(), evaluated_)) {
    auto ok =
        for_each_slot_run(part.slots, part.first, part.count, [&](std::uint64_t slot, std::uint32_t n) -> Result<> {
          rows.resize(n * part.slot_bytes);
          if (auto got = model_->backend->read(*part.tensor, slot * part.slot_bytes, rows); !got) return got;
          return emit(rows);
        });
    if (!ok) return ok;
  }
  return logits_valid_ ? emit(std::as_bytes(std::span(logits_))) : Result<>();
}

Result<> Sequence::restore(const ByteSource& file) {
  const auto bad = [&](std::string_view why, std::string_view way_out = "delete it to start anew") {
    return fail(cat("prompt cache ", quote(file.name()), " ", why, "; ", way_out));
  };
  Header header;
  if (file.size() < sizeof header) return bad("is too short");
  if (auto ok = file.read(0, std::as_writable_bytes(std::span(&header, 1))); !ok) return ok;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return bad("is another kind of file", "give the cache another name");
  if (header.version != Header{}.version) return bad("is of another version");
  if (header.fingerprint != fingerprint()) return bad("was made with another model or with other adapters");
  if (header.kv_type != static_cast<std::uint32_t>(kv_type_)) return bad("was made with another --kv-type");
  const bool exact = runner_.precision() == Precision::exact;
  if (header.exact != exact) return bad(exact ? "was made without --exact" : "was made with --exact");
  const std::uint32_t vocab = model_->config.vocab;
  if (header.oldest > header.tokens || (header.logits && (header.logits != vocab || !header.tokens)))
    return bad("is damaged");
  if (header.tokens > context()) return bad(cat("holds ", header.tokens, " tokens and the context is ", context()));
  if (const std::uint32_t seen = first_seen(header.tokens); header.oldest > seen)
    return bad(cat("is damaged: it begins at position ", header.oldest, " and the next token looks back to ", seen));

  const std::uint32_t saved_oldest = oldest_;
  oldest_ = header.oldest;
  const auto all = parts(cache(), header.tokens);
  oldest_ = saved_oldest;
  std::uint64_t expected = sizeof header + 4ull * header.tokens + 4ull * header.logits;
  for (const LayerPart& part : all) expected += part.count * part.slot_bytes;
  if (file.size() != expected) return bad(cat("is ", file.size(), " bytes and should be ", expected));
  std::vector<Token> tokens(header.tokens);
  if (auto ok = file.read(sizeof header, std::as_writable_bytes(std::span(tokens))); !ok) return ok;
  if (auto ok = check_ids(tokens); !ok) return bad("is damaged");
  std::vector<float> logits(header.logits);
  const auto logit_bytes = std::as_writable_bytes(std::span(logits));
  if (auto ok = file.read(file.size() - logit_bytes.size(), logit_bytes); !ok) return ok;
  if (!std::ranges::all_of(logits, [](float l) { return std::isfinite(l); })) return bad("is damaged");

  if (auto ok = runner_.drop_guess(); !ok) return ok;
  truncate(0);
  evaluated_ = 0;
  std::uint64_t at = sizeof header + 4ull * header.tokens;
  std::vector<std::byte> rows;
  for (const LayerPart& part : all) {
    // only what the ring can hold
    const auto skip = static_cast<std::uint32_t>(part.count > part.slots ? part.count - part.slots : 0);
    at += skip * part.slot_bytes;
    auto ok = for_each_slot_run(part.slots, part.first + skip, part.count - skip,
                                [&](std::uint64_t slot, std::uint32_t n) -> Result<> {
                                  rows.resize(n * part.slot_bytes);
                                  if (auto got = file.read(at, rows); !got) return got;
                                  at += rows.size();
                                  return model_->backend->write(*part.tensor, slot * part.slot_bytes, rows);
                                });
    if (!ok) return ok;
  }
  tokens_ = std::move(tokens);
  oldest_ = header.oldest;
  note_evaluated(header.tokens);
  logits_ = std::move(logits);
  logits_valid_ = header.logits > 0;
  return {};
}

Result<> Sequence::shrink(std::uint32_t wanted) {
  const std::uint32_t smaller = std::max({wanted, static_cast<std::uint32_t>(tokens_.size()), 1u});
  if (smaller >= context()) return {};
  std::vector<std::byte> bytes;
  auto saved = save([&](std::span<const std::byte> piece) -> Result<> {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return {};
  });
  if (!saved) return saved;
  const std::vector<Token> tokens = tokens_;
  const std::uint32_t batch = std::min(cache().batch, smaller);
  if (auto ok = runner_.make_cache(smaller, batch, kv_type_); !ok) return ok;
  tokens_.clear();
  evaluated_ = oldest_ = 0;
  logits_valid_ = false, best_valid_ = 0;
  if (auto ok = restore(MemorySource("the session", std::move(bytes))); !ok) return ok;
  tokens_ = tokens;  // what was not evaluated yet is evaluated by the next call
  return {};
}

}  // namespace rullama
