// ITEMS vectors of a workgroup's activations become 8-bit codes with a scale for each 32, by lanes of a subgroup: eight
// lanes that follow each other have a block.

// Vector i, for all lanes of a subgroup together, and all of them with i of one run; nothing from ITEMS on.
fn keep(i: u32, x: vec4f) {
  let bits = bitcast<vec4u>(x) & vec4u(0x7fffffffu);  // those of what is no number are above all numbers'
  var largest = max(max(bits.x, bits.y), max(bits.z, bits.w));
  //@for j in 3
  largest = max(largest, subgroupShuffleXor(largest, 1u << $ju));
  //@end
  let scale = bitcast<f32>(largest) / 127.0;
  let code = pack(x * select(0.0, 1.0 / scale, scale > 1e-30));
  var sum = sum_of(code);
  //@for j in 3
  sum += subgroupShuffleXor(sum, 1u << $ju);
  //@end
  if (i < ITEMS) {
    codes[i / 4u][i % 4u] = code;
    if (i % 8u == 0u) {
      scales[i / 8u] = vec2f(scale, f32(sum) * scale);
    }
  }
}

fn settle(thread: u32) {
  workgroupBarrier();
}
