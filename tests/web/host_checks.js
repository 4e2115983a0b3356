// Checks of web/host.js without a program: runs in a page, calls the functions as a program would, and returns a list
// of { name, problem }, where the problem is empty if all is well.
import { makeHost } from '/host.js';

const STORAGE = 0x80 | 0x8 | 0x4;  // storage, copied to and from
const DOUBLE_IT = `
@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3u) { values[id.x] = 2u * values[id.x]; }`;

export async function checkHost() {
  const memory = new WebAssembly.Memory({ initial: 4 });
  const host = makeHost(() => memory);
  const u8 = new Uint8Array(memory.buffer), u32 = new Uint32Array(memory.buffer), f64 = new Float64Array(memory.buffer);
  const put = (at, text) => [at, new TextEncoder().encodeInto(text, u8.subarray(at)).written];
  const errorOf = (device) => new TextDecoder().decode(u8.slice(1000, 1000 + host.error(device, 1000, 4000)));
  const bindAt = (at, buffer, size = 0) => {  // BindEntry of binding 0
    u32.fill(0, at / 4, at / 4 + 8);
    f64[at / 8 + 2] = size;
    u32[at / 4 + 6] = buffer;
    return at;
  };
  const results = [];
  const check = async (name, problem) => results.push({ name, problem: await problem().catch((e) => String(e.stack ?? e)) || '' });

  const device = await host.device_open(...put(0, ''));
  if (!device) return [{ name: 'a device opens', problem: errorOf(0) }];

  await check('an adapter that does not exist is refused by name', async () => {
    const handle = await host.device_open(...put(0, 'no such adapter'));
    return handle || !errorOf(0).includes('no such adapter') ? `handle ${handle}` : '';
  });
  await check('limits and features', async () => {
    const limit = (name) => host.device_limit(device, ...put(0, name));
    if (!(limit('maxStorageBufferBindingSize') >= 128 << 20)) return `maxStorageBufferBindingSize is ${limit('maxStorageBufferBindingSize')}`;
    if (limit('noSuchLimit') !== 0) return 'an unknown limit is not 0';
    return host.device_feature(device, ...put(0, 'no-such-feature')) ? 'an unknown feature is there' : '';
  });
  await check('write, dispatch, read', async () => {
    const a = await host.buffer_create(device, 16, STORAGE);
    const pipeline = await host.pipeline_create(device, ...put(0, DOUBLE_IT), ...put(800, 'double it'));
    u32.set([1, 2, 3, 4], 2000);
    host.buffer_write(device, a, 0, 8000, 16);
    const group = host.bind_group_create(device, pipeline, bindAt(4096, a), 1);
    host.begin(device);
    host.dispatch(device, pipeline, group, 1, 1, 1);
    host.dispatch(device, pipeline, group, 1, 1, 1);
    host.submit(device, host.finish(device));
    // what a read gives is what was there when it started
    const first = host.read_start(device, a, 0, 16);
    u32.set([9, 9, 9, 9], 2000);
    host.buffer_write(device, a, 0, 8000, 16);
    const second = host.read_start(device, a, 4, 12);
    const ok = await host.read_finish(device, second, 9016) && await host.read_finish(device, first, 9000);
    const got = [...u32.subarray(2250, 2257)].join(' ');
    host.buffer_release(device, a);
    return ok && got === '4 8 12 16 9 9 9' && !errorOf(device) ? '' : `got ${got}, error '${errorOf(device)}'`;
  });
  await check('an error in WGSL comes with label and line, once', async () => {
    const pipeline = await host.pipeline_create(device, ...put(0, '@compute @workgroup_size(1)\nfn main() {\n  let x: f32 = 1u;\n}'), ...put(800, 'bad kernel'));
    const first = errorOf(device), second = errorOf(device);
    return !pipeline && /bad kernel.*line 3/.test(first) && !second ? '' : `pipeline ${pipeline}, '${first}', '${second}'`;
  });
  await check('a buffer beyond the limit is refused', async () => {
    const buffer = await host.buffer_create(device, 2 ** 45, STORAGE);
    const error = errorOf(device);
    return !buffer && error.includes(String(2 ** 45)) ? '' : `buffer ${buffer}, '${error}'`;
  });
  await check('a wrong binding is reported after a wait', async () => {
    const small = await host.buffer_create(device, 4, 0x8);  // not usable as storage
    const pipeline = await host.pipeline_create(device, ...put(0, DOUBLE_IT), ...put(800, 'double it'));
    host.bind_group_create(device, pipeline, bindAt(4096, small), 1);
    await host.idle(device);
    const error = errorOf(device);
    return error ? '' : 'no error';
  });
  await check('time stamps, where the device has them', async () => {
    if (!host.device_feature(device, ...put(0, 'timestamp-query'))) return host.timing_start(device, 1) ? 'started without the feature' : '';
    const a = await host.buffer_create(device, 16, STORAGE);
    const pipeline = await host.pipeline_create(device, ...put(0, DOUBLE_IT), ...put(800, 'double it'));
    const group = host.bind_group_create(device, pipeline, bindAt(4096, a), 1);
    host.timing_start(device, 2);
    host.begin(device);
    for (let i = 0; i < 3; i++) host.dispatch(device, pipeline, group, 1, 1, 1);
    host.submit(device, host.finish(device));
    const count = await host.timing_read(device, 16384, 2);
    const times = [...f64.subarray(2048, 2050)];
    return count === 2 && times.every((t) => t >= 0 && t < 1e10) && !errorOf(device) ? '' : `${count} times: ${times}`;
  });
  host.device_close(device);
  return results;
}
