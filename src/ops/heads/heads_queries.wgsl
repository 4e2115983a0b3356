// A layer without keys and values of its own: queries only.

@group(0) @binding(6) var<uniform> p: Params;

fn bind_cache() {
  _ = &k_norm;
  _ = &factors;
}

fn store_key(at: u32, x: vec2f) {}

fn store_value(at: u32, x: vec2f) {}
