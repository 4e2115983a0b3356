// Where keys and values go: f32, or HALVES.

@group(0) @binding(6) var<storage, read_write> cache_k: array<u32>;
@group(0) @binding(7) var<storage, read_write> cache_v: array<u32>;
@group(0) @binding(8) var<uniform> p: Params;

fn bind_cache() {
  _ = &k_norm;
  _ = &factors;
}

fn halves(x: vec2f) -> u32 {
  return pack2x16float(clamp(x, vec2f(-65504.0), vec2f(65504.0)));
}

fn store_key(at: u32, x: vec2f) {
  if (HALVES) {
    cache_k[at / 2u] = halves(x);
  } else {
    cache_k[at] = bitcast<u32>(x.x);
    cache_k[at + 1u] = bitcast<u32>(x.y);
  }
}

fn store_value(at: u32, x: vec2f) {
  if (HALVES) {
    cache_v[at / 2u] = halves(x);
  } else {
    cache_v[at] = bitcast<u32>(x.x);
    cache_v[at + 1u] = bitcast<u32>(x.y);
  }
}
