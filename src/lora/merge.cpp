#include "lora/merge.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "formats/gguf_writer.h"
#include "lora/adapter_names.h"

namespace rullama {
namespace {

constexpr std::uint64_t kPiece = 1u << 20;  // elements or bytes in memory at a time

// The change of a tensor as `left` [rows, rank] times `right` [rank, columns].
struct Factors {
  std::vector<float> left, right;
  std::size_t rank = 0;
};

std::vector<float> transposed(const std::vector<float>& m, std::size_t rows, std::size_t columns) {
  std::vector<float> out(m.size());
  for (std::size_t r = 0; r < rows; r++)
    for (std::size_t c = 0; c < columns; c++) out[c * rows + r] = m[r * columns + c];
  return out;
}

Result<std::vector<float>> values_of(const Tensor& tensor, Backend& backend) {
  std::vector<float> values(tensor.desc().shape.elements());
  if (auto ok = backend.read(tensor, 0, std::as_writable_bytes(std::span(values))); !ok) return failed(ok);
  return values;
}

Result<Factors> factors_of(const AdapterPair& pair, float strength, Backend& backend) {
  auto a = values_of(*pair.a, backend), b = values_of(*pair.b, backend);
  if (!a) return failed(a);
  if (!b) return failed(b);
  const std::size_t rank = pair.a->desc().shape[0], in = pair.a->desc().shape[1], out = pair.b->desc().shape[0];
  Factors f{std::move(*b), std::move(*a), rank};
  if (pair.target == Target::embed_tokens)  // the table has a row for each input
    f = {transposed(f.right, rank, in), transposed(f.left, out, rank), rank};
  for (float& v : f.left) v *= pair.scale * strength;
  return f;
}

// A row's buffers, one set for each piece of work.
struct Row {
  explicit Row(std::size_t columns) : before(columns), after(columns), stored(columns) {}
  std::vector<float> before, after, stored;
};

void add_change(std::span<const Factors> factors, std::size_t row, std::span<float> to) {
  for (const Factors& f : factors)
    for (std::size_t r = 0; r < f.rank; r++) {
      const float left = f.left[row * f.rank + r];
      const float* right = f.right.data() + r * to.size();
      for (std::size_t i = 0; i < to.size(); i++) to[i] += left * right[i];
    }
}

double distance(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; i++) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

// Encodes row.after. A block that was nearer to it than what the encoder makes stays as it was: what an adapter does
// not change is the same to the bit, and rounding never takes more than the change.
Result<MergeNorms> encode_row(Row& row, DType from, std::span<const std::byte> old, DType to,
                              std::span<std::byte> out) {
  if (auto ok = encode(to, row.after, out); !ok) return failed(ok);
  const DTypeInfo& type = info(to);
  MergeNorms norms;
  const std::size_t n = type.block_elements;
  type.decode(out.data(), row.after.size() / n, row.stored.data());
  for (std::size_t at = 0, block = 0; at < row.after.size(); at += n, block++) {
    const double change = distance(&row.before[at], &row.after[at], n);
    double rounding = distance(&row.stored[at], &row.after[at], n);
    if (from == to && change <= rounding) {
      std::ranges::copy(old.subspan(block * type.block_bytes, type.block_bytes),
                        out.begin() + static_cast<std::ptrdiff_t>(block * type.block_bytes));
      rounding = change;
    }
    norms.change += change;
    norms.rounding += rounding;
  }
  for (const float v : row.before) norms.weight += static_cast<double>(v) * static_cast<double>(v);
  return norms;
}

// Tells how far it is of what passes to the file.
class Counted final : public ByteSink {
 public:
  Counted(ByteSink& to, const MergeOptions& options, std::uint64_t& done, std::uint64_t total)
      : to_(to), options_(options), done_(done), total_(total) {}
  Result<> write(std::span<const std::byte> data) override {
    if (auto ok = to_.write(data); !ok) return ok;
    done_ += data.size();
    if (options_.progress && !options_.progress(done_, total_))
      return fail(ErrorCode::cancelled, "merging was cancelled");
    return {};
  }

 private:
  ByteSink& to_;
  const MergeOptions& options_;
  std::uint64_t& done_;
  std::uint64_t total_;
};

std::uint64_t rows_of(const GgufTensor& t) { return t.dims[1] * t.dims[2] * t.dims[3]; }

}  // namespace

MergeNorms& MergeNorms::operator+=(const MergeNorms& o) {
  weight += o.weight;
  change += o.change;
  rounding += o.rounding;
  return *this;
}
double MergeNorms::relative_change() const { return weight > 0 ? std::sqrt(change / weight) : 0; }
double MergeNorms::relative_rounding() const { return change > 0 ? std::sqrt(rounding / change) : 0; }

Result<MergePlan> MergePlan::make(const Gguf& file, const GemmaConfig& config, const GemmaWeights& weights,
                                  Backend& backend, std::span<const ActiveAdapter> adapters, MergeOptions options) {
  MergePlan merge(file, backend, std::move(options));
  for (const GgufTensor& t : file.tensors()) merge.outputs_.push_back({.name = t.name, .source = &t, .terms = {}});
  if (auto ok = merge.add_terms(config, weights, adapters); !ok) return failed(ok);
  if (auto ok = merge.choose_types(); !ok) return failed(ok);
  for (const Output& o : merge.outputs_)
    merge.bytes_ += o.terms.empty() ? o.source->bytes : rows_of(*o.source) * row_bytes(o.to, o.source->dims[0]);
  return merge;
}

Result<> MergePlan::add_terms(const GemmaConfig& config, const GemmaWeights& weights,
                              std::span<const ActiveAdapter> adapters) {
  constexpr std::string_view kHead = "output.weight";
  const GgufTensor* embedding = file_.tensor("token_embd.weight");
  for (const ActiveAdapter& each : adapters) {
    for (const AdapterPair& pair : each.adapter->pairs) {
      const std::string name = gguf_weight_name(pair.target, pair.layer);
      if (each.strength * pair.scale == 0) continue;
      const bool head = pair.target == Target::lm_head || pair.target == Target::embed_tokens;
      if (head && embedding && std::ranges::find(outputs_, kHead, &Output::name) == outputs_.end())
        outputs_.push_back({.name = kHead, .source = embedding, .terms = {}, .added = true});
      const auto found = std::ranges::find(outputs_, std::string_view(name), &Output::name);
      if (found == outputs_.end() || !linear_shape(config, weights, pair.target, pair.layer))
        return fail(cat("the model has no tensor ", quote(name), ", which the adapter changes"));
      found->terms.push_back({&pair, each.strength});
    }
  }
  return {};
}

Result<> MergePlan::choose_types() {
  for (Output& o : outputs_) {
    if (o.terms.empty()) continue;
    o.to = options_.type.value_or(*o.source->dtype);
    const DTypeInfo& type = info(o.to);
    if (o.source->dims[0] % type.block_elements)
      return fail(cat("tensor ", quote(o.name), " has rows of ", o.source->dims[0], " elements, and ", type.name,
                      " takes multiples of ", type.block_elements, "; use another --type, such as Q8_0 or F16"));
  }
  return {};
}

Result<std::vector<MergedTensor>> MergePlan::write(ByteSink& sink) const {
  GgufWriter writer(static_cast<std::uint32_t>(file_.alignment()));
  for (const auto& [key, value] : file_.metadata()) writer.set(key, value);
  for (const Output& o : outputs_) {
    const auto dims = std::span(o.source->dims).first(o.source->rank);
    const std::uint32_t type = o.terms.empty() ? o.source->ggml_type : info(o.to).ggml_id;
    if (auto ok = writer.add_tensor(o.name, dims, type); !ok) return failed(ok);
  }
  std::vector<MergedTensor> merged;
  std::uint64_t done = 0;
  const auto written = writer.write(sink, [&](std::size_t index, ByteSink& to) -> Result<> {
    const Output& o = outputs_[index];
    Counted out(to, options_, done, bytes_);
    if (!o.terms.empty() || o.added) {
      const DType from = *o.source->dtype;
      merged.push_back({std::string(o.name), from, o.terms.empty() ? from : o.to, o.added, {}});
    }
    if (o.terms.empty()) return copy(o, out);
    const auto norms = write_changed(o, out);
    if (!norms) return std::unexpected(norms.error());
    merged.back().norms = *norms;
    return {};
  });
  if (!written) return std::unexpected(written.error());
  return merged;
}

Result<> MergePlan::copy(const Output& output, ByteSink& sink) const {
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < output.source->bytes; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPiece, output.source->bytes - at));
    if (auto ok = file_.source()->read(output.source->offset + at, piece); !ok) return ok;
    if (auto ok = sink.write(piece); !ok) return ok;
  }
  return {};
}

Result<MergeNorms> MergePlan::write_changed(const Output& output, ByteSink& sink) const {
  std::vector<Factors> factors;
  for (const Term& term : output.terms) {
    auto made = factors_of(*term.pair, term.strength, backend_);
    if (!made) return failed(made);
    factors.push_back(std::move(*made));
  }
  const GgufTensor& source = *output.source;
  const DType from = *source.dtype;
  const std::size_t columns = source.dims[0], rows = rows_of(source);
  const std::size_t old_bytes = row_bytes(from, columns), new_bytes = row_bytes(output.to, columns);
  const std::size_t most = std::max<std::size_t>(1, kPiece / columns);
  Crew alone;
  Crew& crew = options_.crew ? *options_.crew : alone;
  MergeNorms norms;
  for (std::size_t first = 0; first < rows; first += most) {
    const std::size_t count = std::min(most, rows - first);
    std::vector<std::byte> before(count * old_bytes), after(count * new_bytes);
    if (auto ok = file_.source()->read(source.offset + first * old_bytes, before); !ok) return failed(ok);
    // by row, so that the sums do not depend on the number of threads
    std::vector<Result<MergeNorms>> found(count);
    crew.run(count, 1, [&](std::size_t begin, std::size_t end) {
      Row row(columns);
      for (std::size_t r = begin; r < end; r++) {
        const auto old = std::span(before).subspan(r * old_bytes, old_bytes);
        info(from).decode(old.data(), columns / info(from).block_elements, row.before.data());
        row.after = row.before;
        add_change(factors, first + r, row.after);
        found[r] = encode_row(row, from, old, output.to, std::span(after).subspan(r * new_bytes, new_bytes));
      }
    });
    for (const auto& row : found) {
      if (!row)
        return fail(cat("tensor ", quote(output.name), " cannot be merged: ", row.error().message,
                        "; use a smaller scale of the adapter"));
      norms += *row;
    }
    if (auto ok = sink.write(after); !ok) return failed(ok);
  }
  return norms;
}

}  // namespace rullama
