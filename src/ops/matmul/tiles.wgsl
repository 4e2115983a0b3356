// Products of many rows: a workgroup of 64 threads does a tile of 64 x 64 results, 8 x 8 a thread, over steps of 32
// terms that are decoded to workgroup memory. Rows of the tiles are swizzled in quads so that lanes meet no bank twice.

var<workgroup> xs: array<vec4f, 512>;  // [64 rows of y][8 quads of terms]
var<workgroup> ws: array<vec4f, 512>;  // forward: [64 columns of y][8 quads of terms]; transposed: [32 terms][16 quads of columns]

fn load_x(m0: u32, r0: u32, terms: u32, lane: u32) {
  for (var i = 0u; i < 8u; i++) {
    if (X_TRANSPOSED) {
      let m = min(m0 + lane, p.m - 1u);
      let r = r0 + i * 4u;
      let at = (p.first + r) * p.x_stride + m;
      let v = vec4f(x1[at], x1[at + p.x_stride], x1[at + 2u * p.x_stride], x1[at + 3u * p.x_stride]);
      xs[lane * 8u + (i ^ (lane & 7u))] = select(vec4f(), v, vec4u(r, r + 1u, r + 2u, r + 3u) < vec4u(terms));
    } else {
      let row = lane / 8u + i * 8u;
      let quad = lane % 8u;
      let start = min(m0 + row, p.m - 1u) * p.x_stride + select(0u, p.first, TRANSPOSED);
      xs[row * 8u + (quad ^ (row & 7u))] = input4(start, r0 / 4u + quad, terms);
    }
  }
}

fn load_w(n0: u32, r0: u32, lane: u32) {
  if (DENSE) {
    for (var i = 0u; i < 8u; i++) {
      let unit = lane + i * 64u;
      if (TRANSPOSED) {
        let r = unit / 16u;
        let quad = unit % 16u;
        ws[r * 16u + (quad ^ (r & 7u))] = decode4(p.row0 + r0 + r, n0 / 4u + quad);
      } else {
        let row = unit / 8u;
        let quad = unit % 8u;
        ws[row * 8u + (quad ^ (row & 7u))] = decode4(p.row0 + n0 + row, r0 / 4u + quad);
      }
    }
    return;
  }
  if (TRANSPOSED) {
    let r = lane / 2u;
    let w = decode32(p.row0 + r0 + r, n0 / 32u + (lane & 1u));
    for (var i = 0u; i < 8u; i++) {
      ws[r * 16u + (((lane & 1u) * 8u + i) ^ (r & 7u))] = w.quads[i];
    }
  } else {
    let w = decode32(p.row0 + n0 + lane, r0 / 32u);
    for (var i = 0u; i < 8u; i++) {
      ws[lane * 8u + (i ^ (lane & 7u))] = w.quads[i];
    }
  }
}

// Which column of the tile component c of a thread's quad is.
fn column(quad: u32, c: u32, tx: u32) -> u32 {
  if (TRANSPOSED) {
    return quad * 32u + tx * 4u + c;
  }
  return (quad * 4u + c) * 8u + tx;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  bind_product();
  let index = group.x + group.y * groups.x;
  let m0 = (index % p.tiles) * 64u;
  let n0 = (index / p.tiles) * 64u;
  let columns = select(p.rows, p.n, TRANSPOSED);
  let terms = select(p.w.columns, p.rows, TRANSPOSED);
  if (n0 >= columns) {
    return;
  }
  let ty = lane / 8u;
  let tx = lane % 8u;
  var sums: array<vec4f, 16>;  // [8 rows][2 quads of columns]
  for (var r0 = 0u; r0 < terms; r0 += 32u) {
    load_x(m0, r0, terms, lane);
    load_w(n0, r0, lane);
    workgroupBarrier();
    for (var step = 0u; step < 8u; step++) {
      var a: array<vec4f, 8>;
      for (var i = 0u; i < 8u; i++) {
        a[i] = xs[(i * 8u + ty) * 8u + (step ^ ty)];
      }
      for (var quad = 0u; quad < 2u; quad++) {
        var b: mat4x4f;  // [term][column]
        if (TRANSPOSED) {
          let r = step * 4u;
          let at = quad * 8u + tx;
          b = mat4x4f(ws[r * 16u + (at ^ (r & 7u))], ws[(r + 1u) * 16u + (at ^ ((r + 1u) & 7u))],
                      ws[(r + 2u) * 16u + (at ^ ((r + 2u) & 7u))], ws[(r + 3u) * 16u + (at ^ ((r + 3u) & 7u))]);
        } else {
          let at = (quad * 32u + tx) * 8u + (step ^ tx);
          b = transpose(mat4x4f(ws[at], ws[at + 64u], ws[at + 128u], ws[at + 192u]));
        }
        for (var i = 0u; i < 8u; i++) {
          sums[i * 2u + quad] += a[i].x * b[0] + a[i].y * b[1] + a[i].z * b[2] + a[i].w * b[3];
        }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < 8u; i++) {
    let m = m0 + i * 8u + ty;
    for (var j = 0u; j < 8u; j++) {
      let n = n0 + column(j / 4u, j % 4u, tx);
      if (m < p.m && n < columns) {
        finish(m * p.n + select(p.first, 0u, TRANSPOSED) + n, sums[i * 2u + j / 4u][j % 4u]);
      }
    }
  }
}
