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
