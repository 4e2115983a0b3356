alias Item = f32;

fn total(v: f32) -> f32 {
  return v;
}

fn largest(v: f32) -> f32 {
  return v;
}

const ITEM: u32 = 1u;

fn pick(v: f32, k: u32) -> f32 {
  return v;
}
