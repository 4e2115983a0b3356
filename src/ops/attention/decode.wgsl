// The forward job for few queries: a workgroup takes one run of the keys of one key/value head, and QUERIES queries.
//
// From the host: THREADS, WIDTH (p.width), QUERIES, and LINES, the keys whose values are added at a time (THREADS / WIDTH or less).

const KEYS = 32u;               // keys of a step
const PARTS = THREADS / KEYS;   // threads that share a score

var<workgroup> queries: array<vec4f, max(QUERIES, LINES) * WIDTH>;  // at the end: the lines' sums
var<workgroup> partial: array<f32, QUERIES * THREADS>;              // [query][key][part]
var<workgroup> weights: array<f32, QUERIES * KEYS>;
var<workgroup> most: array<f32, QUERIES>;
var<workgroup> sum: array<f32, QUERIES>;
var<workgroup> shrink: array<f32, QUERIES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  _ = &a2;
  let split = group.x;
  let g = group.y;
  let first = group.z * QUERIES;
  let last = min(first + QUERIES, p.rows * p.group) - 1u;
  let range = split_range(key_range_of_rows(first / p.group, last / p.group), split, KEYS);

  for (var i = lane; i < QUERIES * WIDTH; i += THREADS) {
    queries[i] = a1[query_at(min(first + i / WIDTH, last), g) * WIDTH + i % WIDTH];
  }
  if (lane < QUERIES) {
    most[lane] = NONE;
    sum[lane] = 0.0;
  }
  let key = lane / PARTS;
  let column = lane % WIDTH;
  let line = lane / WIDTH;
  var acc = array<vec4f, QUERIES>();
  for (var t0 = range.x; t0 < range.y; t0 += KEYS) {
    let count = min(KEYS, range.y - t0);
    workgroupBarrier();
    var score = array<f32, QUERIES>();
    if (key < count) {
      let at = key_at(t0 + key, g) * WIDTH;
      for (var w = lane % PARTS; w < WIDTH; w += PARTS) {
        let k = wide(b1[at + w]);
        for (var q = 0u; q < QUERIES; q++) {
          score[q] += dot(queries[q * WIDTH + w], k);
        }
      }
    }
    for (var q = 0u; q < QUERIES; q++) {
      partial[q * THREADS + lane] = score[q];
    }
    workgroupBarrier();
    for (var i = lane; i < QUERIES * KEYS; i += THREADS) {
      let t = t0 + i % KEYS;
      var x = NONE;
      if (t < range.y && is_in(t, key_range(min(first + i / KEYS, last) / p.group))) {
        x = 0.0;
        for (var part = 0u; part < PARTS; part++) {
          x += partial[i * PARTS + part];
        }
        x *= p.scale;
      }
      weights[i] = x;
    }
    workgroupBarrier();
    // each query's largest score; the threads of its keys find it once each
    for (var i = lane; i < QUERIES * KEYS; i += THREADS) {
      let q = i / KEYS;
      var larger = most[q];
      for (var j = 0u; j < KEYS; j++) {
        larger = max(larger, weights[q * KEYS + j]);
      }
      partial[i] = larger;
    }
    workgroupBarrier();
    for (var i = lane; i < QUERIES * KEYS; i += THREADS) {
      weights[i] = select(exp(weights[i] - partial[i]), 0.0, weights[i] <= NONE);
    }
    workgroupBarrier();
    if (lane < QUERIES) {
      let larger = partial[lane * KEYS];
      shrink[lane] = exp(most[lane] - larger);
      most[lane] = larger;
      var s = sum[lane] * shrink[lane];
      for (var j = 0u; j < KEYS; j++) {
        s += weights[lane * KEYS + j];
      }
      sum[lane] = s;
    }
    workgroupBarrier();
    if (line < LINES) {
      for (var q = 0u; q < QUERIES; q++) {
        acc[q] *= shrink[q];
      }
      for (var j = line; j < count; j += LINES) {
        let v = wide(b2[key_at(t0 + j, g) * WIDTH + column]);
        for (var q = 0u; q < QUERIES; q++) {
          acc[q] += weights[q * KEYS + j] * v;
        }
      }
    }
  }

  workgroupBarrier();
  for (var q = 0u; q < QUERIES; q++) {
    if (line < LINES) {
      queries[line * WIDTH + column] = acc[q];
    }
    workgroupBarrier();
    let at = query_at(min(first + q, last), g) * p.splits + split;
    if (lane == 0u && first + q <= last) {
      shrink[q] = finish(at, most[q], sum[q]);
    }
    workgroupBarrier();
    if (lane < WIDTH && first + q <= last) {
      var x = queries[lane];
      for (var i = 1u; i < LINES; i++) {
        x += queries[i * WIDTH + lane];
      }
      result[at * WIDTH + lane] = x * shrink[q];
    }
    workgroupBarrier();
  }
}
