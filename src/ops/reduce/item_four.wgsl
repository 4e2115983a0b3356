alias Item = vec4f;

fn total(v: vec4f) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn largest(v: vec4f) -> f32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

const ITEM: u32 = 4u;  // numbers of an item

fn pick(v: vec4f, k: u32) -> f32 {
  return v[k];
}
