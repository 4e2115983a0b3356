// Of the kernels of attention (common.wgsl) that take q, k and v.

@group(0) @binding(0) var<storage, read> a1: array<Element>;
@group(0) @binding(1) var<storage, read> b1: array<Stored>;
@group(0) @binding(2) var<storage, read> a2: array<Element>;
@group(0) @binding(3) var<storage, read> b2: array<Stored>;
@group(0) @binding(5) var<storage, read> positions: array<u32>;
@group(0) @binding(6) var<storage, read> bounds: array<u32>;
@group(0) @binding(7) var<storage, read_write> result: array<Result>;
@group(0) @binding(8) var<uniform> p: Params;
