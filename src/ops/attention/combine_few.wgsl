// What combine.wgsl does, where parts are few and queries many: a thread is an element of the result and looks through
// the parts by itself. The bindings are those of combine.wgsl.

struct Params {
  queries: u32,
  width: u32,  // elements of a row
  splits: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<Element>;
@group(0) @binding(1) var<storage, read> stats: array<vec2f>;
@group(0) @binding(2) var<storage, read_write> result: array<Element>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let i = (group.x + group.y * groups.x) * GROUP + index;
  let query = i / p.width;
  let w = i % p.width;
  if (query >= p.queries) {
    return;
  }
  let first = query * p.splits;
  var most = -1.0e30;
  for (var part = first; part < first + p.splits; part++) {
    most = max(most, stats[part].x);
  }
  var x = Element();
  var sum = 0.0;
  for (var part = first; part < first + p.splits; part++) {
    let stat = stats[part];
    if (stat.y > 0.0) {  // a part without keys has nothing to give
      let weight = exp(stat.x - most);
      sum += weight * stat.y;
      x += weight * parts[part * p.width + w];
    }
  }
  result[i] = x * select(0.0, 1.0 / sum, sum > 0.0);
  if (w == 0u) {
    lse[query] = select(0.0, most + log(sum), sum > 0.0);
  }
}
