#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "gpu/device.h"
#include "rullama/model.h"

namespace rullama::cli {

namespace {

struct DevicesOptions {
  bool json = false;
};

Json capabilities_json(const gpu::Capabilities& c) {
  Json matrices = Json::array();
  for (const gpu::SubgroupMatrix& m : c.subgroup_matrices)
    matrices.push_back({{"component", m.component}, {"result", m.result}, {"m", m.m}, {"n", m.n}, {"k", m.k}});
  return {{"f16", c.f16},
          {"subgroups", c.subgroups},
          {"subgroup_min", c.subgroup_min},
          {"subgroup_max", c.subgroup_max},
          {"subgroup_matrices", matrices},
          {"packed_dot", c.packed_dot},
          {"timestamps", c.timestamps},
          {"max_binding_bytes", c.max_binding_bytes},
          {"max_buffer_bytes", c.max_buffer_bytes},
          {"workgroup_memory", c.workgroup_memory},
          {"max_invocations", c.max_invocations},
          {"storage_buffers", c.storage_buffers}};
}

std::string capabilities_text(const gpu::Capabilities& c) {
  std::string text = c.f16 ? "f16" : "no f16";
  if (c.subgroups)
    text += cat(", subgroups of ",
                c.subgroup_min == c.subgroup_max ? cat(c.subgroup_max) : cat(c.subgroup_min, " to ", c.subgroup_max));
  if (!c.subgroup_matrices.empty()) text += ", subgroup matrices";
  if (c.packed_dot) text += ", int8 dot";
  return text + cat(", ", bytes_text(static_cast<double>(c.max_binding_bytes)), " a binding, ",
                    bytes_text(static_cast<double>(c.workgroup_memory)), " workgroup memory");
}

Result<> list_devices(const DevicesOptions& options) {
  Json out = {{"devices", Json::array()}};
  for (const DeviceInfo& d : devices()) {
    Json entry = {{"id", d.id}, {"name", d.name}, {"backend", d.backend}, {"kind", d.kind}, {"driver", d.driver}};
    std::string details;
    if (d.id != "cpu") {
      if (const auto device = gpu::Device::open(d.id)) {
        entry["capabilities"] = capabilities_json((*device)->capabilities());
        details = capabilities_text((*device)->capabilities());
      } else {
        entry["error"] = device.error().message;
        details = cat("cannot be opened: ", device.error().message);
      }
    }
    if (!options.json) {
      put(cat(d.id, "\t", d.name, " (", d.backend, ", ", d.kind, d.driver.empty() ? "" : ", " + d.driver, ")\n"));
      if (!details.empty()) put(cat("\t", details, "\n"));
    }
    out["devices"].push_back(std::move(entry));
  }
  if (options.json) put_json(out);
  return {};
}

}  // namespace

void add_devices(CLI::App& app, Task& task) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* command = app.add_subcommand("devices", "The CPU and the GPUs, and what they can do; best first");
  command->add_flag("--json", options->json,
                    "One JSON object: devices (id, name, backend, kind, driver, capabilities)");
  command->footer(
      "Examples:\n  rullama devices\n  rullama run MODEL --device cpu\n  rullama run MODEL --device radeon");
  run_with(command, task, options, list_devices);
}

}  // namespace rullama::cli
