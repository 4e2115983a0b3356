// Shared by the two kernels. scores[(t * heads + h) * span + c] belongs to the key t - past + c.

struct Params {
  rows: u32,
  heads: u32,
  d: u32,
  past: u32,
  span: u32,       // keys around a row: past + 1 + future
  distances: u32,  // rows of `relative`
  cap: f32,
}

const NONE = -1.0e30;  // a score that is not there
