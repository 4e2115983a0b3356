// Convolutions of all layouts. A thread does OUTS channels of the result at PLACES columns of a row, which lie
// `columns` apart. Outs holds OUTS numbers; taps(row, step, k) is tap k of the OUTS rows of w from `row` on.

struct Params {
  w: Weight,
  x_height: u32,
  x_width: u32,
  x_channel_step: u32,
  x_row_step: u32,
  x_column_step: u32,
  y_height: u32,
  y_width: u32,
  y_channel_step: u32,
  y_row_step: u32,
  y_column_step: u32,
  kernel_height: u32,
  kernel_width: u32,
  groups: u32,
  in_channels: u32,   // of a group
  out_channels: u32,
  stride: u32,
  dilation: u32,
  padding_top: u32,
  padding_left: u32,
  columns: u32,  // threads of a row
  blocks: u32,   // of OUTS channels, in all groups
  biased: u32,
}

@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<uniform> p: Params;

struct Place {
  block: u32,
  row: u32,
  column: u32,
}

fn place(thread: u32) -> Place {
  if (BY_CHANNEL) {
    let at = thread / p.blocks;
    return Place(thread % p.blocks, at / p.columns, at % p.columns);
  }
  let at = thread / p.columns;
  return Place(at / p.y_height, at % p.y_height, thread % p.columns);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  bind_weight();
  let at = place((group.x + group.y * groups.x) * 64u + lane);
  if (at.block >= p.blocks || at.row >= p.y_height) {
    return;
  }
  let blocks = (p.out_channels + OUTS - 1u) / OUTS;
  let g = at.block / blocks;
  let first = at.block % blocks * OUTS;  // channel of the group
  let out = g * p.out_channels + first;
  var sums: array<Outs, PLACES>;
  for (var i = 0u; i < p.in_channels; i++) {
    let channel = (g * p.in_channels + i) * p.x_channel_step;
    if (TRANSPOSED) {
      // the taps k that meet this column: column + padding - k is a multiple of the stride
      let shifted = at.column + p.padding_left;
      for (var k = shifted % p.stride; k < p.kernel_width; k += p.stride) {
        let w = taps((g * p.in_channels + i) * p.out_channels + first, 1u, k);
        let start = (i32(shifted) - i32(k)) / i32(p.stride);
        for (var j = 0u; j < PLACES; j++) {
          let column = u32(start) + j * (p.columns / p.stride);
          if (column < p.x_width) {
            sums[j] += x[channel + column * p.x_column_step] * w;
          }
        }
      }
      continue;
    }
    for (var ky = 0u; ky < p.kernel_height; ky++) {
      let row = at.row * p.stride + ky * p.dilation - p.padding_top;  // wraps to a large number above the start
      if (row >= p.x_height) {
        continue;
      }
      let line = channel + row * p.x_row_step;
      for (var k = 0u; k < p.kernel_width; k++) {
        let w = taps((out * p.in_channels + i) * p.kernel_height + ky, p.in_channels * p.kernel_height, k);
        for (var j = 0u; j < PLACES; j++) {
          let column = (at.column + j * p.columns) * p.stride + k * p.dilation - p.padding_left;
          if (column < p.x_width) {
            sums[j] += x[line + column * p.x_column_step] * w;
          }
        }
      }
    }
  }
  for (var o = 0u; o < OUTS && first + o < p.out_channels; o++) {
    var b = 0.0;
    if (p.biased != 0u) {
      b = bias[out + o];
    }
    for (var j = 0u; j < PLACES; j++) {
      let column = at.column + j * p.columns;
      if (column < p.y_width) {
        y[(out + o) * p.y_channel_step + at.row * p.y_row_step + column * p.y_column_step] = part(sums[j], o) + b;
      }
    }
  }
}
