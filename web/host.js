// The functions of src/host/host.h in terms of WebGPU and of the page's private files (OPFS).
// `memory` gives the program's WebAssembly.Memory. It may grow during a wait, so every use makes its view anew.

// Those that return a promise: to the program they are blocking calls (wasm.js).
export const waiting = new Set(['adapters', 'device_open', 'buffer_create', 'read_finish', 'pipeline_create', 'idle',
  'timing_read', 'file_open', 'yield']);

// Matrix units are left out: browsers have them behind a flag, and do not agree on how WGSL spells them.
const FEATURES = {
  'shader-f16': 'shader-f16', 'subgroups': 'subgroups', 'timestamp-query': 'timestamp-query',
};
const LIMITS = ['maxBufferSize', 'maxStorageBufferBindingSize', 'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY', 'maxComputeWorkgroupSizeZ', 'maxComputeWorkgroupsPerDimension'];
const READBACKS = 4;           // buffers for them that are kept
const TIMED_DISPATCHES = 2048; // WebGPU allows 4096 queries in a set
const BIND_ENTRY = 32;         // sizeof(BindEntry)
const NO_GPU = 'this browser offers no WebGPU adapter';

// Firefox looks for finished work every 100 ms or when something is submitted, so an empty list is submitted each
// millisecond for as long as a wait lasts.
const needsPump = typeof navigator !== 'undefined' && /Firefox\//.test(navigator.userAgent);

// A device and what belongs to it: the first error, the open encoder and pass, read-back memory, time stamps.
class Gpu {
  constructor(adapter, device) {
    Object.assign(this, { adapter, device, error: '', lost: '', encoder: null, pass: null, staging: [], timing: null });
    device.onuncapturederror = (event) => this.fail(event.error);
    device.lost.then((info) => { this.lost = info.reason === 'destroyed' ? '' : `the GPU device was lost: ${info.message}`; });
  }
  fail(error) {
    this.error ||= String(error?.message ?? error);
    return 0;
  }
  takeError() {
    const error = this.error || this.lost;
    this.error = '';
    return error;
  }
  async settle(promise) {
    if (!needsPump) return promise;
    const pump = setInterval(() => this.device.queue.submit([]), 1);
    try {
      return await promise;
    } finally {
      clearInterval(pump);
    }
  }
  // What `make` makes, or null after noting the error that came of it.
  async guarded(make) {
    const scopes = ['validation', 'out-of-memory', 'internal'];
    for (const scope of scopes) this.device.pushErrorScope(scope);
    let made = null;
    try {
      made = make();
    } catch (error) {
      this.fail(error);
    }
    const errors = await Promise.all(scopes.map(() => this.device.popErrorScope().catch((error) => error)));
    const error = errors.find((e) => e);
    if (error) this.fail(error);
    return error || this.lost ? null : made;
  }
  endPass() {
    this.pass?.end();
    this.pass = null;
  }
  // Dispatches share a pass, but each of those that are timed has one of its own.
  dispatch(pipeline, group, x, y, z) {
    const t = this.timing, timed = t && t.used < t.count;
    if (timed) {
      this.endPass();
      const at = 2 * t.used++;
      this.pass = this.encoder.beginComputePass(
        { timestampWrites: { querySet: t.set, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 } });
    }
    this.pass ??= this.encoder.beginComputePass();
    this.pass.setPipeline(pipeline);
    this.pass.setBindGroup(0, group);
    this.pass.dispatchWorkgroups(x, y, z);
    if (timed) this.endPass();
  }
  // Copies a range of `buffer` out; finishRead hands it to `use` as an ArrayBuffer that is valid during that call.
  startRead(buffer, at, bytes) {
    const kept = this.staging.findIndex((s) => s.size >= bytes);
    const staging = kept >= 0 ? this.staging.splice(kept, 1)[0]
      : this.device.createBuffer({ size: Math.max(bytes, 65536), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, at, staging, 0, bytes);
    this.device.queue.submit([encoder.finish()]);
    const mapped = staging.mapAsync(GPUMapMode.READ, 0, bytes);
    mapped.catch(() => {});  // it is looked at when the read is finished
    return { staging, bytes, mapped };
  }
  async finishRead({ staging, bytes, mapped }, use) {
    try {
      await this.settle(mapped);
      use(staging.getMappedRange(0, bytes));
      staging.unmap();
      this.staging.push(staging);
      if (this.staging.length > READBACKS) {
        this.staging.sort((a, b) => b.size - a.size);
        this.staging.pop().destroy();
      }
      return 1;
    } catch (error) {
      staging.destroy();
      return this.fail(this.lost || error);
    }
  }
  stopTiming() {
    this.timing?.set.destroy();
    this.timing = null;
  }
}

function kindOf(adapter) {
  return adapter.info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(nameOf(adapter)) ? 'cpu' : 'unknown';
}
function nameOf(adapter) {
  const { description, device, architecture, vendor } = adapter.info;
  return description || [vendor, device || architecture].filter(Boolean).join(' ') || 'WebGPU adapter';
}

export function makeHost(memory) {
  const objects = [null];  // by handle
  const free = [];
  const turn = new MessageChannel();
  const encoder = new TextEncoder(), decoder = new TextDecoder();
  let lastError = '';  // of calls without a device

  const view = (at, length) => new Uint8Array(memory().buffer, at, length);
  const text = (at, length) => decoder.decode(view(at, length));
  const keep = (object) => {
    const handle = free.pop() ?? objects.length;
    objects[handle] = object;
    return handle;
  };
  const drop = (handle) => {
    const object = objects[handle];
    if (handle) free.push(handle);
    objects[handle] = null;
    return object;
  };
  const fail = (error) => {
    lastError = String(error?.message ?? error);
    return 0;
  };
  // Writes as much as fits and returns the length of the whole.
  const give = (string, at, capacity) => {
    const bytes = encoder.encode(string);
    view(at, capacity).set(bytes.subarray(0, capacity));
    return bytes.length;
  };
  const findAdapter = async () =>
    (await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: 'high-performance' })) ?? null;

  return {
    async adapters(out, capacity) {
      const adapter = await findAdapter();
      if (!adapter) return fail(NO_GPU);
      return give(`0\t${nameOf(adapter)}\tWebGPU\t${kindOf(adapter)}\t\n`, out, capacity);
    },
    async device_open(selector, length) {
      const wanted = text(selector, length).toLowerCase();
      try {
        const adapter = await findAdapter();
        if (!adapter) return fail(NO_GPU);
        if (wanted && wanted !== '0' && !nameOf(adapter).toLowerCase().includes(wanted))
          return fail(`no adapter is called "${wanted}"; the browser offers "${nameOf(adapter)}"`);
        const requiredFeatures = Object.values(FEATURES).filter((f) => adapter.features.has(f));
        const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
        return keep(new Gpu(adapter, await adapter.requestDevice({ requiredFeatures, requiredLimits })));
      } catch (error) {
        return fail(error);
      }
    },
    device_limit(device, name, length) {
      const { adapter, device: { limits } } = objects[device], key = text(name, length);
      return limits[key] ?? adapter.info[key] ?? 0;
    },
    device_feature(device, name, length) {
      const key = text(name, length), { features } = objects[device].device;
      return +(features.has(FEATURES[key]) || !!navigator.gpu.wgslLanguageFeatures?.has(key));
    },
    device_text(device, what, length, out, capacity) {
      const { adapter } = objects[device];
      const known = { name: nameOf, backend: () => 'WebGPU', kind: kindOf, driver: () => '',
        vendor: () => adapter.info.vendor };
      return give(known[text(what, length)]?.(adapter) ?? '', out, capacity);
    },
    error(device, out, capacity) {
      const message = device ? objects[device].takeError() : lastError;
      if (!device) lastError = '';
      return Math.min(give(message, out, capacity), capacity);
    },
    device_close(device) {
      const gpu = drop(device);
      gpu?.stopTiming();
      gpu?.device.destroy();
    },

    async buffer_create(device, bytes, usage) {
      const gpu = objects[device], size = Math.max(Math.ceil(bytes / 4) * 4, 4);
      if (size > gpu.device.limits.maxBufferSize)
        return gpu.fail(`a buffer of ${size} bytes is beyond this device's limit of ${gpu.device.limits.maxBufferSize}`);
      const buffer = await gpu.guarded(() => gpu.device.createBuffer({ size, usage }));
      return buffer ? keep(buffer) : 0;
    },
    buffer_release(device, buffer) { drop(buffer)?.destroy(); },  // at once: the collector would come too late
    buffer_write(device, buffer, at, source, bytes) {
      const gpu = objects[device];
      try {
        gpu.device.queue.writeBuffer(objects[buffer], at, view(source, bytes));
      } catch (error) {
        gpu.fail(error);
      }
    },
    read_start(device, buffer, at, bytes) {
      const gpu = objects[device];
      try {
        return keep(gpu.startRead(objects[buffer], at, bytes));
      } catch (error) {
        return gpu.fail(error);
      }
    },
    read_finish: (device, read, target) => read
      ? objects[device].finishRead(drop(read), (range) => target && view(target, range.byteLength).set(new Uint8Array(range)))
      : 0,

    async pipeline_create(device, wgsl, length, labelAt, labelLength) {
      const gpu = objects[device], code = text(wgsl, length), label = text(labelAt, labelLength);
      gpu.device.pushErrorScope('validation');
      const module = gpu.device.createShaderModule({ code, label });
      const invalid = await gpu.device.popErrorScope();
      if (invalid) {
        const { messages } = await module.getCompilationInfo();
        const first = messages.find((m) => m.type === 'error');
        return gpu.fail(first ? `${label}: line ${first.lineNum}: ${first.message}` : `${label}: ${invalid.message}`);
      }
      try {
        const pipeline = await gpu.device.createComputePipelineAsync({ label, layout: 'auto', compute: { module, entryPoint: 'main' } });
        return keep({ pipeline, layout: pipeline.getBindGroupLayout(0) });
      } catch (error) {
        return gpu.fail(`${label}: ${error.message}`);
      }
    },
    pipeline_release(device, pipeline) { drop(pipeline); },
    bind_group_create(device, pipeline, entriesAt, count) {
      const gpu = objects[device], fields = new DataView(memory().buffer, entriesAt, count * BIND_ENTRY);
      const entries = Array.from({ length: count }, (_, i) => {
        const at = i * BIND_ENTRY, size = fields.getFloat64(at + 16, true);
        return {
          binding: fields.getUint32(at, true),
          resource: { buffer: objects[fields.getUint32(at + 24, true)], offset: fields.getFloat64(at + 8, true), size: size || undefined },
        };
      });
      try {
        return keep(gpu.device.createBindGroup({ layout: objects[pipeline].layout, entries }));
      } catch (error) {
        return gpu.fail(error);
      }
    },
    bind_group_release(device, group) { drop(group); },

    begin(device) { objects[device].encoder = objects[device].device.createCommandEncoder(); },
    dispatch(device, pipeline, group, x, y, z) {
      objects[device].dispatch(objects[pipeline].pipeline, objects[group], x, y, z);
    },
    finish(device) {
      const gpu = objects[device];
      gpu.endPass();
      const commands = gpu.encoder.finish();
      gpu.encoder = null;
      return keep(commands);
    },
    submit(device, commands) { objects[device].device.queue.submit([drop(commands)]); },
    commands_release(device, commands) { drop(commands); },
    async idle(device) {
      const gpu = objects[device];
      try {
        await gpu.settle(gpu.device.queue.onSubmittedWorkDone());
      } catch (error) {
        gpu.fail(error);
      }
    },
    timing_start(device, dispatches) {
      const gpu = objects[device];
      gpu.stopTiming();
      if (!dispatches || dispatches > TIMED_DISPATCHES || !gpu.device.features.has('timestamp-query')) return 0;
      gpu.timing = { set: gpu.device.createQuerySet({ type: 'timestamp', count: 2 * dispatches }), count: dispatches, used: 0 };
      return 1;
    },
    async timing_read(device, out, capacity) {
      const gpu = objects[device], count = gpu.timing?.used ?? 0;
      if (!count) return 0;
      const bytes = 16 * count;
      const stamps = gpu.device.createBuffer({ size: bytes, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
      const commands = gpu.device.createCommandEncoder();
      commands.resolveQuerySet(gpu.timing.set, 0, 2 * count, stamps, 0);
      gpu.device.queue.submit([commands.finish()]);
      gpu.stopTiming();
      const ok = await gpu.finishRead(gpu.startRead(stamps, 0, bytes), (range) => {
        const ticks = new BigUint64Array(range), given = Math.min(count, capacity);
        const times = new DataView(memory().buffer, out, 8 * given);
        for (let i = 0; i < given; i++) times.setFloat64(8 * i, Number(ticks[2 * i + 1] - ticks[2 * i]), true);
      });
      stamps.destroy();
      return ok ? count : 0;
    },

    async file_open(name, length) {
      try {
        const folder = await navigator.storage.getDirectory();
        const file = await folder.getFileHandle(text(name, length));
        return keep(await file.createSyncAccessHandle({ mode: 'read-only' }));  // other tabs may read it too
      } catch (error) {
        return fail(error);
      }
    },
    file_size: (file) => objects[file].getSize(),
    file_read(file, at, target, bytes) {
      try {
        return objects[file].read(view(target, bytes), { at });
      } catch (error) {
        return fail(error);
      }
    },
    file_close(file) { drop(file)?.close(); },
    // Only a turn of the task queue lets messages in; a promise that is merely resolved does not.
    yield: () => new Promise((done) => {
      turn.port1.onmessage = done;
      turn.port2.postMessage(0);
    }),
    now: () => performance.now() / 1000,
  };
}
