// row.wgsl with queries, and the row's own key and value where OWN, out of its projections: RMS norm and rotary positions
// as in heads.wgsl. Every workgroup makes what it needs; one per key/value head writes the key and value to the cache, to
// a slot that the others do not read. The host gives b1 and b2, store(), narrow(), which makes a Stored,
// OWN, VALUE_NORM, and HALF, a multiple of 4, with what turn.wgsl needs.

const bounds = array<u32, 1>(0u);

@group(0) @binding(0) var<storage, read> projected: array<vec4f>;
@group(0) @binding(2) var<storage, read> q_norm: array<vec4f>;
@group(0) @binding(5) var<storage, read> positions: array<u32>;
@group(0) @binding(6) var<storage, read> factors: array<f32>;
@group(0) @binding(7) var<storage, read_write> result: array<Result>;
@group(0) @binding(8) var<storage, read> k_norm: array<vec4f>;
@group(0) @binding(9) var<uniform> p: Params;

const FOURS = HALF / 4u;  // elements of a half that turns
const JOBS = QUERIES + select(0u, 2u, OWN);

var<workgroup> own: array<vec4f, 2u * PADDED>;  // key, value
var<workgroup> cosines: array<vec4f, FOURS>;
var<workgroup> sines: array<vec4f, FOURS>;

fn stored_range() -> vec2u {
  let range = key_range(0u);
  return vec2u(range.x, range.y - select(0u, 1u, OWN));
}

fn square(head: u32, piece: u32, part: u32) -> f32 {
  let w = piece * LANES + part;
  if (piece >= PIECES || w >= WIDTH) {
    return 0.0;
  }
  let x = projected[head * WIDTH + w];
  return dot(x, x);
}

// 1 / root mean square of a head of `projected`.
fn inverse_of(head: u32, part: u32) -> f32 {
  let squares = square(head, 0u, part) + square(head, 1u, part) + square(head, 2u, part) + square(head, 3u, part);
  return 1.0 / sqrt(subgroupAdd(squares) / f32(4u * WIDTH) + p.eps);
}

fn normed(head: u32, w: u32, inverse: f32, key: bool) -> vec4f {
  let x = projected[head * WIDTH + w] * inverse;
  if (key) {
    return x * k_norm[w];
  }
  return x * q_norm[w];
}

// Element w of a query or key.
fn turned(head: u32, w: u32, inverse: f32, key: bool) -> vec4f {
  let x = normed(head, w, inverse, key);
  if (w >= 2u * FOURS) {
    return x;
  }
  let cosine = cosines[w % FOURS];
  let sine = sines[w % FOURS];
  if (w >= FOURS) {
    return normed(head, w - FOURS, inverse, key) * sine + x * cosine;
  }
  return x * cosine - normed(head, w + FOURS, inverse, key) * sine;
}

// Element w of the row's own key (or value), also to the cache.
fn give_own(at: u32, w: u32, key: bool, made: vec4f, writes: bool) {
  let x = narrow(made);
  own[select(PADDED, 0u, key) + w] = wide(x);
  if (writes) {
    store(at + w, key, x);
  }
}

// The queries, and the key and value, by a subgroup each where there are as many.
fn load_row(g: u32, first: u32, last: u32, writes: bool, lane: u32) {
  _ = &factors;
  _ = &k_norm;
  let position = positions[0];
  for (var i = lane; i < HALF; i += THREADS) {
    let turn = turn_of(i, position);
    cosines[i / 4u][i % 4u] = turn.x;
    sines[i / 4u][i % 4u] = turn.y;
  }
  workgroupBarrier();
  let part = lane % LANES;
  let key = p.heads + g;
  let value = select(key, key + p.kv_heads, p.columns > p.heads + p.kv_heads);
  let at = (position % p.slots * p.kv_heads + g) * WIDTH;
  for (var j = 0u; j < JOBS; j += TEAMS) {
    let job = j + lane / LANES;
    let head = select(select(value, key, job == QUERIES), min(first + job, last), job < QUERIES);
    let inverse = inverse_of(head, part);
    for (var w = part; w < PADDED && job < JOBS; w += LANES) {
      if (job < QUERIES) {
        var x = vec4f(0.0);
        if (w < WIDTH) {
          x = turned(head, w, inverse, false);
        }
        queries[job * PADDED + w] = x;
      } else if (w < WIDTH) {
        if (job == QUERIES) {
          give_own(at, w, true, turned(head, w, inverse, true), writes);
        } else {
          give_own(at, w, false, projected[head * WIDTH + w] * select(1.0, inverse, VALUE_NORM), writes);
        }
      }
    }
  }
}

fn own_column(at: u32, piece: u32, part: u32) -> mat4x4f {
  let w = piece * LANES + part;
  if (piece >= PIECES || w >= WIDTH) {
    return mat4x4f();
  }
  let none = vec4f(0.0);
  return mat4x4f(own[at + w], none, none, none);
}
fn own_key(piece: u32, part: u32) -> mat4x4f {
  return own_column(0u, piece, part);
}
fn own_value(piece: u32, part: u32) -> mat4x4f {
  return own_column(PADDED, piece, part);
}
