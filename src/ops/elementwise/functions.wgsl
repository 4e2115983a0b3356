// Functions that several kernels share. Arguments are clamped where drivers give NaN or infinity for large ones.

fn squared(x: f32) -> f32 {
  return x * x;
}

fn safe_tanh(x: f32) -> f32 {
  return tanh(clamp(x, -10.0, 10.0));
}

fn gelu_tanh(x: f32) -> f32 {
  return safe_tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x));
}

fn gelu(x: f32) -> f32 {
  return 0.5 * x * (1.0 + gelu_tanh(x));
}

fn gelu_slope(x: f32) -> f32 {
  let t = gelu_tanh(x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608 * (1.0 + 0.134145 * x * x);
}

fn sigmoid(x: f32) -> f32 {
  return 1.0 / (1.0 + exp(-clamp(x, -80.0, 80.0)));
}

// Abramowitz and Stegun 7.1.26 has an error of 1.5e-7; near zero the series keeps the relative error small too.
fn erf(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.5) {
    let s = x * x;
    return x * (1.1283791671 + s * (-0.3761263890 + s * (0.1128379167 + s * (-0.0268661706 + s * 0.0052239776))));
  }
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return sign(x) * (1.0 - series * exp(-min(a * a, 80.0)));
}

// (cos, sin) of angles within +-2^17; beyond, something within [-1, 1]. The language's own promise little outside
// [-pi, pi], and an absolute error of 2^-11 within.
fn cos_sin(angle: f32) -> vec2f {
  // The quarter turns are taken off in four parts of pi/2, of which the products with n (17 bits) are exact.
  let n = round(angle * 0.636619772);
  var r = angle - n * 1.5;
  r -= n * 0.0703125;
  r -= n * 0.00048065185546875;
  r = clamp(r - n * 0.0000031749394278692313, -0.8, 0.8);
  let s = r * r;
  let sine = r * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362880.0)))));
  let cosine = 1.0 + s * (-0.5 + s * (1.0 / 24.0 + s * (-1.0 / 720.0 + s * (1.0 / 40320.0 - s * (1.0 / 3628800.0)))));
  switch (u32(i32(n)) & 3u) {
    case 0u: { return vec2f(cosine, sine); }
    case 1u: { return vec2f(-sine, cosine); }
    case 2u: { return vec2f(-cosine, -sine); }
    default: { return vec2f(sine, -cosine); }
  }
}

fn sine(angle: f32) -> f32 {
  return cos_sin(angle).y;
}
