// Products of several rows of x on CPU drivers, where a subgroup is a vector of the processor and a load is one for each
// of its lanes. A thread does ROWS rows of w for BATCH rows of x. Four terms of LANES rows of x are one load, a row to each
// lane; broadcasts then give each of them to all lanes. Sums are variables by name, which stay in registers; all other
// loops stay loops: larger code, most of it loads, takes longer to compile and leaves the processor's first cache.

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32, @builtin(subgroup_invocation_id) lane: u32) {
  bind_product();
  let index = group.x + group.y * groups.x;
  let m0 = (index % p.tiles) * BATCH;
  let n0 = (index / p.tiles) * (THREADS * ROWS) + thread;
  //@for l in LOADS
  let start_$l = min(m0 + $lu * LANES + lane, p.m - 1u) * p.x_stride;
  //@for b in LANES
  //@for r in ROWS
  var sum_$r_$l_$b = 0.0;
  //@end
  //@end
  //@end
  for (var block = 0u; block < p.w.blocks; block++) {
    //@for r in ROWS
    var open_$r = open32(p.row0 + n0 + $ru * THREADS, block);
    //@end
    for (var quad = 0u; quad < 8u; quad++) {
      //@for r in ROWS
      let w_$r = next4(&open_$r, quad);
      //@end
      //@for l in LOADS
      let x_$l = input4(start_$l, block * 8u + quad, p.w.columns);
      //@for b in LANES
      {
        let x = subgroupBroadcast(x_$l, $bu);
        //@for r in ROWS
        sum_$r_$l_$b = sum_$r_$l_$b + w_$r.x * x.x + w_$r.y * x.y + w_$r.z * x.z + w_$r.w * x.w;
        //@end
      }
      //@end
      //@end
    }
  }
  var sums: array<f32, ROWS * BATCH>;
  //@for l in LOADS
  //@for b in LANES
  //@for r in ROWS
  sums[$ru * BATCH + $lu * LANES + $bu] = sum_$r_$l_$b;
  //@end
  //@end
  //@end
  for (var m = m0; m < min(m0 + BATCH, p.m); m++) {
    for (var r = 0u; r < ROWS; r++) {
      let n = n0 + r * THREADS;
      if (n < p.rows) {
        finish(m * p.n + p.first + n, sums[r * BATCH + m - m0]);
      }
    }
  }
}
