// Activations as they are. X_ALIGNED: every row starts at a multiple of 16 bytes and has whole vectors.

@group(0) @binding(2) var<storage, read> x1: array<f32>;
@group(0) @binding(3) var<storage, read> x4: array<vec4f>;  // the same numbers

alias Weights = Values32;
alias Inputs = Values32;

fn bind_x() {
  _ = &x1;
  _ = &x4;
}

// Four of the `count` elements that start at `start`, zeros past their end.
fn input4(start: u32, quad: u32, count: u32) -> vec4f {
  let i = quad * 4u;
  if (X_ALIGNED) {
    return select(vec4f(), x4[start / 4u + quad], i < count);
  }
  let at = start + i;
  return select(vec4f(), vec4f(x1[at], x1[at + 1u], x1[at + 2u], x1[at + 3u]), vec4u(i, i + 1u, i + 2u, i + 3u) < vec4u(count));
}

struct Early {
  none: u32,
}

fn load_early(batch: u32, thread: u32) -> Early {
  return Early();
}

fn prepare(early: Early, batch: u32, thread: u32, first: bool) {}

fn inputs(b: u32, row: u32, block: u32) -> Inputs {
  var x: Inputs;
  //@for i in 8
  x.quads[$i] = input4(row * p.x_stride, block * 8u + $iu, p.w.columns);
  //@end
  return x;
}

fn weights(row: u32, block: u32) -> Weights {
  return decode32(row, block);
}

fn dot32(w: Weights, x: Inputs) -> f32 {
  var sums = vec4f();
  //@for i in 8
  sums += w.quads[$i] * x.quads[$i];
  //@end
  return dot(sums, vec4f(1.0));
}
