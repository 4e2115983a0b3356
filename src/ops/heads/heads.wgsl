// Projections to heads: a row of LANES is one head of one token. Keys and values go to their cache (heads_cache.wgsl).

struct Params {
  heads: u32,     // T times the heads of a token, queries, keys and values
  q_heads: u32,
  kv_heads: u32,  // 0: queries only
  columns: u32,   // heads of a token in `projected`
  d: u32,
  slots: u32,
  position_scale: f32,
  eps: f32,
  all_bits: u32,  // 0xffffffff
}

@group(0) @binding(0) var<storage, read> projected: array<f32>;
@group(0) @binding(1) var<storage, read> q_norm: array<f32>;
@group(0) @binding(2) var<storage, read> k_norm: array<f32>;
@group(0) @binding(3) var<storage, read> positions: array<u32>;
@group(0) @binding(4) var<storage, read> factors: array<f32>;
@group(0) @binding(5) var<storage, read_write> q: array<f32>;

struct Head {
  base: u32,     // of its projection
  key: bool,
  position: u32,
  inverse: f32,  // of the root mean square
}

fn normed(h: Head, i: u32) -> f32 {
  let x = projected[h.base + i] * h.inverse;
  if (h.key) {
    return x * k_norm[i];
  }
  return x * q_norm[i];
}

// Element i of a query or key.
fn turned(h: Head, i: u32) -> f32 {
  let x = normed(h, i);
  if (i >= 2u * HALF) {
    return x;
  }
  if (i >= HALF) {
    let t = turn_of(i - HALF, h.position);
    return normed(h, i - HALF) * t.y + x * t.x;
  }
  let t = turn_of(i, h.position);
  return x * t.x - normed(h, i + HALF) * t.y;
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  bind_cache();
  let row = row_of(group.x + group.y * groups.x, index);
  let lane = lane_of(index);
  if (row >= p.heads) {
    return;
  }
  let per_token = p.q_heads + 2u * p.kv_heads;
  let token = row / per_token;
  let head = row % per_token;
  var column = head;
  if (column >= p.columns) {
    column -= p.kv_heads;  // the keys' projections serve as values
  }
  var h = Head((token * p.columns + column) * p.d, head >= p.q_heads, positions[token], 1.0);
  var squares = 0.0;
  for (var i = lane; i < p.d; i += LANES) {
    let x = projected[h.base + i];
    squares += x * x;
  }
  h.inverse = 1.0 / sqrt(row_sum(vec2f(squares, 0.0), lane).x / f32(p.d) + p.eps);
  if (head < p.q_heads) {
    let to = (token * p.q_heads + head) * p.d;
    for (var i = lane; i < p.d; i += LANES) {
      q[to + i] = turned(h, i);
    }
    return;
  }
  let own = (head - p.q_heads) % p.kv_heads;
  let slot = (h.position % p.slots * p.kv_heads + own) * p.d;
  let value = head >= p.q_heads + p.kv_heads;
  if (value && !VALUE_NORM) {
    h.inverse = 1.0;
  }
  for (var i = 2u * lane; i < p.d; i += 2u * LANES) {
    if (value) {
      store_value(slot + i, vec2f(projected[h.base + i], projected[h.base + i + 1u]) * h.inverse);
    } else {
      store_key(slot + i, vec2f(turned(h, i), turned(h, i + 1u)));
    }
  }
}
