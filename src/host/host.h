// The seam between the engine and the machine it runs on: flat functions with scalar arguments.
//
// Natively they are a thin layer over webgpu.h (host/native); in the browser each is a wasm import that
// web/engine.js provides under the same name. Nothing above this file knows which of the two it runs on.
//
// Sizes and offsets travel as double (exact up to 2^53), so that no BigInt is made per call.
// [waits] marks calls that block until the GPU or the page answers; in wasm they suspend the program.
// A Handle of 0 means failure; `error` then says why.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __wasm__
#define RULLAMA_HOST(name) __attribute__((import_module("host"), import_name(#name))) extern "C"
#else
#define RULLAMA_HOST(name) extern "C"
#endif

namespace rullama::host {

using Handle = std::uintptr_t;

struct BindEntry {  // read by the page's glue at byte offsets 0, 4, 8, 16
  std::uint32_t binding;
  std::uint32_t reserved;
  double offset;
  double size;
  Handle buffer;
};

enum Usage : std::uint32_t {  // the numbers of WebGPU's GPUBufferUsage
  kMapRead = 0x1,
  kCopySrc = 0x4,
  kCopyDst = 0x8,
  kUniform = 0x40,
  kStorage = 0x80,
};

// --- adapters and devices
// One line per adapter: index, tab, name, tab, backend, tab, kind (discrete, integrated, cpu, unknown), tab, driver.
// Returns the length of the whole text; writes at most `cap` bytes.                                        [waits]
RULLAMA_HOST(adapters) std::size_t rullama_host_adapters(char* out, std::size_t cap);
// `selector`: "" the best adapter, "N" the adapter of that index, else a part of its name.                 [waits]
RULLAMA_HOST(device_open) Handle rullama_host_device_open(const char* selector, std::size_t length);
// WebGPU's limit by its JavaScript name ("maxStorageBufferBindingSize"), or "subgroupMinSize", "subgroupMaxSize".
RULLAMA_HOST(device_limit) double rullama_host_device_limit(Handle device, const char* name, std::size_t length);
// 1 if the device has a feature ("shader-f16", "subgroups", "timestamp-query", "subgroup-matrix") or a WGSL
// language extension ("packed_4x8_integer_dot_product").
RULLAMA_HOST(device_feature) int rullama_host_device_feature(Handle device, const char* name, std::size_t length);
// "name", "backend", "kind", "driver", "vendor", "subgroup-matrices" (lines "f16 f32 16 16 16").
RULLAMA_HOST(device_text)
std::size_t rullama_host_device_text(Handle device, const char* what, std::size_t length, char* out, std::size_t cap);
// The first error since the last call (validation, out of memory, device lost), and forgets it. Empty: none.
// With device 0: the error of the last failed device_open or adapters call.
RULLAMA_HOST(error) std::size_t rullama_host_error(Handle device, char* out, std::size_t cap);
RULLAMA_HOST(device_close) void rullama_host_device_close(Handle device);

// --- buffers (zero-initialised). A failed allocation returns 0 and sets `error`.                          [waits]
RULLAMA_HOST(buffer_create) Handle rullama_host_buffer_create(Handle device, double bytes, std::uint32_t usage);
RULLAMA_HOST(buffer_release) void rullama_host_buffer_release(Handle device, Handle buffer);
// Ordered with submissions. `bytes` is a multiple of 4, `at` too.
RULLAMA_HOST(buffer_write)
void rullama_host_buffer_write(Handle device, Handle buffer, double at, const void* src, std::size_t bytes);
// Fetches bytes as the work submitted so far leaves them; more may be submitted before they are there. Each read is
// finished once: 1 if it went well and the bytes are in `dst`; null: they are not wanted.       [read_finish waits]
RULLAMA_HOST(read_start)
Handle rullama_host_read_start(Handle device, Handle buffer, double at, std::size_t bytes);
RULLAMA_HOST(read_finish) int rullama_host_read_finish(Handle device, Handle read, void* dst);

// --- pipelines. Entry point `main`; the binding layout follows from the WGSL. All errors are reported here. [waits]
RULLAMA_HOST(pipeline_create)
Handle rullama_host_pipeline_create(Handle device, const char* wgsl, std::size_t length, const char* label,
                                    std::size_t label_length);
RULLAMA_HOST(pipeline_release) void rullama_host_pipeline_release(Handle device, Handle pipeline);
RULLAMA_HOST(bind_group_create)
Handle rullama_host_bind_group_create(Handle device, Handle pipeline, const BindEntry* entries, std::size_t count);
RULLAMA_HOST(bind_group_release) void rullama_host_bind_group_release(Handle device, Handle group);

// --- work. Dispatches between begin and finish become one command buffer; they share compute passes and run in order.
RULLAMA_HOST(begin) void rullama_host_begin(Handle device);
RULLAMA_HOST(dispatch)
void rullama_host_dispatch(Handle device, Handle pipeline, Handle group, std::uint32_t x, std::uint32_t y,
                           std::uint32_t z);
RULLAMA_HOST(finish) Handle rullama_host_finish(Handle device);
// Runs a command buffer, once: the handle is gone afterwards. It may have been made long before.
RULLAMA_HOST(submit) void rullama_host_submit(Handle device, Handle commands);
RULLAMA_HOST(commands_release) void rullama_host_commands_release(Handle device, Handle commands);  // instead
// Waits for all submitted work.                                                                            [waits]
RULLAMA_HOST(idle) void rullama_host_idle(Handle device);
// Profiling: while `dispatches` > 0, each of the next that many dispatches gets its own pass with time stamps;
// timing_read gives their nanoseconds after the submission and returns how many there are.                 [waits]
RULLAMA_HOST(timing_start) int rullama_host_timing_start(Handle device, std::uint32_t dispatches);
RULLAMA_HOST(timing_read) std::size_t rullama_host_timing_read(Handle device, double* nanoseconds, std::size_t cap);

// --- files of the page (OPFS); natively the engine reads files itself.                         [file_open waits]
#ifdef __wasm__
RULLAMA_HOST(file_open) Handle rullama_host_file_open(const char* name, std::size_t length);
RULLAMA_HOST(file_size) double rullama_host_file_size(Handle file);
RULLAMA_HOST(file_read) double rullama_host_file_read(Handle file, double at, void* dst, std::size_t bytes);
RULLAMA_HOST(file_close) void rullama_host_file_close(Handle file);
RULLAMA_HOST(yield) void rullama_host_yield();  // lets the page's messages in                              [waits]
#endif
RULLAMA_HOST(now) double rullama_host_now();  // seconds, monotonic

}  // namespace rullama::host
