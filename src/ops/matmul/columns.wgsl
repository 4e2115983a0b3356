// Transposed products without barriers, for CPU drivers and for experts. A thread does 32 columns of BATCH rows of y.
// Experts: y[m] = sum over the `share` pairs of row m of w[ids[pair]]^T x[pair].

fn coefficient(m: u32, r: u32) -> f32 {
  if (X_TRANSPOSED) {
    return x1[(p.first + r) * p.x_stride + m];
  }
  return x1[m * p.x_stride + p.first + r];
}

fn store(m: u32, block: u32, sums: Values32) {
  let count = min(p.n - block * 32u, 32u);
  for (var i = 0u; i < count; i++) {
    finish(m * p.n + block * 32u + i, sums.quads[i / 4u][i % 4u]);
  }
}

fn experts(m: u32, block: u32) {
  var sums: Values32;
  for (var pair = m * p.share; pair < (m + 1u) * p.share; pair++) {
    let id = ids[pair];
    if (id >= p.experts) {
      continue;
    }
    for (var j = 0u; j < p.rows; j++) {
      let row = id * p.rows + j - p.part;
      if (row < p.w.rows) {
        let w = decode32(row, block);
        let a = x1[pair * p.rows + j];
        for (var i = 0u; i < 8u; i++) {
          sums.quads[i] += a * w.quads[i];
        }
      }
    }
  }
  store(m, block, sums);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  bind_product();
  let index = (group.x + group.y * groups.x) * 64u + lane;
  let block = index % p.w.blocks;
  let m = index / p.w.blocks * BATCH;
  if (m >= p.m) {
    return;
  }
  if (EXPERTS) {
    experts(m, block);
    return;
  }
  var sums: array<Values32, BATCH>;
  for (var r = 0u; r < p.rows; r++) {
    let w = decode32(p.row0 + r, block);
    for (var b = 0u; b < BATCH; b++) {
      let a = coefficient(min(m + b, p.m - 1u), r);
      for (var i = 0u; i < 8u; i++) {
        sums[b].quads[i] += a * w.quads[i];
      }
    }
  }
  for (var b = 0u; b < BATCH; b++) {
    if (m + b < p.m) {
      store(m + b, block, sums[b]);
    }
  }
}
