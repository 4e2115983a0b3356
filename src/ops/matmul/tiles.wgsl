// Products of many rows: a workgroup of 256 threads does a tile of 64 x 64 results, 4 x 4 a thread, over steps of 32
// terms that are decoded to workgroup memory: of quantised types, 64 threads decode w while the others load x. Rows of the
// tiles are swizzled in quads so that lanes meet no bank twice. The sums are variables by name: in an array they may end
// up in memory. The rows of a tile are those of tile_rows.wgsl.

var<workgroup> xs: array<vec4f, 512>;  // [64 rows of y][8 quads of terms]
var<workgroup> ws: array<vec4f, 512>;  // forward: [64 columns of y][8 quads of terms]; transposed: [32 terms][16 quads of columns]

const LOADERS = select(192u, 256u, DENSE);  // threads that load x

fn load_x(rows: TileRows, r0: u32, terms: u32, thread: u32) {
  for (var unit = thread; unit < 512u; unit += LOADERS) {
    if (X_TRANSPOSED) {
      let row = unit % 64u;
      let quad = unit / 64u;
      let m = min(rows.first + row, rows.end - 1u);
      let r = r0 + quad * 4u;
      let at = (p.first + r) * p.x_stride + m;
      let v = vec4f(x1[at], x1[at + p.x_stride], x1[at + 2u * p.x_stride], x1[at + 3u * p.x_stride]);
      xs[row * 8u + (quad ^ (row & 7u))] = select(vec4f(), v, vec4u(r, r + 1u, r + 2u, r + 3u) < vec4u(terms));
    } else {
      let row = unit / 8u;
      let quad = unit % 8u;
      let start = x_row(min(rows.first + row, rows.end - 1u)) * p.x_stride + select(0u, p.first, TRANSPOSED);
      xs[row * 8u + (quad ^ (row & 7u))] = input4(start, r0 / 4u + quad, terms);
    }
  }
}

fn load_w(row0: u32, n0: u32, r0: u32, lane: u32) {
  if (DENSE) {
    for (var unit = lane; unit < 512u; unit += 256u) {
      if (TRANSPOSED) {
        let r = unit / 16u;
        let quad = unit % 16u;
        ws[r * 16u + (quad ^ (r & 7u))] = decode4(row0 + r0 + r, n0 / 4u + quad);
      } else {
        let row = unit / 8u;
        let quad = unit % 8u;
        ws[row * 8u + (quad ^ (row & 7u))] = decode4(row0 + n0 + row, r0 / 4u + quad);
      }
    }
    return;
  }
  if (TRANSPOSED) {
    let r = lane / 2u;
    let w = decode32(row0 + r0 + r, n0 / 32u + (lane & 1u));
    //@for i in 8
    ws[r * 16u + (((lane & 1u) * 8u + $iu) ^ (r & 7u))] = w.quads[$i];
    //@end
  } else {
    let w = decode32(row0 + n0 + lane, r0 / 32u);
    //@for i in 8
    ws[lane * 8u + ($iu ^ (lane & 7u))] = w.quads[$i];
    //@end
  }
}

// A thread's four results of a row: every 16th column of the tile, or four in a row (TRANSPOSED). Of one of several
// splits, y is [m][splits][columns].
fn store(place: u32, end: u32, n0: u32, split: u32, tx: u32, columns: u32, sums: vec4f) {
  if (place >= end) {
    return;
  }
  let m = y_row(place);
  for (var j = 0u; j < 4u; j++) {
    let n = n0 + select(j * 16u + tx, tx * 4u + j, TRANSPOSED);
    if (n >= columns) {
      continue;
    }
    if (p.splits > 1u) {
      y[(m * p.splits + split) * columns + n] = sums[j];
    } else {
      finish(m * p.n + select(p.first, 0u, TRANSPOSED) + n, sums[j]);
    }
  }
}

// Terms 4 step to 4 step + 3 of a thread's four columns: [term][column].
fn columns_of(step: u32, tx: u32) -> mat4x4f {
  if (TRANSPOSED) {
    let r = step * 4u;
    return mat4x4f(ws[r * 16u + (tx ^ (r & 7u))], ws[(r + 1u) * 16u + (tx ^ ((r + 1u) & 7u))],
                   ws[(r + 2u) * 16u + (tx ^ ((r + 2u) & 7u))], ws[(r + 3u) * 16u + (tx ^ ((r + 3u) & 7u))]);
  }
  let at = tx * 8u + (step ^ (tx & 7u));
  return transpose(mat4x4f(ws[at], ws[at + 128u], ws[at + 256u], ws[at + 384u]));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) thread: u32) {
  bind_product();
  let split = (group.x + group.y * groups.x) % p.splits;
  let index = (group.x + group.y * groups.x) / p.splits;
  let rows = tile_rows(index % p.tiles, 64u);
  let n0 = (index / p.tiles) * 64u;
  let columns = select(p.rows, p.n, TRANSPOSED);
  let terms = select(select(p.w.columns, p.rows, TRANSPOSED), 0u, rows.none);
  if (n0 >= columns || rows.first >= rows.end) {
    return;
  }
  let ty = thread / 16u;
  let tx = thread % 16u;
  var s0 = vec4f();
  var s1 = vec4f();
  var s2 = vec4f();
  var s3 = vec4f();
  let steps = (terms + 31u) / 32u;
  let end = min(terms, (split + 1u) * steps / p.splits * 32u);
  for (var r0 = split * steps / p.splits * 32u; r0 < end; r0 += 32u) {
    if (DENSE) {
      load_w(rows.row0, n0, r0, thread);
      load_x(rows, r0, terms, thread);
    } else if (thread < 64u) {
      load_w(rows.row0, n0, r0, thread);
    } else {
      load_x(rows, r0, terms, thread - 64u);
    }
    workgroupBarrier();
    for (var step = 0u; step < 8u; step++) {
      let b = columns_of(step, tx);
      let at = ty * 8u + (step ^ (ty & 7u));
      s0 += b * xs[at];
      s1 += b * xs[at + 128u];
      s2 += b * xs[at + 256u];
      s3 += b * xs[at + 384u];
    }
    workgroupBarrier();
  }
  store(rows.first + ty, rows.end, n0, split, tx, columns, s0);
  store(rows.first + ty + 16u, rows.end, n0, split, tx, columns, s1);
  store(rows.first + ty + 32u, rows.end, n0, split, tx, columns, s2);
  store(rows.first + ty + 48u, rows.end, n0, split, tx, columns, s3);
}
