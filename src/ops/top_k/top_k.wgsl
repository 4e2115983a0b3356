// The k best of each run of RUN values of a row, best first, by a workgroup. Values travel between the passes as keys,
// unsigned numbers in their order (top_k.cpp). FIRST: values come in, LAST: values go out. KEEP: a power of two, k or more.

struct Params {
  n: u32,     // values of a row
  runs: u32,  // runs of a row
  all_runs: u32,
  k: u32,
}

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read> kept: array<vec2u>;  // the same memory, after the first pass
@group(0) @binding(2) var<storage, read_write> best: array<vec2u>;
@group(0) @binding(3) var<uniform> p: Params;

const THREADS = 256u;

var<workgroup> pairs: array<vec2u, RUN>;  // key, id; beyond the row a key that no value has

fn key_of(bits: u32) -> u32 {
  if ((bits & 0x7f800000u) == 0x7f800000u) {
    return 0xffffffffu;
  }
  if ((bits & 0x7fffffffu) == 0u) {
    return 0x80000000u;
  }
  return bits ^ select(0x80000000u, 0xffffffffu, bits >> 31u == 1u);
}

fn before(a: vec2u, b: vec2u) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y);
}

// Two pairs, the better one first where bit `up` of their place is not set, else last.
fn order(at: u32, step: u32, up: u32) {
  let a = pairs[at];
  let b = pairs[at + step];
  if (before(b, a) == ((at & up) == 0u)) {
    pairs[at] = b;
    pairs[at + step] = a;
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
  _ = &values;
  _ = &kept;
  let run = group.x + group.y * groups.x;
  if (run >= p.all_runs) {
    return;
  }
  let row = run / p.runs;
  for (var i = thread; i < RUN; i += THREADS) {
    let place = run % p.runs * RUN + i;
    var pair = vec2u(0u, 0xffffffffu);
    if (place < p.n) {
      let at = row * p.n + place;
      if (FIRST) {
        pair = vec2u(key_of(values[at]), place);
      } else {
        pair = kept[at];
      }
    }
    pairs[i] = pair;
  }
  workgroupBarrier();
  // bitonic: KEEP pairs are sorted, every second time the other way round
  for (var size = 2u; size <= KEEP; size *= 2u) {
    for (var step = size / 2u; step > 0u; step /= 2u) {
      for (var i = thread; i < RUN / 2u; i += THREADS) {
        order(2u * i - i % step, step, size);
      }
      workgroupBarrier();
    }
  }
  // of each two that follow each other, `stride` apart, the better half is kept and sorted again
  for (var stride = KEEP; stride < RUN; stride *= 2u) {
    for (var i = thread; i < RUN / 2u / stride * KEEP; i += THREADS) {
      let at = i / KEEP * 2u * stride + i % KEEP;
      let other = pairs[at + stride];
      if (before(other, pairs[at])) {
        pairs[at] = other;
      }
    }
    workgroupBarrier();
    for (var step = KEEP / 2u; step > 0u; step /= 2u) {
      for (var i = thread; i < RUN / 2u / stride * KEEP / 2u; i += THREADS) {
        let half = 2u * i - i % step;
        order(half / KEEP * 2u * stride + half % KEEP, step, 2u * stride);
      }
      workgroupBarrier();
    }
  }
  for (var i = thread; i < p.k; i += THREADS) {
    var pair = pairs[i];
    if (LAST) {
      pair.x ^= select(0xffffffffu, 0x80000000u, pair.x >> 31u == 1u);
    }
    best[run * p.k + i] = pair;
  }
}
