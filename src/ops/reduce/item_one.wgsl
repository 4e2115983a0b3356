alias Item = f32;

fn total(v: f32) -> f32 {
  return v;
}

fn largest(v: f32) -> f32 {
  return v;
}
