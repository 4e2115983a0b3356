// The forward job for one row: one dispatch over a short history, else parts of it and what combine.wgsl makes of them.
#include <algorithm>
#include <bit>

#include "base/text.h"
#include "ops/attention/attention_gpu.h"

namespace rullama::attention_detail {
namespace {

// Keys and values of a head, in bytes, that one workgroup reads in less time than a second dispatch takes.
constexpr std::uint64_t kOneDispatch = 512u << 10;
constexpr std::uint32_t kOneDispatchThreads = 512;
constexpr std::uint32_t kFewParts = 8;  // that whoever reads them may put together himself
constexpr std::uint32_t kPartThreads = 256;
constexpr std::uint32_t kBusy = 512;  // workgroups over parts that keep a device busy
constexpr std::uint32_t kPieces = 4;  // elements of a row that a lane has at most

struct Form {  // of row.wgsl
  std::uint32_t threads, lanes, queries;

  [[nodiscard]] std::uint64_t memory(const Sizes& n) const {
    const std::uint32_t w = width(n), padded = (w + lanes - 1) / lanes * lanes, teams = threads / lanes;
    return std::uint64_t{16} * ((queries + 2) * padded + teams * w) + std::uint64_t{8} * queries * teams;
  }
};

// The form of at most that many threads that the device has room for; none: 0 threads.
Form form_for(const gpu::Capabilities& caps, const Sizes& n, std::uint32_t threads, std::uint32_t queries) {
  Form form{std::min({threads, caps.max_invocations, 16 * caps.subgroup_max}), caps.subgroup_max, queries};
  while (form.threads >= form.lanes && form.memory(n) > caps.workgroup_memory) form.threads /= 2;
  if (form.threads < form.lanes) form.threads = 0;
  return form;
}

Form form_of_parts(const gpu::Capabilities& caps, const Sizes& n) {
  return form_for(caps, n, kPartThreads, n.group > 1 ? 4 : 1);
}

std::uint32_t groups(const Sizes& n, const Form& form) { return (n.group + form.queries - 1) / form.queries; }

struct HeadParams : Params {  // of row_heads.wgsl
  std::uint32_t columns;
  float position_scale, eps;
  std::uint32_t all_bits = 0xffffffff;
  HeadParams(const Params& params, const Forward& row)
      : Params(params),
        columns(static_cast<std::uint32_t>(row.from.shape()[1] / row.heads->q_norm.shape()[0])),
        position_scale(row.heads->turn.options().position_scale),
        eps(row.heads->eps) {}
};

void add_heads(gpu::Wgsl& source, const RowHeads& heads, DType stored) {
  const std::string_view access = heads.own ? "read_write" : "read";
  source.file("ops/attention/row_heads.wgsl")
      .file("ops/rope/turn.wgsl")
      .file("ops/elementwise/functions.wgsl")
      .constant("HALF", heads.turn.half())
      .constant("FACTORS", heads.factors != nullptr)
      .constant("OWN", heads.own)
      .constant("VALUE_NORM", heads.value_norm)
      .text(heads.turn.table())
      .text(cat("@group(0) @binding(1) var<storage, ", access, "> b1: array<Stored>;"))
      .text(cat("@group(0) @binding(3) var<storage, ", access, "> b2: array<Stored>;"))
      .text(heads.own ? "fn store(at: u32, key: bool, x: Stored) { if (key) { b1[at] = x; } else { b2[at] = x; } }"
                      : "fn store(at: u32, key: bool, x: Stored) {}")
      .text(stored == DType::F16 ? "fn narrow(y: vec4f) -> Stored { let x = clamp(y, vec4f(-65504.0), vec4f(65504.0)); "
                                   "return vec2u(pack2x16float(x.xy), pack2x16float(x.zw)); }"
                                 : "fn narrow(x: vec4f) -> Stored { return x; }");
}

// To `parts`, or without any to the row's outputs.
Result<> record_form(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& row, const Form& form,
                     std::uint32_t splits, const PartBuffers& parts) {
  const DType stored = row.k.desc.dtype;
  const RowHeads* heads = row.heads;
  const bool split = parts.sums != nullptr;
  const auto source = [&] {
    gpu::Wgsl text = with_elements("row", n, stored);
    text.enable("subgroups")
        .file("ops/attention/common.wgsl")
        .file("ops/attention/forward.wgsl")
        .file(form.queries == 1 ? "ops/attention/row_one.wgsl" : "ops/attention/row_four.wgsl")
        .alias("Result", "Element")
        .constant("JOB", 0u)
        .constant("SPLIT", split)
        .constant("THREADS", form.threads)
        .constant("LANES", form.lanes)
        .constant("WIDTH", width(n))
        .constant("QUERIES", form.queries);
    if (heads)
      add_heads(text, *heads, stored);
    else
      text.file("ops/attention/bindings.wgsl").file("ops/attention/row_given.wgsl");
    return text;
  };
  std::string key = cat(key_of("row", n, stored), split ? "_split_" : "_", form.threads, "_", form.lanes, "_", width(n),
                        "_", form.queries);
  const gpu::Grid grid{splits, n.kv_heads, groups(n, form)};
  const Params params(setup, n, splits);
  const gpu::Binding stats = split ? gpu::write(*parts.stats) : write(row.lse);
  const gpu::Binding result = split ? gpu::write(*parts.sums) : write(row.out);
  if (!heads)
    return call.dispatch(key, source,
                         {read(row.from), read(row.k), read(row.from), read(row.v), stats, row.ranges.positions,
                          row.ranges.bounds, result},
                         params, grid);
  key += cat("_heads_", heads->turn.key(), heads->factors ? "_f" : "", heads->own ? "_own" : "",
             heads->value_norm ? "_v" : "");
  const auto cache = [&](const GpuView& view) { return heads->own ? write(view) : read(view); };
  return call.dispatch(key, source,
                       {read(row.from), cache(row.k), read(heads->q_norm), cache(row.v), stats, row.ranges.positions,
                        read(heads->factors ? *heads->factors : row.from), result, read(heads->k_norm)},
                       HeadParams(params, row), grid);
}

}  // namespace

bool has_row_kernel(const gpu::Capabilities& caps, const Sizes& n) {
  const bool known = caps.subgroups && caps.subgroup_min == caps.subgroup_max && caps.subgroup_max >= 4;
  if (n.rows != 1 || n.d % 4 || caps.is_cpu() || !known || width(n) > kPieces * caps.subgroup_max) return false;
  return n.kv_heads <= caps.max_workgroups && form_of_parts(caps, n).threads > 0;
}

Result<> record_row(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& row) {
  const std::uint32_t span = span_of(setup, n);
  if (2 * row_bytes(row.k.desc.dtype, n.d) * span <= kOneDispatch) {
    const Form form = form_for(call.caps, n, kOneDispatchThreads, 1);
    return record_form(setup, call, n, row, form, 1, {});
  }
  const Form form = form_of_parts(call.caps, n);
  const std::uint32_t units = n.kv_heads * groups(n, form);
  const std::uint32_t splits = splits_for(kBusy, units, span, 4 * form.threads / form.lanes);
  auto parts = part_buffers(call, std::uint64_t{n.heads} * splits, n.d, true);
  if (!parts) return failed(parts);
  if (auto ok = record_form(setup, call, n, row, form, splits, *parts); !ok) return ok;
  return combine(call, n, splits, *parts, row.out, row.lse);
}

Result<RowParts> record_row_parts(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& row) {
  const std::uint64_t bytes = 2 * row_bytes(row.k.desc.dtype, n.d) * span_of(setup, n);
  if (bytes > kFewParts * kOneDispatch) return RowParts{};
  const Form form = form_for(call.caps, n, kOneDispatchThreads, 1);
  auto parts = part_buffers(call, std::uint64_t{n.heads} * kFewParts, n.d, true);
  if (!parts) return failed(parts);
  if (auto ok = record_form(setup, call, n, row, form, kFewParts, *parts); !ok) return failed(ok);
  return RowParts{*parts, kFewParts};
}

}  // namespace rullama::attention_detail
