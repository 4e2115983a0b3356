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
constexpr std::uint32_t kPartThreads = 256;
constexpr std::uint32_t kBusy = 512;  // workgroups over parts that keep a device busy
constexpr std::uint32_t kPieces = 4;  // elements of a row that a lane has at most

struct Form {  // of row.wgsl
  std::uint32_t threads, lanes, queries;

  [[nodiscard]] std::uint64_t memory(const Sizes& n) const {
    const std::uint32_t w = width(n), padded = (w + lanes - 1) / lanes * lanes, teams = threads / lanes;
    return std::uint64_t{16} * (queries * padded + teams * w) + std::uint64_t{8} * queries * teams;
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

// To `parts`, or without any to the op's outputs.
Result<> record_form(const Setup& setup, GpuCall& call, const Sizes& n, const Form& form, std::uint32_t splits,
                     const PartBuffers& parts) {
  const DType stored = call.in[1].desc.dtype;
  const bool split = parts.sums != nullptr;
  const auto source = [&] {
    return with_elements("row", n, stored)
        .enable("subgroups")
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
  };
  const std::string key = cat(key_of("row", n, stored), split ? "_split_" : "_", form.threads, "_", form.lanes, "_",
                              width(n), "_", form.queries);
  const Ranges ranges(setup, call, 3);
  return call.dispatch(key, source,
                       {read(call.in[0]), read(call.in[1]), read(call.in[0]), read(call.in[2]),
                        split ? gpu::write(*parts.stats) : write(call.out[1]), ranges.positions, ranges.bounds,
                        split ? gpu::write(*parts.sums) : write(call.out[0])},
                       Params(setup, n, splits), {splits, n.kv_heads, groups(n, form)});
}

}  // namespace

bool has_row_kernel(const gpu::Capabilities& caps, const Sizes& n) {
  const bool known = caps.subgroups && caps.subgroup_min == caps.subgroup_max && caps.subgroup_max >= 4;
  if (n.rows != 1 || n.d % 4 || caps.is_cpu() || !known || width(n) > kPieces * caps.subgroup_max) return false;
  return n.kv_heads <= caps.max_workgroups && form_of_parts(caps, n).threads > 0;
}

Result<> record_row(const Setup& setup, GpuCall& call, const Sizes& n) {
  const std::uint32_t span = span_of(setup, n);
  if (2 * row_bytes(call.in[1].desc.dtype, n.d) * span <= kOneDispatch) {
    const Form form = form_for(call.caps, n, kOneDispatchThreads, 1);
    return record_form(setup, call, n, form, 1, {});
  }
  const Form form = form_of_parts(call.caps, n);
  const std::uint32_t units = n.kv_heads * groups(n, form);
  const std::uint32_t splits = splits_for(kBusy, units, span, 4 * form.threads / form.lanes);
  auto parts = part_buffers(call, std::uint64_t{n.heads} * splits, n.d, true);
  if (!parts) return failed(parts);
  if (auto ok = record_form(setup, call, n, form, splits, *parts); !ok) return ok;
  return combine(call, n, splits, *parts);
}

}  // namespace rullama::attention_detail
